package controller

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/canary"
	"github.com/serin-dev/serin/internal/queue"
	"github.com/serin-dev/serin/internal/release"
)

// byPlace is the index of Canaries that move or wait.
const byPlace = "in-line"

// IndexPlaces lets caches find the Canaries that move or wait without looking at all.
func IndexPlaces(ctx context.Context, indexer client.FieldIndexer) error {
	err := indexer.IndexField(ctx, &flaggerv1.Canary{}, byPlace, func(object client.Object) []string {
		if place := placeOf(object); place.Moves || place.Waits {
			return []string{byPlace}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("index Canaries by their place in the line: %w", err)
	}
	return nil
}

// Queued are Canaries as far as others wait for them. indexed is true of a reader with the index of IndexPlaces.
func Queued(reader client.Reader, indexed bool) queue.Kind {
	return queue.Kind{
		Name: flaggerv1.CanaryKind,
		List: func(ctx context.Context, namespace string) ([]queue.Stored, error) {
			options := []client.ListOption{client.InNamespace(namespace)}
			if indexed { // they are only looked at
				options = append(options, client.MatchingFields{byPlace: byPlace}, client.UnsafeDisableDeepCopy, client.DisableReadYourWritesConsistency)
			}
			var all flaggerv1.CanaryList
			if err := reader.List(ctx, &all, options...); err != nil {
				return nil, fmt.Errorf("list the Canaries that move or wait: %w", err)
			}
			stored := make([]queue.Stored, 0, len(all.Items))
			for i := range all.Items {
				stored = append(stored, queue.Stored{Place: storedPlace(&all.Items[i]), Version: all.Items[i].ResourceVersion})
			}
			return stored, nil
		},
		Get: func(ctx context.Context, key types.NamespacedName) (queue.Stored, bool, error) {
			c := &flaggerv1.Canary{}
			var options []client.GetOption
			if indexed {
				options = append(options, client.UnsafeDisableDeepCopy, client.DisableReadYourWritesConsistency)
			}
			if err := reader.Get(ctx, key, c, options...); err != nil {
				return queue.Stored{}, false, client.IgnoreNotFound(err)
			}
			return queue.Stored{Place: storedPlace(c), Version: c.ResourceVersion}, true, nil
		},
	}
}

// placeOf is the place of what a watch tells of; none of what is not there.
func placeOf(object client.Object) release.Place {
	c, ok := object.(*flaggerv1.Canary)
	if !ok {
		return release.Place{}
	}
	return storedPlace(c)
}

// storedPlace is the place that a Canary has as the API server stores it.
func storedPlace(c *flaggerv1.Canary) release.Place {
	decoded := *c // caches share c
	decoded.Status = flaggerv1.DecodeState(c.Status)
	return canary.PlaceOf(&decoded)
}

// turn is whether a release may start beside those that move; nil where that is not limited, or not the question now.
func (o *Observer) turn(ctx context.Context, s *seen) (*release.Turn, error) {
	if !o.Line.Limits() || !canary.MayStart(s.snapshot) {
		return nil, nil
	}
	const pruned = false // the status of a Canary has its place with any schema
	return o.Line.Turn(ctx, canary.PlaceOf(s.object), pruned, s.snapshot.Now)
}

// movedOn wakes the releases that may start because of a change of this one.
func (r *Reconciler) movedOn(ctx context.Context, before, after client.Object) {
	if before == nil {
		return
	}
	if err := r.Line.Changed(ctx, placeOf(before), placeOf(after)); err != nil {
		log.FromContext(ctx).Error(err, "Looked for releases that may start")
	}
}
