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

// endpointsOf is the place of endpoints: a Service, and the ReplicaSet of their pods.
type endpointsOf struct{ service, set string }

// recordEndpoints records what a Service publishes from now on.
func (l *ledger) recordEndpoints(h oracle.Write) {
	slice := actors.Typed[*discoveryv1.EndpointSlice](l.World, h.New)
	if slice == nil {
		return
	}
	service := endpoints.ServiceOf(slice)
	now := map[endpointsOf]int{}
	for _, e := range slice.Endpoints {
		if e.TargetRef != nil && e.Conditions.Ready != nil && *e.Conditions.Ready && h.Type != store.Deleted {
			now[endpointsOf{service, e.TargetRef.Name[:strings.LastIndex(e.TargetRef.Name, "-")]}]++
		}
	}
	for of, pods := range l.published {
		if of.service == service && now[of] == 0 {
			pods.Set(0, l.Now())
		}
	}
	for of, n := range now {
		if l.published[of] == nil {
			l.published[of] = &oracle.Timeline[int]{}
		}
		l.published[of].Set(n, l.Now())
	}
}

// couldBePublished is true where a Service published a pod of a revision at some moment since then.
func (l *ledger) couldBePublished(r *record, service, hash string, then time.Time) bool {
	pods := l.published[endpointsOf{service, r.Name() + "-" + hash}]
	return pods != nil && slices.ContainsFunc(pods.Since(then), func(n int) bool { return n > 0 })
}

// endpointsBeforeWeight is I37.
type endpointsBeforeWeight struct {
	*ledger
	oracle.EventsOnly
}

func (c *endpointsBeforeWeight) Observe(event any) {
	h, ok := event.(routeWritten)
	if !ok || !h.BySerin || !h.weights() || h.Type != store.Modified || !c.plain(h.of) || c.JustStarted(h.Actor) {
		return
	}
	r := h.of
	w := c.Objects[oracle.At(h.Kind, h.Key)]
	if w != nil && w.ByOthers.After(r.run.began) || r.object.Status.PromoteFull || c.noneAsked(r) || c.minReady(r) {
		return
	}
	for _, s := range weightsOf(h.New) {
		if s.Subset != "" || s.Weight <= weightOf(weightsOf(h.Old), s.place) || c.touched(r, s.place) {
			continue
		}
		switch recorded := r.object.Status.Canary.Weights; {
		case r.object.Status.StableRS == r.run.hash:
			if recorded != nil && recorded.Canary.Weight > 0 && recorded.Canary.PodTemplateHash == r.run.hash && !r.onTheWay(s.place) &&
				c.podsOf(r, r.run.hash).Answered(c.OldestView()) { // if its pods are lost, the Service of the stable side may still have pods of the previous revision
				c.reached(h, s.place, "the promoted revision has weight")
			}
		case r.onTheWay(s.place) && (recorded == nil || int(recorded.Canary.Weight) < s.Weight):
			if c.podsOf(r, r.object.Status.StableRS).Answered(c.OldestView()) {
				c.reached(h, s.place, "the canary has weight")
			}
		}
	}
	before := managedIn(h.Old)
	for _, rule := range managedRules(h.New) {
		at := meant(rule)
		if at.Subset == "" && !slices.Contains(before, fmt.Sprint(rule["name"])) && r.object.Status.StableRS != r.run.hash && !c.touched(r, at) &&
			c.podsOf(r, r.object.Status.StableRS).Answered(c.OldestView()) {
			c.reached(h, at, fmt.Sprintf("the canary has route %s", rule["name"]))
		}
	}
}

// reached: requests to a place find the pods of the newest revision.
func (c *endpointsBeforeWeight) reached(h routeWritten, at place, what string) {
	r := h.of
	if !c.couldBePublished(r, at.Service, r.run.hash, c.OldestView()) && !c.takenAway(r, r.run.hash) {
		c.Violate("I37", r.Name(), "%s, but Service %s has published no pod of %s within %s", what, at.Service, r.run.hash, c.Lag)
	}
}

// minReady is true where pods may answer long before they are available.
func (c *endpointsBeforeWeight) minReady(r *record) bool {
	return slices.ContainsFunc(c.expectedSpecs(r), func(s *argov1.RolloutSpec) bool { return s.MinReadySeconds > 0 })
}
