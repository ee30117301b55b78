package canary

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/release"
)

// PlaceOf is the place of a Canary among all releases, as its stored state says it.
func PlaceOf(c *flaggerv1.Canary) release.Place {
	place := release.Place{Kind: flaggerv1.CanaryKind, Namespace: c.Namespace, Name: c.Name, Priority: release.Priority(c.Annotations)}
	if c.DeletionTimestamp != nil {
		return place
	}
	switch c.Status.Phase {
	case flaggerv1.CanaryPhaseProgressing, flaggerv1.CanaryPhaseWaitingPromotion, flaggerv1.CanaryPhasePromoting, flaggerv1.CanaryPhaseFinalising:
		place.Moves = true
		return place
	default: // at rest, or not a release
	}
	if c.Status.Serin == nil || c.Status.Serin.Queue == nil {
		return place
	}
	queue := c.Status.Serin.Queue
	place.Since = queue.Since.Time
	place.Waits = !queue.Aside && !c.Spec.Suspend && condition(c.Status, flaggerv1.ConditionBlocked) == nil
	return place
}

// MayStart is true of a snapshot from which a release may start, so that its turn matters.
func MayStart(s Snapshot) bool {
	switch {
	case s.Deleting, s.Plan.Suspended, len(obstacles(s)) > 0, s.Status.Phase == "":
		return false
	case s.Status.Phase == flaggerv1.CanaryPhaseWaiting:
		return true
	case Moves(s.Status.Phase):
		return false
	default:
		return s.Workload.Target.Revision != s.pinnedRevision() || s.commanded("retry")
	}
}

// WaitsForTurn is true of a decision that its turn alone holds.
func WaitsForTurn(d Decision) bool {
	first := d.Gates.First()
	return first != nil && first.Name == "turn"
}

// turn is the gate that holds a start while as many releases move as may. The end of one of them opens it. Where the
// version that serves users is down, a fix does not wait for others.
func turn(s Snapshot) release.Gate {
	if !s.Turn.Open && s.primaryLost() {
		return release.Passes("turn", "lifted so that a fix can ship, "+s.Turn.String())
	}
	return s.Turn.Gate()
}

// inLine holds a start, and keeps its place in the status: a place survives the process. Who could not start anyway
// steps aside.
func inLine(s Snapshot, gates release.Gates, effects ...release.Effect) Decision {
	first, queue := gates.First(), s.serin().Queue
	waits := first.Name == "turn"
	switch {
	case queue == nil && !waits, first.Verdict == release.Ask:
		return keepStatus(s, gates, effects...)
	case waits && queue == nil:
		since := metav1.NewMicroTime(s.Now)
		e := s.edit().effect(effects...)
		e.serin.Queue = &flaggerv1.QueuePlace{Since: since}
		return e.tell(release.Event{Type: release.Normal, Message: s.Plan.full() + " waits for its turn, " + first.Message}).done(gates)
	case queue.Aside == waits:
		e := s.edit().effect(effects...)
		e.serin.Queue.Aside = !waits
		return e.done(gates)
	default:
		return keepStatus(s, gates, effects...)
	}
}

// stepAside lets those behind go ahead, and keeps the place.
func (e *edit) stepAside() *edit {
	if e.serin.Queue != nil {
		e.serin.Queue.Aside = true
	}
	return e
}

func (e *edit) leaveLine() *edit {
	e.serin.Queue = nil
	return e
}
