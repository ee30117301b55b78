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

// queueIndex is the index of the releases that are in progress or in the queue.
const queueIndex = "in-queue"

// Releases lists the releases of one kind and connects them to the queue.
type Releases[O client.Object] struct {
	Kind    string
	New     func() O
	NewList func() client.ObjectList
	// QueueEntry returns the entry of a release in the queue.
	QueueEntry func(O) release.QueueEntry
}

// queueEntryOf returns the queue entry of an object of a watch; an empty one for nil.
func (k Releases[O]) queueEntryOf(object client.Object) release.QueueEntry {
	typed, ok := object.(O)
	if !ok {
		return release.QueueEntry{}
	}
	return k.QueueEntry(typed)
}

// Index adds an index to a cache that finds the releases that are in progress or in the queue without reading all.
func (k Releases[O]) Index(ctx context.Context, indexer client.FieldIndexer) error {
	err := indexer.IndexField(ctx, k.New(), queueIndex, func(object client.Object) []string {
		if entry := k.queueEntryOf(object); entry.InProgress || entry.Waiting {
			return []string{queueIndex}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("index %ss by their queue entries: %w", k.Kind, err)
	}
	return nil
}

// QueueKind returns the kind for the queue. indexed is true for a reader with the index.
func (k Releases[O]) QueueKind(reader client.Reader, indexed bool) queue.Kind {
	return queue.Kind{
		Name: k.Kind,
		List: func(ctx context.Context, namespace string) ([]queue.StoredEntry, error) {
			options := []client.ListOption{client.InNamespace(namespace)}
			if indexed { // the objects are only read
				options = append(options, client.MatchingFields{queueIndex: queueIndex}, client.UnsafeDisableDeepCopy, client.DisableReadYourWritesConsistency)
			}
			var stored []queue.StoredEntry
			err := k.each(ctx, reader, func(object O) {
				stored = append(stored, queue.StoredEntry{Entry: k.QueueEntry(object), Version: object.GetResourceVersion()})
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
			return queue.StoredEntry{Entry: k.QueueEntry(object), Version: object.GetResourceVersion()}, true, nil
		},
	}
}

// Requests returns a request for each release, for an event that affects all. It does not wait for writes of this process: the
// event that it handles may be the one that shows such a write.
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

// RequeueShard requeues the releases in the namespaces of a shard.
func (k Releases[O]) RequeueShard(ctx context.Context, reader client.Reader, q *Queue, inShard func(namespace string) bool) error {
	return k.each(ctx, reader, func(object O) {
		if inShard(object.GetNamespace()) {
			q.Add(client.ObjectKeyFromObject(object))
		}
	}, client.UnsafeDisableDeepCopy, client.DisableReadYourWritesConsistency)
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

// WakeNext requeues the releases of all kinds that may start because this release has changed.
func (k Releases[O]) WakeNext(ctx context.Context, q *queue.Queue, before, after client.Object) {
	if before == nil {
		return
	}
	if err := q.WakeNext(ctx, k.queueEntryOf(before), k.queueEntryOf(after)); err != nil {
		log.FromContext(ctx).Error(err, "Could not requeue the releases that may start")
	}
}

// RecordOutcome reports the end of a reconciliation to the queue. before and after are the object as it was read and written.
func (k Releases[O]) RecordOutcome(q *queue.Queue, before, after O, waits bool) {
	outcome := queue.Outcome{Waiting: waits}
	if !k.QueueEntry(before).InProgress && k.QueueEntry(after).InProgress {
		outcome.Started = after.GetResourceVersion()
	}
	q.RecordOutcome(k.Kind, client.ObjectKeyFromObject(after), outcome)
}

// Requests returns a request for each key.
func Requests(keys []types.NamespacedName) []reconcile.Request {
	requests := make([]reconcile.Request, len(keys))
	for i, key := range keys {
		requests[i].NamespacedName = key
	}
	return requests
}
