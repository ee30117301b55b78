package controller

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/canary"
	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/internal/shell"
)

// explainAfter is for how long something may wait before the status says why, although nothing else is to be written.
const explainAfter = 30 * time.Second

// Bounds of what the status says about gates.
const (
	maxGates       = 20
	maxGateMessage = 200
	maxGateName    = 256 // some are those of hooks, which may be as long as a whole Canary
	maxQuery       = 1 << 10
)

// memory is what the shell remembers of releases between passes. All of it may be lost: it makes explanations better,
// saves requests, and makes deadlines later, never earlier.
type memory struct {
	mu sync.Mutex
	of map[types.NamespacedName]*remembered
	// prunes is true since a status write came back without our part. It belongs to the stored definition, not to one
	// release.
	prunes bool
}

type remembered struct {
	// since is when each gate began to wait for what it waits for, or to pass.
	since map[string]held
	wake  time.Time
	pods  map[bool]*stuckPods // by whether it is the primary
	track map[bool]canary.ReadinessTrack
	// retries are the rows of failures that have not ended; nil while all is well.
	retries shell.Retries
	stood   map[string]stood // by name of the state effect
}

type held struct {
	by waitsFor
	at time.Time
}

// waitsFor is what a gate waits for, as far as people care; empty: nothing that anybody has to see to. A gate that is polled
// is asked and waits in turns, and waits for the same all the time.
type waitsFor string

const (
	forCluster  waitsFor = "cluster"
	forSomebody waitsFor = "somebody" // who is asked, or a person
	forMending  waitsFor = "mending"  // it does not hold
)

func waitOf(verdict release.Verdict, opener release.Opener) waitsFor {
	switch {
	case verdict == release.Pass || verdict == "" || opener == release.ByTime: // empty: nothing was said
		return ""
	case verdict == release.Fail:
		return forMending
	case opener == release.ByCluster:
		return forCluster
	default:
		return forSomebody
	}
}

type stuckPods struct {
	since   time.Time
	looked  time.Time // the last look, zero before the first
	looks   int
	problem string
}

// mostLooks bounds how often pods that tell nothing are looked at.
const mostLooks = 3

func newMemory() *memory {
	return &memory{of: map[types.NamespacedName]*remembered{}}
}

func (m *memory) entry(key types.NamespacedName) *remembered {
	if m.of[key] == nil {
		m.of[key] = &remembered{since: map[string]held{}, pods: map[bool]*stuckPods{}, track: map[bool]canary.ReadinessTrack{}, stood: map[string]stood{}}
	}
	return m.of[key]
}

func (m *memory) forget(key types.NamespacedName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.of, key)
}

func (m *memory) pruned(types.NamespacedName) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.prunes
}

// noticePruning compares what was written with what came back, and is true when pruning has just begun to show.
func (m *memory) noticePruning(_ types.NamespacedName, written, stored *flaggerv1.SerinStatus) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	lost := written != nil && stored == nil
	kept := stored != nil
	switch {
	case lost && !m.prunes:
		m.prunes = true
		return true
	case kept:
		m.prunes = false
	}
	return false
}

// late is how long after the moment it was meant for this pass happens; not due for a pass that an event brought.
func (m *memory) late(key types.NamespacedName, now time.Time) (by time.Duration, due bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.entry(key)
	if e.wake.IsZero() || now.Before(e.wake) {
		return 0, false
	}
	by = now.Sub(e.wake)
	e.wake = time.Time{}
	return by, true
}

func (m *memory) wakes(key types.NamespacedName, at time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.entry(key).wake = at
}

func (m *memory) since(key types.NamespacedName, gate string) time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.entry(key).since[gate].at
}

// gates are what the status shall say about the gates of a decision: with every write that is due anyway, and once more
// when for half a minute something else was waited for than it says. explain is when that will be; zero: no such wait.
func (m *memory) gates(key types.NamespacedName, d canary.Decision, s canary.Snapshot, now time.Time) (status []flaggerv1.GateStatus, explain time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.entry(key)
	said, names := map[string]flaggerv1.GateStatus{}, map[string]int{}
	if s.Status.Serin != nil {
		for _, gate := range s.Status.Serin.Gates {
			said[nthOf(names, gate.Name)] = gate
		}
	}
	now = now.Truncate(time.Microsecond)
	since := make([]held, len(d.Gates))
	due := false
	clear(names)
	before := e.since
	if len(d.Gates) > 0 || !d.Wake.Equal(s.Now) { // one that is looked at again at once, and looked at no gate, knows nothing new
		e.since = map[string]held{}
	}
	for i, gate := range d.Gates {
		name := nthOf(names, gateName(gate))
		was := said[name]
		since[i] = heldSince(gate, before[name], was, now)
		e.since[name] = since[i]
		if gate.Unasked || s.Pruned || waitOf(gate.Verdict, gate.Opener) == waitOf(release.Verdict(was.Verdict), release.Opener(was.Opener)) {
			continue // nothing else is known, nobody could read it, or it is said
		}
		if written := since[i].at.Add(explainAfter); !now.Before(written) {
			due = true
		} else if explain.IsZero() || written.Before(explain) {
			explain = written
		}
	}
	if s.Peer.Acts() {
		return nil, time.Time{} // the status is the peer's
	}
	moved := !sameStatus(d.Status, s.Status)
	if !due && !moved && (d.Gates.First() != nil || !outdated(said)) {
		return nil, explain
	}
	status = []flaggerv1.GateStatus{}
	for i, gate := range d.Gates {
		if len(status) == maxGates {
			break
		}
		status = append(status, gateStatus(gate, since[i].at))
	}
	return status, time.Time{}
}

