package controller

import (
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/internal/shell"
	"github.com/serin-dev/serin/internal/traffic"
)

// memory is what the shell remembers of releases between passes. All of it may be lost, and decides nothing.
type memory struct {
	mu sync.Mutex
	of map[types.NamespacedName]*remembered
	// ended are Rollouts that were deleted, as they were last seen, until what they had is given back.
	ended map[types.NamespacedName]*argov1.Rollout
	// prunes is true since a status came back without our part. It belongs to the stored definition, not to one release.
	prunes bool
	// displaces is true since a status came back without the place in the line that was written.
	displaces bool
}

type remembered struct {
	uid types.UID
	// compared is true once its ReplicaSets were seen to be those of the API server; see takeOverSets.
	compared bool
	wake     time.Time
	retries  shell.Retries
	// unsaid is since when something else is waited for than the status says; zero: it says what is.
	unsaid time.Time
	// routed is what the status was to remember of routers last.
	routed []argov1.RoutedStatus
	// routedKnown is true once this process has decided what that is.
	routedKnown bool
	// heard is what was last heard from outside the cluster.
	heard heard
}

// heard is what was heard in answer to a question.
type heard struct {
	id string
	// since is when it was asked first, and at when the answer came, which is nil until then.
	since, at time.Time
	answer    *traffic.Answer
}

func newMemory() *memory {
	return &memory{of: map[types.NamespacedName]*remembered{}, ended: map[types.NamespacedName]*argov1.Rollout{}}
}

func (m *memory) entry(key types.NamespacedName) *remembered {
	if m.of[key] == nil {
		m.of[key] = &remembered{}
	}
	return m.of[key]
}

// meets is true at the first pass of this process over a Rollout.
func (m *memory) meets(key types.NamespacedName, uid types.UID) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.entry(key)
	first := e.uid != uid
	if first {
		e.uid, e.compared = uid, false
	}
	return first
}

// sees is true once the ReplicaSets of a Rollout were compared with those of the API server.
func (m *memory) sees(key types.NamespacedName) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.entry(key).compared
}

func (m *memory) saw(key types.NamespacedName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.entry(key).compared = true
}

// wakes says when the next pass is due.
func (m *memory) wakes(key types.NamespacedName, at time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.entry(key).wake = at
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

// explainAfter is for how long something else may be waited for than the status says, although nothing else is to be
// written.
const explainAfter = 30 * time.Second

// explain is when the status shall say what is waited for; zero: it does, or never can.
func (m *memory) explain(key types.NamespacedName, said []argov1.GateStatus, looked release.Gates, now time.Time) time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.entry(key)
	if m.prunes || slices.Equal(waiting(said), waiting(gates(looked))) {
		e.unsaid = time.Time{}
		return time.Time{}
	}
	if e.unsaid.IsZero() || e.unsaid.After(now) {
		e.unsaid = now
	}
	return e.unsaid.Add(explainAfter)
}

// pruned is true where our part of a status is known to be lost.
func (m *memory) pruned() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.prunes
}

// noticePruning compares what was written with what came back, and is true when pruning has just begun to show.
func (m *memory) noticePruning(written, stored *argov1.SerinStatus) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	begins := written != nil && stored == nil && !m.prunes
	if begins || stored != nil {
		m.prunes = begins
	}
	return begins
}

// losesPlace compares the place that was written with the one that came back, and is true when it has just begun to get lost.
func (m *memory) losesPlace(written, stored *argov1.SerinStatus) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if written == nil || written.Queue == nil {
		return false
	}
	lost := stored == nil || stored.Queue == nil
	begins := lost && !m.displaces
	m.displaces = lost
	return begins
}

// unplaced is true where the stored states of Rollouts cannot say that they wait.
func (m *memory) unplaced() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.displaces
}

// outside are the gates whose messages nobody can find out for himself who only looks at the cluster.
var outside = []string{"weight", "targets"}

// waiting are the gates that do not pass, without most messages, which may change all the time.
func waiting(all []argov1.GateStatus) []argov1.GateStatus {
	var out []argov1.GateStatus
	for _, gate := range all {
		if gate.Verdict == string(release.Pass) {
			continue
		}
		if !slices.Contains(outside, gate.Name) {
			gate.Message = ""
		}
		out = append(out, argov1.GateStatus{Name: gate.Name, Verdict: gate.Verdict, Opener: gate.Opener, Message: gate.Message})
	}
	return out
}

// again counts a failure and is when to try next.
func (m *memory) again(key types.NamespacedName, of shell.Trouble, now time.Time) time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.entry(key).retries.Again(of, now)
}

func (m *memory) succeeded(key types.NamespacedName, of shell.Trouble) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.entry(key).retries.Succeeded(of)
}

// ends remembers a Rollout that was deleted.
func (m *memory) ends(was *argov1.Rollout) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ended[types.NamespacedName{Namespace: was.Namespace, Name: was.Name}] = was
}

// routedBy is what the status was to remember of routers last; false where this process has not decided that yet.
func (m *memory) routedBy(key types.NamespacedName) ([]argov1.RoutedStatus, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.entry(key)
	return e.routed, e.routedKnown
}

// keepRouted is told what the status remembers of routers.
func (m *memory) keepRouted(key types.NamespacedName, routed []argov1.RoutedStatus) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.entry(key)
	e.routed, e.routedKnown = routed, true
}

// hears is what was heard in answer to a question; an empty ID: none is asked. What was heard before it was asked does not
// count: the same may have been asked of another world. What counts outlives that the same is asked again.
func (m *memory) hears(key types.NamespacedName, id string, now time.Time, answers release.Answers) heard {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.entry(key)
	if e.heard.id != id {
		e.heard = heard{id: id, since: now}
	}
	answer, ok := answers[id]
	if !ok || answer.Ended.IsZero() || answer.Began.Before(e.heard.since) {
		return e.heard
	}
	detail, ok := answer.Detail.(traffic.Answer)
	if !ok { // it could not even be asked
		detail = traffic.Answer{Reason: answer.Text}
	}
	e.heard.answer, e.heard.at = &detail, answer.Ended
	return e.heard
}

// deleted is the Rollout of that name whose end is not seen to yet; nil: none.
func (m *memory) deleted(key types.NamespacedName) *argov1.Rollout {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.ended[key]
}

func (m *memory) settled(key types.NamespacedName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.ended, key)
}

func (m *memory) forget(key types.NamespacedName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.of, key)
}

// keys are the Rollouts of which something is remembered, those that were deleted included.
func (m *memory) keys() []types.NamespacedName {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.AppendSeq(slices.Collect(maps.Keys(m.of)), maps.Keys(m.ended))
}
