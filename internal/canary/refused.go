package canary

import (
	"reflect"
	"slices"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/release"
)

// RejectedEffectDecision is the decision after an effect was rejected for a reason that the user must fix. Nothing of the original
// decision is recorded except for its gates; the message is reported in the condition Blocked and in an event.
func RejectedEffectDecision(s Snapshot, gates release.Gates, effect release.Effect, message string) Decision {
	gate := release.NewFailedGate("refused", release.ByUser, message)
	if isRetriedPerWindow(s, effect) {
		gate = release.NewFailedGate("refused-step", release.ByUser, message)
	}
	all := append(release.Gates{gate}, gates...)
	for i := range all {
		all[i].Pending = nil
	}
	d := withReadyConditions(s, withBlockedCondition(s, all[:1]))
	d.Gates = all
	return d
}

// isRetriedPerWindow reports whether an effect is a transition effect, which is retried once per window, in a phase that has
// windows.
func isRetriedPerWindow(s Snapshot, effect release.Effect) bool {
	switch s.Status.Phase {
	case flaggerv1.CanaryPhaseProgressing, flaggerv1.CanaryPhaseWaitingPromotion:
		return s.serin().Intent == "" && !slices.ContainsFunc(steadyStateEffects(s), func(e release.Effect) bool { return reflect.DeepEqual(e, effect) })
	default:
		return false
	}
}

// PanicDecision is the decision about a Canary whose reconciliation panicked. The snapshot contains only its status and the
// names of its plan.
func PanicDecision(s Snapshot, message string) Decision {
	return withReadyConditions(s, withBlockedCondition(s, release.Gates{release.NewFailedGate("fault", release.ByUser, message)}))
}
