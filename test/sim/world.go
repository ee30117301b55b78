// Package sim is the engine of the simulator: it runs Serin's real controllers in a small simulated cluster, injects faults, and
// publishes every event, after which the oracle of an API checks its invariants.
//
// Simulated are the API server (package store), time, and all other actors: the controllers of Kubernetes, users, tools that
// apply their own copy, gateways, metrics services, webhooks. One goroutine runs at a time; an agenda of
// moments, whose lengths are drawn from a seed, says which. A seed gives the same run byte for byte.
//
// The package knows processes, faults and time. What a kind of release is (its objects, actors, and its invariants)
// is plugged in as a Kind; this package must not know phases, weights or checks.
package sim

import (
	"fmt"
	"slices"
	"sort"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/serin-dev/serin/test/sim/store"
)

// Kind is one kind of release in the simulator.
type Kind interface {
	// Populate creates the releases of this run, and the actors around them.
	Populate(w *World)
	// Controller makes the real controller of a process.
	Controller(i *Instance) Controller
	// Quiesce ends the actions of users and other actors; what they began is finished.
	Quiesce(w *World)
	// Settled is true when each release is at an end, or waits for someone who will not come, and says so. Unsettled says
	// why it is not.
	Settled(w *World) bool
	Unsettled(w *World) string
	// Patience is the longest time that a release may need from the moment of calm on.
	Patience(w *World) time.Duration
	// End checks the final state.
	End(w *World)
	// Final is the final state of the run without what depends on time and chance: drawn names, times, versions. Two runs that
	// differ in crashes only must have the same.
	Final(w *World) string
}

// World is the state of one run.
type World struct {
	Draws  Draws
	Server *store.Server
	Faults *Faults
	Scheme *runtime.Scheme

	o               Options
	now             time.Time
	agenda          agenda
	kinds           []Kind
	subscribers     []func(any)
	instances       []*Instance
	running         *task
	resting         []*thread
	scheduling      *Stream
	lives           int
	reconciliations int
	writes          int
	counted         int  // calls of Serin to the API server
	clockSet        bool // some process had another clock than the world for a while
	questions       []string
	trace           []string
	panics          []string
	violations      []Violation
	covered         map[string]int
}

// Options of a run.
type Options struct {
	Seed uint64
	// Classes are the faults that the kinds add to those of the world.
	Classes []FaultClass
	// Definitions of resources; see store.Options.
	Definitions *store.Definitions
	Scheme      *runtime.Scheme
	// Only are the single faults and actions that take place; nil: all that were drawn.
	Only map[string]bool
	// FaultDuration is how long faults last; zero: drawn.
	FaultDuration time.Duration
	// ScheduledFaults are injected at exact requests.
	ScheduledFaults []ScheduledFault
	// FaultFree runs have no faults but the scheduled ones.
	FaultFree bool
	// FullTrace keeps the whole trace, otherwise the last lines.
	FullTrace bool
}

// ScheduledFault is injected at one exact request of Serin to the API server, or query to another service.
type ScheduledFault struct {
	// At counts the requests of all processes, or their questions, from one.
	At      int
	Failure Failure
}

// Failure is how a request or a query fails.
type Failure string

// The ways.
const (
	DieBefore Failure = "die before" // the process dies, the request was not sent
	DieAfter  Failure = "die after"  // the request did its work, and the process dies
	Lose      Failure = "conflict"   // someone else was faster, or it seems so
	Unknown   Failure = "unknown"    // the request did its work, and the answer is lost

	DieAsking   Failure = "die before the question"       // the process dies, the question was not put
	DieWaiting  Failure = "die while the question is out" // its answer finds no process
	DieAnswered Failure = "die after the answer"          // it was heard, and nothing was made of it
	LoseAnswer  Failure = "the answer is lost"            // it was put, and the connection broke
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
	// TookPlace are the names of the faults and actions that took place.
	TookPlace       []string
	Reconciliations int
	Writes          int
	// Calls are the requests of Serin to the API server.
	Calls int
	// Questions are the names of those that left Serin, in order.
	Questions []string
	Virtual   time.Duration
	// Covered counts what was reached, by name.
	Covered map[string]int
	// Final is the final state as the kinds of releases describe it.
	Final string
}

