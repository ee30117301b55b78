package canary

import (
	"fmt"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/release"
)

// adoptRun continues a run of another controller at its current step. The window restarts, because Serin did not observe it.
func adoptRun(s Snapshot) Decision {
	e := adoptOtherStatus(s.edit())
	e.serin.Shape, e.serin.Run = s.Plan.runShape().String(), s.run()
	e.addStamps(release.StampSince)
	if s.Plan.HasRouter && s.currentWeight() == 0 {
		e.addStamps(release.StampTrafficEnded) // when the target last had traffic is unknown: it may have been a moment ago
	}
	where := fmt.Sprintf("weight %d", s.currentWeight())
	if s.Plan.Strategy != Weighted {
		where = fmt.Sprintf("iteration %d/%d", s.Status.Iterations, s.Plan.Iterations)
	}
	if s.Workload.NewestTemplateTime.IsZero() && s.Workload.Target.FlaggerHash != s.Status.LastAppliedSpec {
		where += ", assuming that the target runs the recorded revision, which could not be verified"
	}
	if s.currentWeight() > 0 || s.Status.CanaryWeight > 0 || s.Status.Iterations > 0 || s.Route.Mirrored {
		e.serin.Started = true
		e.status.CanaryWeight = s.currentWeight() // Flagger reports none with iterations
		e.status.Iterations = max(s.Status.Iterations, 0)
		e.startWindow()
	}
	return e.addEvents(release.Event{
		Type: release.Normal, Message: fmt.Sprintf("Adopted the release of %s in phase %s at %s", s.Plan.targetName(), s.Status.Phase, where),
	}).decision(nil)
}

// adoptOtherStatus records the state of another controller in status.serin.
func adoptOtherStatus(e *statusEdit) *statusEdit {
	e.serin.Revision, e.serin.Promoted, e.serin.Configs = e.snapshot.pinnedRevision(), e.snapshot.promotedRevision(), e.snapshot.Workload.Configs
	if e.snapshot.Status.Phase == flaggerv1.CanaryPhasePromoting || e.snapshot.Status.Phase == flaggerv1.CanaryPhaseFinalising {
		// The primary already has the template that is not promoted yet.
		e.serin.Promoted = flaggerRevisionPrefix + e.snapshot.Status.LastPromotedSpec
	}
	return e
}
