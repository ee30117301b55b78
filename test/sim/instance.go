package sim

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/serin-dev/serin/internal/fence"
	"github.com/serin-dev/serin/test/sim/store"
)

// Controller is the real code that an instance runs for one kind of release.
type Controller interface {
	// Reconcile is one pass.
	Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error)
	// Watches are the kinds that are watched from the start.
	Watches() []schema.GroupKind
	// RequestsFor are the releases to reconcile because of a change that a watch delivered.
	RequestsFor(change store.Change) []reconcile.Request
	// Flush lets everything go that waits to leave the process: questions, messages.
	Flush()
}

// Instance is a process of Serin. What it remembers is lost with its life; its views of the cluster are its own.
type Instance struct {
	Name  string
	Clock clock.PassiveClock
	// Cache is what the process sees, Client reads from it and writes to the server, Reader reads live.
	Cache          *store.Cache
	Client, Reader client.Client
	// Enqueue brings a release back at once.
	Enqueue func(reconcile.Request)

	world       *World
	skew        time.Duration
	controllers []*running
	tasks       map[*task]bool
	alive       bool
	frozen      bool
	held        []func() // what became due while the process slept
	fence       *fence.Fence
	heard       int // how many events it received
	forbidden   schema.GroupKind
	allowed     time.Time // when the kind above is allowed again
}

// running is a controller and its work queue, which behaves like the one of the library: a key is worked on by one worker
// at a time, and is queued once however often it is asked for meanwhile.
type running struct {
	of         Controller
	instance   *Instance
	queue      []reconcile.Request
	dirty      map[reconcile.Request]bool
	processing map[reconcile.Request]bool
	timers     map[reconcile.Request]*due
	failures   map[reconcile.Request]int
	awaits     map[reconcile.Request]bool // whose last pass asked for another one
}

// workers is how many passes one controller runs at once.
const workers = 3

// Backoff of passes that end in an error, as the controllers configure it.
const (
	firstBackoff   = 20 * time.Millisecond
	longestBackoff = 30 * time.Second
)

// Start creates a process and reconciles everything once.
func (w *World) Start(name string) *Instance {
	w.lives++
	i := &Instance{Name: name, world: w, tasks: map[*task]bool{}, alive: true}
	i.Clock = &wallClock{w, i}
	i.fence = fence.New(monotonic{w}, leaseDuration)
	i.Cache = w.Server.NewCache(store.CacheOptions{
		Behind: func(schema.GroupKind) int { return i.behind() },
		Started: func(kind schema.GroupKind, changes []store.Change) {
			i.changed(changes)
			i.catchUp(kind)
		},
		Await: func(context.Context, store.Wait) error {
			heard := i.heard
			w.Until(func() bool { return i.heard > heard })
			return nil
		},
	})
	i.Client = i.Cache.Client(name, store.AsLibrary)
	i.Reader = w.Server.Client(name)
	w.instances = append(w.instances, i)
	w.Trace("%s starts", name)
	w.Publish(ProcessStarted{Instance: name})
	for _, kind := range w.kinds {
		r := &running{
			instance: i, dirty: map[reconcile.Request]bool{}, processing: map[reconcile.Request]bool{},
			timers: map[reconcile.Request]*due{}, failures: map[reconcile.Request]int{},
			awaits: map[reconcile.Request]bool{},
		}
		i.Enqueue = r.add
		r.of = kind.Controller(i)
		i.controllers = append(i.controllers, r)
	}
	for _, r := range i.controllers { // once all are there: the first list of a kind is for each of them
		for _, watched := range r.of.Watches() {
			i.Watch(watched)
		}
	}
	return i
}

// behind is how many writes a fresh list may be late.
func (i *Instance) behind() int {
	t := i.world.Faults
	if !t.Inject(Relists) {
		return 0
	}
	return t.Stream(Relists).Int(1, 5)
}

