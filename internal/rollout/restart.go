package rollout

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/release"
)

// evictRetry is how long after a look pods are tried again that a disruption budget kept.
const evictRetry = 30 * time.Second

// RestartDue is true while pods are to be replaced because the user asks for it.
func RestartDue(spec argov1.RolloutSpec, status argov1.RolloutStatus, now time.Time) bool {
	at := spec.RestartAt
	return at != nil && !at.Equal(status.RestartedAt) && now.After(at.Time)
}

// restart replaces pods that are older than the user asks for: as many at a time as may be missing. It says whether any
// are evicted now.
func (p *pass) restart(e *edit) bool {
	at := p.Spec.RestartAt
	if at != nil && !at.Equal(p.Status.RestartedAt) && !p.Now.After(at.Time) {
		p.gate(release.WaitsUntil("restart", at.Add(time.Nanosecond), "at "+at.UTC().Format(time.RFC3339)))
	}
	if !RestartDue(p.Spec, p.Status, p.Now) {
		return false
	}
	pods := p.restarted()
	if len(pods) == 0 {
		e.status.RestartedAt = at.DeepCopy()
		return false
	}
	spare, again := p.spare()
	evicted := false
	for _, pod := range pods {
		switch {
		case pod.Deleting:
			again = true
			continue
		case pod.Ready && spare <= 0:
			continue
		case pod.Ready: // of one that is not, nothing is lost, and it may never be
			spare--
		}
		p.down = append(p.down, PodEvicted{Name: pod.Name})
		evicted, again = true, true
	}
	gate := release.WaitsFor("restart", release.ByCluster, fmt.Sprintf("%d pods are older than %s", len(pods), at.UTC().Format(time.RFC3339)))
	if again { // else a ReplicaSet tells when pods are available that may be missing
		gate.Until = p.Now.Add(evictRetry)
	}
	p.gate(gate)
	return evicted
}

// restarted are the pods that have to go, in the order in which they do: those of the stable revision, of the new one, and
// then of the others, the oldest first.
func (p *pass) restarted() []Pod {
	var pods []Pod
	for _, pod := range p.Pods {
		if pod.Created.Before(p.Spec.RestartAt.Time) {
			pods = append(pods, pod)
		}
	}
	rank := func(pod Pod) int {
		switch pod.ReplicaSet {
		case p.stable.Name:
			return -2
		case p.new.Name:
			return -1
		default:
			return slices.IndexFunc(p.Sets, func(rs ReplicaSet) bool { return rs.Name == pod.ReplicaSet })
		}
	}
	slices.SortStableFunc(pods, func(a, b Pod) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), a.Created.Compare(b.Created), cmp.Compare(a.Name, b.Name))
	})
	return pods
}

// spare is how many available pods may be missing now; passing: a ReplicaSet does not know yet that some are not ready.
//
// Which pods have been ready for long enough is what their ReplicaSet says, whose change brings the Rollout back: by the
// clock of this process a pod may be available some time later, and nothing would tell of that.
func (p *pass) spare() (spare int32, passing bool) {
	ready := map[string]int32{}
	for _, pod := range p.Pods {
		if pod.Ready && !pod.Deleting {
			ready[pod.ReplicaSet]++
		}
	}
	var asked int32
	for _, rs := range p.Sets {
		spare += min(rs.Available, ready[rs.Name])
		asked += rs.Spec
		passing = passing || ready[rs.Name] < rs.Available
	}
	return spare - (max(p.replicas(), asked) - max(p.limits().Unavailable, 1)), passing
}
