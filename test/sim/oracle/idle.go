package oracle

import "github.com/serin-dev/serin/test/sim/store"

// NoConflict is I19: while a release with record R is idle, Serin writes an object at most once for each change by another
// actor.
type NoConflict[R any] struct {
	*Ledger
	EventsOnly

	// Idle returns the releases of an object that have been idle for so long that every process knows it.
	Idle func(Write) []R
	// Excused reports whether a repeated write has another cause.
	Excused func(Write, R, Writes) bool
	// Name returns the name of a release.
	Name func(R) string
}

// Observe implements Checker.
func (c *NoConflict[R]) Observe(event any) {
	e, ok := event.(Write)
	if !ok || !e.BySerin || e.Type != store.Modified {
		return
	}
	w := c.Objects[ObjectKey{e.Kind, e.Key}]
	if w == nil || w.AwaitsSerin {
		return
	}
	for _, r := range c.Idle(e) {
		if !c.Excused(e, r, *w) {
			c.Violate("I19", c.Name(r), "while the release is idle, %s %s was written again, although no other actor had changed it since the last write",
				e.Kind.Kind, e.Key.Name)
		}
	}
}
