package sharding

import (
	"context"
	"errors"
	"testing"

	"k8s.io/client-go/tools/leaderelection/resourcelock"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/serin-dev/serin/internal/fence"
)

func TestAProcessWithoutShardsHoldsEverything(t *testing.T) {
	var h *Held
	ctx, end, held := h.Begin(t.Context(), "shop")
	defer end()
	if !held || ctx != t.Context() || h.Context(ctx, "shop") != ctx || !h.Holds("shop") || h.Acquisition("shop") != 0 {
		t.Errorf("got held %t", held)
	}
}

func TestAShardIsIdleWhenItsLastReconciliationEnds(t *testing.T) {
	h := NewHeld(LeaseNames("serin", 1))
	if _, _, held := h.Begin(t.Context(), "shop"); held || h.Holds("shop") || h.count() != 0 {
		t.Error("a shard is held at the start")
	}
	h.Acquire(0)
	ctx, endFirst, _ := h.Begin(t.Context(), "shop")
	if lease := fence.LeaseOf(ctx); lease != "serin-shard-0" || fence.LeaseOf(h.Context(t.Context(), "shop")) != lease {
		t.Errorf("writes of the reconciliation require Lease %q", lease)
	}
	_, endSecond, _ := h.Begin(t.Context(), "web")
	if !h.Lose(0) || h.Lose(0) {
		t.Error("a shard is lost once")
	}
	idle := h.idle(0)
	endFirst()
	if isClosed(idle) || isClosed(h.idle(0)) {
		t.Error("idle while a reconciliation is running")
	}
	if _, _, held := h.Begin(t.Context(), "shop"); held {
		t.Error("a lost shard is reconciled")
	}
	endSecond()
	if !isClosed(idle) || !isClosed(h.idle(0)) {
		t.Error("not idle after the last reconciliation")
	}
	h.Acquire(0)
	if h.Acquisition("shop") != 2 {
		t.Errorf("got acquisition %d, want 2", h.Acquisition("shop"))
	}
}

// TestALateAcquisitionIsIgnored: the library reports it concurrently, perhaps after the Lease was lost again.
func TestALateAcquisitionIsIgnored(t *testing.T) {
	h := NewHeld(LeaseNames("serin", 1))
	lost, cancel := context.WithCancel(t.Context())
	cancel()
	if h.Acquire(0, t.Context(), lost) || h.Holds("shop") {
		t.Error("a lost shard is held")
	}
}

// TestAShardThatASuccessorReleasedIsLost: a suspended process would otherwise continue with decisions that are older than the
// writes of its successor.
func TestAShardThatASuccessorReleasedIsLost(t *testing.T) {
	server := newLeaseServer(t)
	locks := map[string]*shardLock{}
	for _, name := range []string{"a", "b"} {
		lock := newTestLock(t, server, name, "serin-shard-0")
		locks[name] = newShardLock(lock, newLiveness(testingclock.NewFakeClock(testTime), leaseDuration))
	}
	ctx, record := t.Context(), func(holder string) resourcelock.LeaderElectionRecord {
		return resourcelock.LeaderElectionRecord{HolderIdentity: holder}
	}
	write := func(lock *shardLock, holder string) error {
		_, _, err := lock.Get(ctx)
		return errors.Join(err, lock.Update(ctx, record(holder)))
	}
	if err := locks["a"].Create(ctx, record("a")); err != nil {
		t.Fatal(err)
	}
	for _, holder := range []string{"b", ""} {
		if err := write(locks["b"], holder); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		if err := write(locks["a"], "a"); err == nil {
			t.Error("the election of the suspended process continues")
		}
	}
	again := newShardLock(newTestLock(t, server, "a", "serin-shard-0"), locks["a"].observed)
	if err := write(again, "a"); err != nil {
		t.Errorf("the next election: %v", err)
	}
}

// TestTheGroupRenewsWithoutConflicts, and loses the Lease when another holder has acquired it.
func TestTheGroupRenewsWithoutConflicts(t *testing.T) {
	server := newLeaseServer(t)
	first, second := NewGroupLock(newTestLock(t, server, "", "serin"), 6), NewGroupLock(newTestLock(t, server, "", "serin"), 6)
	other := NewGroupLock(newTestLock(t, server, "", "serin"), 4)
	ctx := t.Context()
	record := func(l *GroupLock) resourcelock.LeaderElectionRecord {
		return resourcelock.LeaderElectionRecord{HolderIdentity: l.Identity()}
	}
	if err := first.Create(ctx, record(first)); err != nil {
		t.Fatal(err)
	}
	for _, lock := range []*GroupLock{second, other} {
		if _, _, err := lock.Get(ctx); err != nil {
			t.Fatal(err)
		}
	}
	for _, lock := range []*GroupLock{first, second, first, first, second} {
		if err := lock.Update(ctx, record(lock)); err != nil {
			t.Errorf("renewal: %v", err)
		}
	}
	if _, _, err := other.Get(ctx); err != nil {
		t.Fatal(err)
	}
	if err := other.Update(ctx, record(other)); err != nil { // the election decides whether it may
		t.Fatal(err)
	}
	if err := first.Update(ctx, record(first)); err == nil {
		t.Error("the group renews a Lease that others hold")
	}
}
