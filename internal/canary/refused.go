package canary

import (
	"reflect"
	"slices"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/release"
)

// reasonStep is the reason of the condition for an effect that was refused behind a window, and that is tried again behind the
// next one. Until then nothing else is known of it, so that the condition stays.
const reasonStep = "RefusedStep"

// RefusedDecision is the decision when that effect was refused for a reason that a person must remove: nothing of the decision, whose
// gates are given, is recorded, and the message is reported in the condition Blocked and in an event.
func RefusedDecision(s Snapshot, gates release.Gates, effect release.Effect, sentence string) Decision {
	gate := release.NewFailedGate("refused", release.ByUser, sentence)
	if s.triedAtWindows(effect) {
		gate = release.NewFailedGate("refused-step", release.ByUser, sentence)
	}
	all := append(release.Gates{gate}, gates...)
	for i := range all {
		all[i].Pending = nil
	}
	d := withBlockedCondition(s, all[:1])
	d.Gates = all
	return d
}

// triedAtWindows is true of an effect that is not made true in every pass, in the phases that have windows.
func (s *Snapshot) triedAtWindows(effect release.Effect) bool {
	switch s.Status.Phase {
	case flaggerv1.CanaryPhaseProgressing, flaggerv1.CanaryPhaseWaitingPromotion:
		return s.serin().Intent == "" && !slices.ContainsFunc(steadyStateEffects(*s), func(e release.Effect) bool { return reflect.DeepEqual(e, effect) })
	default:
		return false
	}
}

// FaultedDecision is the decision about a Canary at which a pass of Serin itself broke, before or after it was decided about: all
// that is known of it is its status.
func FaultedDecision(s Snapshot, sentence string) Decision {
	return withBlockedCondition(s, release.Gates{release.NewFailedGate("fault", release.ByUser, sentence)})
}
