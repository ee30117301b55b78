package fairshare

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
)

// startWork pushes work of a tenant and starts as much as may start. It returns how much was started.
func startWork(q *Queue[string], tenant string, work int) int {
	for i := range work {
		q.Push(tenant, fmt.Sprint(i))
	}
	started := 0
	for {
		if _, _, ok := q.Pop(); !ok {
			return started
		}
		started++
	}
}

func TestNewcomerFindsAFreeSlot(t *testing.T) {
	for slots, alone := range map[int]int{1: 1, 2: 1, 4: 3, 8: 6, 16: 12, 256: 192} {
		q := NewQueue[string](slots)
		if got := startWork(q, "hostile", 10*slots); got != alone {
			t.Errorf("%d slots: a single tenant started %d, want %d", slots, got, alone)
		}
		if slots == 1 {
			continue // there is nothing to divide
		}
		if got := startWork(q, "newcomer", 1); got != 1 {
			t.Errorf("%d slots: a newcomer did not start", slots)
		}
	}
}

func TestSeveralBusyTenantsLeaveRoom(t *testing.T) {
	q := NewQueue[string](256)
	for i := range 4 {
		startWork(q, fmt.Sprintf("hostile-%d", i), 1000)
	}
	if startWork(q, "newcomer", 1) != 1 {
		t.Errorf("with %d of 256 slots taken by four busy tenants a newcomer did not start", q.SlotsInUse())
	}
}

func TestFirstWorkStartsWhileOthersHang(t *testing.T) {
	for _, hanging := range []int{5, 63, 400} {
		q := NewQueueWithReserve[string](256, 512)
		for i := range hanging {
			if startWork(q, fmt.Sprintf("hostile-%d", i), 1000) == 0 {
				t.Fatalf("tenant %d of %d hanging ones did not start, with %d slots in use", i, hanging, q.SlotsInUse())
			}
		}
		if q.SlotsInUse() < 256 {
			t.Fatalf("%d hanging tenants take only %d slots", hanging, q.SlotsInUse())
		}
		if got := startWork(q, "newcomer", 2); got != 1 {
			t.Errorf("with %d hanging tenants a newcomer started %d of 2, want 1", hanging, got)
		}
		q.ReleaseSlot("newcomer")
		if got := startWork(q, "newcomer", 0); got != 1 {
			t.Errorf("with %d hanging tenants the second work of a newcomer did not follow the first", hanging)
		}
	}
}

// TestReserveHasALimit: beyond it, tenants wait in the order in which they came, and before further work of any other.
func TestReserveHasALimit(t *testing.T) {
	q := NewQueueWithReserve[string](4, 4)
	startWork(q, "hostile", 100)
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		if startWork(q, name, 2) != 1 {
			t.Errorf("tenant %s did not start its first work only", name)
		}
	}
	if startWork(q, "late", 2)+startWork(q, "later", 2) != 0 || q.SlotsInUse() != 8 {
		t.Fatalf("%d slots are in use, want all 8 and no more", q.SlotsInUse())
	}
	var got []string
	for range 3 {
		q.ReleaseSlot("hostile")
		name, _, _ := q.Pop()
		got = append(got, name)
	}
	// The third one is the first work of a tenant, as every other's.
	if want := []string{"late", "later", "hostile"}; !slices.Equal(got, want) {
		t.Errorf("started %v, want %v", got, want)
	}
}

func TestSharesBecomeEqual(t *testing.T) {
	q := NewQueue[string](64)
	startWork(q, "early", 1000)
	startWork(q, "late", 1000)
	held := func(name string) int { return q.tenants[name].slotsInUse }
	// Work ends in the order in which it began, so that the early tenant gives up its slots.
	for range 500 {
		name := "early"
		if held("late") > held("early") {
			name = "late"
		}
		q.ReleaseSlot(name)
		for {
			if _, _, ok := q.Pop(); !ok {
				break
			}
		}
	}
	if e, l := held("early"), held("late"); max(e, l)-min(e, l) > 1 {
		t.Errorf("after everything was replaced, one tenant holds %d slots and the other %d", e, l)
	}
}

func TestWorkStartsRoundRobin(t *testing.T) {
	q := NewQueue[string](100)
	for _, work := range []string{"a1", "a2", "a3", "b1", "b2", "c1"} {
		q.Push(work[:1], work)
	}
	var got []string
	for {
		_, work, ok := q.Pop()
		if !ok {
			break
		}
		got = append(got, work)
	}
	if want := []string{"a1", "b1", "c1", "a2", "b2", "a3"}; !slices.Equal(got, want) {
		t.Errorf("started in the order %v, want %v", got, want)
	}
}

