package fairshare

import (
	"context"
	"sync"
)

// Semaphore makes callers wait for a slot. It is safe for concurrent use.
type Semaphore struct {
	mu    sync.Mutex
	queue *Queue[*waiter]
}

// waiter is one call of Acquire; granted is closed when it has its slot.
type waiter struct{ granted chan struct{} }

// NewSemaphore returns a semaphore with a number of slots, at least one.
func NewSemaphore(slots int) *Semaphore {
	return &Semaphore{queue: NewQueue[*waiter](slots)}
}

// Acquire waits until a tenant gets a slot, or returns the cause for which ctx ended. The returned function releases the
// slot; it may be called more than once.
func (s *Semaphore) Acquire(ctx context.Context, tenant string) (release func(), err error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	w := &waiter{granted: make(chan struct{})}
	s.mu.Lock()
	s.queue.Push(tenant, w)
	s.grantSlots()
	s.mu.Unlock()
	release = sync.OnceFunc(func() { s.releaseSlot(tenant) })
	select {
	case <-w.granted:
		return release, nil
	case <-ctx.Done():
	}
	if s.cancelWaiter(tenant, w) {
		release() // it was granted in the same moment
	}
	return nil, context.Cause(ctx)
}

// cancelWaiter removes a waiter and reports whether it has been granted its slot already.
func (s *Semaphore) cancelWaiter(tenant string, w *waiter) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-w.granted:
		return true
	default:
		s.queue.Remove(tenant, func(other *waiter) bool { return other == w })
		return false
	}
}

func (s *Semaphore) releaseSlot(tenant string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queue.ReleaseSlot(tenant)
	s.grantSlots()
}

// grantSlots gives free slots to waiters in the order of the queue. The caller holds s.mu.
func (s *Semaphore) grantSlots() {
	for {
		_, w, ok := s.queue.Pop()
		if !ok {
			return
		}
		close(w.granted)
	}
}
