package rollout

import (
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/test/sim/store"
)

// roles are how the names of Services of a release end.
var roles = []string{"-stable", "-canary", "-preview", "-ping", "-pong"}

// givenBack is I16.
type givenBack struct {
	*ledger

	gone      map[types.UID]time.Time
	workloads workloadsBack
}

func (c *givenBack) see(happening any) {
	c.workloads.see(happening)
	if c.gone == nil {
		c.gone = map[types.UID]time.Time{}
	}
	if h, ok := happening.(moved); ok && h.after == nil && h.of != nil {
		c.gone[h.of.uid] = c.now()
	}
}

// end: what a deleted Rollout had is as its user made it, whichever process knew the Rollout, and whether one ran when it was
// deleted.
func (c *givenBack) end() {
	c.workloads.end()
	for _, r := range c.all {
		if _, gone := c.gone[r.uid]; !gone || !r.deleted || c.named[r.key] != nil || c.successor(r) {
			continue
		}
		for _, kind := range networkKinds {
			for _, v := range c.world.Server.All(kind) {
				c.look(r, v)
			}
		}
	}
}

// successor is true where another Rollout of that name was there later: what it had was its.
func (c *givenBack) successor(r *record) bool {
	return slices.ContainsFunc(c.all, func(o *record) bool { return o.key == r.key && c.gone[o.uid].After(c.gone[r.uid]) })
}

// look: an object says no more that the Rollout manages it, and a Service leads to all pods. Weights stay.
func (c *givenBack) look(r *record, v *store.Version) {
	at := thing{v.Kind(), v.Key()}
	if w := c.objects[at]; w != nil && w.foreign.After(c.gone[r.uid]) {
		return
	}
	if left := managedIn(v); at.key == r.key && manages(r.object.Spec.Strategy) && len(left) > 0 {
		c.violate("I16", r.key.Name, "it is gone, and its route still has %v", left)
	}
	if v.Meta().Annotations[argov1.ManagedByAnnotation] == r.key.Name {
		c.violate("I16", r.key.Name, "it is gone, and %s %s still says that it is managed by it", at.kind.Kind, at.key.Name)
	}
	for _, subset := range subsetsIn(v) {
		if hash := hashIn(subset); at.key == r.key && hash != "" {
			c.violate("I16", r.key.Name, "it is gone, and subset %s of its DestinationRule still has the pods of %s alone", subset["name"], hash)
		}
	}
	if at.key.Name != r.key.Name && !slices.Contains(roles, strings.TrimPrefix(at.key.Name, r.key.Name)) {
		return
	}
	if hash := c.selected(v); at.kind == serviceKind && hash != "" {
		c.violate("I16", r.key.Name, "it is gone, and Service %s still selects %s alone", at.key.Name, hash)
	}
}
