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

// shelf is the stored states of one kind.
type shelf struct {
	kind  string
	of    map[string]StoredEntry
	woken []string
	err   error
	lists int
}

func (s *shelf) join(l *Queue) {
	l.Register(Kind{
		Name: s.kind,
		List: func(context.Context, string) ([]StoredEntry, error) {
			s.lists++
			var all []StoredEntry
			for _, one := range s.of {
				if one.Place.InProgress || one.Place.Waiting { // as an index gives them
					all = append(all, one)
				}
			}
			return all, s.err
		},
		Get: func(_ context.Context, key types.NamespacedName) (StoredEntry, bool, error) {
			one, found := s.of[key.Name]
			return one, found, s.err
		},
		Wake: func(key types.NamespacedName) { s.woken = append(s.woken, key.Name) },
	})
}

func (s *shelf) put(name, version string, change func(*release.QueueEntry)) release.QueueEntry {
	place := release.QueueEntry{Kind: s.kind, Namespace: "town", Name: name}
	if change != nil {
		change(&place)
	}
	s.of[name] = StoredEntry{Place: place, Version: version}
	return place
}

func moves(p *release.QueueEntry) { p.InProgress = true }

func waitsSince(minute int) func(*release.QueueEntry) {
	return func(p *release.QueueEntry) { p.Waiting, p.Since = true, noon.Add(time.Duration(minute)*time.Minute) }
}

func key(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: "town", Name: name}
}

func open(t *testing.T, l *Queue, of release.QueueEntry, pruned bool) bool {
	t.Helper()
	turn, err := l.MayStart(t.Context(), of, pruned, noon)
	if err != nil {
		t.Fatal(err)
	}
	return turn.Open
}

func twoKinds(limits release.ConcurrencyLimits) (l *Queue, canaries, rollouts *shelf) {
	l = New(limits, "")
	canaries, rollouts = &shelf{kind: "Canary", of: map[string]StoredEntry{}}, &shelf{kind: "Rollout", of: map[string]StoredEntry{}}
	canaries.join(l)
	rollouts.join(l)
	return l, canaries, rollouts
}

func TestKindsShareOneLimit(t *testing.T) {
	l, canaries, rollouts := twoKinds(release.ConcurrencyLimits{Cluster: 1})
	moving := canaries.put("a", "1", moves)
	same := rollouts.put("a", "2", waitsSince(-1)) // of the same name, and another release
	first := rollouts.put("b", "3", waitsSince(-2))
	if open(t, l, same, false) || open(t, l, first, false) {
		t.Fatal("a Rollout starts while a Canary has the only place")
	}
	rest := canaries.put("a", "4", nil)
	if err := l.Changed(t.Context(), moving, rest); err != nil {
		t.Fatal(err)
	}
	if len(canaries.woken) > 0 || !slices.Equal(rollouts.woken, []string{"b"}) {
		t.Fatalf("woke Canaries %v and Rollouts %v, want the Rollout that waits longest", canaries.woken, rollouts.woken)
	}
	if open(t, l, rest, false) || !open(t, l, first, false) {
		t.Fatal("who waits longer goes first, whatever its kind")
	}
	l.Settle("Rollout", key("b"), Outcome{Started: "5"})
	if open(t, l, rest, false) {
		t.Fatal("a Canary starts while a Rollout has the only place")
	}
	rollouts.put("b", "6", nil)
	rollouts.put("a", "7", nil)
	if !open(t, l, rest, false) {
		t.Fatal("nobody else moves or waits")
	}
}

func TestALineKnowsWhatTheCacheDoesNotYet(t *testing.T) {
	l, canaries, _ := twoKinds(release.ConcurrencyLimits{Cluster: 1})
	a, b := canaries.put("a", "1", nil), canaries.put("b", "2", nil)
	if !open(t, l, a, false) || open(t, l, b, false) {
		t.Fatal("the first who looks takes the place, and the second finds it taken")
	}
	l.Settle("Canary", key("a"), Outcome{})
	if !open(t, l, b, false) {
		t.Fatal("a pass that starts nothing gives the place back")
	}
	l.Settle("Canary", key("b"), Outcome{Started: "5"})
	if open(t, l, a, false) {
		t.Fatal("what was written and not seen yet counts")
	}
	canaries.put("b", "5", moves)
	if open(t, l, a, false) {
		t.Fatal("it moves")
	}
	canaries.put("b", "6", nil)
	if !open(t, l, a, false) {
		t.Fatal("it has ended")
	}
	l.Settle("Canary", key("a"), Outcome{})

	// A definition that drops our part of the status: who waits is known to the process alone.
	b = canaries.put("b", "8", moves)
	if open(t, l, a, true) {
		t.Fatal("b moves")
	}
	l.Settle("Canary", key("a"), Outcome{Waiting: true})
	if keys := l.Keys("Canary"); !slices.Contains(keys, key("a")) || len(l.Keys("Rollout")) > 0 {
		t.Errorf("remembers %v of Canaries, %v of Rollouts", keys, l.Keys("Rollout"))
	}
	if err := l.Changed(t.Context(), b, canaries.put("b", "9", nil)); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(canaries.woken, []string{"a"}) {
		t.Fatalf("woke %v, want a", canaries.woken)
	}
	l.Settle("Canary", key("a"), Outcome{})
	if err := l.Changed(t.Context(), b, canaries.put("b", "10", nil)); err != nil {
		t.Fatal(err)
	}
	if len(canaries.woken) > 1 {
		t.Fatalf("nobody waits any more, and woke %v", canaries.woken)
	}
	if !open(t, l, a, false) {
		t.Fatal("nobody moves")
	}
	l.Forget("Canary", key("a"))
	if len(l.started)+len(l.unwritten) != 0 {
		t.Fatalf("something is remembered of releases that nobody waits for: %v %v", l.started, l.unwritten)
	}
}

func TestALineWithoutLimitsAsksNobody(t *testing.T) {
	l, canaries, _ := twoKinds(release.ConcurrencyLimits{})
	for _, line := range []*Queue{l, nil} {
		turn, err := line.MayStart(t.Context(), canaries.put("a", "1", nil), false, noon)
		if turn != nil || err != nil {
			t.Errorf("turn %v, %v", turn, err)
		}
		line.Settle("Canary", key("a"), Outcome{Started: "2", Waiting: true})
		if err := line.Changed(t.Context(), canaries.put("a", "2", moves), canaries.put("a", "3", nil)); err != nil {
			t.Error(err)
		}
		line.Forget("Canary", key("a"))
		if keys := line.Keys("Canary"); len(keys) > 0 || canaries.lists > 0 {
			t.Errorf("remembers %v, listed %d times", keys, canaries.lists)
		}
	}
}

// Events of releases that free no place are nearly all that there are.
func TestOnlyWhoMovesOnHasOthersLookedFor(t *testing.T) {
	l, canaries, _ := twoKinds(release.ConcurrencyLimits{Cluster: 1})
	was, is := canaries.put("a", "1", moves), canaries.put("a", "2", moves)
	if err := l.Changed(t.Context(), was, is); err != nil || canaries.lists > 0 {
		t.Errorf("listed %d times, %v", canaries.lists, err)
	}
}

func TestAKindThatMayNotBeReadIsLeftOut(t *testing.T) {
	l, canaries, rollouts := twoKinds(release.ConcurrencyLimits{Cluster: 1})
	rollouts.err = apierrors.NewForbidden(schema.GroupResource{Resource: "rollouts"}, "", nil)
	canaries.put("b", "2", moves)
	if open(t, l, canaries.put("a", "1", nil), false) {
		t.Error("b moves")
	}
}
