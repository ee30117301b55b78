package oracle

import "time"

// Claim is an effect of Serin for a release although another release owns a target or Services that both reference.
type Claim struct {
	Release, What string
	// Other is the release that owns the Shared object, since the given time.
	Other, Shared string
	Since         time.Time
}

// Exclusive is the part of I31 about effects: of two releases that reference the same object, only one has effects.
func Exclusive(l *Ledger, claims func(event any) []Claim) Checker {
	return checkEach(claims, func(c Claim) {
		if c.Since.Before(l.OldestView()) { // otherwise the process may not know the owner yet
			l.Violate("I31", c.Release, "%s, although %s has the same %s", c.What, c.Other, c.Shared)
		}
	})
}

// Conflict is a release without effects because another release owns an object that both reference.
type Conflict struct {
	Release, Other, Shared string
	// Explained means that its status reports the conflict.
	Explained bool
}

// ExplainedConflict is the part of I31 about the status of the release that does nothing.
func ExplainedConflict(l *Ledger, c Conflict) {
	if !c.Explained {
		l.Violate("I31", c.Release, "%s has the same %s, and the status does not report it", c.Other, c.Shared)
	}
}
