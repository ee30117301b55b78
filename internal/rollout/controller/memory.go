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

// memory is what the reconciler remembers of Rollouts between reconciliations. All of it may be lost: no decision depends on it.
type memory struct {
	reconciler.Memory[remembered]
	mu sync.Mutex
	// ended are deleted Rollouts, as they were last observed, until the objects that they managed are restored.
	ended map[types.NamespacedName]*argov1.Rollout
	// prunes is true since the API server returned a status without status.serin. This is a property of the installed definition,
	// not of one release.
	prunes bool
	// displaces is true since the API server returned a status without the place in the queue that was written.
	displaces bool
}

// remembered is what is remembered of one Rollout.
type remembered struct {
	uid types.UID
	// compared is true once its cached ReplicaSets were compared with those of the API server; see requireNewestReplicaSets.
	compared bool
	// routed is what the last status was to record of routers.
	routed []argov1.RoutedStatus
	// routedKnown is true once this process has determined it.
	routedKnown bool
	// lastAnswer is the last one about a load balancer outside the cluster.
	lastAnswer externalAnswer
}

// externalAnswer is the answer to a query about a load balancer outside the cluster.
type externalAnswer struct {
	// id of the query.
	id string
	// since is when the query was first submitted, and at when the answer arrived, which is nil until then.
	since, at time.Time
	answer    *traffic.Answer
}

func newMemory() *memory {
	return &memory{
		Memory: reconciler.Memory[remembered]{Explanations: reconciler.Explanations{WaitsFor: waitsFor, Detail: outsideDetail, Complete: true}},
		ended:  map[types.NamespacedName]*argov1.Rollout{},
	}
}

// waitsFor returns what a gate waits for. A pause is explained, too: it may last for days, and Argo Rollouts may have written the
// status that began it.
func waitsFor(gate reconciler.StatusGate) string {
	if gate.Verdict == string(release.Wait) && gate.Opener == string(release.ByTime) {
		return "time"
	}
	return reconciler.WaitsFor(gate)
}

// outsideDetail returns the message of a gate about a component outside the cluster, which users cannot inspect with kubectl.
func outsideDetail(gate reconciler.StatusGate) string {
	if gate.Name == "weight" || gate.Name == "targets" {
		return gate.Message
	}
	return ""
}

// explain returns what the status must show about the gates of a decision.
func (m *memory) explain(s *seen, d rollout.Decision) reconciler.Explanation {
	return m.Explain(s.key(), reconciler.Evaluation{
		Gates: d.Gates, Shown: shownGates(s.snapshot.Status), Provisional: d.Wake.Equal(s.snapshot.Now), Pruned: m.pruned(), Now: s.snapshot.Now,
	})
}

// shownGates returns the gates in a status.
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

// isFirst reports whether this is the first reconciliation of a Rollout by this process.
func (m *memory) isFirst(key types.NamespacedName, uid types.UID) (first bool) {
	m.Do(key, func(e *remembered) {
		if first = e.uid != uid; first {
			e.uid, e.compared = uid, false
		}
	})
	return first
}

// pruned reports whether the installed definition drops status.serin.
func (m *memory) pruned() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.prunes
}

// noticePruning compares the written status with the returned one, and reports whether this is the first sign of pruning.
func (m *memory) noticePruning(written, stored *argov1.SerinStatus) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	begins := written != nil && stored == nil && !m.prunes
	if begins || stored != nil {
		m.prunes = begins
	}
	return begins
}

// noticeLostPlace compares the written place in the queue with the returned one, and reports whether this is the first loss.
func (m *memory) noticeLostPlace(written, stored *argov1.SerinStatus) bool {
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

// unplaced reports whether stored statuses cannot contain a place in the queue.
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

// recordAnswer returns the answer to a query; an empty ID: there is no query. An answer to a request that began before the query was
// submitted does not count: it may describe an earlier state. An answer remains valid while the same query is repeated.
func (m *memory) recordAnswer(key types.NamespacedName, id string, now time.Time, answers release.Answers) (last externalAnswer) {
	m.Do(key, func(e *remembered) {
		if e.lastAnswer.id != id {
			e.lastAnswer = externalAnswer{id: id, since: now}
		}
		if answer, ok := answers[id]; ok && !answer.Ended.IsZero() && !answer.Began.Before(e.lastAnswer.since) {
			detail, ok := answer.Detail.(traffic.Answer)
			if !ok { // the query could not be sent
				detail = traffic.Answer{Reason: answer.Text}
			}
			e.lastAnswer.answer, e.lastAnswer.at = &detail, answer.Ended
		}
		last = e.lastAnswer
	})
	return last
}

// deleted returns the deleted Rollout of that name whose objects are not restored yet; nil: none.
func (m *memory) deleted(key types.NamespacedName) *argov1.Rollout {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.ended[key]
}

// settled forgets a deleted Rollout.
func (m *memory) settled(key types.NamespacedName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.ended, key)
}

// keys returns the Rollouts of which something is remembered, including deleted ones.
func (m *memory) keys() []types.NamespacedName {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.AppendSeq(m.Keys(), maps.Keys(m.ended))
}
