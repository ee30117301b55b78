package rollout

import (
	"time"

	"github.com/serin-dev/serin/test/sim"
	"github.com/serin-dev/serin/test/sim/oracle"
)

// processWork records what processes may have left undone when they crashed.
type processWork struct {
	*oracle.Ledger

	// lastWrite is when each process last wrote an object.
	lastWrite map[string]time.Time
	// crashed is set when a process crashes shortly after a write, until another process has had the time to complete that work.
	crashed bool
	// attendedUntil is the time up to which a crashed process had processed the writes of others.
	attendedUntil time.Time
}

// resumesWork reports whether a process has just started and completes the work of one that crashed.
func (c *processWork) resumesWork(by string) bool {
	return c.crashed && c.Started[by].After(c.OldestView())
}

// unattendedSince returns since when no process of Serin may have processed the writes of others, if the actor is a process
// that has just started.
func (c *processWork) unattendedSince(by string) time.Time {
	if c.Started[by].After(c.OldestView()) && c.attendedUntil.Before(c.OldestView()) {
		return c.attendedUntil
	}
	return c.OldestView()
}

// recordCrash records whether the crashed process had just written an object, so that it may have been about to write more. A
// process that ran for less than the maximum lag has not completed the work of its predecessor either.
func (c *processWork) recordCrash(h sim.ProcessCrashed) {
	if !c.Started[h.Instance].After(c.OldestView()) {
		c.attendedUntil = c.OldestView()
	}
	switch {
	case c.lastWrite[h.Instance].After(c.OldestView()):
		c.crashed = true
	case !c.Started[h.Instance].After(c.OldestView()):
		c.crashed = false
	}
}

// otherProcessWrote reports whether another process has written since then. A former leader may have returned traffic for a
// moment, which the running delay does not reflect.
func (c *processWork) otherProcessWrote(by string, since time.Time) bool {
	for name, at := range c.lastWrite {
		if name != by && !at.Before(since) {
			return true
		}
	}
	return false
}
