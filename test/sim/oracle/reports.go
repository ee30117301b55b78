package oracle

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/serin-dev/serin/test/sim/store"
)

// RoutedAdvance is a step that a process decided on the condition that the route of the release is in effect.
type RoutedAdvance struct {
	Release, Process, What string
	Route                  ObjectKey
	// IgnoresSilence means that the step waits only for a router that has reported.
	IgnoresSilence bool
}

// Resumption is a write by which a release continues that waited for the report of a router.
type Resumption struct {
	Release string
	Route   ObjectKey
	// Began is when it began to wait; zero: before the router applied the route.
	Began time.Time
}

// RouteReports is I47 as far as it is the same for every API: a release does not advance while a router reports that it has not
// applied the route, and continues once it reports that it has.
type RouteReports struct {
	*Ledger

	// Kind is the kind of the routes, which report on each of their parents.
	Kind      schema.GroupKind
	Advances  func(event any) []RoutedAdvance
	Resumed   func(event any) []Resumption
	unapplied map[ObjectKey]time.Time // since when no router reports that it has applied the route
	applied   map[ObjectKey]time.Time // since when one does
	silent    map[ObjectKey]bool      // no router has reported at all
	// disturbed are the times of all faults and actions of users, of which the first occurred have been recorded.
	disturbed []time.Time
	occurred  int
}

// recovery is how long after a fault a process may still wait before it retries.
const recovery = 2 * time.Minute

// Observe implements Checker.
func (c *RouteReports) Observe(event any) {
	if n := len(c.World.Faults.Occurred); n > c.occurred {
		c.occurred, c.disturbed = n, append(c.disturbed, c.Now())
	}
	if w, ok := event.(Write); ok && w.Kind == c.Kind {
		c.recordReport(w)
	}
	for _, a := range c.Advances(event) {
		since, unapplied := c.unapplied[a.Route]
		if ignored := a.IgnoresSilence && c.silent[a.Route]; unapplied && !ignored && since.Before(c.OldestView()) && !c.JustStarted(a.Process) {
			c.Violate("I47", a.Release, "%s, although no router has reported for %s that it has applied the route", a.What, c.Now().Sub(since))
		}
	}
	for _, r := range c.Resumed(event) {
		since, applied := c.applied[r.Route]
		if r.Began.After(since) {
			since = r.Began
		}
		if applied && c.Undisturbed(since) && c.Now().Sub(since) > c.Lag {
			c.Violate("I47", r.Release, "it continued only %s after its router had reported the route as applied", c.Now().Sub(since))
		}
	}
}

// Finish implements Checker.
func (*RouteReports) Finish() {}

// Undisturbed reports whether nothing delayed the processes since then, except for what occurred exactly then.
func (c *RouteReports) Undisturbed(since time.Time) bool {
	return since.Sub(c.LastFault) > recovery && !slices.ContainsFunc(c.disturbed, func(at time.Time) bool {
		return !at.Equal(since) && at.After(since.Add(-recovery))
	})
}

// recordReport records what the routers report after a write of a route.
func (c *RouteReports) recordReport(w Write) {
	if c.unapplied == nil {
		c.unapplied, c.applied, c.silent = map[ObjectKey]time.Time{}, map[ObjectKey]time.Time{}, map[ObjectKey]bool{}
	}
	key := KeyOf(w.Kind, w.Key)
	wasSilent := c.silent[key]
	c.silent[key] = w.Type != store.Deleted && len(reportsOn(w.New)) == 0
	switch _, was := c.unapplied[key]; {
	case w.Type == store.Deleted:
		delete(c.unapplied, key)
		delete(c.applied, key)
	case !reportsUnapplied(w.New):
		if delete(c.unapplied, key); was && !wasSilent { // before its first report, a release may wait for other conditions
			c.applied[key] = c.Now()
		}
	case !was:
		delete(c.applied, key)
		c.unapplied[key] = c.Now()
	}
}

// reportsUnapplied reports whether no router reports that it has applied the current generation of a route.
func reportsUnapplied(v *store.Version) bool {
	parents := reportsOn(v)
	if len(parents) == 0 {
		return true
	}
	for _, parent := range parents {
		conditions, _, _ := unstructured.NestedSlice(map[string]any{"parent": parent}, "parent", "conditions")
		for _, of := range conditions {
			condition, _ := of.(map[string]any)
			observed, _ := condition["observedGeneration"].(int64)
			if condition["type"] == "Accepted" && (condition["status"] != "True" || observed < v.Generation()) {
				return true
			}
		}
	}
	return false
}

// reportsOn returns what routers report on a route, for each of its parents.
func reportsOn(v *store.Version) []any {
	parents, _, _ := unstructured.NestedSlice(v.Content(), "status", "parents")
	return parents
}
