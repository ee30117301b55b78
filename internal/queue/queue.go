// Package queue is the line in which releases of all kinds wait while as many move as may.
//
// How many move is counted from their stored states, so it survives the process and needs no object of its own. What the
// process has just let start is not in its cache yet: that is held here until it is.
//
// It must not know what a release does, or when one may start but for its turn: its kinds say who moves and who waits.
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

// StoredEntry is a release as its stored state has it.
type StoredEntry struct {
	Place   release.QueueEntry
	Version string
}

// Kind is one of the kinds whose releases share a line.
type Kind struct {
	Name string
	// List are the releases of a namespace that move or wait, of all namespaces where it is empty; it may give more.
	List func(ctx context.Context, namespace string) ([]StoredEntry, error)
	// Get is one of them, whatever it does; false: it does not exist.
	Get func(ctx context.Context, key types.NamespacedName) (StoredEntry, bool, error)
	// Wake brings a release back; nil: none is brought back.
	Wake func(key types.NamespacedName)
}

// id of a release.
type id struct {
	kind string
	types.NamespacedName
}

func idOf(p release.QueueEntry) id {
	return id{p.Kind, types.NamespacedName{Namespace: p.Namespace, Name: p.Name}}
}

// Queue is that of one process. A nil one limits nothing.
type Queue struct {
	limits    release.ConcurrencyLimits
	namespace string

	mu    sync.Mutex
	kinds map[string]Kind
	// started are the releases that were let start, by the version of the object that says so; empty while their pass is
	// under way.
	started map[id]string
	// unwritten is since when those wait whose stored state cannot say it, because its definition drops our part.
	unwritten map[id]time.Time
}

// New is the line of the releases of a namespace, of all where it is empty.
func New(limits release.ConcurrencyLimits, namespace string) *Queue {
	return &Queue{limits: limits, namespace: namespace, kinds: map[string]Kind{}, started: map[id]string{}, unwritten: map[id]time.Time{}}
}

// Limits is true where something is limited.
func (l *Queue) Limits() bool { return l != nil && l.limits.Any() }

// Register lets the releases of a kind count, and wait.
func (l *Queue) Register(kind Kind) {
	if !l.Limits() {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.kinds[kind.Name] = kind
}

// MayStart looks whether a release may start, and takes its place among those that move if so, until Settle says whether it did
// start. Two that look at once cannot both take the last place. pruned is true of one whose stored state cannot say that it
// waits. Nil: nothing is limited.
func (l *Queue) MayStart(ctx context.Context, of release.QueueEntry, pruned bool, now time.Time) (*release.QueueState, error) {
	if !l.Limits() {
		return nil, nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	places, err := l.entries(ctx, of.Namespace)
	if err != nil {
		return nil, err
	}
	key := idOf(of)
	if since, ok := l.unwritten[key]; ok {
		of.Since = since
	}
	if of.Since.IsZero() {
		of.Since = now
	}
	turn := l.limits.QueueState(places, of)
	switch {
	case turn.Open:
		l.started[key] = ""
	case pruned:
		l.unwritten[key] = of.Since
	}
	return &turn, nil
}

// entries are those of all releases that move or wait, with what the process knows beyond their stored states. Who may not
// look at all namespaces looks at one.
func (l *Queue) entries(ctx context.Context, namespace string) ([]release.QueueEntry, error) {
	stored := map[id]StoredEntry{}
	for _, kind := range l.kinds {
		all, err := kind.List(ctx, l.namespace)
		if apierrors.IsForbidden(err) {
			all, err = kind.List(ctx, namespace) // a person may see less than Serin
		}
		switch {
		case apierrors.IsForbidden(err), apierrors.IsNotFound(err), meta.IsNoMatchError(err):
			continue // of a kind that is not installed, or that is none of this person's business
		case err != nil:
			return nil, err
		}
		for _, one := range all {
			if one.Place.InProgress || one.Place.Waiting {
				stored[idOf(one.Place)] = one
			}
		}
	}
	if err := l.addUnstored(ctx, stored); err != nil {
		return nil, err
	}
	places := make([]release.QueueEntry, 0, len(stored))
	for _, one := range stored {
		places = append(places, one.Place)
	}
	return places, nil
}

// addUnstored adds what the process knows of releases that their stored states do not say, and forgets what they do.
func (l *Queue) addUnstored(ctx context.Context, stored map[id]StoredEntry) error {
	for key, version := range l.started {
		one, found, err := l.storedEntry(ctx, key, stored)
		switch {
		case err != nil:
			return err
		case !found || version != "" && !readyourwrites.IsOlder(one.Version, version):
			delete(l.started, key) // its stored state says what became of it
		default:
			one.Place.InProgress = true
			stored[key] = one
		}
	}
	for key, since := range l.unwritten {
		one, found, err := l.storedEntry(ctx, key, stored)
		if err != nil {
			return err
		}
		if found && !one.Place.InProgress {
			one.Place.Waiting, one.Place.Since = true, since
			stored[key] = one
		}
	}
	return nil
}

func (l *Queue) storedEntry(ctx context.Context, key id, stored map[id]StoredEntry) (StoredEntry, bool, error) {
	if one, ok := stored[key]; ok {
		return one, true, nil
	}
	return l.kinds[key.kind].Get(ctx, key.NamespacedName)
}

// Outcome is how a pass ended.
type Outcome struct {
	// Started is the version of an object that says that its release has started in this pass; empty for all others.
	Started string
	// Waiting is true of a release that its turn holds.
	Waiting bool
}

// Settle ends a pass that came to its end. One that failed leaves its place taken until the next one: what it wrote may stand
// all the same.
func (l *Queue) Settle(kind string, key types.NamespacedName, o Outcome) {
	if !l.Limits() {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	of := id{kind, key}
	switch version, ok := l.started[of]; {
	case o.Started != "":
		l.started[of] = o.Started
	case ok && version == "":
		delete(l.started, of)
	}
	if !o.Waiting {
		delete(l.unwritten, of)
	}
}

// Forget is for a release that is gone.
func (l *Queue) Forget(kind string, key types.NamespacedName) {
	if !l.Limits() {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.started, id{kind, key})
	delete(l.unwritten, id{kind, key})
}

// Keys are the releases of a kind of which something is known beyond their stored states.
func (l *Queue) Keys(kind string) []types.NamespacedName {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	keys := map[types.NamespacedName]bool{}
	for _, of := range slices.AppendSeq(slices.Collect(maps.Keys(l.started)), maps.Keys(l.unwritten)) {
		if of.kind == kind {
			keys[of.NamespacedName] = true
		}
	}
	return slices.Collect(maps.Keys(keys))
}

// Changed wakes the releases of all kinds that may start because another one moved on.
func (l *Queue) Changed(ctx context.Context, was, is release.QueueEntry) error {
	if !l.Limits() || !release.FreesSlot(was, is) {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	places, err := l.entries(ctx, was.Namespace)
	if err != nil {
		return err
	}
	for _, place := range l.limits.NextToStart(places) {
		if wake := l.kinds[place.Kind].Wake; wake != nil {
			wake(types.NamespacedName{Namespace: place.Namespace, Name: place.Name})
		}
	}
	return nil
}