// Beginning is when every run begins.
var Beginning = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// maxReconciliations are more than any run needs; without a bound a release that is reconciled again at once would never let
// time go on.
const maxReconciliations = 20_000

// lastLines of a run are kept if the full trace is not requested.
const lastLines = 60

// Run executes one run.
func Run(o Options, kinds ...Kind) Result {
	w := &World{Draws: Draws{o.Seed}, Scheme: o.Scheme, o: o, now: Beginning, kinds: kinds, covered: map[string]int{}}
	w.scheduling = w.Draws.Stream("scheduling")
	classes := slices.Concat([]FaultClass{
		FailBefore, FailAfter, Conflicts, Throttled, Forbidden, SlowCalls, LateEvents, Relists, Repeats, Crashes, Pauses, ClockJumps,
	}, o.Classes)
	w.Faults = newFaults(w.Draws, classes, func(name string) bool { return !o.FaultFree && (o.Only == nil || o.Only[name]) })
	definitions := o.Definitions
	if o.Seed%10 == 0 && w.Faults.TakesPlace(nth(Pruning, 1)) {
		definitions = definitions.WithoutSerinStatus()
	}
	server, err := store.New(store.Options{
		Definitions: definitions, Scheme: o.Scheme, Now: w.Now, Hook: calls{w}, OnWrite: w.wrote,
	})
	if err != nil {
		panic(err) // a definition that does not compile: a mistake in the program
	}
	w.Server = server
	w.Trace("seed %d, faults: %s", o.Seed, w.Faults)
	for _, kind := range kinds {
		kind.Populate(w)
	}
	w.Start("serin")
	w.scheduleProcessFaults()

	troubled := o.FaultDuration
	if troubled == 0 {
		troubled = w.Draws.Stream("length").Skewed(5*time.Minute, 40*time.Minute)
	}
	w.runUntil(Beginning.Add(troubled))
	w.quiesce()
	w.settle()
	w.idle()
	if !w.stopped() {
		for _, kind := range kinds {
			kind.End(w)
		}
	}
	return w.end()
}

// Now is the true time.
func (w *World) Now() time.Time { return w.now }

// After plans something that others than Serin do.
func (w *World) After(d time.Duration, run func()) { w.agenda.plan(w.now.Add(max(d, 0)), run) }

// Subscribe receives every event, in order: see the types in events.go, and those of the kinds.
func (w *World) Subscribe(handle func(event any)) { w.subscribers = append(w.subscribers, handle) }

// Publish passes an event to all subscribers.
func (w *World) Publish(event any) {
	for _, handle := range w.subscribers {
		handle(event)
	}
}

// Violate records a violation. Each invariant is recorded once in a run.
func (w *World) Violate(number, format string, args ...any) {
	if slices.ContainsFunc(w.violations, func(v Violation) bool { return v.Number == number }) {
		return
	}
	v := Violation{Number: number, Text: fmt.Sprintf(format, args...), At: w.now.Sub(Beginning)}
	w.violations = append(w.violations, v)
	w.Trace("VIOLATION of %s: %s", v.Number, v.Text)
}

// Cover counts that something was reached, so that a campaign can say what it never saw.
func (w *World) Cover(name string) { w.covered[name]++ }

// Trace adds a line to the trace.
func (w *World) Trace(format string, args ...any) {
	line := fmt.Sprintf("t=%+.3fs ", w.now.Sub(Beginning).Seconds()) + fmt.Sprintf(format, args...)
	if !w.o.FullTrace && len(w.trace) >= 2*lastLines {
		w.trace = append(w.trace[:0], w.trace[lastLines:]...)
	}
	w.trace = append(w.trace, line)
}

// Instances are the processes that live.
func (w *World) Instances() []*Instance { return w.instances }

// Quiet is true when no process has anything to do, knows everything, and waits for nothing but moments that its releases
// asked for.
func (w *World) Quiet() bool {
	for _, i := range w.instances {
		if i.busy() {
			return false
		}
	}
	return true
}

