package reconciler

import "time"

// Trouble is what makes an object wait longer with each failure in a row.
type Trouble string

// What may make it wait.
const (
	Refused      Trouble = "refused"       // an effect was refused; permissions may be granted, a quota raised
	NotInstalled Trouble = "not-installed" // something is missing of which no watch notifies, such as a definition
	LostRace     Trouble = "lost-race"     // an object was just changed, or the cache does not have our own last write yet
)

// Bounds of the pause after lost races. Most are over at once; a watch that lags for long must not cost a reconciliation each
// time.
const (
	firstRace = 20 * time.Millisecond
	maxRace   = 5 * time.Second
)

// Retries are the rows of failures of one object, one for each trouble. The zero value is ready for use. It must not be used
// by several goroutines at once.
type Retries struct{ rows map[Trouble]*Row }

// Again counts a failure and returns the moment of the next attempt.
func (r *Retries) Again(of Trouble, now time.Time) time.Time {
	if r.rows == nil {
		r.rows = map[Trouble]*Row{}
	}
	if r.rows[of] == nil {
		r.rows[of] = &Row{}
	}
	first, most := FirstPause, MaxPause
	if of == LostRace {
		first, most = firstRace, maxRace
	}
	return r.rows[of].Again(now, first, most)
}

// Succeeded ends the row of a trouble.
func (r *Retries) Succeeded(of Trouble) { delete(r.rows, of) }
