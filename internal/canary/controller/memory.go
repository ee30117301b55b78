package controller

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/canary"
	"github.com/serin-dev/serin/internal/reconciler"
	"github.com/serin-dev/serin/internal/traffic"
)

// memory is the state of all Canaries that the reconciler keeps between reconciliations.
type memory struct {
	reconciler.Memory[canaryMemory]
}

// canaryMemory is the part for one Canary. All of it may be lost: it improves explanations, saves requests, and delays deadlines,
// but never shortens them.
type canaryMemory struct {
	pods       map[bool]unreadyPods // true: of the primary
	track      map[bool]canary.ReadinessTrack
	unreported unreportedParent
	// unchanged are the steady-state effects that had nothing to do, by name.
	unchanged map[string]appliedEffect
}

// unreadyPods records the lists of the pods of an unready workload.
type unreadyPods struct {
	since   time.Time
	listed  time.Time // time of the last list; zero: none yet
	lists   int
	problem string
}

// unreportedParent records a parent of the route about which no router has reported; the zero value: there is none.
type unreportedParent struct {
	parent  traffic.Ref
	since   time.Time
	read    time.Time // when the parent was read last; zero: never
	message string
}

// unreportedReadInterval is the minimum time between two reads of such a parent.
const unreportedReadInterval = time.Minute

// maxPodLists bounds how often pods that show no problem are listed.
const maxPodLists = 3

func newMemory() *memory {
	return &memory{Memory: reconciler.Memory[canaryMemory]{Explanations: reconciler.ExplanationPolicy{WaitsFor: reconciler.WaitsFor}}}
}

// explain returns the gates that the status must show for a decision.
func (m *memory) explain(key types.NamespacedName, d canary.Decision, s canary.Snapshot, now time.Time) reconciler.Explanation {
	var shown []reconciler.StatusGate
	if s.Status.Serin != nil {
		for _, gate := range s.Status.Serin.Gates {
			shown = append(shown, reconciler.StatusGate(gate))
		}
	}
	return m.Explain(key, reconciler.Evaluation{Gates: d.Gates, Shown: shown, Provisional: d.Wake.Equal(s.Now), Now: now})
}

// gatesOf returns the gates of an explanation in the form of the API.
func gatesOf(e reconciler.Explanation) []flaggerv1.GateStatus {
	gates := make([]flaggerv1.GateStatus, len(e.Gates))
	for i, gate := range e.Gates {
		gates[i] = flaggerv1.GateStatus(gate)
	}
	return gates
}

// sameStatus compares two statuses except for their gates.
func sameStatus(a, b flaggerv1.CanaryStatus) bool {
	return reconciler.SemanticEqual(withoutGates(a), withoutGates(b))
}

func withoutGates(status flaggerv1.CanaryStatus) flaggerv1.CanaryStatus {
	serin := flaggerv1.SerinStatus{}
	if status.Serin != nil {
		serin = *status.Serin
	}
	serin.Gates = nil
	status.Serin = &serin
	return status
}

// nextPodList tracks how long a workload has been unready. at is when its pods must be listed; it is due when at is not in the
// future, and never when at is zero. problem is the result of the last list. A list without a problem is repeated after twice
// the time, and once more after twice that, because a problem may appear late.
func (m *memory) nextPodList(key types.NamespacedName, primary, unready bool, now time.Time, after time.Duration) (at time.Time, problem string) {
	m.Do(key, func(e *canaryMemory) {
		if !unready {
			delete(e.pods, primary)
			return
		}
		p, known := e.pods[primary]
		if !known || p.since.After(now) {
			p = unreadyPods{since: now}
			if e.pods == nil {
				e.pods = map[bool]unreadyPods{}
			}
			e.pods[primary] = p
		}
		switch {
		case p.problem != "":
			problem = p.problem
		case p.lists == 0:
			at = p.since.Add(after)
		case p.lists < maxPodLists:
			at = p.listed.Add(min(max(p.listed.Sub(p.since), time.Second), 2*after)) // the limit applies if the clock was set back
		}
	})
	return at, problem
}

// recordPodList records the problem of the pods of an unready workload; empty: none.
func (m *memory) recordPodList(key types.NamespacedName, primary bool, problem string, now time.Time) {
	m.Do(key, func(e *canaryMemory) {
		if p, known := e.pods[primary]; known {
			p.listed, p.problem = now, problem
			p.lists++
			e.pods[primary] = p
		}
	})
}

// trackUnreported tracks since when a parent has no report; nil: there is no such parent. isDue is true if it must be read.
func (m *memory) trackUnreported(key types.NamespacedName, u *traffic.UnreportedParent, now time.Time) (record unreportedParent, isDue bool) {
	if u == nil && m.Own(key).unreported == (unreportedParent{}) {
		return unreportedParent{}, false // most releases use no memory
	}
	m.Do(key, func(e *canaryMemory) {
		switch {
		case u == nil:
			e.unreported = unreportedParent{}
			return
		case e.unreported.parent != u.Parent, e.unreported.since.After(now):
			e.unreported = unreportedParent{parent: u.Parent, since: now, message: u.Message()}
		}
		record = e.unreported
		isDue = !now.Before(record.since.Add(canary.UnreportedAfter)) && (record.read.IsZero() || now.Sub(record.read) >= unreportedReadInterval || now.Before(record.read))
	})
	return record, isDue
}

// recordUnreported records the message about a parent without a report after the parent was read.
func (m *memory) recordUnreported(key types.NamespacedName, message string, now time.Time) {
	m.Do(key, func(e *canaryMemory) { e.unreported.message, e.unreported.read = message, now })
}

// trackReadiness tracks the readiness of the two workloads of a release.
func (m *memory) trackReadiness(key types.NamespacedName, w *canary.Workload, now time.Time) {
	m.Do(key, func(e *canaryMemory) {
		if e.track == nil {
			e.track = map[bool]canary.ReadinessTrack{}
		}
		for primary, copy := range map[bool]*canary.WorkloadState{false: &w.Target, true: &w.Primary} {
			copy.Track = e.track[primary].Observe(*copy, now)
			e.track[primary] = copy.Track
		}
	})
}

// lastApplied is the record of a steady-state effect that had nothing to do; the zero value: there is none.
func (m *memory) lastApplied(key types.NamespacedName, effect string) appliedEffect {
	return m.Own(key).unchanged[effect]
}

func (m *memory) recordApplied(key types.NamespacedName, effect string, a appliedEffect) {
	m.Do(key, func(e *canaryMemory) {
		if e.unchanged == nil {
			e.unchanged = map[string]appliedEffect{}
		}
		e.unchanged[effect] = a
	})
}
