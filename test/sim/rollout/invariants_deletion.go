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

// serviceSuffixes are the suffixes of the Services of a release.
var serviceSuffixes = []string{"-stable", "-canary", "-preview", "-ping", "-pong"}

// networkRestoration is the part of I16 about Services and routes.
type networkRestoration struct {
	*ledger

	deletedAt map[types.UID]time.Time
}

func (c *networkRestoration) Observe(event any) {
	if c.deletedAt == nil {
		c.deletedAt = map[types.UID]time.Time{}
	}
	if h, ok := event.(rolloutWritten); ok && h.After == nil && h.Record != nil {
		c.deletedAt[h.Record.UID] = c.Now()
	}
}

// Finish implements oracle.Checker: the objects of a deleted Rollout are as the user created them, whether or not the process
// that knew the Rollout was running when it was deleted.
func (c *networkRestoration) Finish() {
	for _, r := range c.All {
		if _, gone := c.deletedAt[r.UID]; !gone || !r.Gone() || c.ByName[r.Key] != nil || c.hasSuccessor(r) {
			continue
		}
		for _, kind := range networkKinds {
			for _, v := range c.World.Server.All(kind) {
				c.checkObject(r, v)
			}
		}
	}
}

// hasSuccessor reports whether another Rollout with the same name was created later, which then owned the objects.
func (c *networkRestoration) hasSuccessor(r *record) bool {
	return slices.ContainsFunc(c.All, func(o *record) bool { return o.Key == r.Key && c.deletedAt[o.UID].After(c.deletedAt[r.UID]) })
}

// checkObject checks that an object no longer names the Rollout as its manager, and that a Service selects all pods. Weights
// remain unchanged.
func (c *networkRestoration) checkObject(r *record, v *store.Version) {
	at := oracle.KeyOf(v.Kind(), v.Key())
	if w := c.Objects[at]; w != nil && w.ByOthers.After(c.deletedAt[r.UID]) {
		return
	}
	if remaining := managedIn(v); at.Key == r.Key && hasManagedRoutes(r.object.Spec.Strategy) && len(remaining) > 0 {
		c.Violate("I16", r.Name(), "it was deleted, and its route still has %v", remaining)
	}
	if v.Meta().Annotations[argov1.ManagedByAnnotation] == r.Name() {
		c.Violate("I16", r.Name(), "it was deleted, and an annotation of %s %s still names it as the manager", at.Kind.Kind, at.Key.Name)
	}
	for _, subset := range subsetsIn(v) {
		if selected := selectionIn(subset); at.Key == r.Key && selected != "" && !isOwnSubset(subset) {
			c.Violate("I16", r.Name(), "it was deleted, and subset %s of its %s still selects only the pods of %s", subset["name"], at.Kind.Kind, selected)
		}
	}
	if at.Key.Name != r.Name() && !slices.Contains(serviceSuffixes, strings.TrimPrefix(at.Key.Name, r.Name())) {
		return
	}
	if hash := c.selectedHash(v); at.Kind == actors.ServiceKind && hash != "" {
		c.Violate("I16", r.Name(), "it was deleted, and Service %s still selects only %s", at.Key.Name, hash)
	}
}