// After plans something that this process does. It does not happen if the process dies before, and happens late if it
// sleeps then.
func (i *Instance) After(d time.Duration, run func()) *due {
	return i.world.agenda.plan(i.world.now.Add(d), func() { i.do(run) })
}

// Go runs something beside the passes of the process: it may wait in the middle, and dies with the process.
func (i *Instance) Go(name string, run func()) {
	i.world.lives++
	i.world.spawn(i, fmt.Sprintf("%s/%09d", name, i.world.lives), run)
}

func (i *Instance) do(run func()) {
	switch {
	case !i.alive:
	case i.frozen:
		i.held = append(i.held, run)
	default:
		run()
	}
}

// Alive is false once the process has died.
func (i *Instance) Alive() bool { return i.alive }

func (i *Instance) inOrder() []*task {
	tasks := make([]*task, 0, len(i.tasks))
	for t := range i.tasks {
		tasks = append(tasks, t)
	}
	slices.SortFunc(tasks, func(a, b *task) int { return strings.Compare(a.name, b.name) })
	return tasks
}

// Crash ends the process where it is.
func (i *Instance) Crash(why string) {
	if !i.alive {
		return
	}
	i.world.Trace("%s crashes: %s", i.Name, why)
	i.alive = false
	i.world.Publish(ProcessCrashed{Instance: i.Name})
	i.kill()
	i.world.instances = slices.DeleteFunc(i.world.instances, func(o *Instance) bool { return o == i })
}

// Freeze lets the process sleep; Thaw wakes it, and everything that became due happens at once.
func (i *Instance) Freeze() {
	i.renewLease()
	i.frozen = true
}

// renewLease renews the Lease, which a process does all the time while it is awake, unless another one has taken over. The
// simulator does it when the Lease is needed.
func (i *Instance) renewLease() {
	if i.world.instances[len(i.world.instances)-1] == i {
		i.fence.Renew(i.world.now)
	}
}

// isFenced reports whether this process may not write, because its Lease has expired. Like in the transport of the real
// client, events are exempt.
func (i *Instance) isFenced(call store.Call) bool {
	if call.Read() || call.Kind == (schema.GroupKind{Kind: "Event"}) {
		return false
	}
	i.renewLease()
	return i.fence.Check() != nil
}

// Thaw ends a Freeze.
func (i *Instance) Thaw() {
	i.frozen = false
	held := i.held
	i.held = nil
	for _, run := range held {
		i.do(run)
	}
}

// Watch lets the process hear of changes of a kind from now on.
func (i *Instance) Watch(kind schema.GroupKind) {
	if !i.Cache.Watches(kind) {
		i.changed(i.Cache.Start(kind, i.behind()))
		i.catchUp(kind)
	}
}

// catchUp plans what follows a list that was late: the watch after it says the rest.
func (i *Instance) catchUp(kind schema.GroupKind) {
	if i.Cache.Pending(kind) > 0 {
		i.After(i.world.lag(), func() { i.changed(i.Cache.Deliver(kind, i.Cache.Pending(kind))); i.look() })
	}
}

// wrote plans when this process hears of a write.
func (i *Instance) wrote(kind schema.GroupKind) {
	i.After(i.world.lag(), func() { i.deliver(kind) })
}

// deliver lets the process hear of what is due.
func (i *Instance) deliver(kind schema.GroupKind) {
	t := i.world.Faults
	n := 1
	switch {
	case t.Inject(Repeats):
		i.Cache.Rewind(kind, t.Stream(Repeats).Int(1, 3))
		n = i.Cache.Pending(kind)
	case t.Inject(Relists):
		// A reflector lists what is at least as new as what it has; only its first list may be of any age.
		i.changed(i.Cache.Relist(kind, min(t.Stream(Relists).Int(0, 3), i.Cache.Pending(kind))))
		i.catchUp(kind)
		n = 0
	}
	i.changed(i.Cache.Deliver(kind, n))
	i.look()
}

