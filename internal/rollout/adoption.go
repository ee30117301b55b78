package rollout

import (
	"fmt"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/internal/rollout/pods"
)

// AdoptionEvent returns the event about a release that another controller has started, when Serin observes it for the
// first time; false for an idle Rollout, and for a release that Serin has processed before. If the
// CustomResourceDefinition drops status.serin, Serin cannot detect the latter, and repeats the event after each start
// of Serin.
func AdoptionEvent(o *argov1.Rollout) (release.Event, bool) {
	s := o.Status
	if s.Serin != nil && s.Serin.Release == s.CurrentPodHash || s.StableRS == "" || s.CurrentPodHash == "" || s.CurrentPodHash == s.StableRS {
		return release.Event{}, false
	}
	where := fmt.Sprintf("in phase %s", s.Phase)
	if canary := o.Spec.Strategy.Canary; canary != nil {
		if _, ok := pods.StepAt(canary.Steps, s.CurrentStepIndex); ok {
			where += fmt.Sprintf(" at step %d of %d", *s.CurrentStepIndex+1, len(canary.Steps))
		}
		if s.Canary.Weights != nil {
			where += fmt.Sprintf(" with weight %d", s.Canary.Weights.Canary.Weight)
		}
	}
	return release.Event{Type: release.Normal, Reason: "RolloutAdopted", Message: fmt.Sprintf("Adopted the release of %s.%s %s", o.Name, o.Namespace, where)}, true
}
