// Package fairshare divides a fixed number of slots among tenants, so that no tenant can keep the others out, however
// much it asks for and however long its work takes.
//
// A tenant may take a free slot while it holds less than three times as many as would remain free. A tenant that is
// alone thus uses three quarters of all slots, and a newcomer finds a free one at once; two busy tenants use three
// sevenths each, and so on. Slots are never taken away: where tenants hold more than their share, they give it up as their
// work ends, because the next free slot goes to the others.
//
// A handful of busy tenants whose work hangs nevertheless takes all slots. Where work may hang for long, the queue needs a
// reserve: further slots, of which each tenant may take one, for the only work that it has in progress. A tenant then waits
// for nothing but its own work, as long as the reserve has more slots than there are such tenants.
//
// Queue is for callers that start work themselves, Semaphore for callers that wait. The package must not know what a
// tenant is (a namespace, everywhere in Serin), what a slot is for, clients, or clocks.
package fairshare

// maxTenantShare limits the slots of a tenant to this multiple of the slots that remain free. A larger value lets a single
// tenant use more slots (n of n+1 parts), but lets fewer busy tenants leave a slot for a newcomer.
const maxTenantShare = 3

// Queue orders work that waits for a slot: first in, first out within a tenant, and round-robin among tenants. It is not
// safe for concurrent use.
type Queue[T any] struct {
	capacity   int
	reserve    int
	slotsInUse int
	tenants    map[string]*tenant[T]
	// tenantOrder lists the tenants with waiting work, in round-robin order.
	tenantOrder []*tenant[T]
}

// tenant exists while it holds slots or has work waiting.
type tenant[T any] struct {
	name       string
	slotsInUse int
	waiting    []T
}

// NewQueue returns a queue for a number of slots, at least one, without a reserve.
func NewQueue[T any](slots int) *Queue[T] { return NewQueueWithReserve[T](slots, 0) }

// NewQueueWithReserve returns a queue for a number of slots, at least one, and a reserve. At most slots + reserve are in use.
func NewQueueWithReserve[T any](slots, reserve int) *Queue[T] {
	return &Queue[T]{capacity: max(slots, 1), reserve: max(reserve, 0), tenants: map[string]*tenant[T]{}}
}

// Push adds work of a tenant.
func (q *Queue[T]) Push(name string, work T) {
	t := q.tenants[name]
	if t == nil {
		t = &tenant[T]{name: name}
		q.tenants[name] = t
	}
	if len(t.waiting) == 0 {
		q.tenantOrder = append(q.tenantOrder, t)
	}
	t.waiting = append(t.waiting, work)
}

// Pop returns the next work that may start and takes a slot for its tenant. It returns false when no work is waiting or
// none may start. Each slot must be returned with ReleaseSlot.
func (q *Queue[T]) Pop() (name string, work T, ok bool) {
	for i, t := range q.tenantOrder {
		if !q.mayStart(t) {
			continue
		}
		var none T
		work, t.waiting[0] = t.waiting[0], none // the array outlives the slice
		t.waiting = t.waiting[1:]
		t.slotsInUse++
		q.slotsInUse++
		q.tenantOrder = append(q.tenantOrder[:i], q.tenantOrder[i+1:]...)
		if len(t.waiting) > 0 {
			q.tenantOrder = append(q.tenantOrder, t)
		}
		return t.name, work, true
	}
	return "", work, false
}

// ReleaseSlot returns a slot that a tenant took.
func (q *Queue[T]) ReleaseSlot(name string) {
	t := q.tenants[name]
	if t == nil || t.slotsInUse == 0 {
		return
	}
	t.slotsInUse--
	q.slotsInUse--
	q.forgetIdle(t)
}

// Remove drops the waiting work of a tenant for which drop returns true.
func (q *Queue[T]) Remove(name string, drop func(T) bool) {
	t := q.tenants[name]
	if t == nil || len(t.waiting) == 0 {
		return
	}
	var remaining []T
	for _, work := range t.waiting {
		if !drop(work) {
			remaining = append(remaining, work)
		}
	}
	t.waiting = remaining
	if len(remaining) > 0 {
		return
	}
	for i, other := range q.tenantOrder {
		if other == t {
			q.tenantOrder = append(q.tenantOrder[:i], q.tenantOrder[i+1:]...)
			break
		}
	}
	q.forgetIdle(t)
}

// SlotsInUse returns how many slots are taken.
func (q *Queue[T]) SlotsInUse() int { return q.slotsInUse }

// mayStart reports whether a tenant may take one more slot. Its first slot only needs to be free, and may be one of the reserve.
func (q *Queue[T]) mayStart(t *tenant[T]) bool {
	free := q.capacity - q.slotsInUse // negative while slots of the reserve are in use
	if t.slotsInUse == 0 {
		return free+q.reserve > 0
	}
	return free > 0 && t.slotsInUse < maxTenantShare*(free-1)
}

func (q *Queue[T]) forgetIdle(t *tenant[T]) {
	if t.slotsInUse == 0 && len(t.waiting) == 0 {
		delete(q.tenants, t.name)
	}
}
