// Package sim is the engine of the simulator. It runs Serin's production controllers in a small simulated cluster, injects
// faults, and publishes every event, so that the oracle of an API can check its invariants.
//
// The API server (package store), time, and all other actors are simulated: the controllers of Kubernetes, users, GitOps tools,
// gateways, metrics services, webhooks. One goroutine runs at a time; an agenda determines which, with delays that are drawn
// from the seed. A seed reproduces its run byte for byte.
//
// The package knows processes, faults and time. A kind of release (its objects, actors and invariants) is plugged in as a Kind;
// this package must not know phases, weights or checks.
package sim

import (
	"fmt"
	"slices"
	"sort"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/serin-dev/serin/test/sim/store"
)

// Kind is one kind of release in the simulator.
type Kind interface {
	// Populate creates the releases of this run, and the actors around them.
	Populate(w *World)
	// Controller creates the production controller of a process.
	Controller(i *Instance) Controller
	// Quiesce ends the actions of users and other actors. Actions that have begun are completed.
	Quiesce(w *World)
	// Settled reports whether each release has ended, or waits for a user who will not act and reports that in its status.
	// UnsettledReason describes why a run has not settled.
	Settled(w *World) bool
	UnsettledReason(w *World) string
	// SettleTimeout returns the maximum time that a release may need to settle once the faults have ended.
	SettleTimeout(w *World) time.Duration
	// CheckEnd checks the final state.
	CheckEnd(w *World)
	// FinalState returns the final state of the run without values that depend on time and chance: generated names, times,
	// versions. Two runs that differ only in crashes must have the same final state.
	FinalState(w *World) string
}

// World is the state of one run.
type World struct {
	Draws  Draws
	Server *store.Server
	Faults *Faults
	Scheme *runtime.Scheme

	options         Options
	now             time.Time
	agenda          agenda
	kinds           []Kind
	subscribers     []func(any)
	instances       []*Instance
	holder          *Instance // the process that holds the Lease; nil: none
	sharded         bool      // whether the processes of this run are sharded
	runningTask     *task
	idleThreads     []*thread
	scheduling      *Stream
	sequence        int
	reconciliations int
	writes          int
	callCount       int // calls of Serin to the API server
	outdatedLists   map[schema.GroupKind]outdatedList
	unreadable      map[schema.GroupKind]bool // kinds that processes have no permission to read
	clockSet        bool                      // the clock of some process differed from that of the world for a while
	queries         []string
	trace           []string
	panics          []string
	violations      []Violation
}

// Options of a run.
type Options struct {
	Seed uint64
	// Classes are the classes of faults that the kinds add to those of the engine.
	Classes []FaultClass
	// Definitions of resources; see store.Options.
	Definitions *store.Definitions
	Scheme      *runtime.Scheme
	// Only are the single faults and actions that occur; nil: all that were drawn.
	Only map[string]bool
	// Without are faults and actions that do not occur, because they did not exist when the run found a defect.
	Without []string
	// FaultDuration is how long faults last; zero: drawn.
	FaultDuration time.Duration
	// ScheduledFaults are injected at exact requests.
	ScheduledFaults []ScheduledFault
	// FaultFree runs have no faults but the scheduled ones.
	FaultFree bool
	// FullTrace retains the whole trace instead of its last lines.
	FullTrace bool
}

// ScheduledFault is injected at one specific request of Serin to the API server, or query to another service.
type ScheduledFault struct {
	// At is the number of the request or the query, counted from one over all processes.
	At      int
	Failure Failure
}

// Failure is how a request or a query fails.
type Failure string

// The failures of requests and queries. The texts are part of the names of tests.
const (
	CrashBefore  Failure = "crash before"  // the process crashes before the request is sent
	CrashAfter   Failure = "crash after"   // the request takes effect, and the process crashes
	FailConflict Failure = "conflict"      // the request fails as if another client had changed the object
	LoseResponse Failure = "lost response" // the request takes effect, and the response is lost

	CrashBeforeQuery Failure = "crash before the query" // the process crashes before the query is sent
	CrashDuringQuery Failure = "crash during the query" // the process crashes before the answer arrives
	CrashAfterAnswer Failure = "crash after the answer" // the process receives the answer and crashes before it acts on it
	LoseAnswer       Failure = "lost answer"            // the query is sent, and the connection breaks
)

// Violation is a violated invariant.
type Violation struct {
	Number string // I1 to I31
	Text   string
	At     time.Duration
}

// Result is the result of a run.
type Result struct {
	// API of its releases, in a campaign.
	API        string
	Seed       uint64
	Violations []Violation
	Trace      []string
	// Occurred are the names of the faults and actions that took place.
	Occurred        []string
	Reconciliations int
	Writes          int
	// Calls is the number of requests of Serin to the API server.
	Calls int
	// Queries are the names of the queries that Serin sent, in order.
	Queries []string
	Virtual time.Duration
	// FinalState is the final state as the kinds of releases describe it.
	FinalState string
}

