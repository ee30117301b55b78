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

	"github.com/serin-dev/serin/internal/ownwrites"
	"github.com/serin-dev/serin/internal/release"
)

// Stored is a release as its stored state has it.
type Stored struct {
	Place   release.Place
	Version string
}

// Kind is one of the kinds whose releases share a line.
type Kind struct {
	Name string
	// List are the releases of a namespace that move or wait, of all namespaces where it is empty; it may give more.
	List func(ctx context.Context, namespace string) ([]Stored, error)
	// Get is one of them, whatever it does; false: it does not exist.
	Get func(ctx context.Context, key types.NamespacedName) (Stored, bool, error)
	// Wake brings a release back; nil: nobody is brought back.
	Wake func(key types.NamespacedName)
}

// id of a release.
type id struct {
	kind string
	types.NamespacedName
}

func idOf(p release.Place) id {
	return id{p.Kind, types.NamespacedName{Namespace: p.Namespace, Name: p.Name}}
}

// Line is that of one process. A nil one limits nothing.
type Line struct {
	limits    release.Limits
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
func New(limits release.Limits, namespace string) *Line {
	return &Line{limits: limits, namespace: namespace, kinds: map[string]Kind{}, started: map[id]string{}, unwritten: map[id]time.Time{}}
}

// Limits is true where something is limited.
func (l *Line) Limits() bool { return l != nil && l.limits.Any() }

// Join lets the releases of a kind count, and wait.
func (l *Line) Join(kind Kind) {
	if !l.Limits() {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.kinds[kind.Name] = kind
}

// Turn looks whether a release may start, and takes its place among those that move if so, until Settle says whether it did
// start. Two that look at once cannot both take the last place. pruned is true of one whose stored state cannot say that it
// waits. Nil: nothing is limited.
func (l *Line) Turn(ctx context.Context, of release.Place, pruned bool, now time.Time) (*release.Turn, error) {
	if !l.Limits() {
		return nil, nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	places, err := l.places(ctx, of.Namespace)
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
	turn := l.limits.Turn(places, of)
	switch {
	case turn.Open:
		l.started[key] = ""
	case pruned:
		l.unwritten[key] = of.Since
	}
	return &turn, nil
}

// places are those of all releases that move or wait, with what the process knows beyond their stored states. Who may not
// look at all namespaces looks at one.
func (l *Line) places(ctx context.Context, namespace string) ([]release.Place, error) {
	stored := map[id]Stored{}
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
			if one.Place.Moves || one.Place.Waits {
				stored[idOf(one.Place)] = one
			}
		}
	}
	if err := l.beyond(ctx, stored); err != nil {
		return nil, err
	}
	places := make([]release.Place, 0, len(stored))
	for _, one := range stored {
		places = append(places, one.Place)
	}
	return places, nil
}

// beyond adds what the process knows of releases that their stored states do not say, and forgets what they do.
func (l *Line) beyond(ctx context.Context, stored map[id]Stored) error {
	for key, version := range l.started {
		one, found, err := l.one(ctx, key, stored)
		switch {
		case err != nil:
			return err
		case !found || version != "" && !ownwrites.Older(one.Version, version):
			delete(l.started, key) // its stored state says what became of it
		default:
			one.Place.Moves = true
			stored[key] = one
		}
	}
	for key, since := range l.unwritten {
		one, found, err := l.one(ctx, key, stored)
		if err != nil {
			return err
		}
		if found && !one.Place.Moves {
			one.Place.Waits, one.Place.Since = true, since
			stored[key] = one
		}
	}
	return nil
}

func (l *Line) one(ctx context.Context, key id, stored map[id]Stored) (Stored, bool, error) {
	if one, ok := stored[key]; ok {
		return one, true, nil
	}
	return l.kinds[key.kind].Get(ctx, key.NamespacedName)
}

// Outcome is how a pass ended.
type Outcome struct {
	// Started is the version of an object that says that its release has started in this pass; empty for all others.
	Started string
	// Waits is true of a release that its turn holds.
	Waits bool
}

// Settle ends a pass that came to its end. One that failed leaves its place taken until the next one: what it wrote may stand
// all the same.
func (l *Line) Settle(kind string, key types.NamespacedName, o Outcome) {
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
	if !o.Waits {
		delete(l.unwritten, of)
	}
}

// Forget is for a release that is gone.
func (l *Line) Forget(kind string, key types.NamespacedName) {
	if !l.Limits() {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.started, id{kind, key})
	delete(l.unwritten, id{kind, key})
}

// Keys are the releases of a kind of which something is known beyond their stored states.
func (l *Line) Keys(kind string) []types.NamespacedName {
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
func (l *Line) Changed(ctx context.Context, was, is release.Place) error {
	if !l.Limits() || !release.MovedOn(was, is) {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	places, err := l.places(ctx, was.Namespace)
	if err != nil {
		return err
	}
	for _, place := range l.limits.Next(places) {
		if wake := l.kinds[place.Kind].Wake; wake != nil {
			wake(types.NamespacedName{Namespace: place.Namespace, Name: place.Name})
		}
	}
	return nil
}
