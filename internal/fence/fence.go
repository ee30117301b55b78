// Package fence prevents a process from writing to the cluster without the Leases that permit the write: the leader Lease, and
// with shards also the Lease of the shard that the write belongs to. Queries to external services require the same Leases.
//
// Leader election alone does not: a process that was suspended (a stopped container, a live migration, a long page-in) for
// longer than its Lease continues where it stopped, and its workers write what they decided before another process took
// over, until the election notices the loss. The resourceVersion of a write protects the object that the decision was based
// on, but not a route that was reset in the meantime.
//
// It must not know what is written, why, or which objects belong together. It cannot stop a request whose body was handed to the
// connection before the process was suspended: such a request fails by its resourceVersion, or not at all.
package fence

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// ErrNotLeader is why a write was not sent: the process does not lead, or not the shard of the write.
var ErrNotLeader = errors.New("this process does not hold the Lease")

// Fence permits writes while one Lease is valid: for the duration of the Lease after the last successful renewal was sent.
// A candidate takes over no earlier, because it counts from when it observed that renewal.
type Fence struct {
	clock    clock.PassiveClock
	duration time.Duration
	lease    string

	mu      sync.Mutex
	renewed time.Time
	// closed is when the Lease was released or found lost. A renewal that was sent before, and is answered later, does not count.
	closed time.Time
}

// New returns a closed Fence: it permits nothing until the first renewal. The duration is that of the Lease with this name.
func New(clk clock.PassiveClock, duration time.Duration, lease string) *Fence {
	return &Fence{clock: clk, duration: duration, lease: lease}
}

// Renew records that the Lease was acquired or renewed by a request that was sent at that time.
func (f *Fence) Renew(sent time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if sent.After(f.renewed) && !sent.Before(f.closed) {
		f.renewed = sent
	}
}

// close closes the Fence until the next renewal, and returns the time of the last one.
func (f *Fence) close() time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	renewed := f.renewed
	f.renewed, f.closed = time.Time{}, f.clock.Now()
	return renewed
}

// reopen undoes close. renewed is the time of the last renewal before it.
func (f *Fence) reopen(renewed time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = time.Time{}
	if renewed.After(f.renewed) {
		f.renewed = renewed
	}
}

// Check returns ErrNotLeader, with the name of the Lease and the age of the last renewal, if a write must not be sent now.
func (f *Fence) Check() error {
	f.mu.Lock()
	renewed := f.renewed
	f.mu.Unlock()
	if renewed.IsZero() {
		return fmt.Errorf("%w %s", ErrNotLeader, f.lease)
	}
	now := f.clock.Now()
	// The monotonic clock stops while the machine is suspended, and the wall clock may be set: the longer of both counts. At
	// worst, a wall clock that was set forward delays a write until the next renewal.
	if age := max(now.Sub(renewed), now.Round(0).Sub(renewed.Round(0))); age >= f.duration {
		return fmt.Errorf("%w %s: it was last renewed %s ago, and is valid for %s", ErrNotLeader, f.lease, age.Truncate(time.Millisecond), f.duration)
	}
	return nil
}
