package canary

import (
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/release"
)

// Message says why Serin does not act on this Canary, and what to do.
func (p OtherController) Message() string {
	return "Flagger acts on this Canary (" + p.Sign + "), so Serin does not: stop Flagger to let Serin continue, " +
		"or start Serin with -adopt-while-peer-runs if the Canaries are divided between the two"
}

// decideBesideOtherController decides while another controller is said to act on this Canary. Nothing is begun, advanced or promoted.
// A release that Serin began is still observed, and still rolls back: whatever the sign of the other controller is worth,
// users must not stay on a broken revision because of it. A Flagger that really takes the release over writes a status
// without Serin's part, and from then on the release is its alone.
func decideBesideOtherController(s Snapshot) Decision {
	if s.Deleting || s.Plan.Suspended || !OwnRelease(s.Status) {
		return yieldToOtherController(s)
	}
	alone := s
	alone.OtherController = OtherController{}
	d := decide(alone)
	_, observes := alone.windowStart()
	switch {
	case isRollingBack(s, d):
	case d.Status.FailedChecks > s.Status.FailedChecks, equality.Semantic.DeepEqual(d.Status, s.Status) && len(d.Stamp) == 0:
		d.Effects = nil
	case observes && !alone.Now.Before(alone.windowEnd()):
		d = alone.edit().openWindow().decision(d.Gates) // the checks passed: the same weight is observed for another window
	default:
		return yieldToOtherController(s)
	}
	d = withUnanswered(alone, withProgress(alone, d))
	other := yieldToOtherController(s)
	d.Gates = slices.Concat(other.Gates, d.Gates)
	d.Events = slices.Concat(other.Events, d.Events)
	return wakeNoLaterThan(d, other.Wake)
}

// OwnRelease is true of the status of a release in progress that Serin began, or took over, and that no other controller
// has written since.
func OwnRelease(status flaggerv1.CanaryStatus) bool {
	switch status.Phase {
	case flaggerv1.CanaryPhaseProgressing, flaggerv1.CanaryPhaseWaitingPromotion, flaggerv1.CanaryPhasePromoting:
		return status.Serin != nil && status.Serin.Revision != ""
	default:
		return false
	}
}

// isRollingBack is true where a rollback begins, goes on or ends, and where the traffic leaves a revision that was replaced.
func isRollingBack(s Snapshot, d Decision) bool {
	if increasesExposure(s, d) {
		return false
	}
	intends := func(status flaggerv1.CanaryStatus) bool {
		return status.Serin != nil && (status.Serin.Intent == intentRollback || status.Serin.Intent == intentCancel)
	}
	failed := s.serin().Intent == "" && s.Status.FailedChecks >= s.Plan.Threshold && s.Status.Phase != flaggerv1.CanaryPhasePromoting
	// A revision that arrives meanwhile must not get the users of the one before it, unobserved.
	replaced := d.Status.Phase == flaggerv1.CanaryPhaseProgressing && s.canaryHasTraffic() && slices.ContainsFunc(d.Effects, removesCanaryTraffic)
	ended := d.Status.Phase == flaggerv1.CanaryPhaseFailed && d.Status.CanaryWeight == 0 // not a promotion that failed
	return intends(s.Status) || intends(d.Status) || failed || replaced || ended
}

// increasesExposure is true of a decision that gives the new revision more than it has.
func increasesExposure(s Snapshot, d Decision) bool {
	switch d.Status.Phase {
	case flaggerv1.CanaryPhaseFinalising:
		return true
	case flaggerv1.CanaryPhasePromoting:
		if s.Status.Phase != flaggerv1.CanaryPhasePromoting {
			return true
		}
	default: // in the others it depends on what is done
	}
	return slices.ContainsFunc(d.Effects, func(effect release.Effect) bool {
		switch effect := effect.(type) {
		case CopyTemplate:
			return true
		case TrafficWeight:
			return effect.Canary > s.liveWeight()
		default:
			return false
		}
	})
}

// yieldToOtherController leaves everything to the other controller, the status included: whoever writes it would make the other
// decide again. It continues automatically when the other controller is gone.
func yieldToOtherController(s Snapshot) Decision {
	gate := release.NewWaitingGate("peer", release.ByUser, s.OtherController.Message())
	gate.Until = s.OtherController.Until
	gates := release.Gates{gate}
	return Decision{
		Status: s.Status, Gates: gates, Wake: gates.Wake(),
		Events: []release.Event{{Type: release.Warning, Message: s.OtherController.Message(), Persistent: true, ObjectOnly: true}},
	}
}
