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

// memory is the state of all Rollouts that the reconciler keeps between reconciliations. All of it may be lost: no decision
// depends on it.
type memory struct {
	reconciler.Memory[rolloutMemory]
	mu sync.Mutex
	// reconciles is false in a standby.
	reconciles bool
	// deletedRollouts are the last observed versions of deleted Rollouts, until the objects that they managed are restored.
	deletedRollouts map[types.NamespacedName]*argov1.Rollout
	// statusPruned is true since the API server returned a status without status.serin. This is a property of the installed
	// definition, not of one release.
	statusPruned bool
	// placeLost is true since the API server returned a status without the place in the queue that was written.
	placeLost bool
}

// rolloutMemory is the part for one Rollout.
type rolloutMemory struct {
	uid types.UID
	// replicaSetsCompared is true once its cached ReplicaSets were compared with those of the API server; see
	// requireNewestReplicaSets.
	replicaSetsCompared bool
	// routeCompared is true once the objects of its route were compared in the same way.
	routeCompared bool
	// routedStatuses are the records of routers in the last written status.
	routedStatuses []argov1.RoutedStatus
	// routedKnown is true once this process has determined it.
	routedKnown bool
	// lastAnswer is the last one about a load balancer outside the cluster.
	lastAnswer externalAnswer
	// evictionRefusals are those of the pods that were last observed, by name.
	evictionRefusals map[string]rollout.EvictionRefusal
}

// externalAnswer is the answer to a query about a load balancer outside the cluster.
type externalAnswer struct {
	// id of the query.
	id string
	// since is the time at which the query was first submitted, at the time at which the answer arrived; answer is nil until then.
	since, at time.Time
	answer    *traffic.LoadBalancerAnswer
}

func newMemory() *memory {
	return &memory{
		Memory:          reconciler.Memory[rolloutMemory]{Explanations: reconciler.ExplanationPolicy{WaitsFor: waitsFor, Detail: externalDetail, Complete: true}},
		deletedRollouts: map[types.NamespacedName]*argov1.Rollout{},
	}
}

// waitsFor returns the thing that a gate waits for, for its explanation in the status. A pause is explained, too: it may last
// for days, and Argo Rollouts may have written the status that began it.
func waitsFor(gate reconciler.StatusGate) string {
	if gate.Verdict == string(release.Wait) && gate.Opener == string(release.ByTime) {
		return "time"
	}
	return reconciler.WaitsFor(gate)
}

// externalDetail returns the message of a gate about a component outside the cluster, which users cannot inspect with kubectl.
func externalDetail(gate reconciler.StatusGate) string {
	if gate.Name == rollout.GateRouteConfirmed || gate.Name == rollout.GateTargets {
		return gate.Message
	}
	return ""
}

// explain returns the gates that the status must show for a decision.
func (m *memory) explain(s *observation, d rollout.Decision) reconciler.Explanation {
	return m.Explain(s.key(), reconciler.Evaluation{
		Gates: d.Gates, Shown: shownGates(s.snapshot.Status), Provisional: d.Wake.Equal(s.snapshot.Now), Pruned: m.prunesStatus(), Now: s.snapshot.Now,
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
	m.Do(key, func(e *rolloutMemory) {
		if first = e.uid != uid; first {
			e.uid, e.replicaSetsCompared, e.routeCompared = uid, false, false
		}
	})
	return first
}

// prunesStatus reports whether the installed definition drops status.serin.
func (m *memory) prunesStatus() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.statusPruned
}

// recordPruning compares the written status with the returned one, and reports whether this is the first sign of pruning.
func (m *memory) recordPruning(written, stored *argov1.SerinStatus) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	firstSign := written != nil && stored == nil && !m.statusPruned
	if firstSign || stored != nil {
		m.statusPruned = firstSign
	}
	return firstSign
}

// recordLostPlace compares the written place in the queue with the returned one, and reports whether this is the first loss.
func (m *memory) recordLostPlace(written, stored *argov1.SerinStatus) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if written == nil || written.Queue == nil {
		return false
	}
	lost := stored == nil || stored.Queue == nil
	firstLoss := lost && !m.placeLost
	m.placeLost = lost
	return firstLoss
}

// losesPlace reports whether stored statuses cannot contain a place in the queue.
func (m *memory) losesPlace() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.placeLost
}

// recordDeleted records a Rollout that was deleted, until its objects are restored. A standby would retain all Rollouts that are
// deleted meanwhile, so it records none; when it leads, it restores their objects as leftovers.
func (m *memory) recordDeleted(rollout *argov1.Rollout) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.reconciles {
		m.deletedRollouts[types.NamespacedName{Namespace: rollout.Namespace, Name: rollout.Name}] = rollout
	}
}

// recordReconciliation records that this process reconciles, and is not a standby.
func (m *memory) recordReconciliation() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.reconciles = true
}

// recordAnswer returns the answer to a query; an empty ID: there is no query. An answer to a request that began before the
// query was submitted does not count: it may describe an earlier state. An answer remains valid while the same query is
// repeated.
func (m *memory) recordAnswer(key types.NamespacedName, id string, now time.Time, answers release.Answers) (last externalAnswer) {
	m.Do(key, func(e *rolloutMemory) {
		if e.lastAnswer.id != id {
			e.lastAnswer = externalAnswer{id: id, since: now}
		}
		if answer, ok := answers[id]; ok && !answer.Ended.IsZero() && !answer.Began.Before(e.lastAnswer.since) {
			detail, ok := answer.Detail.(traffic.LoadBalancerAnswer)
			if !ok { // the query could not be sent
				detail = traffic.LoadBalancerAnswer{Reason: answer.Text}
			}
			e.lastAnswer.answer, e.lastAnswer.at = &detail, answer.Ended
		}
		last = e.lastAnswer
	})
	return last
}

// recordEvictionRefusal records that a disruption budget refused the eviction of a pod.
func (m *memory) recordEvictionRefusal(key types.NamespacedName, pod string, refusal rollout.EvictionRefusal) {
	m.Do(key, func(e *rolloutMemory) {
		if e.evictionRefusals == nil {
			e.evictionRefusals = map[string]rollout.EvictionRefusal{}
		}
		e.evictionRefusals[pod] = refusal
	})
}

// addEvictionRefusals adds the recorded refusals to the pods of a Rollout, and forgets those of other pods.
func (m *memory) addEvictionRefusals(key types.NamespacedName, pods []rollout.Pod) {
	m.Do(key, func(e *rolloutMemory) {
		var current map[string]rollout.EvictionRefusal
		for i := range pods {
			refusal, refused := e.evictionRefusals[pods[i].Name]
			if !refused {
				continue
			}
			pods[i].EvictionRefusal = refusal
			if current == nil {
				current = map[string]rollout.EvictionRefusal{}
			}
			current[pods[i].Name] = refusal
		}
		e.evictionRefusals = current
	})
}

// deletedRollout returns the deleted Rollout of that name whose objects are not restored yet; nil: none.
func (m *memory) deletedRollout(key types.NamespacedName) *argov1.Rollout {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.deletedRollouts[key]
}

// forgetDeleted forgets a deleted Rollout.
func (m *memory) forgetDeleted(key types.NamespacedName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.deletedRollouts, key)
}

// keys returns the Rollouts with state in this memory, including deleted ones.
func (m *memory) keys() []types.NamespacedName {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.AppendSeq(m.Keys(), maps.Keys(m.deletedRollouts))
}
