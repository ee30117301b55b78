package oracle

import "time"

// Claim is something that Serin does for a release although another release has what both name: a target, or Services.
type Claim struct {
	Release, What string
	// Other is the release that has what is Shared, since a moment.
	Other, Shared string
	Since         time.Time
}

// Exclusive is the part of I31 about effects: of two releases that name the same, only one gets anything.
func Exclusive(l *Ledger, claims func(event any) []Claim) Checker {
	return each(claims, func(c Claim) {
		if c.Since.Before(l.OldestView()) {
			l.Violate("I31", c.Release, "%s, although %s has the same %s", c.What, c.Other, c.Shared)
		}
	})
}

// Conflict is a release that does nothing because another one has what both name.
type Conflict struct {
	Release, Other, Shared string
	// Explained: its status reports the conflict.
	Explained bool
}

// ExplainedConflict is the part of I31 about the status of the release that does nothing.
func ExplainedConflict(l *Ledger, c Conflict) {
	if !c.Explained {
		l.Violate("I31", c.Release, "%s has the same %s, and the status does not report it", c.Other, c.Shared)
	}
}
