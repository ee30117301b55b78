package watching

import (
	"container/list"
	"context"
	"maps"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// CededReleases records the releases that Serin cedes to another controller, with the reason. Its zero value has none.
//
// When another controller appears or disappears, SetReason is called for every release of the cluster, so the cost of a call must
// not depend on the number of releases.
type CededReleases struct {
	mu       sync.Mutex
	releases map[types.NamespacedName]*list.Element // of *cedeReason
	reasons  map[string]*list.Element               // of *cedeReason, by text
	order    list.List                              // of *cedeReason, the oldest first
}

// cedeReason is a reason to cede releases, with the number of releases that it applies to.
type cedeReason struct {
	text     string
	releases int
}

// SetReason records the reason to cede a release; an empty one means that Serin acts on it. When a reason begins to apply to any
// release, or no longer applies to one, SetReason logs it and calls report, unless nil, with the oldest reason that still
// applies; empty means none. report must not call methods of CededReleases.
func (c *CededReleases) SetReason(ctx context.Context, key types.NamespacedName, why string, report func(reason string)) {
	began, ended := c.setReason(key, why, report)
	logger := log.FromContext(ctx)
	if began {
		logger.Info("Ceded releases that another controller acts on", "reason", why)
	}
	if ended != "" {
		logger.Info("Resumed releases, because the other controller is gone", "was", ended)
	}
}

// Forget drops a deleted release; for report see SetReason.
func (c *CededReleases) Forget(key types.NamespacedName, report func(reason string)) {
	c.setReason(key, "", report)
}

// setReason returns whether the reason applied to no release before, and the reason that no longer applies to any. It calls report
// under the lock, so that the last call has the current state.
func (c *CededReleases) setReason(key types.NamespacedName, why string, report func(reason string)) (began bool, ended string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	old := c.releases[key]
	if old == nil && why == "" || old != nil && reasonOf(old).text == why {
		return false, ""
	}
	if why != "" {
		began = c.addReason(key, why)
	} else {
		delete(c.releases, key)
	}
	if old != nil {
		if reasonOf(old).releases--; reasonOf(old).releases == 0 {
			ended = reasonOf(old).text
			c.order.Remove(old)
			delete(c.reasons, ended)
		}
	}
	if report != nil && (began || ended != "") {
		oldest := ""
		if first := c.order.Front(); first != nil {
			oldest = reasonOf(first).text
		}
		report(oldest)
	}
	return began, ended
}

// addReason records a reason for a release, and returns whether no other release has it.
func (c *CededReleases) addReason(key types.NamespacedName, why string) (first bool) {
	if c.releases == nil {
		c.releases, c.reasons = map[types.NamespacedName]*list.Element{}, map[string]*list.Element{}
	}
	e, known := c.reasons[why]
	if !known {
		e = c.order.PushBack(&cedeReason{text: why})
		c.reasons[why] = e
	}
	reasonOf(e).releases++
	c.releases[key] = e
	return !known
}

// Keys returns the ceded releases.
func (c *CededReleases) Keys() []types.NamespacedName {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Collect(maps.Keys(c.releases))
}

func reasonOf(e *list.Element) *cedeReason { return e.Value.(*cedeReason) } //nolint:forcetypeassert // the list has nothing else
