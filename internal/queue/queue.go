// Package queue limits the number of releases of all kinds that are in progress. Further releases wait in its queue.
//
// It counts the releases in progress from their stored statuses, so that the queue survives the process and needs no object of
// its own. It remembers only the releases that this process has just started, until they appear in its cache.
//
// It must not know what a release does, or its other conditions to start: the kinds report which releases are in progress or
// waiting.
package queue

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"

	"github.com/serin-dev/serin/internal/readyourwrites"
	"github.com/serin-dev/serin/internal/release"
)

// StoredEntry is the queue entry of a release according to its stored status.
type StoredEntry struct {
	Entry   release.QueueEntry
	Version string // the resourceVersion of the object
}

// Kind is one of the kinds whose releases share a queue.
type Kind struct {
	Name string
	// List returns the releases of a namespace, or of all namespaces if it is empty, that are in progress or waiting. It may
	// return others, too.
	List func(ctx context.Context, namespace string) ([]StoredEntry, error)
	// Get returns one release in any state, and false if it does not exist.
	Get func(ctx context.Context, key types.NamespacedName) (StoredEntry, bool, error)
	// Wake requeues a release; nil means never.
	Wake func(key types.NamespacedName)
}

// id identifies a release.
type id struct {
	kind string
	types.NamespacedName
}

func idOf(p release.QueueEntry) id {
	return id{p.Kind, types.NamespacedName{Namespace: p.Namespace, Name: p.Name}}
}

// Queue is the queue of one process. A nil Queue limits nothing.
type Queue struct {
	limits    release.ConcurrencyLimits
	namespace string

	mu    sync.Mutex
	kinds map[string]Kind
	// started contains the releases that this process has started, with the resourceVersion that shows it; empty until the
	// reconciliation has ended.
	started map[id]string
	// unwritten contains the releases whose stored status cannot show that they wait, because the CRD prunes Serin's fields,
	// with the time since which they wait.
	unwritten map[id]time.Time
}

// New returns the queue of the releases of a namespace, or of all namespaces if it is empty.
func New(limits release.ConcurrencyLimits, namespace string) *Queue {
	return &Queue{limits: limits, namespace: namespace, kinds: map[string]Kind{}, started: map[id]string{}, unwritten: map[id]time.Time{}}
}

// Limits reports whether there is any limit.
func (q *Queue) Limits() bool { return q != nil && q.limits.Any() }

