package oracle

import (
	"slices"
	"strings"
	"time"

	"github.com/serin-dev/serin/test/sim"
)

// Advance is a step of a release that conditions precede.
type Advance struct {
	Release, What string
	// Missing is which condition was not met, by each of the specs that the process may have acted on; empty: all were met.
	Missing []string
}

// GatedPromotion is I3: a release advances only after all that one of its specs requires.
func GatedPromotion(l *Ledger, advances func(event any) []Advance) Checker {
	return each(advances, func(a Advance) {
		if len(a.Missing) > 0 && !slices.Contains(a.Missing, "") {
			l.Violate("I3", a.Release, "%s, but %s", a.What, a.Missing[len(a.Missing)-1])
		}
	})
}

// Start is the beginning of a release of another revision.
type Start struct {
	Release string
	// Carried is what its status still has of the previous release.
	Carried []string
}

// FreshStart is the part of I17 about the status: nothing of the previous release is carried over to the next one.
func FreshStart(l *Ledger, starts func(event any) []Start) Checker {
	return each(starts, func(s Start) {
		if len(s.Carried) > 0 {
			l.Violate("I17", s.Release, "a new release began with %s of the previous one", strings.Join(s.Carried, ", "))
		}
	})
}

// Outcome is a status in which a release ended, or changed what is stable.
type Outcome struct {
	Release, What string
	// Before is what was stable when the release began, Stable what is stable now.
	Before, Stable string
	// RolledBack: the release was rolled back. Aborted: a user has aborted it.
	RolledBack, Aborted bool
}

// StableAfterRollback is the part of I23 about what is stable: a rollback restores what was stable before.
func StableAfterRollback(l *Ledger, outcomes func(event any) []Outcome) Checker {
	return each(outcomes, func(o Outcome) {
		if o.RolledBack && o.Before != o.Stable {
			l.Violate("I23", o.Release, "%s, but %s is stable, and %s was stable before", o.What, o.Stable, o.Before)
		}
	})
}

// AbortedUnpromoted is the part of I24 about promotions: an aborted release is never promoted.
func AbortedUnpromoted(l *Ledger, promotions func(event any) []Outcome) Checker {
	return each(promotions, func(o Outcome) {
		if o.Aborted {
			l.Violate("I24", o.Release, "it was aborted, and %s", o.What)
		}
	})
}

// Period is a wait that has ended.
type Period struct {
	Release, What string
	Began         time.Time
	Length        time.Duration
}

// FullPeriods is I14: in a run in which clocks are set, a wait that began afterwards has its full length.
func FullPeriods(l *Ledger, periods func(event any) []Period) Checker {
	return each(periods, func(p Period) {
		if l.tooShort(p) {
			l.Violate("I14", p.Release, "%s after %s, of %s", p.What, l.Now().Sub(p.Began), p.Length)
		}
	})
}

// tooShort reports whether a wait ended before its time, where the clocks of all processes agree about its beginning.
func (l *Ledger) tooShort(p Period) bool {
	return !p.Began.IsZero() && l.Now().Sub(p.Began) < p.Length && l.Clocks.Consistent(p.Began)
}

// Query is a request to an external service that leaves a process.
type Query struct {
	Release, What string
	// By is the process. It does not send two queries of one Key; Timed: a moment is a part of the Key.
	By    string
	Key   any
	Timed bool
	// Since is when the previous query of its kind was sent, and Interval how long after that this one is due; zero: any time.
	Since    time.Time
	Interval time.Duration
}

// SingleQueries is the part of I11 about one process: it sends each query once, and no earlier than it is due.
func SingleQueries(l *Ledger, queries func(event any) []Query) Checker {
	sent := map[string]map[any]time.Time{}
	judge := func(q Query) {
		if sent[q.By] == nil {
			sent[q.By] = map[any]time.Time{}
		}
		if at, twice := sent[q.By][q.Key]; twice && (!q.Timed || l.Clocks.Consistent(at)) {
			l.Violate("I11", q.Release, "%s was sent twice by one process, although nothing was lost", q.What)
		}
		sent[q.By][q.Key] = l.Now()
		if l.tooShort(Period{Began: q.Since, Length: q.Interval}) {
			l.Violate("I11", q.Release, "%s was sent %s after the previous one, and its interval is %s", q.What, l.Now().Sub(q.Since), q.Interval)
		}
	}
	return OnEvent(func(event any) {
		switch e := event.(type) {
		case sim.ProcessStarted:
			delete(sent, e.Instance)
		case sim.ProcessCrashed:
			delete(sent, e.Instance)
		}
		for _, q := range queries(event) {
			judge(q)
		}
	})
}
