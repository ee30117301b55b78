package oracle

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/serin-dev/serin/test/sim"
)

// Advance is a step of a release that has preconditions.
type Advance struct {
	Release, What string
	// Missing is the precondition that was not met, for each spec that the process may have acted on; empty: all were met.
	Missing []string
}

// GatedPromotion is I3: a release advances only after all preconditions of one of its specs are met.
func GatedPromotion(l *Ledger, advances func(event any) []Advance) Checker {
	return checkEach(advances, func(a Advance) {
		if len(a.Missing) > 0 && !slices.Contains(a.Missing, "") {
			l.Violate("I3", a.Release, "%s, but %s", a.What, a.Missing[len(a.Missing)-1])
		}
	})
}

// NewRelease is the start of a release of another revision.
type NewRelease struct {
	Release string
	// CarriedOver is the state of the previous release that its status still contains.
	CarriedOver []string
}

// FreshStart is the part of I17 about the status: no state of the previous release is carried over to the next one.
func FreshStart(l *Ledger, starts func(event any) []NewRelease) Checker {
	return checkEach(starts, func(s NewRelease) {
		if len(s.CarriedOver) > 0 {
			l.Violate("I17", s.Release, "a new release started with %s of the previous one", strings.Join(s.CarriedOver, ", "))
		}
	})
}

// Outcome is a status with which a release ended, or that changed the stable revision.
type Outcome struct {
	Release, What string
	// Before is the stable revision when the release started, Stable the current one.
	Before, Stable string
	// RolledBack means that the release was rolled back, Aborted that a user aborted it.
	RolledBack, Aborted bool
}

// StableAfterRollback is the part of I23 about the stable revision: a rollback restores the previous one.
func StableAfterRollback(l *Ledger, outcomes func(event any) []Outcome) Checker {
	return checkEach(outcomes, func(o Outcome) {
		if o.RolledBack && o.Before != o.Stable {
			l.Violate("I23", o.Release, "%s, but the stable revision is %s, and was %s before", o.What, o.Stable, o.Before)
		}
	})
}

// AbortedUnpromoted is the part of I24 about promotions: an aborted release is never promoted.
func AbortedUnpromoted(l *Ledger, promotions func(event any) []Outcome) Checker {
	return checkEach(promotions, func(o Outcome) {
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

// FullPeriods is I14: in a run in which clocks are set, a wait that began after the change has its full length.
func FullPeriods(l *Ledger, periods func(event any) []Period) Checker {
	return checkEach(periods, func(p Period) {
		if l.tooShort(p) {
			l.Violate("I14", p.Release, "%s after %s, of %s", p.What, l.Now().Sub(p.Began), p.Length)
		}
	})
}

// tooShort reports whether a wait ended too early. It returns false if the processes cannot agree about its beginning.
func (l *Ledger) tooShort(p Period) bool {
	return !p.Began.IsZero() && l.Now().Sub(p.Began) < p.Length && l.Clocks.Consistent(p.Began)
}

// Query is a request to an external service that leaves a process.
type Query struct {
	Release, What string
	// By is the process that sends the query. A process does not send two queries with the same Key. Timed means that a time is
	// part of the Key.
	By    string
	Key   any
	Timed bool
	// Since is when the previous query of its kind was sent, and Interval the minimum time until this one; zero: no minimum.
	Since    time.Time
	Interval time.Duration
	// Done is since when the stored status has the result of the query; zero: it does not.
	Done time.Time
}

// SingleQueries is the part of I11 about one process: it sends each query once, not before it is due, and not if its result was stored
// before the process started. A process that lost its
// shard and acquired it again forgets its queries when it next reconciles the release; until then, queued ones may leave.
func SingleQueries(l *Ledger, queries func(event any) []Query) Checker {
	type sending struct {
		at      time.Time
		release string
	}
	sent, forgotten := map[string]map[any]sending{}, map[string]map[string]bool{}
	forget := func(instance string) { delete(sent, instance) }
	check := func(q Query) {
		if sent[q.By] == nil {
			sent[q.By] = map[any]sending{}
		}
		if before, twice := sent[q.By][q.Key]; twice && (!q.Timed || l.Clocks.Consistent(before.at)) {
			l.Violate("I11", q.Release, "%s was sent twice by one process, although no answer was lost", q.What)
		}
		sent[q.By][q.Key] = sending{l.Now(), q.Release}
		if started := l.Started[q.By]; !q.Done.IsZero() && started.After(q.Done) {
			l.Violate("I11", q.Release, "%s was repeated by a process that started at %s, although its result was stored at %s", q.What, started, q.Done)
		}
		if l.tooShort(Period{Began: q.Since, Length: q.Interval}) {
			l.Violate("I11", q.Release, "%s was sent %s after the previous one, and its interval is %s", q.What, l.Now().Sub(q.Since), q.Interval)
		}
	}
	return OnEvent(func(event any) {
		switch e := event.(type) {
		case sim.ProcessStarted:
			forget(e.Instance)
		case sim.ProcessCrashed:
			forget(e.Instance)
		case sim.ShardLost:
			forget(e.Instance)
			forgotten[e.Instance] = map[string]bool{}
		case sim.Reconciled:
			if releases := forgotten[e.Instance]; releases != nil && !e.Skipped && !releases[e.Release.Name] {
				releases[e.Release.Name] = true
				maps.DeleteFunc(sent[e.Instance], func(_ any, s sending) bool { return s.release == e.Release.Name })
			}
		}
		for _, q := range queries(event) {
			check(q)
		}
	})
}
