package reconciler

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/serin-dev/serin/internal/queue"
	"github.com/serin-dev/serin/internal/release"
)

// byPlace is the index of the releases that are in progress, or in the queue.
const byPlace = "in-line"

// Releases are those of one kind, as they are listed and queued.
type Releases[O client.Object] struct {
	Kind    string
	New     func() O
	NewList func() client.ObjectList
	// Place is that of a release in the queue.
	Place func(O) release.QueueEntry
}

// PlaceOf returns the place of an object of a watch; none if it does not exist.
func (k Releases[O]) PlaceOf(object client.Object) release.QueueEntry {
	typed, ok := object.(O)
	if !ok {
		return release.QueueEntry{}
	}
	return k.Place(typed)
}

// Index lets a cache find the releases that are in progress, or in the queue, without reading all.
func (k Releases[O]) Index(ctx context.Context, indexer client.FieldIndexer) error {
	err := indexer.IndexField(ctx, k.New(), byPlace, func(object client.Object) []string {
		if place := k.PlaceOf(object); place.InProgress || place.Waiting {
			return []string{byPlace}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("index %ss by their place in the queue: %w", k.Kind, err)
	}
	return nil
}

// Queued returns the releases as the queue reads them. indexed is true for a reader with the index.
func (k Releases[O]) Queued(reader client.Reader, indexed bool) queue.Kind {
	return queue.Kind{
		Name: k.Kind,
		List: func(ctx context.Context, namespace string) ([]queue.StoredEntry, error) {
			options := []client.ListOption{client.InNamespace(namespace)}
			if indexed { // they are only read
				options = append(options, client.MatchingFields{byPlace: byPlace}, client.UnsafeDisableDeepCopy, client.DisableReadYourWritesConsistency)
			}
			var stored []queue.StoredEntry
			err := k.each(ctx, reader, func(object O) {
				stored = append(stored, queue.StoredEntry{Place: k.Place(object), Version: object.GetResourceVersion()})
			}, options...)
			return stored, err
		},
		Get: func(ctx context.Context, key types.NamespacedName) (queue.StoredEntry, bool, error) {
			object := k.New()
			var options []client.GetOption
			if indexed {
				options = append(options, client.UnsafeDisableDeepCopy, client.DisableReadYourWritesConsistency)
			}
			if err := reader.Get(ctx, key, object, options...); err != nil {
				return queue.StoredEntry{}, false, client.IgnoreNotFound(err)
			}
			return queue.StoredEntry{Place: k.Place(object), Version: object.GetResourceVersion()}, true, nil
		},
	}
}

// Requests returns a request for each release, because something affects all. It waits for no write of this process: the event
// that it handles may be what shows it.
func (k Releases[O]) Requests(ctx context.Context, reader client.Reader) []reconcile.Request {
	var requests []reconcile.Request
	err := k.each(ctx, reader, func(object O) {
		requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(object)})
	}, client.UnsafeDisableDeepCopy, client.DisableReadYourWritesConsistency)
	if err != nil {
		log.FromContext(ctx).Error(err, "Could not requeue all releases", "kind", k.Kind)
		return nil
	}
	return requests
}

func (k Releases[O]) each(ctx context.Context, reader client.Reader, f func(O), options ...client.ListOption) error {
	list := k.NewList()
	if err := reader.List(ctx, list, options...); err != nil {
		return fmt.Errorf("list the %ss: %w", k.Kind, err)
	}
	return meta.EachListItem(list, func(object runtime.Object) error {
		if typed, ok := object.(O); ok {
			f(typed)
		}
		return nil
	})
}

// Changed wakes the releases of all kinds that may start because of a change of this one.
func (k Releases[O]) Changed(ctx context.Context, line *queue.Queue, before, after client.Object) {
	if before == nil {
		return
	}
	if err := line.Changed(ctx, k.PlaceOf(before), k.PlaceOf(after)); err != nil {
		log.FromContext(ctx).Error(err, "Could not wake the releases that may start")
	}
}

// Settle ends a reconciliation, which found the first form of an object and left the second.
func (k Releases[O]) Settle(line *queue.Queue, before, after O, waits bool) {
	outcome := queue.Outcome{Waiting: waits}
	if !k.Place(before).InProgress && k.Place(after).InProgress {
		outcome.Started = after.GetResourceVersion()
	}
	line.Settle(k.Kind, client.ObjectKeyFromObject(after), outcome)
}

// Requests returns a request for each key.
func Requests(keys []types.NamespacedName) []reconcile.Request {
	requests := make([]reconcile.Request, len(keys))
	for i, key := range keys {
		requests[i].NamespacedName = key
	}
	return requests
}