func (i *Instance) changed(changes []store.Change) {
	for _, change := range changes {
		for _, r := range i.controllers {
			for _, request := range r.of.RequestsFor(change) {
				r.add(request)
			}
		}
	}
}

// busy is true while there are passes to do or to repeat, or events that the process has not heard of.
func (i *Instance) busy() bool {
	if len(i.tasks) > 0 {
		return true
	}
	for _, r := range i.controllers {
		if len(r.queue) > 0 || len(r.failures) > 0 {
			return true
		}
	}
	return len(i.Cache.Waiting()) > 0
}

// look lets the tasks go on that waited for an event.
func (i *Instance) look() {
	i.heard++
	for _, t := range i.inOrder() {
		if t.until != nil && i.alive && t.until() {
			t.until = nil
			i.world.goOn(t, true)
		}
	}
}

func (r *running) add(request reconcile.Request) {
	if r.dirty[request] {
		return
	}
	r.dirty[request] = true
	if r.processing[request] {
		return
	}
	r.queue = append(r.queue, request)
	r.instance.After(r.instance.world.scheduling.Between(0, time.Millisecond), r.start)
}

func (r *running) start() {
	if len(r.queue) == 0 || len(r.processing) >= workers {
		return
	}
	request := r.queue[0]
	r.queue = r.queue[1:]
	delete(r.dirty, request)
	r.processing[request] = true
	i := r.instance
	i.world.reconciliations++
	i.world.spawn(i, fmt.Sprintf("%s/%09d", request, i.world.reconciliations), func() {
		result, err := r.of.Reconcile(context.Background(), request)
		r.done(request, result, err)
	})
}

func (r *running) done(request reconcile.Request, result reconcile.Result, err error) {
	i := r.instance
	i.world.Publish(Reconciled{Instance: i.Name, Release: request.NamespacedName, Result: result, Err: err})
	delete(r.processing, request)
	r.awaits[request] = result.RequeueAfter > 0
	switch {
	case errors.Is(err, reconcile.TerminalError(nil)):
	case err != nil:
		i.world.Trace("  %s: %v", request.Name, err)
		wait := longestBackoff
		if n := r.failures[request]; n < 20 {
			wait = min(longestBackoff, firstBackoff<<n)
		}
		r.failures[request]++
		r.later(request, wait)
	case result.RequeueAfter > 0:
		delete(r.failures, request)
		r.later(request, result.RequeueAfter)
	default:
		delete(r.failures, request)
	}
	if r.dirty[request] {
		r.queue = append(r.queue, request)
	}
	i.After(0, r.of.Flush)
	if len(r.queue) > 0 {
		i.After(0, r.start)
	}
}

// later asks for a reconciliation after a while; the earliest of several such moments counts.
func (r *running) later(request reconcile.Request, wait time.Duration) {
	at := r.instance.world.now.Add(wait)
	if old := r.timers[request]; old != nil && old.index >= 0 {
		if !old.at.After(at) {
			return
		}
		r.instance.world.agenda.cancel(old)
	}
	r.timers[request] = r.instance.After(wait, func() { r.add(request) })
}

// calls implements store.Hook for calls of Serin: each is a moment at which the world may go on, fail it or end the
// process.
type calls struct{ *World }

// Before implements store.Hook.
func (w calls) Before(call store.Call) store.Fault {
	t := w.running
	if t == nil || call.Actor != t.of.Name {
		return store.Fault{}
	}
	i := t.of
	if call.Cached {
		return store.Fault{}
	}
	if i.isFenced(call) { // the request is not sent
		return store.Fault{Err: fence.ErrNotLeader}
	}
	w.counted++
	w.Publish(Called{Instance: i.Name, Call: call})
	trouble := w.Faults
	wait := w.scheduling.Skewed(usualCall/4, usualCall*4)
	if trouble.Inject(SlowCalls) {
		wait = trouble.Stream(SlowCalls).Between(time.Second, slowCall)
	}
	w.Sleep(wait / 2)
	switch {
	case i.isFenced(call): // the process slept before the request left it
		return store.Fault{Err: fence.ErrNotLeader}
	case w.failsHere(DieBefore), trouble.Inject(Crashes):
		w.die(i, "before "+describe(call))
	case trouble.Inject(FailBefore):
		return w.fail(call, "failed and did nothing", Pick(trouble.Stream(FailBefore), store.ServerError, store.Unavailable, store.Timeout)(call))
	case trouble.Inject(Throttled):
		return w.fail(call, "429", store.TooManyRequests(call, time.Second))
	case !call.Read() && (w.failsHere(Lose) || trouble.Inject(Conflicts)):
		return w.fail(call, "conflict", store.Conflict(call))
	case i.denied(call):
		return w.fail(call, "403", store.Forbidden(call))
	}
	return store.Fault{}
}