// StartTime is the simulated time at which every run starts.
var StartTime = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// maxReconciliations is more than any run needs. Without this limit, simulated time would never advance if a release were
// requeued immediately in every reconciliation.
const maxReconciliations = 20_000

// traceTail is the number of lines that are retained at least if the full trace is not requested.
const traceTail = 60

// Run executes one run.
func Run(o Options, kinds ...Kind) Result {
	w := &World{Draws: Draws{o.Seed}, Scheme: o.Scheme, options: o, now: StartTime, kinds: kinds}
	w.scheduling = w.Draws.Stream("scheduling")
	classes := slices.Concat([]FaultClass{
		FailBefore, FailAfter, Conflicts, Throttled, Forbidden, SlowCalls, LateEvents, Relists, Repeats, Crashes, Pauses, ClockJumps, Preemption, Moves,
	}, o.Classes)
	w.Faults = newFaults(w.Draws, classes, func(name string) bool {
		return !o.FaultFree && (o.Only == nil || o.Only[name]) && !slices.Contains(o.Without, name)
	})
	w.sharded = w.Faults.Has(Moves)
	definitions := o.Definitions
	if o.Seed%10 == 0 && w.Faults.Admit(faultName(Pruning, 1)) {
		definitions = definitions.WithoutSerinStatus()
	}
	server, err := store.New(store.Options{
		Definitions: definitions, Scheme: o.Scheme, Now: w.Now, Hook: callHook{w}, OnWrite: w.onWrite,
	})
	if err != nil {
		panic(err) // a definition that does not compile: a programming error
	}
	w.Server = server
	w.Trace("seed %d, faults: %s", o.Seed, w.Faults)
	for _, kind := range kinds {
		kind.Populate(w)
	}
	w.Start("serin")
	w.scheduleProcessFaults()

	faultDuration := o.FaultDuration
	if faultDuration == 0 {
		faultDuration = w.Draws.Stream("length").Skewed(5*time.Minute, 40*time.Minute)
	}
	w.runUntil(StartTime.Add(faultDuration))
	w.quiesce()
	w.settle()
	w.checkIdle()
	if !w.stopped() {
		for _, kind := range kinds {
			kind.CheckEnd(w)
		}
	}
	return w.finish()
}

// Now returns the simulated time, unaffected by the clocks of processes.
func (w *World) Now() time.Time { return w.now }

// AllowReads sets whether processes have permission to read a kind.
func (w *World) AllowReads(kind schema.GroupKind, allowed bool) {
	if w.unreadable == nil {
		w.unreadable = map[schema.GroupKind]bool{}
	}
	w.unreadable[kind] = !allowed
}

// After schedules an action that is not one of Serin's.
func (w *World) After(d time.Duration, run func()) { w.agenda.schedule(w.now.Add(max(d, 0)), run) }

// Subscribe receives every event, in order: see the types in events.go, and those of the kinds.
func (w *World) Subscribe(handle func(event any)) { w.subscribers = append(w.subscribers, handle) }

// Publish passes an event to all subscribers.
func (w *World) Publish(event any) {
	for _, handle := range w.subscribers {
		handle(event)
	}
}

// Violate records a violation. Each invariant is recorded at most once per run.
func (w *World) Violate(number, format string, args ...any) {
	if slices.ContainsFunc(w.violations, func(v Violation) bool { return v.Number == number }) {
		return
	}
	v := Violation{Number: number, Text: fmt.Sprintf(format, args...), At: w.now.Sub(StartTime)}
	w.violations = append(w.violations, v)
	w.Trace("VIOLATION of %s: %s", v.Number, v.Text)
}

// Trace adds a line to the trace.
func (w *World) Trace(format string, args ...any) {
	line := fmt.Sprintf("t=%+.3fs ", w.now.Sub(StartTime).Seconds()) + fmt.Sprintf(format, args...)
	if !w.options.FullTrace && len(w.trace) >= 2*traceTail {
		w.trace = append(w.trace[:0], w.trace[traceTail:]...)
	}
	w.trace = append(w.trace, line)
}

// Instances returns the running processes.
func (w *World) Instances() []*Instance { return w.instances }

// IsQuiet reports whether every process has observed all changes and has nothing to do until a requeue that was scheduled.
func (w *World) IsQuiet() bool {
	for _, i := range w.instances {
		if i.busy() {
			return false
		}
	}
	return true
}

