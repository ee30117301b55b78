package rollout

import (
	"fmt"
	"slices"
	"strings"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/endpoints"
	"github.com/serin-dev/serin/test/sim/actors"
	"github.com/serin-dev/serin/test/sim/oracle"
	"github.com/serin-dev/serin/test/sim/store"
)

// endpointsKey identifies endpoints by their Service and the ReplicaSet of their pods.
type endpointsKey struct{ service, replicaSet string }

// endpointsBeforeWeight is I37.
type endpointsBeforeWeight struct {
	*ledger
	oracle.EventsOnly

	// published contains the ready endpoints, by Service and by the names of their pods without the last part.
	published map[endpointsKey]*oracle.Timeline[int]
}

func (c *endpointsBeforeWeight) Observe(event any) {
	if h, ok := event.(oracle.Write); ok && h.Kind == endpoints.Kind {
		c.recordEndpoints(h)
	}
	h, ok := event.(routeWritten)
	if !ok || !h.BySerin || !h.hasWeights() || h.Type != store.Modified || !c.followsPlan(h.record) || c.JustStarted(h.Actor) {
		return
	}
	r := h.record
	w := c.Objects[oracle.KeyOf(h.Kind, h.Key)]
	if w != nil && w.ByOthers.After(r.run.began) || r.object.Status.PromoteFull || c.mayHaveNoPods(r) || c.mayAnswerEarly(r) {
		return
	}
	for _, s := range weightsOf(h.New) {
		if s.Subset != "" || s.Weight <= weightOf(weightsOf(h.Old), s.destination) || c.podsChangedByOthers(r, s.destination) {
			continue
		}
		switch recorded := r.object.Status.Canary.Weights; {
		case r.object.Status.StableRS == r.run.hash:
			if recorded != nil && recorded.Canary.Weight > 0 && recorded.Canary.PodTemplateHash == r.run.hash && !r.isCanary(s.destination) &&
				c.podsOf(r, r.run.hash).AnsweredSince(c.OldestView()) { // if its pods are lost, the stable Service may still have pods of the previous revision
				c.checkPublished(h, s.destination, "the promoted revision has weight")
			}
		case r.isCanary(s.destination) && (recorded == nil || int(recorded.Canary.Weight) < s.Weight):
			if c.stableServes(r) {
				c.checkPublished(h, s.destination, "the canary has weight")
			}
		}
	}
	before := managedIn(h.Old)
	for _, rule := range managedRules(h.New) {
		at := managedDestination(rule)
		if at.Subset == "" && !slices.Contains(before, fmt.Sprint(rule["name"])) && r.object.Status.StableRS != r.run.hash && !c.podsChangedByOthers(r, at) && c.stableServes(r) {
			c.checkPublished(h, at, fmt.Sprintf("the canary has route %s", rule["name"]))
		}
	}
}

// stableServes reports whether the stable revision has a pod for users. A terminating pod still answers, but a revision whose only pod
// was restarted has none until the next one is available.
func (c *endpointsBeforeWeight) stableServes(r *record) bool {
	return c.podsOf(r, r.object.Status.StableRS).MinServing(c.OldestView()) > 0
}

// recordEndpoints records the ready endpoints that a Service publishes.
func (c *endpointsBeforeWeight) recordEndpoints(h oracle.Write) {
	slice := actors.Typed[*discoveryv1.EndpointSlice](c.World, h.New)
	if slice == nil {
		return
	}
	service := endpoints.ServiceOf(slice)
	now := map[endpointsKey]int{}
	for _, e := range slice.Endpoints {
		if e.TargetRef != nil && e.Conditions.Ready != nil && *e.Conditions.Ready && h.Type != store.Deleted {
			now[endpointsKey{service, e.TargetRef.Name[:strings.LastIndex(e.TargetRef.Name, "-")]}]++
		}
	}
	for of, pods := range c.published {
		if of.service == service && now[of] == 0 {
			pods.Set(0, c.Now())
		}
	}
	for of, n := range now {
		if c.published[of] == nil {
			c.published[of] = &oracle.Timeline[int]{}
		}
		c.published[of].Set(n, c.Now())
	}
}

// couldBePublished reports whether a Service published a pod of a revision at any time since then.
func (c *endpointsBeforeWeight) couldBePublished(r *record, service, hash string, then time.Time) bool {
	pods := c.published[endpointsKey{service, r.Name() + "-" + hash}]
	return pods != nil && slices.ContainsFunc(pods.Since(then), func(n int) bool { return n > 0 })
}

// checkPublished reports a violation if a Service that receives requests publishes no pod of the newest revision.
func (c *endpointsBeforeWeight) checkPublished(h routeWritten, at destination, what string) {
	r := h.record
	if !c.couldBePublished(r, at.Service, r.run.hash, c.OldestView()) && !c.replicaSetDeleted(r, r.run.hash) {
		c.Violate("I37", r.Name(), "%s, but Service %s has published no pod of %s within %s", what, at.Service, r.run.hash, c.Lag)
	}
}

// mayAnswerEarly reports whether pods may answer long before they are available.
func (c *endpointsBeforeWeight) mayAnswerEarly(r *record) bool {
	return slices.ContainsFunc(c.expectedSpecs(r), func(s *argov1.RolloutSpec) bool { return s.MinReadySeconds > 0 })
}