// After implements store.Hook.
func (w calls) After(call store.Call, err error) store.Fault {
	t := w.running
	if t == nil || call.Actor != t.of.Name || call.Cached {
		return store.Fault{}
	}
	trouble := w.Faults
	switch {
	case w.failsHere(DieAfter), err == nil && trouble.Inject(Crashes):
		w.die(t.of, "after "+describe(call))
	case err == nil && !call.Read() && (w.failsHere(Unknown) || trouble.Inject(FailAfter)):
		return w.fail(call, "done, but the answer was lost", Pick(trouble.Stream(FailAfter), store.ServerError, store.Timeout)(call))
	}
	w.Sleep(w.scheduling.Skewed(0, usualCall))
	return store.Fault{}
}

// failsHere is true when what fails at this request is due.
func (w *World) failsHere(how Failure) bool {
	return slices.Contains(w.o.ScheduledFaults, ScheduledFault{w.counted, how})
}

// Question counts a query that a process sends. The returned function reports whether it fails in a way.
func (w *World) Question(name string) (strikes func(Failure) bool) {
	w.questions = append(w.questions, name)
	n := len(w.questions)
	return func(how Failure) bool { return slices.Contains(w.o.ScheduledFaults, ScheduledFault{n, how}) }
}

// CrashAndRestart ends the process where it is, and starts it again after a while.
func (i *Instance) CrashAndRestart(why string) {
	i.Crash(why)
	i.world.restart(i.Name)
}

func (w *World) fail(call store.Call, how string, err error) store.Fault {
	w.Trace("  %s: %s", describe(call), how)
	w.Publish(RequestFailed{Call: call, How: how})
	return store.Fault{Err: err}
}

// die ends the process of the running task, and the task with it.
func (calls) die(i *Instance, why string) {
	i.CrashAndRestart(why)
	runtime.Goexit()
}

// denied draws whether this process lost its rights for a kind, and keeps it so for a while.
func (i *Instance) denied(call store.Call) bool {
	w := i.world
	if w.Faults.over {
		return false
	}
	if w.now.Before(i.allowed) {
		return call.Kind == i.forbidden && !call.Read()
	}
	if call.Read() || !w.Faults.Inject(Forbidden) {
		return false
	}
	i.forbidden, i.allowed = call.Kind, w.now.Add(w.Faults.Stream(Forbidden).Between(time.Second, 2*time.Minute))
	return true
}

func describe(c store.Call) string {
	verb := c.Verb
	if c.Subresource != "" {
		verb += " " + c.Subresource
	}
	return fmt.Sprintf("%s %s %s", verb, c.Kind.Kind, c.Key.Name)
}

// wallClock is what a process takes for the time: the world's, set wrong by its skew.
type wallClock struct {
	world *World
	of    *Instance
}

// monotonic is the monotonic clock of all machines.
type monotonic struct{ *World }

func (m monotonic) Now() time.Time                  { return m.now }
func (m monotonic) Since(t time.Time) time.Duration { return m.now.Sub(t) }

func (c *wallClock) Now() time.Time                  { return c.world.now.Add(c.of.skew) }
func (c *wallClock) Since(t time.Time) time.Duration { return c.Now().Sub(t) }
