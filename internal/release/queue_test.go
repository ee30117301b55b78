package release_test

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/serin-dev/serin/internal/release"
)

func TestQueueState(t *testing.T) {
	moves := func(namespace, name string) release.QueueEntry {
		return release.QueueEntry{Namespace: namespace, Name: name, InProgress: true}
	}
	waits := func(namespace, name string, priority, minute int) release.QueueEntry {
		return release.QueueEntry{Namespace: namespace, Name: name, Waiting: true, Priority: priority, Since: noon.Add(time.Duration(minute) * time.Minute)}
	}
	cart := waits("shop", "cart", 0, 5)
	for _, c := range []struct {
		name   string
		limits release.ConcurrencyLimits
		places []release.QueueEntry
		want   string
		open   bool
	}{
		{"alone", release.ConcurrencyLimits{Cluster: 1}, nil, "0 of at most 1 releases in progress in the cluster", true},
		{"its own entry is ignored", release.ConcurrencyLimits{Cluster: 1}, []release.QueueEntry{moves("shop", "cart")}, "0 of at most 1 releases in progress in the cluster", true},
		{"full", release.ConcurrencyLimits{Cluster: 1}, []release.QueueEntry{moves("a", "x")}, "1st of 1 waiting: 1 of at most 1 releases in progress in the cluster", false},
		{"a limit that was lowered", release.ConcurrencyLimits{Cluster: 1}, []release.QueueEntry{moves("a", "x"), moves("a", "y")}, "1st of 1 waiting: 2 of at most 1 releases in progress in the cluster", false},
		{
			"behind who waits longer and who is more urgent",
			release.ConcurrencyLimits{Cluster: 1},
			[]release.QueueEntry{moves("a", "x"), waits("a", "y", 0, 1), waits("a", "z", 7, 9), waits("a", "late", 0, 9), waits("a", "low", -1, 1)},
			"3rd of 5 waiting: 1 of at most 1 releases in progress in the cluster", false,
		},
		{"one slot is free, but another release comes first", release.ConcurrencyLimits{Cluster: 2}, []release.QueueEntry{moves("a", "x"), waits("a", "y", 0, 1)}, "2nd of 2 waiting: 1 of at most 2 releases in progress in the cluster", false},
		{"two slots are free", release.ConcurrencyLimits{Cluster: 3}, []release.QueueEntry{moves("a", "x"), waits("a", "y", 0, 1)}, "1 of at most 3 releases in progress in the cluster", true},
		{"the same time: by name", release.ConcurrencyLimits{Cluster: 1}, []release.QueueEntry{waits("shop", "b", 0, 5)}, "2nd of 2 waiting: 0 of at most 1 releases in progress in the cluster", false},
		{"its namespace is full", release.ConcurrencyLimits{Cluster: 9, Namespace: 1}, []release.QueueEntry{moves("shop", "x"), waits("a", "y", 0, 1)}, "1st of 1 waiting: 1 of at most 1 releases in progress in this namespace", false},
		{"another namespace is full, but does not block others", release.ConcurrencyLimits{Cluster: 2, Namespace: 1}, []release.QueueEntry{moves("a", "x"), waits("a", "y", 0, 1)}, "1 of at most 2 releases in progress in the cluster", true},
	} {
		got := c.limits.QueueState(c.places, cart)
		if got.String() != c.want || got.Open != c.open {
			t.Errorf("%s: got %v, %q, want %v, %q", c.name, got.Open, got, c.open, c.want)
		}
	}
}

// For any queue: no release starts beyond a limit, none waits while a slot is free, and none is overtaken unless the
// limit of its namespace blocks it.
func TestQueueIsFair(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limits := release.ConcurrencyLimits{Cluster: rapid.IntRange(0, 5).Draw(t, "cluster"), Namespace: rapid.IntRange(0, 3).Draw(t, "namespace")}
		var places []release.QueueEntry
		for i := range rapid.IntRange(0, 12).Draw(t, "releases") {
			places = append(places, release.QueueEntry{
				Namespace: rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "in"), Name: fmt.Sprint(i),
				InProgress: rapid.Bool().Draw(t, "moves"), Waiting: rapid.Bool().Draw(t, "waits"),
				Priority: rapid.IntRange(0, 2).Draw(t, "priority"), Since: noon.Add(time.Duration(rapid.IntRange(0, 3).Draw(t, "since")) * time.Minute),
			})
		}
		all, here := 0, map[string]int{}
		for _, p := range places {
			if p.InProgress {
				all++
				here[p.Namespace]++
			}
		}
		starts := map[string]bool{}
		for _, p := range limits.NextToStart(places) {
			if p.InProgress || !p.Waiting {
				t.Fatalf("%v starts without waiting", p)
			}
			starts[p.Name] = true
			all++
			here[p.Namespace]++
			if limits.Cluster > 0 && all > limits.Cluster || limits.Namespace > 0 && here[p.Namespace] > limits.Namespace {
				t.Fatalf("%v starts beyond the limits", p)
			}
		}
		for _, p := range places {
			if p.InProgress || !p.Waiting {
				continue
			}
			if got := limits.QueueState(places, p); got.Open != starts[p.Name] {
				t.Fatalf("%v: state %v, but starts: %v", p, got, starts[p.Name])
			} else if !got.Open && (got.Position < 1 || got.Position > got.Waiting || got.Limit == 0) {
				t.Fatalf("%v: %+v", p, got)
			}
			full := limits.Namespace > 0 && here[p.Namespace] >= limits.Namespace
			if !starts[p.Name] && !full && (limits.Cluster == 0 || all < limits.Cluster) {
				t.Fatalf("%v waits although a slot is free", p)
			}
			for _, other := range places {
				overtaken := starts[other.Name] && !starts[p.Name] && !full && other.Priority < p.Priority
				if overtaken {
					t.Fatalf("%v starts before %v", other, p)
				}
			}
		}
	})
}

func TestFreesSlot(t *testing.T) {
	rest, moves, waits := release.QueueEntry{}, release.QueueEntry{InProgress: true}, release.QueueEntry{Waiting: true}
	for name, c := range map[string]struct {
		was, is release.QueueEntry
		want    bool
	}{
		"starts":               {waits, moves, false},
		"ends":                 {moves, rest, true},
		"leaves the queue":     {waits, rest, true},
		"is idle":              {rest, rest, false},
		"enters the queue":     {rest, waits, false},
		"changes its priority": {waits, release.QueueEntry{Waiting: true, Priority: 9}, true},
		"continues":            {moves, moves, false},
	} {
		if got := release.FreesSlot(c.was, c.is); got != c.want {
			t.Errorf("an entry that %s: got %v", name, got)
		}
	}
}

func TestPriorities(t *testing.T) {
	for text, want := range map[string]int{"": 0, "9": 9, "-1": -1, "soon": 0} {
		if got := release.Priority(map[string]string{release.PriorityAnnotation: text}); got != want {
			t.Errorf("priority of %q: got %d, want %d", text, got, want)
		}
	}
}
