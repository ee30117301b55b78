package oracle

import "github.com/serin-dev/serin/test/sim/store"

// Preconditions is I12: every write names the version on which it was decided.
type Preconditions struct {
	*Ledger
	EventsOnly

	// DeletesNameVersion means that a deletion names the version of its object as well as the UID.
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
		c.Violate("I12", "", "%s of %s %s does not name the version on which it was decided", e.Verb, e.Kind.Kind, e.Key.Name)
	}
}
