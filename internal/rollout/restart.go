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

// evictionRetryInterval is the interval at which the eviction of pods that a disruption budget refused is repeated.
const evictionRetryInterval = 30 * time.Second

// IsRestartDue reports whether pods are to be replaced because the user asks for it.
func IsRestartDue(spec argov1.RolloutSpec, status argov1.RolloutStatus, now time.Time) bool {
	at := spec.RestartAt
	return at != nil && !at.Equal(status.RestartedAt) && now.After(at.Time)
}

// restartPlan is the result of planRestart.
type restartPlan struct {
	outcome
	// evictsPods is true when pods are evicted now: nothing else changes meanwhile.
	evictsPods bool
	// restartedAt is the value of status.restartedAt: the last complete restart.
	restartedAt *metav1.Time
}

// planRestart replaces pods that are older than spec.restartAt, as many at a time as may be missing.
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
	spare, again := countSparePods(f)
	for _, pod := range outdated {
		switch {
		case pod.Deleting:
			again = true
			continue
		case pod.Ready && spare <= 0:
			continue
		case pod.Ready: // nothing is lost with one that is not ready, and it may never be
			spare--
		}
		r.removalEffects = append(r.removalEffects, PodEvicted{Name: pod.Name})
		r.evictsPods, again = true, true
	}
	gate := release.NewWaitingGate("restart", release.ByCluster, fmt.Sprintf("%d pods are older than %s", len(outdated), at.UTC().Format(time.RFC3339)))
	if again { // otherwise a change of a ReplicaSet shows when enough pods are available
		gate.Until = f.Now.Add(evictionRetryInterval)
	}
	r.gates = append(r.gates, gate)
	return r
}

// findOutdatedPods are the pods to replace, in the order in which they are: those of the stable revision, of the new one,
// and of the others, the oldest first.
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
		return cmp.Or(cmp.Compare(rank(a), rank(b)), a.Created.Compare(b.Created), cmp.Compare(a.Name, b.Name))
	})
	return outdated
}

// countSparePods returns how many available pods may be missing now. outdated is true when a ReplicaSet's status does not
// show yet that some pods are not ready.
//
// Whether a pod has been ready for long enough is read from the status of its ReplicaSet, because each change of it
// triggers a reconciliation. By the clock of this process a pod might become available later, and no event would report
// that.
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
		desired += rs.Spec
		outdated = outdated || ready[rs.Name] < rs.Available
	}
	return spare - (max(f.replicas(), desired) - max(f.rollingLimits().MaxUnavailable, 1)), outdated
}