// IsRequeued reports whether the last reconciliation of a release requested another one after some time.
func (w *World) IsRequeued(key types.NamespacedName) bool {
	return slices.ContainsFunc(w.instances, func(i *Instance) bool {
		return slices.ContainsFunc(i.controllers, func(r *workQueue) bool { return r.requeued[reconcile.Request{NamespacedName: key}] })
	})
}

func (w *World) onWrite(event *store.Event) {
	w.writes++
	for _, i := range w.instances {
		i.scheduleDelivery(event.Kind)
	}
	w.Publish(ObjectWritten{event})
}

// lag draws the delay of a watch event.
func (w *World) lag() time.Duration {
	if w.Faults.Inject(LateEvents) {
		return w.Faults.Stream(LateEvents).Skewed(100*time.Millisecond, 20*time.Second)
	}
	return w.scheduling.Skewed(time.Millisecond, 30*time.Millisecond)
}

// runUntil runs everything that is due up to a point in time.
func (w *World) runUntil(end time.Time) {
	for len(w.agenda.items) > 0 && !w.agenda.items[0].at.After(end) && !w.stopped() {
		w.runNext()
	}
	w.now = latest(w.now, end)
}

func (w *World) runNext() {
	d := w.agenda.next()
	w.now = latest(w.now, d.at)
	d.run()
}

// stopped reports whether the run has to end early, because after a panic or a violation later results cannot be trusted.
func (w *World) stopped() bool {
	if w.reconciliations > maxReconciliations {
		w.Violate("I21", "%d reconciliations: some object is reconciled again and again although nothing changes", w.reconciliations)
	}
	return len(w.panics) > 0 || len(w.violations) > 0
}

// quiesce ends all faults. From then on, every release must end without intervention.
func (w *World) quiesce() {
	w.Trace("the faults end")
	w.Faults.ended = true
	for _, i := range slices.Clone(w.instances) {
		i.skew, i.forbiddenUntil = 0, time.Time{}
		i.Resume()
	}
	for _, kind := range w.kinds {
		kind.Quiesce(w)
	}
	w.ensureOneProcess()
}

// settle waits until every release has ended (I9).
func (w *World) settle() {
	var patience time.Duration
	for _, kind := range w.kinds {
		patience = max(patience, kind.SettleTimeout(w))
	}
	limit := w.now.Add(patience)
	for !w.stopped() {
		if w.settled() {
			return
		}
		if len(w.agenda.items) == 0 || w.agenda.items[0].at.After(limit) {
			var why []string
			for _, kind := range w.kinds {
				why = append(why, kind.UnsettledReason(w))
			}
			w.Violate("I9", "all faults have ended, but not every release ended within %s: %s", patience, strings.Join(why, "; "))
			return
		}
		w.runNext()
	}
}

func (w *World) settled() bool {
	for _, kind := range w.kinds {
		if !kind.Settled(w) {
			return false
		}
	}
	return true
}

// checkIdle simulates an hour in which Serin must send no request to the API server (I9q). Before that, work that was in
// progress when the releases ended may complete; a requeue that was scheduled before they ended, within the five minutes of the longest
// backoff, may reconcile once more; and so may one by a wrong clock, within ten minutes. A retry after an error may continue a release, and its users may act on that.
func (w *World) checkIdle() {
	grace := 6 * time.Minute
	if w.clockSet {
		grace += 10 * time.Minute
	}
	for w.runUntil(w.now.Add(grace)); !w.stopped() && !w.settled(); w.runUntil(w.now.Add(grace)) {
		w.settle()
	}
	if w.stopped() {
		return
	}
	calls := 0
	w.Subscribe(func(event any) {
		if c, ok := event.(RequestSent); ok {
			if calls++; calls == 1 {
				w.Violate("I9q", "%s sent a request to the API server although everything is idle: %s", c.Instance, describe(c.Call))
			}
		}
	})
	w.runUntil(w.now.Add(time.Hour))
}

func (w *World) finish() Result {
	for _, i := range slices.Clone(w.instances) {
		i.alive = false
		i.killTasks()
	}
	w.closeThreads()
	for _, text := range w.panics {
		w.Violate("panic", "%s", text)
	}
	var final strings.Builder
	for _, kind := range w.kinds {
		final.WriteString(kind.FinalState(w))
	}
	return Result{
		FinalState: final.String(),
		Seed:       w.options.Seed, Violations: w.violations, Trace: w.trace, Occurred: w.Faults.Occurred, Reconciliations: w.reconciliations,
		Writes: w.writes, Calls: w.callCount, Queries: w.queries, Virtual: w.now.Sub(StartTime),
	}
}

func latest(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

// faultName returns the name of the nth fault of a class.
func faultName(class FaultClass, n int) string { return fmt.Sprintf("%s#%d", class, n) }

func sorted(names []string) []string {
	sort.Strings(names)
	return names
}
