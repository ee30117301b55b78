package release

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"time"
)

// PriorityAnnotation lets a release start before others that wait as well: a whole number, 0 where there is none.
const PriorityAnnotation = "serin.dev/priority"

// Priority that annotations ask for. What is not a number is none: it is the user's own annotation, and nothing waits for it.
func Priority(annotations map[string]string) int {
	n, err := strconv.Atoi(annotations[PriorityAnnotation])
	if err != nil {
		return 0
	}
	return n
}

// ConcurrencyLimits bound how many releases move at once. Zero: no bound.
type ConcurrencyLimits struct {
	Cluster, Namespace int
}

// Any is true where something is bounded.
func (l ConcurrencyLimits) Any() bool { return l.Cluster > 0 || l.Namespace > 0 }

// QueueEntry is one release, as far as others wait for it or it waits for others.
type QueueEntry struct {
	// Kind, Namespace and Name tell releases apart.
	Kind, Namespace, Name string
	// InProgress is true of a release under way, from its start until it is at rest again.
	InProgress bool
	// Waiting is true of one that could start but for its turn.
	Waiting bool
	// Priority comes first, the higher one before the lower; then who waits longer, since Since.
	Priority int
	Since    time.Time
}

func (p QueueEntry) isSame(other QueueEntry) bool {
	return p.Kind == other.Kind && p.Namespace == other.Namespace && p.Name == other.Name
}

// startsBefore orders the line. Names decide where all else is equal, so that the order is total.
func startsBefore(a, b QueueEntry) int {
	return cmp.Or(
		cmp.Compare(b.Priority, a.Priority), a.Since.Compare(b.Since),
		cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Kind, b.Kind),
	)
}

// FreesSlot is true of a change of one release that may let others start: it ended, stepped aside, or became less urgent.
func FreesSlot(was, is QueueEntry) bool {
	ended, left := was.InProgress && !is.InProgress, was.Waiting && !is.Waiting && !is.InProgress
	return ended || left || is.Waiting && was.Priority != is.Priority
}

// QueueState is whether it is a release's turn to start.
type QueueState struct {
	Open bool
	// Position among Waiting, from 1; both 0 when Open.
	Position, Waiting int
	// InProgress are under way, and Limit may be, in the namespace of the release if Namespaced, else in the cluster.
	InProgress, Limit int
	Namespaced        bool
}

// String is what a gate says.
func (t QueueState) String() string {
	where := "in the cluster"
	if t.Namespaced {
		where = "in this namespace"
	}
	moving := fmt.Sprintf("%d of at most %d releases in progress %s", t.InProgress, t.Limit, where)
	if t.Open {
		return moving
	}
	return fmt.Sprintf("%s of %d waiting: %s", ordinal(t.Position), t.Waiting, moving)
}

// Gate holds a start while as many releases move as may. The end of one of them opens it.
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

// QueueState says whether it is the turn of a release that could start. Places are those of all releases; what they say of this
// one does not count, since it is older.
//
// Limits are for starts: a release under way is never held, and more may move than a limit that was lowered. A release
// that its namespace's limit holds does not hold those of other namespaces behind it.
func (l ConcurrencyLimits) QueueState(places []QueueEntry, of QueueEntry) QueueState {
	of.InProgress, of.Waiting = false, true
	others := slices.DeleteFunc(slices.Clone(places), of.isSame)
	moving, here := 0, 0
	for _, p := range others {
		if p.InProgress {
			moving++
			if p.Namespace == of.Namespace {
				here++
			}
		}
	}
	turn := QueueState{InProgress: moving, Limit: l.Cluster}
	if l.Namespace > 0 && (l.Cluster == 0 || here >= l.Namespace || l.Cluster-moving > l.Namespace-here) {
		turn = QueueState{InProgress: here, Limit: l.Namespace, Namespaced: true} // the tighter one is the one to tell
	}
	starting := l.NextToStart(append(others, of))
	if turn.Open = slices.ContainsFunc(starting, of.isSame); turn.Open {
		return turn
	}
	for _, p := range others {
		if !p.Waiting || p.InProgress || turn.Namespaced && p.Namespace != of.Namespace {
			continue
		}
		turn.Waiting++
		if startsBefore(p, of) < 0 {
			turn.Position++
		}
	}
	turn.Position, turn.Waiting = turn.Position+1, turn.Waiting+1
	return turn
}

// NextToStart are the releases that may start now, in order.
func (l ConcurrencyLimits) NextToStart(places []QueueEntry) []QueueEntry {
	moving, here := 0, map[string]int{}
	var line []QueueEntry
	for _, p := range places {
		switch {
		case p.InProgress:
			moving++
			here[p.Namespace]++
		case p.Waiting:
			line = append(line, p)
		}
	}
	slices.SortFunc(line, startsBefore)
	return slices.DeleteFunc(line, func(p QueueEntry) bool {
		if l.Cluster > 0 && moving >= l.Cluster || l.Namespace > 0 && here[p.Namespace] >= l.Namespace {
			return true
		}
		moving++
		here[p.Namespace]++
		return false
	})
}
