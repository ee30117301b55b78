package controller

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/queue"
	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/internal/rollout"
)

// byPlace is the index of Rollouts that move or wait.
const byPlace = "in-line"

// IndexPlaces lets caches find the Rollouts that move or wait without looking at all.
func IndexPlaces(ctx context.Context, indexer client.FieldIndexer) error {
	err := indexer.IndexField(ctx, &argov1.Rollout{}, byPlace, func(object client.Object) []string {
		if place := placeOf(object); place.Moves || place.Waits {
			return []string{byPlace}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("index Rollouts by their place in the line: %w", err)
	}
	return nil
}

// Queued are Rollouts as far as others wait for them. indexed is true of a reader with the index of IndexPlaces.
func Queued(reader client.Reader, indexed bool) queue.Kind {
	return queue.Kind{
		Name: argov1.RolloutKind,
		List: func(ctx context.Context, namespace string) ([]queue.Stored, error) {
			options := []client.ListOption{client.InNamespace(namespace)}
			if indexed { // they are only looked at
				options = append(options, client.MatchingFields{byPlace: byPlace}, client.UnsafeDisableDeepCopy, client.DisableReadYourWritesConsistency)
			}
			var all argov1.RolloutList
			if err := reader.List(ctx, &all, options...); err != nil {
				return nil, fmt.Errorf("list the Rollouts that move or wait: %w", err)
			}
			stored := make([]queue.Stored, 0, len(all.Items))
			for i := range all.Items {
				stored = append(stored, queue.Stored{Place: rollout.PlaceOf(&all.Items[i]), Version: all.Items[i].ResourceVersion})
			}
			return stored, nil
		},
		Get: func(ctx context.Context, key types.NamespacedName) (queue.Stored, bool, error) {
			object := &argov1.Rollout{}
			var options []client.GetOption
			if indexed {
				options = append(options, client.UnsafeDisableDeepCopy, client.DisableReadYourWritesConsistency)
			}
			if err := reader.Get(ctx, key, object, options...); err != nil {
				return queue.Stored{}, false, client.IgnoreNotFound(err)
			}
			return queue.Stored{Place: rollout.PlaceOf(object), Version: object.ResourceVersion}, true, nil
		},
	}
}

// placeOf is the place of what a watch tells of; none of what is not there.
func placeOf(object client.Object) release.Place {
	r, ok := object.(*argov1.Rollout)
	if !ok {
		return release.Place{}
	}
	return rollout.PlaceOf(r)
}

// lookForTurn finds out whether a release may start beside those that move.
func (r *Reconciler) lookForTurn(ctx context.Context, s *seen) (err error) {
	s.snapshot.Spec = s.spec
	if !r.Line.Limits() || !rollout.MayStart(s.snapshot) {
		return nil
	}
	s.snapshot.Pruned = r.memory.unplaced()
	s.snapshot.Turn, err = r.Line.Turn(ctx, rollout.PlaceOf(s.object), s.snapshot.Pruned, s.snapshot.Now)
	return err
}

// settle ends a pass: was is the Rollout that it began with.
func (r *Reconciler) settle(was *argov1.Rollout, s *seen, d rollout.Decision) {
	o := queue.Outcome{Waits: rollout.WaitsForTurn(d)}
	if !rollout.PlaceOf(was).Moves && rollout.PlaceOf(s.object).Moves {
		o.Started = s.object.ResourceVersion
	}
	r.Line.Settle(argov1.RolloutKind, s.key(), o)
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
