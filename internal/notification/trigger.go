package notification

import (
	"crypto/sha1" //nolint:gosec // the name of a condition, in the form in which the annotation has it
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/expr-lang/expr"
	"github.com/expr-lang/expr/vm"
)

// maxNodes bounds an expression when it is compiled. What it makes when it runs is bounded by the language.
const maxNodes = 1000

// trigger is a list of conditions.
type trigger []condition

type condition struct {
	// when has to be true; nil: always.
	when *vm.Program
	// once is computed where it is not nil: a message is told once for each of its values.
	once *vm.Program
	send []string
	// key names the condition in the annotation.
	key string
}

func readTrigger(text string) (trigger, error) {
	var raw []struct {
		When, OncePer string
		Send          []string
	}
	if err := decode(text, &raw); err != nil {
		return nil, err
	}
	var all trigger
	for i, r := range raw {
		c := condition{send: r.Send, key: fmt.Sprintf("[%d].%s", i, hash(r.When))}
		var err error
		if c.when, err = compile("when", r.When); err != nil {
			return nil, err
		}
		if c.once, err = compile("oncePer", r.OncePer); err != nil {
			return nil, err
		}
		all = append(all, c)
	}
	return all, nil
}

func compile(field, text string) (*vm.Program, error) {
	if strings.TrimSpace(text) == "" {
		return nil, nil
	}
	program, err := expr.Compile(text, expr.MaxNodes(maxNodes))
	if err != nil {
		return nil, fmt.Errorf("%s %q is no expression: %s", field, text, firstLine(err))
	}
	return program, nil
}

// firstLine leaves the drawing out that the language makes of a mistake.
func firstLine(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	return line
}

func hash(text string) string {
	sum := sha1.Sum([]byte(text)) //nolint:gosec // see the import
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// evaluated is what a condition came to.
type evaluated struct {
	holds bool
	once  string
}

var errNoTruth = errors.New("it is neither true nor false")

// evaluate asks a condition about the variables. One that reaches for what is not there does not hold.
func (c condition) evaluate(vars map[string]any) (evaluated, error) {
	out := evaluated{holds: true}
	if c.when != nil {
		value, err := expr.Run(c.when, vars)
		if err != nil {
			return evaluated{}, fmt.Errorf("when %q: %s", c.when.Source(), firstLine(err))
		}
		holds, ok := value.(bool)
		if !ok {
			return evaluated{}, fmt.Errorf("when %q: %w", c.when.Source(), errNoTruth)
		}
		out.holds = holds
	}
	if !out.holds || c.once == nil {
		return out, nil
	}
	value, err := expr.Run(c.once, vars)
	if err != nil {
		return evaluated{}, fmt.Errorf("oncePer %q: %s", c.once.Source(), firstLine(err))
	}
	out.once = fmt.Sprint(value)
	return out, nil
}

// reasons are those of all events about a Rollout. A trigger that has the name of one is asked when that happens; any
// other whenever the Rollout changes.
var reasons = []string{
	"RolloutAddedToInformer", "RolloutDeleted", "RolloutUpdated", "NewReplicaSetCreated", "ReplicaSetCreateError", "ReplicaSetUpdateError",
	"RolloutNotCompleted", "RolloutCompleted", "RolloutStepCompleted", "RolloutPaused", "RolloutResumed", "RolloutAborted", "SkipSteps",
	"ScalingReplicaSet", "SwitchService", "TrafficWeightUpdated", "TrafficRoutingError", "WeightVerifyError", "TargetGroupVerified",
	"TargetGroupUnverified", "TargetGroupVerifyError", "LoadBalancerNotFound", "CreatingCanaryIngress", "PatchingCanaryIngress",
	"PatchingALBIngress", "TrafficSplitCreated", "TrafficSplitNotCreated", "UpdatedDestinationRule", "AnalysisRunPending", "AnalysisRunRunning",
	"AnalysisRunSuccessful", "AnalysisRunFailed", "AnalysisRunError", "AnalysisRunInconclusive", "ExperimentCreated", "StepPluginTransition",
	"ReconciliationError", "TrafficImbalance", "LeftToArgoRollouts", "RolloutAdopted",
}

var ofEvents = func() []string {
	var all []string
	for _, reason := range reasons {
		all = append(all, triggerOf(reason))
	}
	return all
}()

// ofAnEvent is true of the name of a trigger that an event fires.
func ofAnEvent(name string) bool { return slices.Contains(ofEvents, name) }

// triggerOf is the name of the trigger of a reason: RolloutCompleted is on-rollout-completed.
func triggerOf(reason string) string {
	name := []rune("on")
	letters := []rune(reason)
	for i, r := range letters {
		begins := i == 0 || !unicode.IsUpper(letters[i-1]) || i+1 < len(letters) && !unicode.IsUpper(letters[i+1])
		if unicode.IsUpper(r) && begins {
			name = append(name, '-')
		}
		name = append(name, unicode.ToLower(r))
	}
	return string(name)
}
