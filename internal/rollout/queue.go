package rollout

import (
	"slices"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/release"
)

// The number of concurrent releases may be limited. A new revision waits for a slot before its ReplicaSet is created.
// Until then, the Rollout is handled as before: the previous revision is scaled and restarted, and serves users.

// QueueEntryOf returns the entry of a Rollout in the queue of all releases, according to its stored status.
func QueueEntryOf(r *argov1.Rollout) release.QueueEntry {
	entry := release.QueueEntry{Kind: argov1.RolloutKind, Namespace: r.Namespace, Name: r.Name, Priority: release.Priority(r.Annotations)}
	if r.DeletionTimestamp != nil {
		return entry
	}
	if entry.InProgress = isReleaseInProgress(r.Status); entry.InProgress || queuePlace(r.Status) == nil {
		return entry
	}
	queue := queuePlace(r.Status)
	entry.Since = queue.Since.Time
	entry.Waiting = !queue.Aside && !r.Spec.Paused && conditions(r.Status.Conditions).find(argov1.RolloutInvalidSpec) == nil
	return entry
}

// isReleaseInProgress reports whether a release is in progress: from its start until its revision is the stable one, or
// was aborted. The first revision of a Rollout needs no slot.
func isReleaseInProgress(s argov1.RolloutStatus) bool {
	if s.StableRS == "" {
		return false
	}
	progress := conditions(s.Conditions).find(argov1.RolloutProgressing)
	created := progress != nil && progress.Reason == reasonCreated // currentPodHash does not contain the new revision yet
	return created || s.CurrentPodHash != s.StableRS && !s.Abort
}

// MayStartRelease reports whether a release may start from a snapshot, so that the queue applies to it. The queue does
// not apply to a return to a revision that still exists, to the first revision, or to a new template during a release.
func MayStartRelease(s Snapshot) bool {
	f := observeFacts(s)
	strategy := s.Spec.Strategy
	switch {
	case s.ValidationError != "", mustAwaitTemplates(f), strategy.Canary == nil && strategy.BlueGreen == nil, s.Hash == "":
		return false
	default:
		return s.Status.StableRS != "" && s.Status.CurrentPodHash != "" && !isReleaseInProgress(s.Status) && !f.new.exists()
	}
}

// WaitsForQueueSlot reports whether a decision waits for a slot.
func WaitsForQueueSlot(d Decision) bool {
	gate := d.Gates.Named("turn")
	return gate != nil && gate.Verdict != release.Pass
}

// mustWaitInQueue reports whether the release must not start yet. If the stable revision is down, a fix does not wait
// for other releases.
func mustWaitInQueue(f facts) bool {
	switch {
	case f.QueueSlot == nil, f.new.exists(), isStableDown(f):
		return false
	default:
		return f.Spec.Paused || !f.QueueSlot.Open
	}
}

// isStableDown reports whether the stable revision has no available pods.
func isStableDown(f facts) bool {
	return !f.stable.exists() || f.stable.Available == 0 && f.replicas() > 0
}

// textInQueue is the status message of a release that waits for a slot. It does not contain the position, which changes
// too often.
const textInQueue = "waiting in the queue: the maximum number of concurrent releases is reached"

// waitInQueue decides about a Rollout whose release waits for a slot: the decision for the previous revision, with a
// place in the queue. The place is stored in the status, so that it survives a restart of Serin. A release that could
// not start even with a slot does not block the releases behind it.
func waitInQueue(f facts) Decision {
	d := Next(beforeRelease(f))
	status := *d.Status.DeepCopy()
	if f.Spec.Paused {
		status.Phase, status.Message = argov1.RolloutPhasePaused, "manually paused"
	} else {
		d.Gates = append(release.Gates{f.QueueSlot.Gate()}, d.Gates...)
		status.Phase, status.Message = argov1.RolloutPhaseProgressing, textInQueue
	}
	if queue := queuePlace(f.storedStatus); !f.QueuePlacePruned {
		place := argov1.QueuePlace{Since: metav1.NewMicroTime(f.Now), Aside: f.Spec.Paused}
		if queue != nil {
			place.Since = queue.Since
		} else {
			d.Events = append(d.Events, release.Event{Type: release.Normal, Reason: "RolloutWaits", Message: "Rollout is queued: " + f.QueueSlot.String()})
		}
		status.Serin = withQueue(status.Serin, &place)
	}
	d.Status, d.Wake = status, d.Gates.Wake()
	if !equalExceptExplanations(f.storedStatus, status) {
		d.Wake = f.Now
	}
	return d
}

// beforeRelease returns the snapshot of a Rollout without its new revision: with the template and the spec that the
// status last observed.
func beforeRelease(f facts) Snapshot {
	s := f.Snapshot
	s.Status = *f.storedStatus.DeepCopy()
	s.Status.Serin = withQueue(s.Status.Serin, nil)
	s.QueueSlot, s.Hash, s.StepHash = nil, s.Status.CurrentPodHash, s.Status.CurrentStepHash
	if !f.findReplicaSet(s.Hash).exists() { // the aborted revision was deleted
		s.Hash = s.Status.StableRS
	}
	if generation, err := strconv.ParseInt(s.Status.ObservedGeneration, 10, 64); err == nil {
		s.Generation = generation
	}
	if s.Workload != nil {
		workload := *s.Workload
		workload.Generation = s.Status.WorkloadObservedGeneration
		s.Workload = &workload
	}
	// The release has not started, so pods of its revision were not promoted, unless the deadline of a former revision proves it.
	// A return to pods that remain from a lost status would otherwise skip the analyses.
	s.ReplicaSets = slices.Clone(f.storedReplicaSets) // without the next revision, which the previous one would exceed
	if i := slices.IndexFunc(s.ReplicaSets, func(rs ReplicaSet) bool { return rs.Hash == f.Hash }); i >= 0 && f.Hash != s.Hash {
		s.ReplicaSets[i].Abandoned = s.ReplicaSets[i].Abandoned || !s.ReplicaSets[i].HasScaleDownDeadline()
	}
	s.Status.Phase, s.Status.Message = phaseOf(s.Spec, s.Status)
	return s
}

func queuePlace(s argov1.RolloutStatus) *argov1.QueuePlace {
	if s.Serin == nil {
		return nil
	}
	return s.Serin.Queue
}

// withQueue returns Serin's part of a status with another place in the queue; nil: with none.
func withQueue(serin *argov1.SerinStatus, place *argov1.QueuePlace) *argov1.SerinStatus {
	if serin == nil && place == nil {
		return nil
	}
	var updated argov1.SerinStatus
	if serin != nil {
		updated = *serin
	}
	updated.Queue = place
	return &updated
}

// yieldInQueue returns the status of a release that could not start even with a slot: it retains its place in the
// queue, but does not block the releases behind it.
func yieldInQueue(s argov1.RolloutStatus) argov1.RolloutStatus {
	if queue := queuePlace(s); queue != nil && !queue.Aside {
		s.Serin = withQueue(s.Serin, &argov1.QueuePlace{Since: queue.Since, Aside: true})
	}
	return s
}
