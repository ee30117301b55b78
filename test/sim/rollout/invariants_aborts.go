package rollout

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/test/sim"
	"github.com/serin-dev/serin/test/sim/actors"
	"github.com/serin-dev/serin/test/sim/oracle"
)

// gradualAborts records aborts, for I34.
type gradualAborts struct {
	*ledger

	aborts map[types.UID]abort
}

// abort is an abort: when it was recorded, and of which revision.
type abort struct {
	at   time.Time
	hash string
}

// note records when a release was aborted.
func (c *gradualAborts) note(event any) {
	h, ok := event.(rolloutWritten)
	if !ok {
		return
	}
	if c.aborts == nil {
		c.aborts = map[types.UID]abort{}
	}
	if h.after == nil || !h.after.Status.Abort || h.after.Status.CurrentPodHash == h.after.Status.StableRS {
		delete(c.aborts, h.New.UID())
		return
	}
	if is := c.aborts[h.after.UID]; is.hash != h.after.Status.CurrentPodHash {
		c.aborts[h.after.UID] = abort{c.Now(), h.after.Status.CurrentPodHash}
	}
}

// undisturbed is the release of a reconciliation that was aborted so long ago that every process has seen it, and all that
// followed; nil: it was not.
func (c *gradualAborts) undisturbed(event any) *record {
	h, ok := event.(sim.Reconciled)
	if !ok || h.Err != nil || c.ByName[h.Release] == nil {
		return nil
	}
	r := c.ByName[h.Release]
	is, aborted := c.aborts[r.UID]
	canary := r.object.Spec.Strategy.Canary
	if !aborted || canary == nil || canary.TrafficRouting == nil || r.run == nil || r.run.hash != is.hash || c.disturbed(r, is) || c.enough(r) == 0 {
		return nil // a Rollout without pods serves no requests
	}
	return r
}

// enough is how many stable pods carry all users: as many as carried them when the release was aborted.
func (c *gradualAborts) enough(r *record) int {
	is, least := c.aborts[r.UID], minReady(r)
	from, to := is.at.Add(-c.Lag-least), is.at.Add(c.Lag)
	enough := mostBetween(c.podsOf(r, is.hash), from, to)
	if r.object.Spec.Strategy.Canary.DynamicStableScale {
		enough += mostBetween(c.podsOf(r, r.object.Status.StableRS), from, to)
	}
	return min(max(enough, 1), c.replicas(r))
}

func minReady(r *record) time.Duration {
	return time.Duration(r.object.Spec.MinReadySeconds) * time.Second
}

// seen is since when the pods of a release may have been as its last reconciliation observed them.
func (c *gradualAborts) seen(r *record) time.Time { return c.OldestView().Add(-minReady(r) - c.Lag) }

// returns are facts for I34.
func (c *gradualAborts) returns(event any) []oracle.Return {
	r := c.undisturbed(event)
	if r == nil {
		return nil
	}
	share := 0
	for _, kind := range routeKinds {
		share = max(share, r.given(c.World.Server.Peek(kind, r.Key)))
	}
	return []oracle.Return{{
		Release: r.Name(), Began: c.aborts[r.UID].at, Share: share,
		Fewest: c.podsOf(r, r.object.Status.StableRS).Fewest(c.seen(r)), Enough: c.enough(r),
	}}
}

// pending is the part of I34 about pods that wait for room: those of the aborted revision leave it to stable ones.
func (c *gradualAborts) pending(event any) {
	r := c.undisturbed(event)
	if r == nil {
		return
	}
	is := c.aborts[r.UID]
	set := c.setOf(r, is.hash)
	if set == nil || c.podsOf(r, r.object.Status.StableRS).Most(c.seen(r)) >= c.replicas(r) {
		return
	}
	if ready := max(c.podsOf(r, is.hash).Most(c.seen(r)), 1); int(wanted(set)) > ready {
		c.Violate("I34", r.Name(), "aborted %s ago, it asks for %d pods, of which %d are ready, although stable pods are missing", c.Now().Sub(is.at), wanted(set), ready)
	}
}

// disturbed is true where users have interfered since, or a failure has not been recovered from yet.
func (c *gradualAborts) disturbed(r *record, is abort) bool {
	settled := c.OldestView().Add(-c.Lag)
	switch {
	case !is.at.Before(settled), !r.meddled.Before(is.at.Add(time.Second)), len(c.expectedSpecs(r)) > 1, !r.Suspended.IsZero():
		return true
	case len(c.World.Instances()) != 1, c.unfinished, c.LastFault.After(settled.Add(-triedAgain)), pruning(c.World):
		return true
	case r.object.Status.PromoteFull, heldInconclusive(r.object.Status), r.object.Status.ObservedGeneration == "":
		return true
	}
	for _, began := range c.Started {
		if began.After(settled) {
			return true
		}
	}
	for at, w := range c.Objects {
		if at.Kind != rolloutKind && w.ByOthers.After(settled) && at.Kind != actors.PodKind && (at.Key.Name == r.Name() || at.Kind == actors.ReplicaSetKind || at.Kind == actors.ServiceKind) {
			return true
		}
	}
	return false
}

func heldInconclusive(s argov1.RolloutStatus) bool {
	for _, c := range s.PauseConditions {
		if c.Reason == argov1.PauseReasonInconclusiveAnalysis {
			return true
		}
	}
	return false
}

// mostBetween is how many pods were ready at once at some moment of a time.
func mostBetween(p *oracle.Pods, from, to time.Time) int {
	if p == nil {
		return 0
	}
	return oracle.Most(p.Serving.Until(to), from)
}
