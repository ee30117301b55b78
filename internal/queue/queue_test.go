package queue

import (
	"context"
	"slices"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/serin-dev/serin/internal/release"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// fakeKind contains the stored statuses of one kind.
type fakeKind struct {
	kind   string
	stored map[string]StoredEntry
	woken  []string
	err    error
	lists  int
}

func (s *fakeKind) register(l *Queue) {
	l.Register(Kind{
		Name: s.kind,
		List: func(context.Context, string) ([]StoredEntry, error) {
			s.lists++
			var all []StoredEntry
			for _, one := range s.stored {
				if one.Entry.InProgress || one.Entry.Waiting { // like an index
					all = append(all, one)
				}
			}
			return all, s.err
		},
		Get: func(_ context.Context, key types.NamespacedName) (StoredEntry, bool, error) {
			one, found := s.stored[key.Name]
			return one, found, s.err
		},
		Wake: func(key types.NamespacedName) { s.woken = append(s.woken, key.Name) },
	})
}

func (s *fakeKind) put(name, version string, change func(*release.QueueEntry)) release.QueueEntry {
	entry := release.QueueEntry{Kind: s.kind, Namespace: "shop", Name: name}
	if change != nil {
		change(&entry)
	}
	s.stored[name] = StoredEntry{Entry: entry, Version: version}
	return entry
}

func inProgress(p *release.QueueEntry) { p.InProgress = true }

func waitsSince(minute int) func(*release.QueueEntry) {
	return func(p *release.QueueEntry) { p.Waiting, p.Since = true, noon.Add(time.Duration(minute)*time.Minute) }
}

func key(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: "shop", Name: name}
}

func mayStart(t *testing.T, l *Queue, entry release.QueueEntry, pruned bool) bool {
	t.Helper()
	state, err := l.MayStart(t.Context(), entry, pruned, noon)
	if err != nil {
		t.Fatal(err)
	}
	return state.Open
}

func twoKinds(limits release.ConcurrencyLimits) (l *Queue, canaries, rollouts *fakeKind) {
	l = New(limits, "")
	canaries, rollouts = &fakeKind{kind: "Canary", stored: map[string]StoredEntry{}}, &fakeKind{kind: "Rollout", stored: map[string]StoredEntry{}}
	canaries.register(l)
	rollouts.register(l)
	return l, canaries, rollouts
}

func TestKindsShareOneLimit(t *testing.T) {
	l, canaries, rollouts := twoKinds(release.ConcurrencyLimits{Cluster: 1})
	running := canaries.put("a", "1", inProgress)
	same := rollouts.put("a", "2", waitsSince(-1)) // of the same name, and another release
	first := rollouts.put("b", "3", waitsSince(-2))
	if mayStart(t, l, same, false) || mayStart(t, l, first, false) {
		t.Fatal("a Rollout starts while a Canary occupies the only slot")
	}
	idle := canaries.put("a", "4", nil)
	if err := l.WakeNext(t.Context(), running, idle); err != nil {
		t.Fatal(err)
	}
	if len(canaries.woken) > 0 || !slices.Equal(rollouts.woken, []string{"b"}) {
		t.Fatalf("woke Canaries %v and Rollouts %v, want the Rollout that waits longest", canaries.woken, rollouts.woken)
	}
	if mayStart(t, l, idle, false) || !mayStart(t, l, first, false) {
		t.Fatal("the release that waits longest must start first, whatever its kind")
	}
	l.RecordOutcome("Rollout", key("b"), Outcome{Started: "5"})
	if mayStart(t, l, idle, false) {
		t.Fatal("a Canary starts while a Rollout occupies the only slot")
	}
	rollouts.put("b", "6", nil)
	rollouts.put("a", "7", nil)
	if !mayStart(t, l, idle, false) {
		t.Fatal("the Canary does not start although no other release is in progress or waiting")
	}
}

