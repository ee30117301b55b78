package telemetry

import "time"

// The pace of the events of one object. The burst is more than a long release tells in all, so that only a flood is held
// back: an object that somebody, or a fault, makes tell something at every pass must not use up the API server.
const (
	maxEventBurst       = 300
	eventRefillInterval = 2 * time.Second // until one more may be written
)

// eventBucket is a bucket of tokens for events. Its zero value is full.
type eventBucket struct {
	used int
	// at is the moment up to which tokens have come back.
	at time.Time
	// isFlooded is true from the first event that is held back until half of the tokens are there again: so long it is one
	// flood, and told of once.
	isFlooded bool
}

// takeToken says whether an event may be written now, and whether this is the first of a flood that may not.
func (p *eventBucket) takeToken(now time.Time) (may, floods bool) {
	if p.used == 0 || now.Before(p.at) {
		p.at = now // a clock that went back must not keep tokens away until it is as late again
	}
	passed := now.Sub(p.at)
	p.used, p.at = max(0, p.used-int(passed/eventRefillInterval)), p.at.Add(passed.Truncate(eventRefillInterval))
	if p.used < maxEventBurst/2 {
		p.isFlooded = false
	}
	if p.used >= maxEventBurst {
		floods, p.isFlooded = !p.isFlooded, true
		return false, floods
	}
	p.used++
	return true, false
}
