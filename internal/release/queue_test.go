package release_test

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/serin-dev/serin/internal/release"
)

func TestQueueStateReportsThePositionAndTheLimit(t *testing.T) {
	inProgress := func(namespace, name string) release.QueueEntry {
		return release.QueueEntry{Namespace: namespace, Name: name, InProgress: true}
	}
	waiting := func(namespace, name string, priority, minute int) release.QueueEntry {
		return release.QueueEntry{Namespace: namespace, Name: name, Waiting: true, Priority: priority, Since: noon.Add(time.Duration(minute) * time.Minute)}
	}
	cart := waiting("shop", "cart", 0, 5)
	for _, c := range []struct {
		name    string
		limits  release.ConcurrencyLimits
		entries []release.QueueEntry
		want    string
		open    bool
	}{
		{"alone", release.ConcurrencyLimits{Cluster: 1}, nil, "0 of at most 1 releases in progress in the cluster", true},
		{"its own entry is ignored", release.ConcurrencyLimits{Cluster: 1}, []release.QueueEntry{inProgress("shop", "cart")}, "0 of at most 1 releases in progress in the cluster", true},
		{"full", release.ConcurrencyLimits{Cluster: 1}, []release.QueueEntry{inProgress("a", "x")}, "1st of 1 waiting: 1 of at most 1 releases in progress in the cluster", false},
		{"a limit that was lowered", release.ConcurrencyLimits{Cluster: 1}, []release.QueueEntry{inProgress("a", "x"), inProgress("a", "y")}, "1st of 1 waiting: 2 of at most 1 releases in progress in the cluster", false},
		{
			"behind a release that has waited longer and one with a higher priority",
			release.ConcurrencyLimits{Cluster: 1},
			[]release.QueueEntry{inProgress("a", "x"), waiting("a", "y", 0, 1), waiting("a", "z", 7, 9), waiting("a", "late", 0, 9), waiting("a", "low", -1, 1)},
			"3rd of 5 waiting: 1 of at most 1 releases in progress in the cluster", false,
		},
		{"one slot is free, but another release comes first", release.ConcurrencyLimits{Cluster: 2}, []release.QueueEntry{inProgress("a", "x"), waiting("a", "y", 0, 1)}, "2nd of 2 waiting: 1 of at most 2 releases in progress in the cluster", false},
		{"two slots are free", release.ConcurrencyLimits{Cluster: 3}, []release.QueueEntry{inProgress("a", "x"), waiting("a", "y", 0, 1)}, "1 of at most 3 releases in progress in the cluster", true},
		{"the same time: by name", release.ConcurrencyLimits{Cluster: 1}, []release.QueueEntry{waiting("shop", "b", 0, 5)}, "2nd of 2 waiting: 0 of at most 1 releases in progress in the cluster", false},
		{"its namespace is full", release.ConcurrencyLimits{Cluster: 9, Namespace: 1}, []release.QueueEntry{inProgress("shop", "x"), waiting("a", "y", 0, 1)}, "1st of 1 waiting: 1 of at most 1 releases in progress in this namespace", false},
		{"another namespace is full, but does not block others", release.ConcurrencyLimits{Cluster: 2, Namespace: 1}, []release.QueueEntry{inProgress("a", "x"), waiting("a", "y", 0, 1)}, "1 of at most 2 releases in progress in the cluster", true},
	} {
		got := c.limits.QueueState(c.entries, cart)
		if got.String() != c.want || got.Open != c.open {
			t.Errorf("%s: got %v, %q, want %v, %q", c.name, got.Open, got, c.open, c.want)
		}
	}
}

// For any queue: no release starts beyond a limit, none waits while a slot is free, and none is overtaken unless the
// limit of its namespace blocks it.
func TestQueueStartsReleasesInOrderWithinTheLimits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limits := release.ConcurrencyLimits{Cluster: rapid.IntRange(0, 5).Draw(t, "cluster"), Namespace: rapid.IntRange(0, 3).Draw(t, "namespace")}
		var entries []release.QueueEntry
		for i := range rapid.IntRange(0, 12).Draw(t, "releases") {
			entries = append(entries, release.QueueEntry{
				Namespace: rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "inNamespace"), Name: fmt.Sprint(i),
				InProgress: rapid.Bool().Draw(t, "inProgress"), Waiting: rapid.Bool().Draw(t, "waiting"),
				Priority: rapid.IntRange(0, 2).Draw(t, "priority"), Since: noon.Add(time.Duration(rapid.IntRange(0, 3).Draw(t, "since")) * time.Minute),
			})
		}
		total, perNamespace := 0, map[string]int{}
		for _, entry := range entries {
			if entry.InProgress {
				total++
				perNamespace[entry.Namespace]++
			}
		}
		starts := map[string]bool{}
		for _, entry := range limits.NextToStart(entries) {
			if entry.InProgress || !entry.Waiting {
				t.Fatalf("%v starts without waiting", entry)
			}
			starts[entry.Name] = true
			total++
			perNamespace[entry.Namespace]++
			if limits.Cluster > 0 && total > limits.Cluster || limits.Namespace > 0 && perNamespace[entry.Namespace] > limits.Namespace {
				t.Fatalf("%v starts beyond the limits", entry)
			}
		}
		for _, entry := range entries {
			if entry.InProgress || !entry.Waiting {
				continue
			}
			if got := limits.QueueState(entries, entry); got.Open != starts[entry.Name] {
				t.Fatalf("%v: state %v, but starts: %v", entry, got, starts[entry.Name])
			} else if !got.Open && (got.Position < 1 || got.Position > got.Waiting || got.Limit == 0) {
				t.Fatalf("%v: %+v", entry, got)
			}
			full := limits.Namespace > 0 && perNamespace[entry.Namespace] >= limits.Namespace
			if !starts[entry.Name] && !full && (limits.Cluster == 0 || total < limits.Cluster) {
				t.Fatalf("%v waits although a slot is free", entry)
			}
			for _, other := range entries {
				overtaken := starts[other.Name] && !starts[entry.Name] && !full && other.Priority < entry.Priority
				if overtaken {
					t.Fatalf("%v starts before %v", other, entry)
				}
			}
		}
	})
}

func TestASlotIsFreedWhenAReleaseEndsOrLeavesTheQueue(t *testing.T) {
	idle, inProgress, waiting := release.QueueEntry{}, release.QueueEntry{InProgress: true}, release.QueueEntry{Waiting: true}
	for name, c := range map[string]struct {
		before, after release.QueueEntry
		want          bool
	}{
		"starts":               {waiting, inProgress, false},
		"ends":                 {inProgress, idle, true},
		"leaves the queue":     {waiting, idle, true},
		"is idle":              {idle, idle, false},
		"enters the queue":     {idle, waiting, false},
		"changes its priority": {waiting, release.QueueEntry{Waiting: true, Priority: 9}, true},
		"continues":            {inProgress, inProgress, false},
	} {
		if got := release.FreesSlot(c.before, c.after); got != c.want {
			t.Errorf("an entry that %s: got %v", name, got)
		}
	}
}

func TestPriorityIsAnIntegerAndZeroByDefault(t *testing.T) {
	for text, want := range map[string]int{"": 0, "9": 9, "-1": -1, "soon": 0} {
		if got := release.Priority(map[string]string{release.PriorityAnnotation: text}); got != want {
			t.Errorf("priority of %q: got %d, want %d", text, got, want)
		}
	}
}
