package fence

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"k8s.io/utils/clock"
)

// Leases are the fences of a process, by the names of its Leases. Each write requires the leader Lease. A write with the Lease of
// a shard in its context requires that one, too. A nil *Leases permits everything.
type Leases struct {
	clock  clock.PassiveClock
	leader *Fence
	shards map[string]*Fence
}

// NewLeases returns the closed fences of the leader Lease and of the Leases of the shards, if there are any. The duration is
// that of each Lease.
func NewLeases(clk clock.PassiveClock, duration time.Duration, leader string, shards ...string) *Leases {
	l := &Leases{clock: clk, leader: New(clk, duration, leader), shards: map[string]*Fence{}}
	for _, name := range shards {
		l.shards[name] = New(clk, duration, name)
	}
	return l
}

// leaseKey is the key of the name of a Lease in a context.
type leaseKey struct{}

// WithLease returns a context whose writes require the Lease of a shard.
func WithLease(ctx context.Context, name string) context.Context {
	return context.WithValue(ctx, leaseKey{}, name)
}

// LeaseOf returns the Lease of a shard that writes with this context require; empty: only the leader Lease.
func LeaseOf(ctx context.Context) string {
	name, _ := ctx.Value(leaseKey{}).(string)
	return name
}

// Check returns ErrNotLeader if a write with this context must not be sent now.
func (l *Leases) Check(ctx context.Context) error { return l.CheckLease(LeaseOf(ctx)) }

// CheckLease returns ErrNotLeader if nothing that requires the Lease of a shard must be sent now; empty: that requires only the
// leader Lease.
func (l *Leases) CheckLease(name string) error {
	if l == nil {
		return nil
	}
	if err := l.leader.Check(); err != nil {
		return err
	}
	if name == "" {
		return nil
	}
	shard, known := l.shards[name]
	if !known {
		return fmt.Errorf("%w: Lease %s is not one of its shards", ErrNotLeader, name)
	}
	return shard.Check()
}

// Transport wraps the transport of a client of the API server: it observes renewals and releases of the Leases, and fails
// writes with ErrNotLeader while a fence is closed. Reads pass, and so do events, which report what was already written, and
// reviews of permissions, which store nothing.
func (l *Leases) Transport(next http.RoundTripper) http.RoundTripper {
	if l == nil {
		return next
	}
	return &transport{leases: l, next: next}
}

// fence returns the fence of a Lease; nil for other Leases, which permit nothing.
func (l *Leases) fence(name string) *Fence {
	if name == l.leader.lease {
		return l.leader
	}
	return l.shards[name]
}
