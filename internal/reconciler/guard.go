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

// Bounds of the pause after failures in a row. A release that nobody mends must not cost those that are well: what
// thousands of them ask for is one pass each in five minutes.
const (
	FirstPause = 15 * time.Second
	MaxPause   = 5 * time.Minute
)

// Row is a row of failures at one release. The zero value is one before the first.
type Row struct {
	pause time.Duration
	next  time.Time
}

// Again counts a failure and is when to try next. A pass that something else brought before that moment is not one more
// failure.
func (r *Row) Again(now time.Time, first, most time.Duration) time.Time {
	if now.Before(r.next) && r.next.Sub(now) <= most { // a clock that was set back must not hold it for longer
		return r.next
	}
	r.pause = min(max(2*r.pause, first), most)
	r.next = now.Add(r.pause)
	return r.next
}

// Guard keeps a panic in a pass, which is a fault of Serin, from costing more than the one release. The zero value is ready
// for use; one serves the releases of one kind.
type Guard struct {
	mu   sync.Mutex
	rows map[types.NamespacedName]*Row
}

// Run makes a pass. A panic in it is logged, faulted tells people of it, and the pass is tried again after a while, which
// grows with each. What faulted looks at may have been the cause: it may panic too.
func (g *Guard) Run(ctx context.Context, clk clock.PassiveClock, key types.NamespacedName, faulted func(ctx context.Context, key types.NamespacedName, fault error) error, pass func(context.Context, types.NamespacedName) (reconcile.Result, error)) (result reconcile.Result, err error) {
	defer func() {
		cause := recover()
		if cause == nil {
			g.over(key)
			return
		}
		fault := telemetry.PanicError(cause)
		log.FromContext(ctx).Error(fault, "Pass panicked", "stack", string(debug.Stack()))
		if err := report(ctx, key, fault, faulted); err != nil {
			log.FromContext(ctx).Error(err, "Told of a panic")
		}
		now := clk.Now()
		result, err = reconcile.Result{RequeueAfter: WakeIn(now, g.again(key, now))}, nil
	}()
	return pass(ctx, key)
}

// report calls faulted, which may panic, too.
func report(ctx context.Context, key types.NamespacedName, fault error, faulted func(context.Context, types.NamespacedName, error) error) (err error) {
	defer func() {
		if cause := recover(); cause != nil {
			err = telemetry.PanicError(cause)
		}
	}()
	return faulted(ctx, key, fault)
}

func (g *Guard) again(key types.NamespacedName, now time.Time) time.Time {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.rows == nil {
		g.rows = map[types.NamespacedName]*Row{}
	}
	if g.rows[key] == nil {
		g.rows[key] = &Row{}
	}
	return g.rows[key].Again(now, FirstPause, MaxPause)
}

func (g *Guard) over(key types.NamespacedName) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.rows, key)
}

// Keys are the releases that have not recovered from a panic.
func (g *Guard) Keys() []types.NamespacedName {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Collect(maps.Keys(g.rows))
}

// FaultMessage is the message about a panic in a reconciliation of something.
func FaultMessage(of string, fault error) string {
	return fmt.Sprintf("Serin failed at this %s by a fault of its own (%v), and its log has the details: nothing of it changes until that is mended; it is tried again, at least every %s",
		of, fault, MaxPause)
}
