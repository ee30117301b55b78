package canary

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/release"
)

// QueueEntryOf returns the entry of a Canary in the queue of releases, according to its stored status.
func QueueEntryOf(c *flaggerv1.Canary) release.QueueEntry {
	entry := release.QueueEntry{Kind: flaggerv1.CanaryKind, Namespace: c.Namespace, Name: c.Name, Priority: release.Priority(c.Annotations)}
	if c.DeletionTimestamp != nil {
		return entry
	}
	switch c.Status.Phase {
	case flaggerv1.CanaryPhaseProgressing, flaggerv1.CanaryPhaseWaitingPromotion, flaggerv1.CanaryPhasePromoting, flaggerv1.CanaryPhaseFinalising:
		entry.InProgress = true
		return entry
	default: // idle, or not a release
	}
	if c.Status.Serin == nil || c.Status.Serin.Queue == nil {
		return entry
	}
	queue := c.Status.Serin.Queue
	entry.Since = queue.Since.Time
	entry.Waiting = !queue.Aside && !c.Spec.Suspend && findCondition(c.Status, flaggerv1.ConditionBlocked) == nil
	return entry
}

// MayStartRelease reports whether the next decision may start a release, so that its position in the queue matters.
func MayStartRelease(s Snapshot) bool {
	switch {
	case s.Deleting, s.Plan.Suspended, len(blockingReasons(s)) > 0, s.Status.Phase == "":
		return false
	case s.Status.Phase == flaggerv1.CanaryPhaseWaiting:
		return true
	case IsActivePhase(s.Status.Phase):
		return false
	default:
		return s.Workload.Target.Revision != s.pinnedRevision() || s.hasCommand(CommandRetry)
	}
}

// WaitsForQueueSlot reports whether a decision waits only for the queue.
func WaitsForQueueSlot(d Decision) bool {
	first := d.Gates.First()
	return first != nil && first.Name == turnGate
}

// queueGate delays the start of a release while the maximum number of releases is in progress. The end of one of them opens it.
// If the primary cannot serve, a fix does not wait for other releases.
func queueGate(s Snapshot) release.Gate {
	if !s.Queue.Open && primaryLost(s) {
		return release.NewPassingGate(turnGate, "lifted so that a fix can ship, "+s.Queue.String())
	}
	return s.Queue.Gate()
}

// waitInQueue delays the start of a release and records its place in the queue in the status, so that the place survives a
// restart. A release that also waits for something else lets those behind it go ahead.
func waitInQueue(s Snapshot, gates release.Gates, effects ...release.Effect) Decision {
	first, queue := gates.First(), s.serin().Queue
	waits := first.Name == turnGate
	switch {
	case queue == nil && !waits, first.Verdict == release.Ask:
		return keepStatus(s, gates, effects...)
	case waits && queue == nil:
		since := metav1.NewMicroTime(s.Now)
		e := s.edit().addEffects(effects...)
		e.serin.Queue = &flaggerv1.QueuePlace{Since: since}
		return e.addEvents(release.Event{Type: release.Normal, Message: s.Plan.qualifiedName() + " waits for its turn, " + first.Message}).decision(gates)
	case queue.Aside == waits:
		e := s.edit().addEffects(effects...)
		e.serin.Queue.Aside = !waits
		return e.decision(gates)
	default:
		return keepStatus(s, gates, effects...)
	}
}

// yieldInQueue lets the releases behind this one go ahead, without giving up its place.
func yieldInQueue(e *statusEdit) {
	if e.serin.Queue != nil {
		e.serin.Queue.Aside = true
	}
}