func TestRemove(t *testing.T) {
	q := NewQueue[string](10)
	q.Push("a", "1")
	q.Push("a", "2")
	q.Remove("a", func(work string) bool { return work == "1" })
	if _, work, ok := q.Pop(); !ok || work != "2" {
		t.Errorf("got %q, want what remained", work)
	}
	q.Push("b", "1")
	q.Remove("b", func(string) bool { return true })
	if _, work, ok := q.Pop(); ok {
		t.Errorf("started %q, which was removed", work)
	}
}

func TestQueueForgetsTenants(t *testing.T) {
	q := NewQueue[int](16)
	for i := range 10_000 {
		name := fmt.Sprint(i)
		q.Push(name, i)
		q.Push(name, -i)
		q.Pop()
		q.Remove(name, func(int) bool { return true })
		q.ReleaseSlot(name)
		q.ReleaseSlot(name) // once too often
	}
	if len(q.tenants) != 0 || len(q.tenantOrder) != 0 || q.SlotsInUse() != 0 {
		t.Errorf("%d tenants, %d of them in the order, %d slots remain", len(q.tenants), len(q.tenantOrder), q.SlotsInUse())
	}
}

// TestQueueInvariants executes random operations: slots are never exceeded, each piece of work starts once and in its
// tenant's order, and work waits only while its tenant holds its share or all slots are taken.
func TestQueueInvariants(t *testing.T) {
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 1))
		slots := 1 + random.IntN(40)
		reserve := int(seed%2) * random.IntN(6)
		q := NewQueueWithReserve[int](slots, reserve)
		next, started, held := map[string]int{}, map[string]int{}, map[string]int{}
		for range 400 {
			name := fmt.Sprint(random.IntN(6))
			switch random.IntN(3) {
			case 0:
				q.Push(name, next[name])
				next[name]++
			case 1:
				if held[name] > 0 {
					held[name]--
					q.ReleaseSlot(name)
				}
			default:
				name, work, ok := q.Pop()
				if !ok {
					break
				}
				if work != started[name] {
					t.Fatalf("seed %d: tenant %s started %d before %d", seed, name, work, started[name])
				}
				started[name]++
				held[name]++
			}
			total := 0
			for _, n := range held {
				total += n
			}
			if total > slots+reserve || total != q.SlotsInUse() {
				t.Fatalf("seed %d: %d of %d slots are taken, the queue reports %d", seed, total, slots+reserve, q.SlotsInUse())
			}
		}
		for {
			if _, _, ok := q.Pop(); !ok {
				break
			}
		}
		for name, tenant := range q.tenants {
			if len(tenant.waiting) > 0 && tenant.slotsInUse == 0 && q.SlotsInUse() < slots+reserve {
				t.Fatalf("seed %d: tenant %s has no slot and waits while %d slots are free", seed, name, slots+reserve-q.SlotsInUse())
			}
		}
	}
}

func TestSemaphoreServesOthersDuringHangingWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewSemaphore(16)
		ctx, cancel := context.WithCancel(t.Context())
		var hanging sync.WaitGroup
		for range 100 {
			hanging.Go(func() {
				release, err := s.Acquire(ctx, "hostile")
				if err != nil {
					return
				}
				<-ctx.Done()
				release()
			})
		}
		synctest.Wait()
		release, err := s.Acquire(t.Context(), "other")
		if err != nil {
			t.Fatal(err)
		}
		release()
		release() // without effect
		cancel()
		hanging.Wait()
		if s.queue.SlotsInUse() != 0 || len(s.queue.tenants) != 0 {
			t.Errorf("%d slots and %d tenants remain", s.queue.SlotsInUse(), len(s.queue.tenants))
		}
	})
}

func TestAcquireEndsWithItsContext(t *testing.T) {
	s := NewSemaphore(1)
	release, err := s.Acquire(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	cause := errors.New("no time left")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	if _, err := s.Acquire(ctx, "b"); !errors.Is(err, cause) {
		t.Errorf("got %v, want the cause", err)
	}
}

func TestSemaphoreConcurrently(t *testing.T) {
	s := NewSemaphore(4)
	var inside, most atomic.Int64
	var all sync.WaitGroup
	for i := range 64 {
		all.Go(func() {
			for n := range 50 {
				ctx, cancel := context.WithCancel(t.Context())
				if (i+n)%5 == 0 {
					go cancel() // races with the grant
				}
				release, err := s.Acquire(ctx, fmt.Sprint(i%7))
				if err == nil {
					now := inside.Add(1)
					for seen := most.Load(); now > seen && !most.CompareAndSwap(seen, now); seen = most.Load() {
					}
					inside.Add(-1)
					release()
				}
				cancel()
			}
		})
	}
	all.Wait()
	if most.Load() > 4 || s.queue.SlotsInUse() != 0 || len(s.queue.tenants) != 0 {
		t.Errorf("%d slots were in use at the same time; %d slots and %d tenants remain", most.Load(), s.queue.SlotsInUse(), len(s.queue.tenants))
	}
}
