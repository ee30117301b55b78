package explain

import (
	"cmp"
	"slices"
	"time"

	"github.com/serin-dev/serin/internal/release"
)

// Queue contains the releases in progress, and those that wait until fewer are in progress. Fields are added to it, never renamed or
// removed.
type Queue struct {
	// Limit is the maximum number of releases in progress in the cluster, and NamespaceLimit that of each namespace; 0: there is none,
	// or it is unknown because no release waits for it.
	Limit          int `json:"limit,omitempty"`
	NamespaceLimit int `json:"namespaceLimit,omitempty"`
	// InProgress are sorted by namespace, name and kind, Waiting by their position.
	InProgress []QueueMember `json:"inProgress"`
	Waiting    []QueueMember `json:"waiting"`
}

// QueueMember is one release in the queue.
type QueueMember struct {
	Kind      Kind   `json:"kind"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Position counts from 1, among all waiting releases, or among those of the namespace if its limit delays the release; 0: it is in
	// progress, or is about to start.
	Position int `json:"position,omitempty"`
	// Priority is that of the annotation serin.dev/priority.
	Priority int `json:"priority,omitempty"`
	// Since is the time since which it waits; zero: it is in progress.
	Since time.Time `json:"since,omitzero"`
}

// NewQueue returns the queue of the observed releases, by the rules of the controller.
func NewQueue(observations []Observation) Queue {
	q := Queue{InProgress: []QueueMember{}, Waiting: []QueueMember{}}
	var entries []release.QueueEntry
	for _, observed := range observations {
		if entry := observed.QueueEntry(); entry.InProgress || entry.Waiting {
			entries = append(entries, entry)
		}
		switch state := observed.QueueState(); {
		case state == nil:
		case state.Namespaced:
			q.NamespaceLimit = state.Limit
		default:
			q.Limit = state.Limit
		}
	}
	limits := release.ConcurrencyLimits{Cluster: q.Limit, Namespace: q.NamespaceLimit}
	for _, entry := range entries {
		member := QueueMember{Kind: Kind(entry.Kind), Namespace: entry.Namespace, Name: entry.Name, Priority: entry.Priority}
		if entry.InProgress {
			q.InProgress = append(q.InProgress, member)
			continue
		}
		member.Since = entry.Since.UTC()
		if limits.Any() {
			member.Position = limits.QueueState(entries, entry).Position
		}
		q.Waiting = append(q.Waiting, member)
	}
	slices.SortFunc(q.InProgress, QueueMember.compare)
	slices.SortFunc(q.Waiting, func(a, b QueueMember) int {
		return cmp.Or(cmp.Compare(a.Position, b.Position), a.Since.Compare(b.Since), a.compare(b))
	})
	return q
}

func (m QueueMember) compare(other QueueMember) int {
	return Key{m.Kind, m.Namespace, m.Name}.Compare(Key{other.Kind, other.Namespace, other.Name})
}