// Awaits is true when the last reconciliation over a release asked for another one at a certain moment.
func (w *World) Awaits(key types.NamespacedName) bool {
	return slices.ContainsFunc(w.instances, func(i *Instance) bool {
		return slices.ContainsFunc(i.controllers, func(r *running) bool { return r.awaits[reconcile.Request{NamespacedName: key}] })
	})
}

func (w *World) wrote(event *store.Event) {
	w.writes++
	for _, i := range w.instances {
		i.wrote(event.Kind)
	}
	w.Publish(ObjectWritten{event})
}

// lag is how late a watch delivers.
func (w *World) lag() time.Duration {
	if w.Faults.Inject(LateEvents) {
		return w.Faults.Stream(LateEvents).Skewed(100*time.Millisecond, 20*time.Second)
	}
	return w.scheduling.Skewed(time.Millisecond, 30*time.Millisecond)
}

// runUntil lets happen what is due before that moment.
func (w *World) runUntil(end time.Time) {
	for len(w.agenda.items) > 0 && !w.agenda.items[0].at.After(end) && !w.stopped() {
		w.step()
	}
	w.now = later(w.now, end)
}

func (w *World) step() {
	d := w.agenda.next()
	w.now = later(w.now, d.at)
	d.run()
}

// stopped is true when nothing that follows can be trusted any more.
func (w *World) stopped() bool {
	if w.reconciliations > maxReconciliations {
		w.Violate("I21", "%d reconciliations: some object is reconciled again and again although nothing changes", w.reconciliations)
	}
	return len(w.panics) > 0 || len(w.violations) > 0
}

// quiesce ends all faults: from here on every release must come to an end automatically.
func (w *World) quiesce() {
	w.Trace("the faults end")
	w.Faults.over = true
	for _, i := range slices.Clone(w.instances) {
		i.skew, i.allowed = 0, time.Time{}
		i.Thaw()
	}
	for _, kind := range w.kinds {
		kind.Quiesce(w)
	}
	w.leaveOneProcess()
}

// settle waits until each release is at an end (I9).
func (w *World) settle() {
	var patience time.Duration
	for _, kind := range w.kinds {
		patience = max(patience, kind.Patience(w))
	}
	limit := w.now.Add(patience)
	for !w.stopped() {
		if w.settled() {
			return
		}
		if len(w.agenda.items) == 0 || w.agenda.items[0].at.After(limit) {
			var why []string
			for _, kind := range w.kinds {
				why = append(why, kind.Unsettled(w))
			}
			w.Violate("I9", "no fault is left, but not every release comes to an end within %s: %s", patience, strings.Join(why, "; "))
			return
		}
		w.step()
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

// idle lets an hour pass in which nothing may be written and nothing read (I9q). What was under way when the releases
// came to their end has a moment to finish; a process that went to sleep by a wrong clock wakes once more, within ten
// minutes.
func (w *World) idle() {
	moment := 2 * time.Minute
	if w.clockSet {
		moment += 10 * time.Minute
	}
	w.runUntil(w.now.Add(moment))
	if w.stopped() {
		return
	}
	calls := 0
	w.Subscribe(func(event any) {
		if c, ok := event.(Called); ok {
			if calls++; calls == 1 {
				w.Violate("I9q", "at rest, %s asked the API server: %s", c.Instance, describe(c.Call))
			}
		}
	})
	w.runUntil(w.now.Add(time.Hour))
}

func (w *World) end() Result {
	for _, i := range slices.Clone(w.instances) {
		i.alive = false
		i.kill()
	}
	w.rest()
	for _, text := range w.panics {
		w.Violate("panic", "%s", text)
	}
	var final strings.Builder
	for _, kind := range w.kinds {
		final.WriteString(kind.Final(w))
	}
	return Result{
		Final: final.String(),
		Seed:  w.o.Seed, Violations: w.violations, Trace: w.trace, TookPlace: w.Faults.TookPlace, Reconciliations: w.reconciliations,
		Writes: w.writes, Calls: w.counted, Questions: w.questions, Virtual: w.now.Sub(Beginning), Covered: w.covered,
	}
}

func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

// nth names the nth thing of a class.
func nth(class FaultClass, n int) string { return fmt.Sprintf("%s#%d", class, n) }

func sorted(names []string) []string {
	sort.Strings(names)
	return names
}
