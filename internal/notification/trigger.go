package notification

import (
	"context"
	"crypto/sha1" //nolint:gosec // the name of a condition, in the form in which the annotation has it
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/serin-dev/serin/internal/expression"
)

// trigger is a list of conditions.
type trigger []condition

type condition struct {
	// when must be true; empty: always.
	when string
	// once is evaluated where it is not empty: a message is sent once for each of its values.
	once string
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
		if c.when, err = compiles("when", r.When); err != nil {
			return nil, err
		}
		if c.once, err = compiles("oncePer", r.OncePer); err != nil {
			return nil, err
		}
		all = append(all, c)
	}
	return all, nil
}

// compiles returns an expression that compiles; blank: none.
func compiles(field, text string) (string, error) {
	if strings.TrimSpace(text) == "" {
		return "", nil
	}
	if _, err := expression.Compile(text, expression.Options{}); err != nil {
		return "", fmt.Errorf("%s %q is no expression: %s", field, text, firstLine(err))
	}
	return text, nil
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

// maxOnce bounds the value of oncePer, in bytes: it is stored in an annotation.
const maxOnce = 1 << 10

var (
	errNoTruth     = errors.New("it is neither true nor false")
	errOnceTooLong = fmt.Errorf("its value is longer than %d bytes: use a revision or a time", maxOnce)
)

// evaluate evaluates a condition. One that refers to what does not exist does not hold.
func (c condition) evaluate(ctx context.Context, vars map[string]any) (evaluated, error) {
	out := evaluated{holds: true}
	if c.when != "" {
		value, err := expression.Evaluate(ctx, c.when, expression.Options{}, vars)
		if err != nil {
			return evaluated{}, fmt.Errorf("when %q: %w", c.when, err)
		}
		holds, ok := value.(bool)
		if !ok {
			return evaluated{}, fmt.Errorf("when %q: %w", c.when, errNoTruth)
		}
		out.holds = holds
	}
	if !out.holds || c.once == "" {
		return out, nil
	}
	value, err := expression.Evaluate(ctx, c.once, expression.Options{}, vars)
	if err != nil {
		return evaluated{}, fmt.Errorf("oncePer %q: %w", c.once, err)
	}
	if out.once = fmt.Sprint(value); len(out.once) > maxOnce {
		return evaluated{}, fmt.Errorf("oncePer %q: %w", c.once, errOnceTooLong)
	}
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
