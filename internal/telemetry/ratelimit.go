package telemetry

import "time"

// The rate limit for the events of one object. A long release has fewer events in all than the burst, so that only a flood is
// limited: an object that has a new event in every reconciliation, by a user or a defect, must not overload the API server.
const (
	maxEventBurst       = 300
	eventRefillInterval = 2 * time.Second // per token
)

// eventBucket is a token bucket for events. Its zero value is full.
type eventBucket struct {
	used int
	// refilledUntil is the time up to which tokens were refilled.
	refilledUntil time.Time
	// isFlooded is true from the first event that is dropped until half of the tokens are refilled. This interval counts as
	// one flood, which is reported once.
	isFlooded bool
}

// takeToken reports whether an event may be written now, and whether it is the first event that a flood drops.
func (b *eventBucket) takeToken(now time.Time) (allowed, floodStarts bool) {
	if b.used == 0 || now.Before(b.refilledUntil) {
		b.refilledUntil = now // a clock that was set back must not stop the refill until it reaches the old time
	}
	elapsed := now.Sub(b.refilledUntil)
	b.used = max(0, b.used-int(elapsed/eventRefillInterval))
	b.refilledUntil = b.refilledUntil.Add(elapsed.Truncate(eventRefillInterval))
	if b.used < maxEventBurst/2 {
		b.isFlooded = false
	}
	if b.used >= maxEventBurst {
		floodStarts, b.isFlooded = !b.isFlooded, true
		return false, floodStarts
	}
	b.used++
	return true, false
}