// nthOf tells gates of one name apart: hooks may have the same.
func nthOf(names map[string]int, name string) string {
	if names[name]++; names[name] > 1 {
		return fmt.Sprintf("%s#%d", name, names[name])
	}
	return name
}

// heldSince is what a gate waits for, and since when: as this process remembers it, or else the status. Of one whose turn
// has not come nothing is known but what was.
func heldSince(gate release.Gate, old held, said flaggerv1.GateStatus, now time.Time) held {
	is := held{waitOf(gate.Verdict, gate.Opener), now}
	if !old.at.IsZero() && (old.by == is.by || gate.Unasked) {
		is = old
	} else if said.Since != nil && waitOf(release.Verdict(said.Verdict), release.Opener(said.Opener)) == is.by {
		is.at = said.Since.Time
	}
	if is.at.After(now) { // the clock was set back: nobody has waited since tomorrow
		is.at = now
	}
	return is
}

// outdated is true when the status says that something is waited for, other than a moment. Where nothing is, that must
// not stay; where something else is, it is said in its turn.
func outdated(said map[string]flaggerv1.GateStatus) bool {
	for _, gate := range said {
		if gate.Verdict != string(release.Pass) && gate.Opener != string(release.ByTime) {
			return true
		}
	}
	return false
}

// sameStatus compares everything but what is said about gates.
func sameStatus(a, b flaggerv1.CanaryStatus) bool {
	return shell.Same(withoutGates(a), withoutGates(b))
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

func gateName(gate release.Gate) string { return release.Clip(gate.Name, maxGateName) }

func gateStatus(gate release.Gate, since time.Time) flaggerv1.GateStatus {
	g := flaggerv1.GateStatus{
		Name: gateName(gate), Verdict: string(gate.Verdict), Message: release.Clip(gate.Message, maxGateMessage), Opener: string(gate.Opener),
		Value: release.Clip(gate.Value, maxGateMessage), Limit: release.Clip(gate.Limit, maxGateMessage), Query: release.Clip(gate.Query, maxQuery),
	}
	at := metav1.NewMicroTime(since)
	g.Since = &at
	if !gate.Until.IsZero() {
		until := metav1.NewMicroTime(gate.Until)
		g.Until = &until
	}
	return g
}

// stuck follows for how long a workload has been unready. at is when it is time to look at its pods: now or earlier asks
// for that look, zero says that there is nothing to look for. problem is what the last look said. A look that finds
// nothing is repeated after twice the time, and once more after twice that: what is wrong may show late.
func (m *memory) stuck(key types.NamespacedName, primary, unready bool, now time.Time, after time.Duration) (at time.Time, problem string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.entry(key)
	if !unready {
		delete(e.pods, primary)
		return time.Time{}, ""
	}
	p := e.pods[primary]
	if p == nil || p.since.After(now) {
		p = &stuckPods{since: now}
		e.pods[primary] = p
	}
	switch {
	case p.problem != "":
		return time.Time{}, p.problem
	case p.looks == 0:
		return p.since.Add(after), ""
	case p.looks == mostLooks:
		return time.Time{}, ""
	default:
		return p.looked.Add(min(max(p.looked.Sub(p.since), time.Second), 2*after)), "" // at most, where a clock was set
	}
}

// tracked follows the readiness of the two copies of a release.
func (m *memory) tracked(key types.NamespacedName, w *canary.Workload, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	track := m.entry(key).track
	for primary, copy := range map[bool]*canary.Copy{false: &w.Target, true: &w.Primary} {
		copy.Track = track[primary].Observe(*copy, now)
		track[primary] = copy.Track
	}
}

func (m *memory) podProblem(key types.NamespacedName, primary bool, problem string, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if p := m.entry(key).pods[primary]; p != nil {
		p.looked, p.problem = now, problem
		p.looks++
	}
}

// stood is when a state effect last had nothing to do; nothing: not known.
func (m *memory) stood(key types.NamespacedName, effect string) stood {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.entry(key).stood[effect]
}

func (m *memory) stands(key types.NamespacedName, effect string, s stood) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.entry(key).stood[effect] = s
}

// keys are the releases of which something is remembered.
func (m *memory) keys() []types.NamespacedName {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Collect(maps.Keys(m.of))
}
