package rollout

import (
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/test/sim/actors"
	"github.com/serin-dev/serin/test/sim/oracle"
	"github.com/serin-dev/serin/test/sim/store"
)

// roles are how the names of Services of a release end.
var roles = []string{"-stable", "-canary", "-preview", "-ping", "-pong"}

// removal is the part of I16 about Services and routes.
type removal struct {
	*ledger

	gone map[types.UID]time.Time
}

func (c *removal) Observe(event any) {
	if c.gone == nil {
		c.gone = map[types.UID]time.Time{}
	}
	if h, ok := event.(rolloutWritten); ok && h.after == nil && h.of != nil {
		c.gone[h.of.UID] = c.Now()
	}
}

// end: what a deleted Rollout had is as its user made it, whichever process knew the Rollout, and whether one ran when it was
// deleted.
func (c *removal) Finish() {
	for _, r := range c.All {
		if _, gone := c.gone[r.UID]; !gone || !r.Gone() || c.ByName[r.Key] != nil || c.successor(r) {
			continue
		}
		for _, kind := range networkKinds {
			for _, v := range c.World.Server.All(kind) {
				c.look(r, v)
			}
		}
	}
}

// successor is true where another Rollout of that name was there later: what it had was its.
func (c *removal) successor(r *record) bool {
	return slices.ContainsFunc(c.All, func(o *record) bool { return o.Key == r.Key && c.gone[o.UID].After(c.gone[r.UID]) })
}

// look: an object says no more that the Rollout manages it, and a Service leads to all pods. Weights stay.
func (c *removal) look(r *record, v *store.Version) {
	at := oracle.At(v.Kind(), v.Key())
	if w := c.Objects[at]; w != nil && w.ByOthers.After(c.gone[r.UID]) {
		return
	}
	if left := managedIn(v); at.Key == r.Key && manages(r.object.Spec.Strategy) && len(left) > 0 {
		c.Violate("I16", r.Name(), "it was deleted, and its route still has %v", left)
	}
	if v.Meta().Annotations[argov1.ManagedByAnnotation] == r.Name() {
		c.Violate("I16", r.Name(), "it was deleted, and an annotation of %s %s still names it as the manager", at.Kind.Kind, at.Key.Name)
	}
	for _, subset := range subsetsIn(v) {
		if hash := hashIn(subset); at.Key == r.Key && hash != "" {
			c.Violate("I16", r.Name(), "it was deleted, and subset %s of its DestinationRule still selects only the pods of %s", subset["name"], hash)
		}
	}
	if at.Key.Name != r.Name() && !slices.Contains(roles, strings.TrimPrefix(at.Key.Name, r.Name())) {
		return
	}
	if hash := c.selected(v); at.Kind == actors.ServiceKind && hash != "" {
		c.Violate("I16", r.Name(), "it was deleted, and Service %s still selects only %s", at.Key.Name, hash)
	}
}
