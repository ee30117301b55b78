package sharding

import (
	"context"
	"sync"

	"github.com/serin-dev/serin/internal/fence"
)

// Held are the shards that this process holds, with the reconciliations that are running for them. A nil *Held is that of a
// process without shards, which reconciles everything.
type Held struct {
	leases []string // by shard

	mu     sync.Mutex
	shards []heldShard
}

// heldShard is the state of one shard.
type heldShard struct {
	held    bool
	running int
	// acquisitions is how often this process has acquired the shard.
	acquisitions int
	// idle is closed when the last running reconciliation ends; nil: nothing waits for that.
	idle chan struct{}
}

// NewHeld returns the state of a process that holds none of the shards with these Leases.
func NewHeld(leases []string) *Held {
	return &Held{leases: leases, shards: make([]heldShard, len(leases))}
}

// Begin starts a reconciliation of an object in a namespace, unless another process holds its shard. Writes with the returned
// context require the Lease of the shard. end must be called when the reconciliation has ended.
func (h *Held) Begin(ctx context.Context, namespace string) (reconciling context.Context, end func(), held bool) {
	if h == nil {
		return ctx, func() {}, true
	}
	shard := ShardOf(namespace, len(h.leases))
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.shards[shard].held {
		return ctx, nil, false
	}
	h.shards[shard].running++
	return fence.WithLease(ctx, h.leases[shard]), func() { h.end(shard) }, true
}

func (h *Held) end(shard int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := &h.shards[shard]
	s.running--
	if s.running == 0 && s.idle != nil {
		close(s.idle)
		s.idle = nil
	}
}

// Context returns a context whose writes require the Lease of the shard of a namespace, for work that is no reconciliation.
func (h *Held) Context(ctx context.Context, namespace string) context.Context {
	if h == nil {
		return ctx
	}
	return fence.WithLease(ctx, h.LeaseOf(namespace))
}

// LeaseOf returns the name of the Lease of the shard of a namespace; empty: there are no shards.
func (h *Held) LeaseOf(namespace string) string {
	if h == nil {
		return ""
	}
	return h.leases[ShardOf(namespace, len(h.leases))]
}

// Acquisition returns the number of the last acquisition of the shard of a namespace by this process. It does not change while a
// reconciliation is running. What a process remembers from an earlier acquisition may be older than the writes of the process that
// held the shard meanwhile.
func (h *Held) Acquisition(namespace string) int {
	if h == nil {
		return 0
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.shards[ShardOf(namespace, len(h.leases))].acquisitions
}

// Holds reports whether this process reconciles the objects in a namespace.
func (h *Held) Holds(namespace string) bool {
	if h == nil {
		return true
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.shards[ShardOf(namespace, len(h.leases))].held
}

// Acquire permits reconciliations of a shard, unless one of the contexts is done: the Lease may already be lost or about to be
// released when its acquisition is reported.
func (h *Held) Acquire(shard int, valid ...context.Context) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, ctx := range valid {
		if ctx.Err() != nil {
			return false
		}
	}
	h.shards[shard].held = true
	h.shards[shard].acquisitions++
	return true
}

// Lose permits no further reconciliation of a shard, and reports whether the process held it.
func (h *Held) Lose(shard int) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	held := h.shards[shard].held
	h.shards[shard].held = false
	return held
}

// idle returns a channel that is closed when no reconciliation of a shard is running.
func (h *Held) idle(shard int) <-chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := &h.shards[shard]
	if s.running == 0 {
		closed := make(chan struct{})
		close(closed)
		return closed
	}
	if s.idle == nil {
		s.idle = make(chan struct{})
	}
	return s.idle
}

// count returns the number of shards that this process holds.
func (h *Held) count() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := 0
	for _, s := range h.shards {
		if s.held {
			n++
		}
	}
	return n
}
