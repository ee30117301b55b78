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

func (p QueueEntry) isSame(other QueueEntry) bool {
	return p.Kind == other.Kind && p.Namespace == other.Namespace && p.Name == other.Name
}

// startsBefore is the order of the queue. Names decide between otherwise equal entries, so that the order is total.
func startsBefore(a, b QueueEntry) int {
	return cmp.Or(
		cmp.Compare(b.Priority, a.Priority), a.Since.Compare(b.Since),
		cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Kind, b.Kind),
	)
}

// FreesSlot reports whether a change of one release may let others start: it ended, left the queue, or changed its
// priority.
func FreesSlot(was, is QueueEntry) bool {
	ended, left := was.InProgress && !is.InProgress, was.Waiting && !is.Waiting && !is.InProgress
	return ended || left || is.Waiting && was.Priority != is.Priority
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
func (t QueueState) String() string {
	where := "in the cluster"
	if t.Namespaced {
		where = "in this namespace"
	}
	inProgress := fmt.Sprintf("%d of at most %d releases in progress %s", t.InProgress, t.Limit, where)
	if t.Open {
		return inProgress
	}
	return fmt.Sprintf("%s of %d waiting: %s", ordinal(t.Position), t.Waiting, inProgress)
}

// Gate returns the gate before the start of a release. It waits while the maximum number of releases is in progress,
// and opens when one of them ends.
func (t QueueState) Gate() Gate {
	if t.Open {
		return NewPassingGate("turn", t.String())
	}
	g := NewWaitingGate("turn", ByCluster, t.String())
	g.Value, g.Limit = strconv.Itoa(t.InProgress)+" in progress", strconv.Itoa(t.Limit)
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
	inProgress, here := 0, 0
	for _, p := range others {
		if p.InProgress {
			inProgress++
			if p.Namespace == entry.Namespace {
				here++
			}
		}
	}
	state := QueueState{InProgress: inProgress, Limit: l.Cluster}
	if l.Namespace > 0 && (l.Cluster == 0 || here >= l.Namespace || l.Cluster-inProgress > l.Namespace-here) {
		state = QueueState{InProgress: here, Limit: l.Namespace, Namespaced: true} // report the limit that is closer
	}
	starting := l.NextToStart(append(others, entry))
	if state.Open = slices.ContainsFunc(starting, entry.isSame); state.Open {
		return state
	}
	for _, p := range others {
		if !p.Waiting || p.InProgress || state.Namespaced && p.Namespace != entry.Namespace {
			continue
		}
		state.Waiting++
		if startsBefore(p, entry) < 0 {
			state.Position++
		}
	}
	state.Position, state.Waiting = state.Position+1, state.Waiting+1
	return state
}

// NextToStart returns the releases that may start now, in order.
func (l ConcurrencyLimits) NextToStart(entries []QueueEntry) []QueueEntry {
	inProgress, here := 0, map[string]int{}
	var queue []QueueEntry
	for _, p := range entries {
		switch {
		case p.InProgress:
			inProgress++
			here[p.Namespace]++
		case p.Waiting:
			queue = append(queue, p)
		}
	}
	slices.SortFunc(queue, startsBefore)
	return slices.DeleteFunc(queue, func(p QueueEntry) bool {
		if l.Cluster > 0 && inProgress >= l.Cluster || l.Namespace > 0 && here[p.Namespace] >= l.Namespace {
			return true
		}
		inProgress++
		here[p.Namespace]++
		return false
	})
}
