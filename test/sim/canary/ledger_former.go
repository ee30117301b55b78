package canary

import (
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/serin-dev/serin/test/sim/oracle"
)

// formerRoute is the route of a provider that the spec named before, which clients may still follow.
type formerRoute struct {
	weights

	since time.Time // when the spec named another provider
	// byOthers is set once another actor changed the weights.
	byOthers bool
}

// recordProvider records that the spec names another kind of route than before.
func (c *recorder) recordProvider(r *record, before schema.GroupKind) {
	now := r.routeKind()
	if before == now {
		return
	}
	if before.Kind != "" {
		if r.former == nil {
			r.former = map[schema.GroupKind]formerRoute{}
		}
		r.former[before] = formerRoute{r.route.weights, c.Now(), r.run == nil || r.route.changedByOthers.After(r.run.began)}
	}
	delete(r.former, now)
	r.route.weights = weights{}
}

// recordFormerRoute records the weights of the route of a former provider.
func (c *recorder) recordFormerRoute(h oracle.Write) {
	for _, r := range c.All {
		former, isFormer := r.former[h.Kind]
		if !isFormer || r.Gone() || h.Key != namespacedName(r, r.apexName()) {
			continue
		}
		before := former.weights
		former.weights = r.weightsIn(h.Event)
		former.byOthers = former.byOthers || !h.BySerin && former.weights != before
		r.former[h.Kind] = former
	}
}

// formerTraffic returns the weight that the route of a former provider has for the canary, if no other actor changed it and the
// spec named that provider until a time.
func (r *record) formerTraffic(until time.Time) int {
	most := 0
	for _, former := range r.former {
		if !former.byOthers && former.since.Before(until) {
			most = max(most, former.canary)
		}
	}
	return most
}
