package oracle

import "time"

// ScaleDown is a write that removes pods of a revision.
type ScaleDown struct {
	Release, What string
	// HasTraffic means that these pods receive traffic.
	HasTraffic bool
	// TrafficRemoved is when the pods lost their traffic; zero: they had none, or the time is unknown. MinDelay is how long the
	// pods must remain after that.
	TrafficRemoved time.Time
	MinDelay       time.Duration
}

// DrainBeforeScaleDown is I5: a revision keeps its pods until it has no traffic and its drain delay is over.
func DrainBeforeScaleDown(l *Ledger, scaleDowns func(event any) []ScaleDown) Checker {
	return checkEach(scaleDowns, func(s ScaleDown) {
		gap := l.Now().Sub(s.TrafficRemoved)
		switch {
		case s.HasTraffic:
			l.Violate("I5", s.Release, "%s, although they receive traffic", s.What)
		case !s.TrafficRemoved.IsZero() && gap < s.MinDelay && l.Clocks.Consistent(s.TrafficRemoved):
			l.Violate("I5", s.Release, "%s %s after its traffic was removed, before the required %s", s.What, gap, s.MinDelay)
		}
	})
}

// Scaling is a write that changes the number of pods of a revision that does not serve users while the release is idle.
type Scaling struct {
	Release, What string
	// IdleSince is when the release became idle; zero: it is not idle.
	IdleSince time.Time
}

// NoScalingWhileIdle is the part of I18 about idle releases.
func NoScalingWhileIdle(l *Ledger, scalings func(event any) []Scaling) Checker {
	return checkEach(scalings, func(s Scaling) {
		if !s.IdleSince.IsZero() && s.IdleSince.Before(l.OldestView()) {
			l.Violate("I18", s.Release, "while the release is idle, %s", s.What)
		}
	})
}

// Effect is a change that Serin makes for a release, other than to its status.
type Effect struct {
	Release, What string
	// SuspendedSince is when the release was suspended; zero: it is not suspended. Known means that every process has recorded
	// the suspension.
	SuspendedSince time.Time
	Known          bool
}

// Suspension is I25: a suspended release has no effects.
func Suspension(l *Ledger, effects func(event any) []Effect) Checker {
	return checkEach(effects, func(e Effect) {
		if !e.SuspendedSince.IsZero() && (e.Known || e.SuspendedSince.Before(l.OldestView())) {
			l.Violate("I25", e.Release, "it has been suspended for %s, and %s", l.Now().Sub(e.SuspendedSince), e.What)
		}
	})
}
