package experiment

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/release"
)

// maxTemplates limits the templates of an Experiment: a decision about all of them occupies a worker.
const maxTemplates = 100

// ValidateSpec returns the duration of the spec of an Experiment, or the first error in the spec. The text of the error is part of the API.
func ValidateSpec(name string, spec argov1.ExperimentSpec) (time.Duration, error) {
	deadline := int32(defaultProgressDeadline / time.Second)
	if spec.ProgressDeadlineSeconds != nil {
		deadline = *spec.ProgressDeadlineSeconds
	}
	if len(spec.Templates) > maxTemplates {
		return 0, fmt.Errorf("Experiment %s has %d templates, and at most %d are supported", name, len(spec.Templates), maxTemplates) //nolint:staticcheck // as the other texts
	}
	seen := map[string]bool{}
	for i, t := range spec.Templates {
		switch {
		case t.Name == "":
			return 0, fmt.Errorf("Experiment %s has empty template name at index %d", name, i) //nolint:staticcheck // the text is part of the API
		case seen[t.Name]:
			return 0, fmt.Errorf("Experiment %s has repeated template name '%s' in templates", name, t.Name) //nolint:staticcheck // the text is part of the API
		case t.Selector == nil:
			return 0, fmt.Errorf("Rollout has missing field '.Spec.Templates[%d].Selector'", i) //nolint:staticcheck // the text is part of the API
		case len(t.Selector.MatchLabels)+len(t.Selector.MatchExpressions) == 0:
			return 0, fmt.Errorf("This experiment is selecting all pods at index %d. A non-empty selector is required.", i) //nolint:staticcheck // the text is part of the API
		case t.MinReadySeconds > deadline:
			return 0, fmt.Errorf("MinReadySeconds cannot be longer than ProgressDeadlineSeconds. Check template index %d", i)
		}
		seen[t.Name] = true
	}
	if spec.Duration == "" {
		return 0, nil
	}
	duration, err := time.ParseDuration(string(spec.Duration))
	if err != nil {
		return 0, fmt.Errorf("invalid duration string: %w", err)
	}
	return duration, nil
}

// rejectSpec changes nothing except for the condition InvalidSpec, which contains the error.
func rejectSpec(s Snapshot, cause error) Decision {
	o := outcome{gates: release.Gates{release.NewFailedGate("valid", release.ByUser, cause.Error())}}
	status := *s.Status.DeepCopy()
	invalid := argov1.ExperimentCondition{Type: argov1.ExperimentInvalidSpec, Status: corev1.ConditionTrue, Reason: "InvalidSpec", Message: cause.Error()}
	var changed bool
	if status.Conditions, changed = withCondition(status.Conditions, invalid, s.Now); changed {
		o.events = append(o.events, newEvent(release.Warning, "InvalidSpec", cause.Error()))
	}
	return newDecision(status, o)
}

// withoutInvalidSpec returns the status without the condition InvalidSpec.
func withoutInvalidSpec(status argov1.ExperimentStatus) argov1.ExperimentStatus {
	status.Conditions = slices.DeleteFunc(slices.Clone(status.Conditions), func(c argov1.ExperimentCondition) bool { return c.Type == argov1.ExperimentInvalidSpec })
	return status
}

// withCondition returns the conditions with one more, or another value of one, and reports whether that changes them.
func withCondition(conditions []argov1.ExperimentCondition, c argov1.ExperimentCondition, at time.Time) (result []argov1.ExperimentCondition, changed bool) {
	now := metav1.NewTime(at)
	c.LastUpdateTime, c.LastTransitionTime = now, now
	i := slices.IndexFunc(conditions, func(old argov1.ExperimentCondition) bool { return old.Type == c.Type })
	if i < 0 {
		return append(slices.Clip(conditions), c), true
	}
	old := conditions[i]
	if old.Status == c.Status && old.Reason == c.Reason && old.Message == c.Message {
		return conditions, false
	}
	if old.Status == c.Status {
		c.LastTransitionTime = old.LastTransitionTime
	}
	conditions = slices.Clone(conditions)
	conditions[i] = c
	return conditions, true
}

// progressingCondition returns the condition Progressing.
func progressingCondition(name string, status argov1.ExperimentStatus) argov1.ExperimentCondition {
	c := argov1.ExperimentCondition{Type: argov1.ExperimentProgressing, Status: corev1.ConditionTrue}
	switch {
	case status.Phase == argov1.AnalysisPhaseSuccessful:
		c.Reason, c.Message = "NewReplicaSetAvailable", fmt.Sprintf("Experiment %q has successfully ran and completed.", name)
	case status.Phase.Completed():
		c.Status, c.Reason, c.Message = corev1.ConditionFalse, "Experiment"+string(status.Phase), fmt.Sprintf("Experiment %q has ended: %s", name, status.Message)
	case status.Phase == argov1.AnalysisPhaseRunning:
		c.Reason, c.Message = "NewReplicaSetAvailable", fmt.Sprintf("Experiment %q is running.", name)
	default:
		c.Reason, c.Message = "ReplicaSetUpdated", fmt.Sprintf("Experiment %q is progressing.", name)
	}
	return c
}
