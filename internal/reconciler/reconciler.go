// Package reconciler contains what the reconcilers of all kinds share: the frame around a reconciliation, the memory between
// reconciliations, the gates in a status, the classification of errors, and requeueing.
//
// It must not know any kind of resource: a kind describes itself in a Frame, and its decisions are made elsewhere.
package reconciler

import (
	"context"
	"encoding/json"
	"reflect"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/serin-dev/serin/internal/jsontree"
)

// reconciliationTimeout bounds one reconciliation, which waits for the API server only.
const reconciliationTimeout = time.Minute

// Bounds of the delay after a reconciliation that ended in an error, mostly because the API server is unavailable. When the
// server is available again, no reconciliation may be late by more than the longest delay.
const (
	firstRetry = 20 * time.Millisecond
	maxRetry   = 30 * time.Second
)

// rateLimiter returns the rate limiter of a controller's queue, unless the controller has one of its own. The default of the
// library also limits all releases together to ten retries per second, so that broken releases would delay the others.
func rateLimiter() workqueue.TypedRateLimiter[reconcile.Request] {
	return workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](firstRetry, maxRetry)
}

// Options returns the options of each controller. A reconciliation recovers from a panic itself and reports it; the recovery of
// the library covers the code around it.
func Options(r reconcile.Reconciler, workers int) controller.Options {
	return controller.Options{
		Reconciler: r, MaxConcurrentReconciles: workers, ReconciliationTimeout: reconciliationTimeout, RateLimiter: rateLimiter(), RecoverPanic: new(true),
	}
}

// Queue lets other components requeue a release. Until the controller has started, it ignores all keys.
type Queue struct {
	mu    sync.Mutex
	queue workqueue.TypedRateLimitingInterface[reconcile.Request]
}

// Add requeues a release at once. Before the start it does nothing: the controller then reconciles every release anyway.
func (q *Queue) Add(key types.NamespacedName) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.queue != nil {
		q.queue.Add(reconcile.Request{NamespacedName: key})
	}
}

// batchDelay is the delay after an answer while further queries of the release are in flight, so that one reconciliation handles
// all answers that arrive together. A failure is not delayed by a slow query.
const batchDelay = 50 * time.Millisecond

// AddAnswered requeues a release after an answer: at once after the last one, otherwise after a short delay. It implements
// queryrunner.AnswerFunc.
func (q *Queue) AddAnswered(key types.NamespacedName, last bool) {
	if last {
		q.Add(key)
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.queue != nil {
		q.queue.AddAfter(reconcile.Request{NamespacedName: key}, batchDelay)
	}
}

// Start stores the controller's queue. It implements source.Source.
func (q *Queue) Start(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.queue = queue
	return nil
}

// SemanticEqual is equality.Semantic.DeepEqual with a fast path: for identical values, the usual case, that function takes four
// times as long as reflect.DeepEqual.
func SemanticEqual(a, b any) bool {
	return reflect.DeepEqual(a, b) || equality.Semantic.DeepEqual(a, b)
}

// StatusPatch returns the difference between two statuses as a merge patch that requires the given resourceVersion. The first
// status of an object includes counters that are zero, because printer columns and kubectl wait read them.
func StatusPatch[S any](version string, before, after *S) ([]byte, error) {
	old := map[string]any{}
	beforeCopy, afterCopy := *before, *after
	if !reflect.ValueOf(before).Elem().IsZero() {
		clearEqualFields(reflect.ValueOf(&beforeCopy).Elem(), reflect.ValueOf(&afterCopy).Elem())
		var err error
		if old, err = runtime.DefaultUnstructuredConverter.ToUnstructured(&beforeCopy); err != nil {
			return nil, err
		}
	}
	desired, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&afterCopy)
	if err != nil {
		return nil, err
	}
	difference := jsontree.MergePatch(old, desired)
	return json.Marshal(jsontree.PinResourceVersion(map[string]any{"status": difference}, version))
}

// clearEqualFields clears the fields that are equal in two statuses, which are most of them, so that they need not be encoded.
// It descends into copies of structs to which both have a pointer, unless these encode themselves. It does not descend into nested
// structs: one without its equal fields might be empty and would seem to be deleted.
func clearEqualFields(before, after reflect.Value) {
	for i := range before.NumField() {
		old, current := before.Field(i), after.Field(i)
		switch {
		case reflect.DeepEqual(old.Interface(), current.Interface()):
			old.SetZero()
			current.SetZero()
		case old.Kind() == reflect.Pointer && old.Type().Elem().Kind() == reflect.Struct && !old.IsNil() && !current.IsNil() && !old.Type().Implements(marshaler):
			for _, field := range []reflect.Value{old, current} {
				duplicate := reflect.New(field.Type().Elem())
				duplicate.Elem().Set(field.Elem())
				field.Set(duplicate)
			}
			clearEqualFields(old.Elem(), current.Elem())
		}
	}
}

var marshaler = reflect.TypeFor[json.Marshaler]()

// maxRequeueDelay is the longest time before a reconciler reads the clock again. Otherwise a corrected clock would be noticed
// only at the end of a delay that was computed from the wrong time, perhaps a day later.
const maxRequeueDelay = 10 * time.Minute

// RequeueDelay returns the delay until wake, for RequeueAfter. There, zero means no requeue, so that the delay for a time in the
// past is a nanosecond. A zero wake means no requeue.
func RequeueDelay(now, wake time.Time) time.Duration {
	if wake.IsZero() {
		return 0
	}
	return min(max(wake.Sub(now), 1), maxRequeueDelay)
}

// Earliest returns the earliest of the times, without zero times.
func Earliest(times ...time.Time) time.Time {
	var first time.Time
	for _, at := range times {
		if !at.IsZero() && (first.IsZero() || at.Before(first)) {
			first = at
		}
	}
	return first
}
