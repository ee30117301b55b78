package canary

import (
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/release"
)

// Message explains why Serin does not act on this Canary, and what to do.
func (o OtherController) Message() string {
	return "Flagger acts on this Canary (" + o.Sign + "), so Serin does not: stop Flagger to let Serin continue, " +
		"or start Serin with -adopt-while-peer-runs if the Canaries are divided between the two"
}

// IsOwnRelease reports whether a status is that of a release in progress that Serin started or took over, and that no other
// controller has written since.
func IsOwnRelease(status flaggerv1.CanaryStatus) bool {
	switch status.Phase {
	case flaggerv1.CanaryPhaseProgressing, flaggerv1.CanaryPhaseWaitingPromotion, flaggerv1.CanaryPhasePromoting:
		return status.Serin != nil && status.Serin.Revision != ""
	default:
		return false
	}
}

// limitToRollback restricts a decision to what Serin does while another controller acts: it observes its release, and rolls it
// back. false: the decision does neither.
func limitToRollback(s Snapshot, d Decision) (Decision, bool) {
	window := s.currentWindow()
	switch {
	case isRollingBack(s, d): // users must not remain on a broken revision
		return d, true
	case d.Status.FailedChecks > s.Status.FailedChecks, equality.Semantic.DeepEqual(d.Status, s.Status) && len(d.Stamp) == 0:
		d.Effects = nil
		return d, true
	case window.open && !s.Now.Before(window.end()):
		// The checks passed, but nothing may advance: the same weight is observed for another window.
		return s.edit().startWindow().decision(d.Gates), true
	default:
		return Decision{}, false
	}
}

// isRollingBack reports whether a decision starts, continues or ends a rollback, or removes the traffic of a replaced revision.
func isRollingBack(s Snapshot, d Decision) bool {
	if increasesExposure(s, d) {
		return false
	}
	intends := func(status flaggerv1.CanaryStatus) bool {
		return status.Serin != nil && (status.Serin.Intent == intentRollback || status.Serin.Intent == intentCancel)
	}
	failed := s.serin().Intent == "" && s.hasReachedThreshold() && s.Status.Phase != flaggerv1.CanaryPhasePromoting
	// A new revision of the target must not receive the traffic of the previous one without being observed.
	replaced := d.Status.Phase == flaggerv1.CanaryPhaseProgressing && s.canaryHasTraffic() && slices.ContainsFunc(d.Effects, removesCanaryTraffic)
	ended := d.Status.Phase == flaggerv1.CanaryPhaseFailed && d.Status.CanaryWeight == 0 // not a failed promotion
	return intends(s.Status) || intends(d.Status) || failed || replaced || ended
}

// increasesExposure reports whether a decision increases the exposure of the new revision.
func increasesExposure(s Snapshot, d Decision) bool {
	switch d.Status.Phase {
	case flaggerv1.CanaryPhaseFinalising:
		return true
	case flaggerv1.CanaryPhasePromoting:
		if s.Status.Phase != flaggerv1.CanaryPhasePromoting {
			return true
		}
	default: // in other phases it depends on the effects
	}
	return slices.ContainsFunc(d.Effects, func(effect release.Effect) bool {
		switch effect := effect.(type) {
		case CopyTemplate:
			return true
		case TrafficWeight:
			return effect.Canary > s.currentWeight()
		default:
			return false
		}
	})
}

// cedeToOtherController leaves everything to the other controller, including the status, because a write would trigger the other
// controller. Serin continues automatically when the other controller is gone.
func cedeToOtherController(s Snapshot) Decision {
	gate := release.NewWaitingGate("peer", release.ByUser, s.OtherController.Message())
	gate.Until = s.OtherController.Until
	gates := release.Gates{gate}
	return Decision{
		Status: s.Status, Gates: gates, Wake: gates.Wake(),
		Events: []release.Event{{Type: release.Warning, Message: s.OtherController.Message(), Persistent: true, ObjectOnly: true}},
	}
}

// withOtherController adds to a decision what users have to know about the other controller.
func withOtherController(s Snapshot, d Decision) Decision {
	other := cedeToOtherController(s)
	d.Gates = slices.Concat(other.Gates, d.Gates)
	d.Events = slices.Concat(other.Events, d.Events)
	return wakeNoLaterThan(d, other.Wake)
}
