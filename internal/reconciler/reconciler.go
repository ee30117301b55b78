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

// PassTimeout bounds one pass: nothing in it waits for anything but the API server.
const PassTimeout = time.Minute

// The pause before a pass that ended in an error, mostly of an API server that is away, is tried again. When the server is
// back, what is due must not be late by more than the longest.
const (
	firstRetry = 20 * time.Millisecond
	maxRetry   = 30 * time.Second
)

// RateLimiter is the one of a controller's queue, unless it has one of its own. The library's default also shares ten retries a second among all, so that
// those of broken releases would delay the others'.
func RateLimiter() workqueue.TypedRateLimiter[reconcile.Request] {
	return workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](firstRetry, maxRetry)
}

// Options are those of each controller. Passes recover from a panic themselves, and tell of it; that the library does is for
// what is around them.
func Options(r reconcile.Reconciler, workers int) controller.Options {
	return controller.Options{
		Reconciler: r, MaxConcurrentReconciles: workers, ReconciliationTimeout: PassTimeout, RateLimiter: RateLimiter(), RecoverPanic: new(true),
	}
}

// Queue lets others bring a release back. It is nobody's until the controller has started, and then takes keys.
type Queue struct {
	mu    sync.Mutex
	queue workqueue.TypedRateLimitingInterface[reconcile.Request]
}

// Add brings a release back at once. Before the start it does nothing: the first pass comes by itself.
func (q *Queue) Add(key types.NamespacedName) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.queue != nil {
		q.queue.Add(reconcile.Request{NamespacedName: key})
	}
}

// together is how long answers to questions that were asked at once are waited for, so that one pass takes them all.
const together = 50 * time.Millisecond

// AddSoon brings a release back with whatever else brings it back at nearly the same time.
func (q *Queue) AddSoon(key types.NamespacedName) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.queue != nil {
		q.queue.AddAfter(reconcile.Request{NamespacedName: key}, together)
	}
}

// Start takes the controller's queue. It implements source.Source.
func (q *Queue) Start(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.queue = queue
	return nil
}

// Same is equality.Semantic.DeepEqual with a quick yes: that library takes four times as long over what is the same in
// every part as reflect does, and mostly it is.
func Same(a, b any) bool { return reflect.DeepEqual(a, b) || equality.Semantic.DeepEqual(a, b) }

// StatusPatch is the difference between two statuses, under the version that was read. Where there was none, counters that
// are zero are written too: an API's columns and waits read them.
func StatusPatch[S any](version string, before, after *S) ([]byte, error) {
	old := map[string]any{}
	was, is := *before, *after
	if !reflect.ValueOf(before).Elem().IsZero() {
		leaveOut(reflect.ValueOf(&was).Elem(), reflect.ValueOf(&is).Elem())
		var err error
		if old, err = runtime.DefaultUnstructuredConverter.ToUnstructured(&was); err != nil {
			return nil, err
		}
	}
	wanted, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&is)
	if err != nil {
		return nil, err
	}
	difference := jsontree.MergePatch(old, wanted)
	return json.Marshal(jsontree.PinResourceVersion(map[string]any{"status": difference}, version))
}

// leaveOut empties the fields that two statuses have alike, which are most of them, so that nobody has to decode them. It
// looks no deeper: a struct without what it has alike may be empty, and would seem to be gone.
func leaveOut(was, is reflect.Value) {
	for i := range was.NumField() {
		if reflect.DeepEqual(was.Field(i).Interface(), is.Field(i).Interface()) {
			was.Field(i).SetZero()
			is.Field(i).SetZero()
		}
	}
}

// longestSleep is how long a shell sleeps at most before it reads the clock again. A clock that was set right meanwhile
// would otherwise be noticed when the sleep of the wrong one is over, which may be a day later.
const longestSleep = 10 * time.Minute

// WakeIn is how long to sleep. Zero asks for no wake at all, so that what is due now is due in a nanosecond.
func WakeIn(now, wake time.Time) time.Duration {
	if wake.IsZero() {
		return 0
	}
	return min(max(wake.Sub(now), 1), longestSleep)
}

// Earliest of moments; zero moments do not count.
func Earliest(moments ...time.Time) time.Time {
	var first time.Time
	for _, at := range moments {
		if !at.IsZero() && (first.IsZero() || at.Before(first)) {
			first = at
		}
	}
	return first
}
