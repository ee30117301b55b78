package oracle

import "time"

// ScaleDown is a write that takes pods away from a revision.
type ScaleDown struct {
	Release, What string
	// Reached: users reach these pods.
	Reached bool
	// Left is when the last user left; zero: they had none, or it is unknown. Delay is how long pods must remain after that.
	Left  time.Time
	Delay time.Duration
}

// DrainBeforeScaleDown is I5: a revision keeps its pods until its users have left and its delay is over.
func DrainBeforeScaleDown(l *Ledger, scaleDowns func(event any) []ScaleDown) Checker {
	return each(scaleDowns, func(s ScaleDown) {
		gap := l.Now().Sub(s.Left)
		switch {
		case s.Reached:
			l.Violate("I5", s.Release, "%s, although users reach them", s.What)
		case !s.Left.IsZero() && gap < s.Delay && l.Clocks.Consistent(s.Left):
			l.Violate("I5", s.Release, "%s %s after the last user left, of at least %s", s.What, gap, s.Delay)
		}
	})
}

// Scaling is a write that changes the number of pods of a revision that does not serve users at rest.
type Scaling struct {
	Release, What string
	// Rested is since when the release is at rest; zero: it is not.
	Rested time.Time
}

// NoScalingAtRest is the part of I18 about releases at rest.
func NoScalingAtRest(l *Ledger, scalings func(event any) []Scaling) Checker {
	return each(scalings, func(s Scaling) {
		if !s.Rested.IsZero() && s.Rested.Before(l.OldestView()) {
			l.Violate("I18", s.Release, "at rest %s", s.What)
		}
	})
}

// Effect is what Serin does to a release other than writing its status.
type Effect struct {
	Release, What string
	// Suspended is since when the release is suspended; zero: it is not. Known: every process has recorded that it knows.
	Suspended time.Time
	Known     bool
}

// Suspension is I25: a suspended release has no effects.
func Suspension(l *Ledger, effects func(event any) []Effect) Checker {
	return each(effects, func(e Effect) {
		if !e.Suspended.IsZero() && (e.Known || e.Suspended.Before(l.OldestView())) {
			l.Violate("I25", e.Release, "it has been suspended for %s, and %s", l.Now().Sub(e.Suspended), e.What)
		}
	})
}
