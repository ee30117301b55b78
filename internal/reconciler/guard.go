package reconciler

import (
	"context"
	"fmt"
	"maps"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/serin-dev/serin/internal/telemetry"
)

// Bounds of the delay after consecutive failures. Thousands of broken releases must not delay the others: each of them is
// reconciled only once in five minutes.
const (
	InitialBackoff = 15 * time.Second
	MaxBackoff     = 5 * time.Minute
)

// Backoff is the delay after consecutive failures of one release. Its zero value has no failures.
type Backoff struct {
	delay time.Duration
	next  time.Time
}

// NextAttempt counts a failure and returns the time of the next attempt. A reconciliation that an event causes before that time
// does not count as another failure.
func (b *Backoff) NextAttempt(now time.Time, initial, limit time.Duration) time.Time {
	if now.Before(b.next) && b.next.Sub(now) <= limit { // a clock that was set back must not extend the delay
		return b.next
	}
	b.delay = min(max(2*b.delay, initial), limit)
	b.next = now.Add(b.delay)
	return b.next
}

// Guard limits the effect of a panic in a reconciliation, which is a defect of Serin, to one release. The zero value is ready
// for use; one instance serves the releases of one kind.
type Guard struct {
	mu       sync.Mutex
	backoffs map[types.NamespacedName]*Backoff
}

// panicReporter reports a panic in the reconciliation of a release to its user.
type panicReporter func(ctx context.Context, key types.NamespacedName, cause error) error

// Run calls reconcileKey. After a panic it logs and reports the panic, and schedules a retry whose delay grows with each
// consecutive panic. reportPanic may panic for the same cause, which is only logged.
func (g *Guard) Run(
	ctx context.Context, clk clock.PassiveClock, key types.NamespacedName, reportPanic panicReporter,
	reconcileKey func(context.Context, types.NamespacedName) (reconcile.Result, error),
) (result reconcile.Result, err error) {
	defer func() {
		recovered := recover()
		if recovered == nil {
			g.resetBackoff(key)
			return
		}
		cause := telemetry.PanicError(recovered)
		log.FromContext(ctx).Error(cause, "Reconciliation panicked", "stack", string(debug.Stack()))
		if err := callReporter(ctx, key, cause, reportPanic); err != nil {
			log.FromContext(ctx).Error(err, "Could not report a panic")
		}
		now := clk.Now()
		result, err = reconcile.Result{RequeueAfter: RequeueDelay(now, g.nextAttempt(key, now))}, nil
	}()
	return reconcileKey(ctx, key)
}

// callReporter calls reportPanic and returns a panic in it as an error.
func callReporter(ctx context.Context, key types.NamespacedName, cause error, reportPanic panicReporter) (err error) {
	defer func() {
		if recovered := recover(); recovered != nil {
			err = telemetry.PanicError(recovered)
		}
	}()
	return reportPanic(ctx, key, cause)
}

func (g *Guard) nextAttempt(key types.NamespacedName, now time.Time) time.Time {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.backoffs == nil {
		g.backoffs = map[types.NamespacedName]*Backoff{}
	}
	if g.backoffs[key] == nil {
		g.backoffs[key] = &Backoff{}
	}
	return g.backoffs[key].NextAttempt(now, InitialBackoff, MaxBackoff)
}

func (g *Guard) resetBackoff(key types.NamespacedName) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.backoffs, key)
}

// Keys returns the releases that have not recovered from a panic.
func (g *Guard) Keys() []types.NamespacedName {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Collect(maps.Keys(g.backoffs))
}

// PanicMessage returns the message about a panic in the reconciliation of an object of a kind.
func PanicMessage(kind string, cause error) string {
	return fmt.Sprintf("Serin could not reconcile this %s because of a defect in Serin (%v); the log has the details. Nothing changes until the defect is fixed. Serin retries at least once every %s",
		kind, cause, MaxBackoff)
}
