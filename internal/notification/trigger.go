package notification

import (
	"context"
	"crypto/sha1" //nolint:gosec // the key of a condition in the annotation, in Argo's format
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
	// when is the expression that must be true; empty: always.
	when string
	// oncePer is the expression of oncePer: a message is sent once for each of its values. It may be empty.
	oncePer   string
	templates []string
	// key identifies the condition in the annotation.
	key string
}

func readTrigger(text string) (trigger, error) {
	var raw []struct {
		When, OncePer string
		Send          []string
	}
	if err := decodeYAML(text, &raw); err != nil {
		return nil, err
	}
	var all trigger
	for i, r := range raw {
		c := condition{templates: r.Send, key: fmt.Sprintf("[%d].%s", i, hashBase64(r.When))}
		var err error
		if c.when, err = checkExpression("when", r.When); err != nil {
			return nil, err
		}
		if c.oncePer, err = checkExpression("oncePer", r.OncePer); err != nil {
			return nil, err
		}
		all = append(all, c)
	}
	return all, nil
}

// checkExpression returns the expression if it compiles; a blank one is returned as empty.
func checkExpression(field, text string) (string, error) {
	if strings.TrimSpace(text) == "" {
		return "", nil
	}
	if _, err := expression.Compile(text, expression.Options{}); err != nil {
		return "", fmt.Errorf("%s %q is not a valid expression: %s", field, text, firstLine(err))
	}
	return text, nil
}

// firstLine returns the first line of an error; the others show the position in the expression as a drawing.
func firstLine(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	return line
}

func hashBase64(text string) string {
	sum := sha1.Sum([]byte(text)) //nolint:gosec // see the import
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// conditionResult is the result of a condition.
type conditionResult struct {
	isTrue  bool
	onceKey string
}

// maxOnceKey bounds the value of oncePer in bytes, because it is stored in an annotation.
const maxOnceKey = 1 << 10

var (
	errNotBoolean  = errors.New("the result is neither true nor false")
	errOnceTooLong = fmt.Errorf("its value is longer than %d bytes: use a revision or a time", maxOnceKey)
)

// evaluate evaluates a condition. It returns an error if the condition refers to a field that does not exist.
func (c condition) evaluate(ctx context.Context, vars map[string]any) (conditionResult, error) {
	out := conditionResult{isTrue: true}
	if c.when != "" {
		value, err := expression.Evaluate(ctx, c.when, expression.Options{}, vars)
		if err != nil {
			return conditionResult{}, fmt.Errorf("when %q: %w", c.when, err)
		}
		holds, ok := value.(bool)
		if !ok {
			return conditionResult{}, fmt.Errorf("when %q: %w", c.when, errNotBoolean)
		}
		out.isTrue = holds
	}
	if !out.isTrue || c.oncePer == "" {
		return out, nil
	}
	value, err := expression.Evaluate(ctx, c.oncePer, expression.Options{}, vars)
	if err != nil {
		return conditionResult{}, fmt.Errorf("oncePer %q: %w", c.oncePer, err)
	}
	if out.onceKey = fmt.Sprint(value); len(out.onceKey) > maxOnceKey {
		return conditionResult{}, fmt.Errorf("oncePer %q: %w", c.oncePer, errOnceTooLong)
	}
	return out, nil
}

// eventReasons are the reasons of all events about a Rollout, and those about an AnalysisRun or an Experiment. A trigger with the name of one is evaluated for that event; any
// other trigger whenever the Rollout changes.
var eventReasons = []string{
	"RolloutAddedToInformer", "RolloutDeleted", "RolloutUpdated", "NewReplicaSetCreated", "ReplicaSetCreateError", "ReplicaSetUpdateError",
	"RolloutNotCompleted", "RolloutCompleted", "RolloutStepCompleted", "RolloutPaused", "RolloutResumed", "RolloutAborted", "SkipSteps",
	"ScalingReplicaSet", "SwitchService", "TrafficWeightUpdated", "TrafficRoutingError", "WeightVerifyError", "TargetGroupVerified",
	"TargetGroupUnverified", "TargetGroupVerifyError", "LoadBalancerNotFound", "CreatingCanaryIngress", "PatchingCanaryIngress",
	"PatchingALBIngress", "TrafficSplitCreated", "TrafficSplitNotCreated", "UpdatedDestinationRule", "AnalysisRunPending", "AnalysisRunRunning",
	"AnalysisRunSuccessful", "AnalysisRunFailed", "AnalysisRunError", "AnalysisRunInconclusive", "ExperimentCreated", "StepPluginTransition",
	"ReconciliationError", "TrafficImbalance", "LeftToArgoRollouts", "RolloutAdopted",
	"MetricSuccessful", "MetricFailed", "MetricError", "MetricInconclusive", "IntervalTooShort", "AnalysisRunTerminating", "InvalidSpec",
	"ExperimentPending", "ExperimentRunning", "ExperimentSuccessful", "ExperimentFailed", "ExperimentError", "ExperimentInconclusive",
	"TemplateProgressing", "TemplateRunning", "TemplateSuccessful", "TemplateFailed", "TemplateError",
}

// TemplatesOf returns the templates of a trigger, a list for each of its conditions.
func (c *Config) TemplatesOf(name string) ([][]string, error) {
	if text := c.problems["trigger."+name]; text != "" {
		return nil, errors.New(Problem{Key: "trigger." + name, Text: text}.String())
	}
	conditions, ok := c.triggers[name]
	if !ok {
		return nil, fmt.Errorf("no trigger %q is configured: add the key trigger.%s, or use one of: %s", name, name, strings.Join(sortedKeys(c.triggers), ", "))
	}
	var all [][]string
	for _, condition := range conditions {
		all = append(all, condition.templates)
	}
	return all, nil
}

// ReasonOf returns the reason of the event that a trigger is evaluated for; empty: it is evaluated for a state.
func ReasonOf(trigger string) string {
	for _, reason := range eventReasons {
		if triggerName(reason) == trigger {
			return reason
		}
	}
	return ""
}

var eventTriggers = func() []string {
	var all []string
	for _, reason := range eventReasons {
		all = append(all, triggerName(reason))
	}
	return all
}()

// isEventTrigger reports whether a trigger has the name of an event.
func isEventTrigger(name string) bool { return slices.Contains(eventTriggers, name) }

// triggerName returns the name of the trigger of an event's reason: on-rollout-completed for RolloutCompleted.
func triggerName(reason string) string {
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
