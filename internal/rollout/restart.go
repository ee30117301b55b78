package rollout

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/release"
)

// evictionRetryInterval is the time before an eviction that a disruption budget rejected is retried, unless more pods become ready
// before.
const evictionRetryInterval = 30 * time.Second

// maxEvictions is the maximum number of evictions of one reconciliation, whose worker sends one request after the other.
const maxEvictions = 20

// IsRestartDue reports whether pods are to be replaced because of spec.restartAt.
func IsRestartDue(spec argov1.RolloutSpec, status argov1.RolloutStatus, now time.Time) bool {
	at := spec.RestartAt
	return at != nil && !at.Equal(status.RestartedAt) && now.After(at.Time)
}

// restartPlan is the result of planRestart.
type restartPlan struct {
	outcome
	// restartedAt is the value of status.restartedAt: the last complete restart.
	restartedAt *metav1.Time
}

// after returns the contribution of a restart to a reconciliation that decides what else is necessary. Pods are evicted only if nothing
// else is removed: together, more of them could be unavailable than the strategy permits. The release does not wait for an eviction,
// which a disruption budget may refuse for long.
func (r restartPlan) after(decided outcome) outcome {
	if len(decided.removalEffects) > 0 {
		return outcome{gates: r.gates}
	}
	return r.outcome
}

// planRestart evicts pods that are older than spec.restartAt, at most as many at a time as may be unavailable.
func planRestart(f facts) restartPlan {
	r, at := restartPlan{restartedAt: f.Status.RestartedAt}, f.Spec.RestartAt
	if at != nil && !at.Equal(f.Status.RestartedAt) && !f.Now.After(at.Time) {
		r.gates = append(r.gates, release.NewTimedGate("restart", at.Add(time.Nanosecond), "at "+at.UTC().Format(time.RFC3339)))
	}
	if !IsRestartDue(f.Spec, f.Status, f.Now) {
		return r
	}
	outdated := findOutdatedPods(f)
	if len(outdated) == 0 {
		r.restartedAt = at.DeepCopy()
		return r
	}
	spare, retry := countSparePods(f)
	ready, retryAt := CountReadyPods(f.Pods), f.Now.Add(evictionRetryInterval)
	for _, pod := range outdated {
		switch {
		case pod.Deleting:
			retry = true
			continue
		case pod.Ready && spare <= 0:
			continue
		case pod.EvictionRefusal.isCurrent(f.Now, ready):
			retry = true
			if at := pod.EvictionRefusal.At.Add(evictionRetryInterval); at.Before(retryAt) {
				retryAt = at
			}
			continue
		case len(r.removalEffects) == maxEvictions: // the next reconciliation continues
			continue
		case pod.Ready: // a pod that is not ready serves no requests, and may never become ready
			spare--
		}
		r.removalEffects = append(r.removalEffects, PodEvicted{Name: pod.Name})
		retry = true
	}
	gate := release.NewWaitingGate("restart", release.ByCluster, fmt.Sprintf("%s older than %s must be replaced", release.Count(len(outdated), "pod"), at.UTC().Format(time.RFC3339)))
	if retry { // otherwise an event of a ReplicaSet reports that enough pods are available
		gate.Until = retryAt
	}
	r.gates = append(r.gates, gate)
	return r
}

// CountReadyPods returns how many pods serve requests and are not being deleted.
func CountReadyPods(pods []Pod) int {
	ready := 0
	for _, pod := range pods {
		if pod.Ready && !pod.Deleting {
			ready++
		}
	}
	return ready
}

// isCurrent reports whether the eviction would be refused again, as far as known. A refusal in the future is not current: the clock
// was set back.
func (r EvictionRefusal) isCurrent(now time.Time, readyPods int) bool {
	age := now.Sub(r.At)
	return !r.At.IsZero() && age >= 0 && age < evictionRetryInterval && readyPods <= r.ReadyPods
}

// findOutdatedPods returns the pods to replace in the order of their replacement: pods of the stable revision, of the
// new one, and of the others, each by age. Pods whose eviction was refused follow the others, so that those of a budget that
// refuses all evictions do not delay the others.
func findOutdatedPods(f facts) []Pod {
	var outdated []Pod
	for _, pod := range f.Pods {
		if pod.Created.Before(f.Spec.RestartAt.Time) {
			outdated = append(outdated, pod)
		}
	}
	rank := func(pod Pod) int {
		switch pod.ReplicaSet {
		case f.stable.Name:
			return -2
		case f.new.Name:
			return -1
		default:
			return slices.IndexFunc(f.ReplicaSets, func(rs ReplicaSet) bool { return rs.Name == pod.ReplicaSet })
		}
	}
	slices.SortStableFunc(outdated, func(a, b Pod) int {
		return cmp.Or(a.EvictionRefusal.At.Compare(b.EvictionRefusal.At), cmp.Compare(rank(a), rank(b)), a.Created.Compare(b.Created), cmp.Compare(a.Name, b.Name))
	})
	return outdated
}

// countSparePods returns how many available pods may become unavailable now. outdated is true if the status of a
// ReplicaSet does not show yet that some pods are not ready.
//
// Whether a pod has been ready for long enough is read from the status of its ReplicaSet, because each change of that
// status triggers a reconciliation. According to the clock of this process, a pod might become available later, without
// an event.
func countSparePods(f facts) (spare int32, outdated bool) {
	ready := map[string]int32{}
	for _, pod := range f.Pods {
		if pod.Ready && !pod.Deleting {
			ready[pod.ReplicaSet]++
		}
	}
	var desired int32
	for _, rs := range f.ReplicaSets {
		spare += min(rs.Available, ready[rs.Name])
		desired += rs.SpecReplicas
		outdated = outdated || ready[rs.Name] < rs.Available
	}
	return spare - (max(f.replicas(), desired) - max(f.rollingLimits().MaxUnavailable, 1)), outdated
}
