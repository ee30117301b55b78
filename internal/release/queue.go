package release

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"time"
)

// PriorityAnnotation is the annotation with the priority of a release in the queue: an integer, 0 by default.
const PriorityAnnotation = "serin.dev/priority"

// Priority returns the priority in the annotations of an object. Any other value than an integer counts as 0: a mistake
// in an annotation must not block a release.
func Priority(annotations map[string]string) int {
	n, err := strconv.Atoi(annotations[PriorityAnnotation])
	if err != nil {
		return 0
	}
	return n
}

// ConcurrencyLimits are the maximum numbers of concurrent releases. Zero: unlimited.
type ConcurrencyLimits struct {
	Cluster, Namespace int
}

// Any reports whether there is a limit.
func (l ConcurrencyLimits) Any() bool { return l.Cluster > 0 || l.Namespace > 0 }

// QueueEntry is one release with its state in the queue.
type QueueEntry struct {
	// Kind, Namespace and Name identify the release.
	Kind, Namespace, Name string
	// InProgress is true from the start of the release until it is idle again.
	InProgress bool
	// Waiting is true if the release could start if it had a slot.
	Waiting bool
	// A release with a higher Priority starts first. Of those with the same priority, the one that has waited longer
	// starts first.
	Priority int
	Since    time.Time
}

// isSame reports whether two entries belong to the same release.
func (e QueueEntry) isSame(other QueueEntry) bool {
	return e.Kind == other.Kind && e.Namespace == other.Namespace && e.Name == other.Name
}

// compareInQueue returns a negative number if a starts before b. Names decide between otherwise equal entries, so that
// the order is total.
func compareInQueue(a, b QueueEntry) int {
	return cmp.Or(
		cmp.Compare(b.Priority, a.Priority), a.Since.Compare(b.Since),
		cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Kind, b.Kind),
	)
}

// FreesSlot reports whether a change of one release may let others start: it ended, left the queue, or changed its
// priority.
func FreesSlot(before, after QueueEntry) bool {
	ended, leftQueue := before.InProgress && !after.InProgress, before.Waiting && !after.Waiting && !after.InProgress
	return ended || leftQueue || after.Waiting && before.Priority != after.Priority
}

// QueueState contains whether a release may start, and its position in the queue.
type QueueState struct {
	Open bool
	// Position is the position of the release among the Waiting ones, from 1; both are 0 if Open.
	Position, Waiting int
	// InProgress is the number of releases in progress and Limit the maximum: in the namespace of the release if
	// Namespaced, otherwise in the cluster.
	InProgress, Limit int
	Namespaced        bool
}

// String returns the message of the gate.
func (s QueueState) String() string {
	where := "in the cluster"
	if s.Namespaced {
		where = "in this namespace"
	}
	inProgress := fmt.Sprintf("%d of at most %d releases in progress %s", s.InProgress, s.Limit, where)
	if s.Open {
		return inProgress
	}
	return fmt.Sprintf("%s of %d waiting: %s", ordinal(s.Position), s.Waiting, inProgress)
}

// Gate returns the gate before the start of a release. It waits while the maximum number of releases is in progress,
// and opens when one of them ends.
func (s QueueState) Gate() Gate {
	if s.Open {
		return NewPassingGate("turn", s.String())
	}
	g := NewWaitingGate("turn", ByCluster, s.String())
	g.Value, g.Limit = strconv.Itoa(s.InProgress)+" in progress", strconv.Itoa(s.Limit)
	return g
}

func ordinal(n int) string {
	suffix := "th"
	switch tens := n / 10 % 10; {
	case tens == 1:
	case n%10 == 1:
		suffix = "st"
	case n%10 == 2:
		suffix = "nd"
	case n%10 == 3:
		suffix = "rd"
	}
	return fmt.Sprintf("%d%s", n, suffix)
}

// QueueState returns whether a release may start now. entries are those of all releases; an entry of this release is
// older than the call, and is ignored.
//
// The limits apply to the start only: a release in progress is never stopped, so more releases may be in progress than
// a limit that was lowered. A release that is blocked by the limit of its namespace does not block releases of other
// namespaces behind it in the queue.
func (l ConcurrencyLimits) QueueState(entries []QueueEntry, entry QueueEntry) QueueState {
	entry.InProgress, entry.Waiting = false, true
	others := slices.DeleteFunc(slices.Clone(entries), entry.isSame)
	inProgress, inNamespace := 0, 0
	for _, other := range others {
		if other.InProgress {
			inProgress++
			if other.Namespace == entry.Namespace {
				inNamespace++
			}
		}
	}
	state := QueueState{InProgress: inProgress, Limit: l.Cluster}
	if l.Namespace > 0 && (l.Cluster == 0 || inNamespace >= l.Namespace || l.Cluster-inProgress > l.Namespace-inNamespace) {
		state = QueueState{InProgress: inNamespace, Limit: l.Namespace, Namespaced: true} // report the limit that is closer
	}
	starting := l.NextToStart(append(others, entry))
	if state.Open = slices.ContainsFunc(starting, entry.isSame); state.Open {
		return state
	}
	for _, other := range others {
		if !other.Waiting || other.InProgress || state.Namespaced && other.Namespace != entry.Namespace {
			continue
		}
		state.Waiting++
		if compareInQueue(other, entry) < 0 {
			state.Position++
		}
	}
	state.Position, state.Waiting = state.Position+1, state.Waiting+1
	return state
}

// NextToStart returns the releases that may start now, in order.
func (l ConcurrencyLimits) NextToStart(entries []QueueEntry) []QueueEntry {
	inProgress, inNamespace := 0, map[string]int{}
	var queue []QueueEntry
	for _, e := range entries {
		switch {
		case e.InProgress:
			inProgress++
			inNamespace[e.Namespace]++
		case e.Waiting:
			queue = append(queue, e)
		}
	}
	slices.SortFunc(queue, compareInQueue)
	return slices.DeleteFunc(queue, func(e QueueEntry) bool {
		if l.Cluster > 0 && inProgress >= l.Cluster || l.Namespace > 0 && inNamespace[e.Namespace] >= l.Namespace {
			return true
		}
		inProgress++
		inNamespace[e.Namespace]++
		return false
	})
}
