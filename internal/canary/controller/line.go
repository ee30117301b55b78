package controller

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/canary"
	"github.com/serin-dev/serin/internal/ownwrites"
	"github.com/serin-dev/serin/internal/release"
)

// How many releases move is counted from their stored states, so it survives the process and needs no object of its own.
// What one process has just let start is not in its cache yet: that is held here until it is.

// line is what this process knows of the line beyond the stored states.
type line struct {
	mu sync.Mutex
	// started are the releases that were let start, by the version of the Canary that says so; empty while their
	// pass is under way.
	started map[types.NamespacedName]string
	// unwritten is since when those wait whose stored state cannot say it, because its definition drops our part.
	unwritten map[types.NamespacedName]time.Time
}

func newLine() *line {
	return &line{started: map[types.NamespacedName]string{}, unwritten: map[types.NamespacedName]time.Time{}}
}

// places are those of all Canaries, with what the process knows beyond them.
func (l *line) places(all []flaggerv1.Canary) []release.Place {
	places := make([]release.Place, 0, len(all))
	for i := range all {
		place, key := canary.PlaceOf(&all[i]), client.ObjectKeyFromObject(&all[i])
		if version, ok := l.started[key]; ok {
			if version != "" && !ownwrites.Older(all[i].ResourceVersion, version) {
				delete(l.started, key) // its stored state says what became of it
			} else {
				place.Moves = true
			}
		}
		if since, ok := l.unwritten[key]; ok && !place.Moves {
			place.Waits, place.Since = true, since
		}
		places = append(places, place)
	}
	return places
}

// turn looks whether a release may start, and takes its place among those that move if so, until settle says whether it
// did start. Two that look at once cannot both take the last place.
func (l *line) turn(limits release.Limits, all []flaggerv1.Canary, key types.NamespacedName, of release.Place, pruned bool, now time.Time) release.Turn {
	l.mu.Lock()
	defer l.mu.Unlock()
	if since, ok := l.unwritten[key]; ok {
		of.Since = since
	}
	if of.Since.IsZero() {
		of.Since = now
	}
	turn := limits.Turn(l.places(all), of)
	switch {
	case turn.Open:
		l.started[key] = ""
	case pruned:
		l.unwritten[key] = of.Since
	}
	return turn
}

// settle ends a pass that came to its end: started is the version of a Canary that was let start and did, empty for all
// others; waits is true of one that its turn holds. A pass that failed leaves its place taken until the next one: what
// it wrote may stand all the same.
func (l *line) settle(key types.NamespacedName, started string, waits bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch version, ok := l.started[key]; {
	case started != "":
		l.started[key] = started
	case ok && version == "":
		delete(l.started, key)
	}
	if !waits {
		delete(l.unwritten, key)
	}
}

func (l *line) forget(key types.NamespacedName) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.started, key)
	delete(l.unwritten, key)
}

// keys are the releases of which something is known beyond their stored states.
func (l *line) keys() []types.NamespacedName {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.AppendSeq(slices.Collect(maps.Keys(l.started)), maps.Keys(l.unwritten))
}

// next are the releases that may start now.
func (l *line) next(limits release.Limits, all []flaggerv1.Canary) []release.Place {
	l.mu.Lock()
	defer l.mu.Unlock()
	return limits.Next(l.places(all))
}

// turn is whether a release may start beside those that move; nil where that is not limited, or not the question now.
func (o *Observer) turn(ctx context.Context, s *seen) (*release.Turn, error) {
	if !o.Limits.Any() || !canary.MayStart(s.snapshot) {
		return nil, nil
	}
	place := canary.PlaceOf(s.object)
	all, err := o.everyone(ctx, o.Namespace)
	if apierrors.IsForbidden(err) {
		all, err = o.everyone(ctx, s.object.Namespace) // a person may see less than Serin
	}
	if err != nil {
		return nil, err
	}
	line := o.line
	if line == nil {
		line = newLine()
	}
	turn := line.turn(o.Limits, all, client.ObjectKeyFromObject(s.object), place, s.snapshot.Pruned, s.snapshot.Now)
	return &turn, nil
}

// everyone are the Canaries of a namespace, of all where it is empty. They are only looked at.
func (o *Observer) everyone(ctx context.Context, namespace string) ([]flaggerv1.Canary, error) {
	var all flaggerv1.CanaryList
	options := []client.ListOption{client.InNamespace(namespace)}
	if o.Indexed {
		options = append(options, client.UnsafeDisableDeepCopy, client.DisableReadYourWritesConsistency)
	}
	if err := o.Client.List(ctx, &all, options...); err != nil {
		return nil, fmt.Errorf("list the Canaries that move or wait: %w", err)
	}
	return all.Items, nil
}

// called are the releases that may start because another one moved on: it ended, stepped aside, or became less urgent.
func (r *Reconciler) called(ctx context.Context, before, after client.Object) []reconcile.Request {
	if !r.Limits.Any() || !movedOn(before, after) {
		return nil
	}
	all, err := r.everyone(ctx, r.Namespace)
	if err != nil {
		log.FromContext(ctx).Error(err, "Looked for releases that may start")
		return nil
	}
	var out []reconcile.Request
	for _, place := range r.line.next(r.Limits, all) {
		out = append(out, reconcile.Request{NamespacedName: types.NamespacedName{Namespace: place.Namespace, Name: place.Name}})
	}
	return out
}

// movedOn is true of a change that may let others start.
func movedOn(before, after client.Object) bool {
	old, ok := before.(*flaggerv1.Canary)
	if !ok {
		return false
	}
	was, is := canary.PlaceOf(old), release.Place{}
	if now, ok := after.(*flaggerv1.Canary); ok {
		is = canary.PlaceOf(now)
	}
	ended, left := was.Moves && !is.Moves, was.Waits && !is.Waits && !is.Moves
	return ended || left || is.Waits && was.Priority != is.Priority
}
