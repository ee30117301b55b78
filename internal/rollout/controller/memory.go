package controller

import (
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/reconciler"
	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/internal/rollout"
	"github.com/serin-dev/serin/internal/traffic"
)

// memory is what the reconciler remembers of Rollouts between reconciliations. All of it may be lost, and decides nothing.
type memory struct {
	reconciler.Memory[remembered]
	mu sync.Mutex
	// ended are Rollouts that were deleted, as they were last seen, until what they had is given back.
	ended map[types.NamespacedName]*argov1.Rollout
	// prunes is true since a status came back without our part. It belongs to the stored definition, not to one release.
	prunes bool
	// displaces is true since a status came back without the place in the line that was written.
	displaces bool
}

// remembered is what is remembered of one Rollout.
type remembered struct {
	uid types.UID
	// compared is true once its ReplicaSets were seen to be those of the API server; see requireNewestSets.
	compared bool
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
	return &memory{
		Memory: reconciler.Memory[remembered]{Explanations: reconciler.Explanations{WaitsFor: waitsFor, Detail: outsideDetail, Complete: true}},
		ended:  map[types.NamespacedName]*argov1.Rollout{},
	}
}

// waitsFor is what a gate waits for. A pause is explained, too: it may last for days, and the status that began it may be that
// of Argo Rollouts.
func waitsFor(gate reconciler.StatusGate) string {
	if gate.Verdict == string(release.Wait) && gate.Opener == string(release.ByTime) {
		return "time"
	}
	return reconciler.WaitsFor(gate)
}

// outsideDetail is the message of a gate about something outside the cluster, where users cannot look for it.
func outsideDetail(gate reconciler.StatusGate) string {
	if gate.Name == "weight" || gate.Name == "targets" {
		return gate.Message
	}
	return ""
}

// explain returns what the status is to show about the gates of a decision.
func (m *memory) explain(s *seen, d rollout.Decision) reconciler.Explanation {
	return m.Explain(s.key(), reconciler.Evaluation{
		Gates: d.Gates, Shown: shownGates(s.snapshot.Status), Provisional: d.Wake.Equal(s.snapshot.Now), Pruned: m.pruned(), Now: s.snapshot.Now,
	})
}

// shownGates are the gates in a status.
func shownGates(status argov1.RolloutStatus) []reconciler.StatusGate {
	if status.Serin == nil {
		return nil
	}
	gates := make([]reconciler.StatusGate, len(status.Serin.Gates))
	for i, gate := range status.Serin.Gates {
		gates[i] = reconciler.StatusGate(gate)
	}
	return gates
}

// gatesOf returns the gates of an explanation in the form of the API.
func gatesOf(e reconciler.Explanation) []argov1.GateStatus {
	gates := make([]argov1.GateStatus, len(e.Gates))
	for i, gate := range e.Gates {
		gates[i] = argov1.GateStatus(gate)
	}
	return gates
}

// meets reports whether this is the first reconciliation of a Rollout by this process.
func (m *memory) meets(key types.NamespacedName, uid types.UID) (first bool) {
	m.Do(key, func(e *remembered) {
		if first = e.uid != uid; first {
			e.uid, e.compared = uid, false
		}
	})
	return first
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

// ends remembers a Rollout that was deleted.
func (m *memory) ends(was *argov1.Rollout) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ended[types.NamespacedName{Namespace: was.Namespace, Name: was.Name}] = was
}

// hears is what was heard in answer to a question; an empty ID: none is asked. What was heard before it was asked does not
// count: the same may have been asked of another world. What counts outlives that the same is asked again.
func (m *memory) hears(key types.NamespacedName, id string, now time.Time, answers release.Answers) (h heard) {
	m.Do(key, func(e *remembered) {
		if e.heard.id != id {
			e.heard = heard{id: id, since: now}
		}
		if answer, ok := answers[id]; ok && !answer.Ended.IsZero() && !answer.Began.Before(e.heard.since) {
			detail, ok := answer.Detail.(traffic.Answer)
			if !ok { // it could not even be asked
				detail = traffic.Answer{Reason: answer.Text}
			}
			e.heard.answer, e.heard.at = &detail, answer.Ended
		}
		h = e.heard
	})
	return h
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

// keys are the Rollouts of which something is remembered, those that were deleted included.
func (m *memory) keys() []types.NamespacedName {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.AppendSeq(m.Keys(), maps.Keys(m.ended))
}
