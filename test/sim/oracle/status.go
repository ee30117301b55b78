package oracle

import "slices"

// StatusChange is a write of a status by Serin.
type StatusChange struct {
	Release string
	// From and To are the phases before and after the write, and Next the phases that may follow From.
	From, To string
	Next     []string
	// Observed is the newest generation that the status reports, and Generation the generation of the spec on which the write
	// was decided.
	Observed, Generation int64
}

// ConsistentStatus is the part of I13 about phases and generations.
func ConsistentStatus(l *Ledger, changes func(event any) []StatusChange) Checker {
	return checkEach(changes, func(s StatusChange) {
		if s.From != s.To && !slices.Contains(s.Next, s.To) {
			l.Violate("I13", s.Release, "the phase changed from %q to %q", s.From, s.To)
		}
		if s.Observed > s.Generation {
			l.Violate("I13", s.Release, "the status reports generation %d, but was decided on generation %d", s.Observed, s.Generation)
		}
	})
}

// Waiting is a release that has not ended at the end of a run.
type Waiting struct {
	Release, Phase string
	// Explained means that its status names a gate or a condition that it waits for.
	Explained bool
}

// ExplainedWaits is the part of I26 about the final state.
func ExplainedWaits(l *Ledger, waiting func() []Waiting) Checker {
	return checkEachAtEnd(waiting, func(w Waiting) {
		if !w.Explained {
			l.Violate("I26", w.Release, "the run is over, the release is in phase %q, and its status does not explain what it waits for", w.Phase)
		}
	})
}

// Remnant is state of a release that should have been removed when it ended.
type Remnant struct{ Release, What string }

// CleanEnd is the part of I27 about the end of a release: no state of it remains.
func CleanEnd(l *Ledger, remainders func() []Remnant) Checker {
	return checkEachAtEnd(remainders, func(r Remnant) { l.Violate("I27", r.Release, "it has ended, and %s", r.What) })
}
