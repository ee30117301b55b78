package rollout

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/test/sim"
	"github.com/serin-dev/serin/test/sim/actors"
	"github.com/serin-dev/serin/test/sim/oracle"
)

// gradualAbort is I34.
type gradualAbort struct {
	*ledger
	oracle.EventsOnly

	aborts map[types.UID]abort
}

// abort is an abort: when it was recorded, and of which revision.
type abort struct {
	at   time.Time
	hash string
}

func (c *gradualAbort) Observe(event any) {
	switch h := event.(type) {
	case rolloutWritten:
		c.note(h)
	case sim.Reconciled:
		if r := c.ByName[h.Release]; r != nil && h.Err == nil {
			c.check(r)
		}
	}
}

func (c *gradualAbort) note(h rolloutWritten) {
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

// check looks at a release that was aborted so long ago that every process has seen it, and all that followed.
func (c *gradualAbort) check(r *record) {
	is, aborted := c.aborts[r.UID]
	canary := r.object.Spec.Strategy.Canary
	if !aborted || canary == nil || canary.TrafficRouting == nil || r.run == nil || r.run.hash != is.hash || c.disturbed(r, is) {
		return
	}
	least := time.Duration(r.object.Spec.MinReadySeconds) * time.Second
	from := c.OldestView().Add(-least)
	from = from.Add(-c.Lag) // the pods that it saw may have been those of a lag before
	stable := c.podsOf(r, r.object.Status.StableRS).Fewest(from)
	asked := c.replicas(r)
	enough := mostBetween(c.podsOf(r, is.hash), is.at.Add(-c.Lag-least), is.at.Add(c.Lag))
	if canary.DynamicStableScale {
		enough += mostBetween(c.podsOf(r, r.object.Status.StableRS), is.at.Add(-c.Lag-least), is.at.Add(c.Lag))
	}
	if enough = min(max(enough, 1), asked); enough == 0 {
		return // a Rollout without pods serves no requests
	}
	share := 0
	for _, kind := range routeKinds {
		share = max(share, r.given(c.World.Server.Peek(kind, r.Key)))
	}
	if allowed := max(0, 100-100*stable/enough); stable > 0 && share > allowed {
		c.Violate("I34", r.Name(), "aborted %s ago it still has %d percent of the traffic, although %d stable pods are ready, and %d were enough when it was aborted",
			c.Now().Sub(is.at), share, stable, enough)
	}
	set := c.setOf(r, is.hash)
	if set == nil || c.podsOf(r, r.object.Status.StableRS).Most(from) >= asked {
		return
	}
	if ready := max(c.podsOf(r, is.hash).Most(from), 1); int(wanted(set)) > ready {
		c.Violate("I34", r.Name(), "aborted %s ago it asks for %d pods, of which %d are ready, while stable pods are missing", c.Now().Sub(is.at), wanted(set), ready)
	}
}

// disturbed is true where someone else had a say since, or something failed of which no one has recovered yet.
func (c *gradualAbort) disturbed(r *record, is abort) bool {
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

func (c *gradualAbort) replicas(r *record) int {
	return int((&drainBeforeScaleDown{ledger: c.ledger}).replicas(r))
}

// mostBetween is how many pods were ready at once at some moment of a time.
func mostBetween(p *oracle.Pods, from, to time.Time) int {
	if p == nil {
		return 0
	}
	return oracle.Most(p.Serving.Until(to), from)
}
