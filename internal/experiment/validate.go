package experiment

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/release"
)

// validateSpec returns the duration of a spec, or the first error in the spec. The text of the error is part of the API.
func validateSpec(s Snapshot) (time.Duration, error) {
	deadline := int32(defaultProgressDeadline / time.Second)
	if s.Spec.ProgressDeadlineSeconds != nil {
		deadline = *s.Spec.ProgressDeadlineSeconds
	}
	seen := map[string]bool{}
	for i, t := range s.Spec.Templates {
		switch {
		case t.Name == "":
			return 0, fmt.Errorf("Experiment %s has empty template name at index %d", s.Name, i) //nolint:staticcheck // the text is part of the API
		case seen[t.Name]:
			return 0, fmt.Errorf("Experiment %s has repeated template name '%s' in templates", s.Name, t.Name) //nolint:staticcheck // the text is part of the API
		case t.Selector == nil:
			return 0, fmt.Errorf("Rollout has missing field '.Spec.Templates[%d].Selector'", i) //nolint:staticcheck // the text is part of the API
		case len(t.Selector.MatchLabels)+len(t.Selector.MatchExpressions) == 0:
			return 0, fmt.Errorf("This experiment is selecting all pods at index %d. A non-empty selector is required.", i) //nolint:staticcheck // the text is part of the API
		case t.MinReadySeconds > deadline:
			return 0, fmt.Errorf("MinReadySeconds cannot be longer than ProgressDeadlineSeconds. Check template index %d", i)
		}
		seen[t.Name] = true
	}
	if s.Spec.Duration == "" {
		return 0, nil
	}
	duration, err := time.ParseDuration(string(s.Spec.Duration))
	if err != nil {
		return 0, fmt.Errorf("invalid duration string: %w", err)
	}
	return duration, nil
}

// rejectSpec changes nothing except for the condition InvalidSpec, which contains the error.
func (e *decisionBuilder) rejectSpec(cause error) Decision {
	if e.setCondition(argov1.ExperimentCondition{Type: argov1.ExperimentInvalidSpec, Status: corev1.ConditionTrue, Reason: "InvalidSpec", Message: cause.Error()}) {
		e.addEvent(release.Warning, "InvalidSpec", cause.Error())
	}
	e.addGate(release.NewFailedGate("valid", release.ByUser, cause.Error()))
	return e.decision
}

// clearInvalidSpec removes the condition InvalidSpec.
func (e *decisionBuilder) clearInvalidSpec() {
	kept := e.decision.Status.Conditions[:0:0]
	for _, c := range e.decision.Status.Conditions {
		if c.Type != argov1.ExperimentInvalidSpec {
			kept = append(kept, c)
		}
	}
	e.decision.Status.Conditions = kept
}

// setCondition sets a condition, and reports whether that changes the status.
func (e *decisionBuilder) setCondition(c argov1.ExperimentCondition) bool {
	now := metav1.NewTime(e.snapshot.Now)
	c.LastUpdateTime, c.LastTransitionTime = now, now
	all := e.decision.Status.Conditions
	for i, old := range all {
		if old.Type != c.Type {
			continue
		}
		if old.Status == c.Status && old.Reason == c.Reason && old.Message == c.Message {
			return false
		}
		if old.Status == c.Status {
			c.LastTransitionTime = old.LastTransitionTime
		}
		all[i] = c
		return true
	}
	e.decision.Status.Conditions = append(all, c)
	return true
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