// Register adds a kind, whose releases then count and wait.
func (q *Queue) Register(kind Kind) {
	if !q.Limits() {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.kinds[kind.Name] = kind
}

// MayStart returns the state of a release in the queue. If the release may start, it occupies a slot until RecordOutcome reports
// whether it has started: two concurrent calls cannot both take the last slot. pruned is true for a release whose stored status
// cannot show that it waits. The result is nil if there is no limit.
func (q *Queue) MayStart(ctx context.Context, entry release.QueueEntry, pruned bool, now time.Time) (*release.QueueState, error) {
	if !q.Limits() {
		return nil, nil
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	entries, err := q.entries(ctx, entry.Namespace)
	if err != nil {
		return nil, err
	}
	key := idOf(entry)
	if since, ok := q.unwritten[key]; ok {
		entry.Since = since
	}
	if entry.Since.IsZero() {
		entry.Since = now
	}
	state := q.limits.QueueState(entries, entry)
	switch {
	case state.Open:
		q.started[key] = ""
	case pruned:
		q.unwritten[key] = entry.Since
	}
	return &state, nil
}

// entries returns the entries of all releases that are in progress or waiting, according to their stored statuses and the state of
// this process. A client without permission to list all namespaces lists the given one.
func (q *Queue) entries(ctx context.Context, namespace string) ([]release.QueueEntry, error) {
	stored := map[id]StoredEntry{}
	for _, kind := range q.kinds {
		all, err := kind.List(ctx, q.namespace)
		if apierrors.IsForbidden(err) {
			all, err = kind.List(ctx, namespace) // a user of the CLI may have fewer permissions than Serin
		}
		switch {
		case apierrors.IsForbidden(err), apierrors.IsNotFound(err), meta.IsNoMatchError(err):
			continue // the kind is not installed, or this user may not read it
		case err != nil:
			return nil, err
		}
		for _, one := range all {
			if one.Entry.InProgress || one.Entry.Waiting {
				stored[idOf(one.Entry)] = one
			}
		}
	}
	if err := q.addUnstored(ctx, stored); err != nil {
		return nil, err
	}
	entries := make([]release.QueueEntry, 0, len(stored))
	for _, one := range stored {
		entries = append(entries, one.Entry)
	}
	return entries, nil
}

// addUnstored adds the state of this process that the stored statuses do not show yet, and drops the state that they show.
func (q *Queue) addUnstored(ctx context.Context, stored map[id]StoredEntry) error {
	for key, version := range q.started {
		one, found, err := q.storedEntry(ctx, key, stored)
		switch {
		case err != nil:
			return err
		case !found || version != "" && !readyourwrites.IsOlder(one.Version, version):
			delete(q.started, key) // its stored status is up to date
		default:
			one.Entry.InProgress = true
			stored[key] = one
		}
	}
	for key, since := range q.unwritten {
		one, found, err := q.storedEntry(ctx, key, stored)
		if err != nil {
			return err
		}
		if found && !one.Entry.InProgress {
			one.Entry.Waiting, one.Entry.Since = true, since
			stored[key] = one
		}
	}
	return nil
}

func (q *Queue) storedEntry(ctx context.Context, key id, stored map[id]StoredEntry) (StoredEntry, bool, error) {
	if one, ok := stored[key]; ok {
		return one, true, nil
	}
	return q.kinds[key.kind].Get(ctx, key.NamespacedName)
}

// Outcome is the result of a reconciliation for the queue.
type Outcome struct {
	// Started is the resourceVersion of the object if this reconciliation has started its release, else empty.
	Started string
	// Waiting is true for a release that waits in the queue.
	Waiting bool
}

// RecordOutcome records the outcome of a reconciliation that succeeded. It is not called after a failed one, whose release
// occupies its slot until the next reconciliation: its write may have succeeded all the same.
func (q *Queue) RecordOutcome(kind string, key types.NamespacedName, o Outcome) {
	if !q.Limits() {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	releaseID := id{kind, key}
	switch version, ok := q.started[releaseID]; {
	case o.Started != "":
		q.started[releaseID] = o.Started
	case ok && version == "":
		delete(q.started, releaseID)
	}
	if !o.Waiting {
		delete(q.unwritten, releaseID)
	}
}

// Forget drops the state of a deleted release.
func (q *Queue) Forget(kind string, key types.NamespacedName) {
	if !q.Limits() {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.started, id{kind, key})
	delete(q.unwritten, id{kind, key})
}

// Keys returns the releases of a kind that have state in this process.
func (q *Queue) Keys(kind string) []types.NamespacedName {
	if q == nil {
		return nil
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	keys := map[types.NamespacedName]bool{}
	for _, releaseID := range slices.AppendSeq(slices.Collect(maps.Keys(q.started)), maps.Keys(q.unwritten)) {
		if releaseID.kind == kind {
			keys[releaseID.NamespacedName] = true
		}
	}
	return slices.Collect(maps.Keys(keys))
}

// WakeNext requeues the releases of all kinds that may start because a change of another one has freed a slot.
func (q *Queue) WakeNext(ctx context.Context, before, after release.QueueEntry) error {
	if !q.Limits() || !release.FreesSlot(before, after) {
		return nil
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	entries, err := q.entries(ctx, before.Namespace)
	if err != nil {
		return err
	}
	for _, entry := range q.limits.NextToStart(entries) {
		if wake := q.kinds[entry.Kind].Wake; wake != nil {
			wake(types.NamespacedName{Namespace: entry.Namespace, Name: entry.Name})
		}
	}
	return nil
}
