package oracle

import "github.com/serin-dev/serin/test/sim/store"

// Preconditions is I12: every write names the version that it was decided on.
type Preconditions struct {
	*Ledger
	EventsOnly

	// DeletesNameVersion: a deletion names the version of its object as well as its UID.
	DeletesNameVersion bool
}

// Observe implements Checker.
func (c *Preconditions) Observe(event any) {
	e, ok := event.(Write)
	if !ok || !e.BySerin || e.Subresource == "eviction" {
		return
	}
	switch {
	case e.Verb == store.Create:
		if e.New.Meta().GenerateName != "" {
			c.Violate("I12", "", "%s %s was created with a generated name, by which a retry cannot find it", e.Kind.Kind, e.Key.Name)
		}
	case e.Verb == store.Delete && e.Basis.UID == "":
		c.Violate("I12", "", "the deletion of %s %s does not name its UID", e.Kind.Kind, e.Key.Name)
	case e.Basis.ResourceVersion == "" && (e.Verb != store.Delete || c.DeletesNameVersion):
		c.Violate("I12", "", "%s of %s %s names no version that it was decided on", e.Verb, e.Kind.Kind, e.Key.Name)
	}
}