func TestTheQueueCountsReleasesThatTheCacheDoesNotShowYet(t *testing.T) {
	l, canaries, _ := twoKinds(release.ConcurrencyLimits{Cluster: 1})
	a, b := canaries.put("a", "1", nil), canaries.put("b", "2", nil)
	if !mayStart(t, l, a, false) || mayStart(t, l, b, false) {
		t.Fatal("the first release must take the slot, and the second must find it occupied")
	}
	l.RecordOutcome("Canary", key("a"), Outcome{})
	if !mayStart(t, l, b, false) {
		t.Fatal("a reconciliation that starts nothing must release the slot")
	}
	l.RecordOutcome("Canary", key("b"), Outcome{Started: "5"})
	if mayStart(t, l, a, false) {
		t.Fatal("a started release must count before the cache shows it")
	}
	canaries.put("b", "5", inProgress)
	if mayStart(t, l, a, false) {
		t.Fatal("a starts while b is in progress")
	}
	canaries.put("b", "6", nil)
	if !mayStart(t, l, a, false) {
		t.Fatal("a does not start although b has ended")
	}
	l.RecordOutcome("Canary", key("a"), Outcome{})

	// A CRD that prunes Serin's part of the status: only the process knows which releases wait.
	b = canaries.put("b", "8", inProgress)
	if mayStart(t, l, a, true) {
		t.Fatal("a starts while b is in progress")
	}
	l.RecordOutcome("Canary", key("a"), Outcome{Waiting: true})
	if keys := l.Keys("Canary"); !slices.Contains(keys, key("a")) || len(l.Keys("Rollout")) > 0 {
		t.Errorf("got state of Canaries %v and of Rollouts %v", keys, l.Keys("Rollout"))
	}
	if err := l.WakeNext(t.Context(), b, canaries.put("b", "9", nil)); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(canaries.woken, []string{"a"}) {
		t.Fatalf("woke %v, want a", canaries.woken)
	}
	l.RecordOutcome("Canary", key("a"), Outcome{})
	if err := l.WakeNext(t.Context(), b, canaries.put("b", "10", nil)); err != nil {
		t.Fatal(err)
	}
	if len(canaries.woken) > 1 {
		t.Fatalf("woke %v although no release waits", canaries.woken)
	}
	if !mayStart(t, l, a, false) {
		t.Fatal("a does not start although no release is in progress")
	}
	l.Forget("Canary", key("a"))
	if len(l.started)+len(l.unwritten) != 0 {
		t.Fatalf("state that remains: %v %v", l.started, l.unwritten)
	}
}

func TestAQueueWithoutLimitsListsNothing(t *testing.T) {
	l, canaries, _ := twoKinds(release.ConcurrencyLimits{})
	for _, unlimited := range []*Queue{l, nil} {
		state, err := unlimited.MayStart(t.Context(), canaries.put("a", "1", nil), false, noon)
		if state != nil || err != nil {
			t.Errorf("got state %v, %v", state, err)
		}
		unlimited.RecordOutcome("Canary", key("a"), Outcome{Started: "2", Waiting: true})
		if err := unlimited.WakeNext(t.Context(), canaries.put("a", "2", inProgress), canaries.put("a", "3", nil)); err != nil {
			t.Error(err)
		}
		unlimited.Forget("Canary", key("a"))
		if keys := unlimited.Keys("Canary"); len(keys) > 0 || canaries.lists > 0 {
			t.Errorf("state of %v, listed %d times", keys, canaries.lists)
		}
	}
}

// Nearly all events of releases free no slot.
func TestOnlyAFreedSlotListsTheWaitingReleases(t *testing.T) {
	l, canaries, _ := twoKinds(release.ConcurrencyLimits{Cluster: 1})
	was, is := canaries.put("a", "1", inProgress), canaries.put("a", "2", inProgress)
	if err := l.WakeNext(t.Context(), was, is); err != nil || canaries.lists > 0 {
		t.Errorf("listed %d times, %v", canaries.lists, err)
	}
}

func TestAKindWithoutReadPermissionIsIgnored(t *testing.T) {
	l, canaries, rollouts := twoKinds(release.ConcurrencyLimits{Cluster: 1})
	rollouts.err = apierrors.NewForbidden(schema.GroupResource{Resource: "rollouts"}, "", nil)
	canaries.put("b", "2", inProgress)
	if mayStart(t, l, canaries.put("a", "1", nil), false) {
		t.Error("a starts while b is in progress")
	}
}
