package reconciler

import "time"

// FailureKind is a kind of failure with a backoff of its own.
type FailureKind string

// The kinds of failures.
const (
	Refused      FailureKind = "refused"       // an effect was refused; permissions may be granted, a quota raised
	NotInstalled FailureKind = "not-installed" // something is missing that no watch reports, such as a CRD
	LostRace     FailureKind = "lost-race"     // an object was just changed, or the cache does not have our own last write yet
)

// Bounds of the delay after lost races. Most resolve at once; a watch that lags for long must not cause a reconciliation every
// few milliseconds.
const (
	initialRaceBackoff = 20 * time.Millisecond
	maxRaceBackoff     = 5 * time.Second
)

// Retries contains the backoffs of one object, one for each kind of failure. The zero value is ready for use. It is not safe for
// concurrent use.
type Retries struct{ backoffs map[FailureKind]*Backoff }

// NextAttempt counts a failure and returns the time of the next attempt.
func (r *Retries) NextAttempt(kind FailureKind, now time.Time) time.Time {
	if r.backoffs == nil {
		r.backoffs = map[FailureKind]*Backoff{}
	}
	if r.backoffs[kind] == nil {
		r.backoffs[kind] = &Backoff{}
	}
	initial, limit := InitialBackoff, MaxBackoff
	if kind == LostRace {
		initial, limit = initialRaceBackoff, maxRaceBackoff
	}
	return r.backoffs[kind].NextAttempt(now, initial, limit)
}

// Reset ends the consecutive failures of a kind.
func (r *Retries) Reset(kind FailureKind) { delete(r.backoffs, kind) }
