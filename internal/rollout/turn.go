package rollout

import (
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/release"
)

// How many releases move at once may be limited. A new revision waits for its turn before it has a ReplicaSet, and until
// then the Rollout is the one that it was: the revision before it is scaled, restarted and served as ever.

// PlaceOf is the place of a Rollout among all releases, as its stored state says it.
func PlaceOf(r *argov1.Rollout) release.Place {
	place := release.Place{Kind: argov1.RolloutKind, Namespace: r.Namespace, Name: r.Name, Priority: release.Priority(r.Annotations)}
	if r.DeletionTimestamp != nil {
		return place
	}
	if place.Moves = underWay(r.Status); place.Moves || queued(r.Status) == nil {
		return place
	}
	queue := queued(r.Status)
	place.Since = queue.Since.Time
	place.Waits = !queue.Aside && !r.Spec.Paused && conditions(r.Status.Conditions).of(argov1.RolloutInvalidSpec) == nil
	return place
}

// underWay is true from the start of a release until its revision is the stable one, or was given up. The first revision of
// a Rollout is no release: it takes nobody's place.
func underWay(s argov1.RolloutStatus) bool {
	if s.StableRS == "" {
		return false
	}
	progress := conditions(s.Conditions).of(argov1.RolloutProgressing)
	made := progress != nil && progress.Reason == reasonCreated // and the status does not name it yet
	return made || s.CurrentPodHash != s.StableRS && !s.Abort
}

// MayStart is true of a snapshot from which a release may start, so that its turn matters. One that goes back to a revision
// that is still there waits for nobody, and neither does the first of all, nor a new template for one that is under way.
func MayStart(s Snapshot) bool {
	p := newPass(s)
	strategy := s.Spec.Strategy
	switch {
	case s.Problem != "", strategy.Canary == nil && strategy.BlueGreen == nil, s.Hash == "":
		return false
	default:
		return s.Status.StableRS != "" && s.Status.CurrentPodHash != "" && !underWay(s.Status) && !p.new.exists()
	}
}

// WaitsForTurn is true of a decision that its turn holds.
func WaitsForTurn(d Decision) bool {
	gate := d.Gates.Named("turn")
	return gate != nil && gate.Verdict != release.Pass
}

// waits is true of a release that does not start yet. Where the revision that serves users is down, a fix does not wait for
// others.
func (p *pass) waits() bool {
	switch {
	case p.Turn == nil, p.new.exists(), p.stableLost():
		return false
	default:
		return p.Spec.Paused || !p.Turn.Open
	}
}

// stableLost is true when no pod of the stable revision is left that could serve.
func (p *pass) stableLost() bool {
	return !p.stable.exists() || p.stable.Available == 0 && p.replicas() > 0
}

// textInLine is said of a release that waits for its turn. Its place changes too often to be said in a summary.
const textInLine = "waiting for the turn of this release: as many others move as may"

// inLine is what follows while a release waits for its turn: what follows from the Rollout as it was, with a place in the
// line. A place survives the process. Who could not start anyway steps aside.
func (p *pass) inLine() Decision {
	d := Next(p.before())
	status := *d.Status.DeepCopy()
	if p.Spec.Paused {
		status.Phase, status.Message = argov1.RolloutPhasePaused, "manually paused"
	} else {
		d.Gates = append(release.Gates{p.Turn.Gate()}, d.Gates...)
		status.Phase, status.Message = argov1.RolloutPhaseProgressing, textInLine
	}
	if queue := queued(p.stored); !p.Pruned {
		place := argov1.QueuePlace{Since: metav1.NewMicroTime(p.Now), Aside: p.Spec.Paused}
		if queue != nil {
			place.Since = queue.Since
		} else {
			d.Events = append(d.Events, release.Event{Type: release.Normal, Reason: "RolloutWaits", Message: "Rollout waits for its turn: " + p.Turn.String()})
		}
		status.Serin = withQueue(status.Serin, &place)
	}
	d.Status, d.Wake = status, d.Gates.Wake()
	if !remembers(p.stored, status) {
		d.Wake = p.Now
	}
	return d
}

// before is the snapshot of a Rollout whose new revision is not looked at yet: the status speaks of the template and of the
// spec that it has seen last.
func (p *pass) before() Snapshot {
	s := p.Snapshot
	s.Status = *p.stored.DeepCopy()
	s.Status.Serin = withQueue(s.Status.Serin, nil)
	s.Turn, s.Hash, s.StepHash = nil, s.Status.CurrentPodHash, s.Status.CurrentStepHash
	if !p.set(s.Hash).exists() { // it was aborted, and is gone
		s.Hash = s.Status.StableRS
	}
	if seen, err := strconv.ParseInt(s.Status.ObservedGeneration, 10, 64); err == nil {
		s.Generation = seen
	}
	if s.Workload != nil {
		workload := *s.Workload
		workload.Generation = s.Status.WorkloadObservedGeneration
		s.Workload = &workload
	}
	s.Status.Phase, s.Status.Message = PhaseOf(s.Spec, s.Status)
	return s
}

func queued(s argov1.RolloutStatus) *argov1.QueuePlace {
	if s.Serin == nil {
		return nil
	}
	return s.Serin.Queue
}

// withQueue is the part of a status that is Serin's with another place, or with none.
func withQueue(own *argov1.SerinStatus, place *argov1.QueuePlace) *argov1.SerinStatus {
	if own == nil && place == nil {
		return nil
	}
	var with argov1.SerinStatus
	if own != nil {
		with = *own
	}
	with.Queue = place
	return &with
}

// aside is a status of a release that something else holds as well: it keeps its place, and those behind go ahead.
func aside(s argov1.RolloutStatus) argov1.RolloutStatus {
	if queue := queued(s); queue != nil && !queue.Aside {
		s.Serin = withQueue(s.Serin, &argov1.QueuePlace{Since: queue.Since, Aside: true})
	}
	return s
}
