package oracle

import "github.com/serin-dev/serin/test/sim/store"

// NoConflict is I19: while a release of record R is at rest, Serin writes an object at most once for each change of others.
type NoConflict[R any] struct {
	*Ledger
	EventsOnly

	// AtRest are the releases of an object that have been at rest for so long that every process knows.
	AtRest func(Write) []R
	// Excused reports whether a repeated write has another cause.
	Excused func(Write, R, Writes) bool
	// Name of a release.
	Name func(R) string
}

// Observe implements Checker.
func (c *NoConflict[R]) Observe(event any) {
	e, ok := event.(Write)
	if !ok || !e.BySerin || e.Type != store.Modified {
		return
	}
	w := c.Objects[ObjectKey{e.Kind, e.Key}]
	if w == nil || w.Unanswered {
		return
	}
	for _, r := range c.AtRest(e) {
		if !c.Excused(e, r, *w) {
			c.Violate("I19", c.Name(r), "at rest %s %s was written again, although no one else had changed it since the last write",
				e.Kind.Kind, e.Key.Name)
		}
	}
}
