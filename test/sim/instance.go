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
	"github.com/serin-dev/serin/internal/readyourwrites"
	"github.com/serin-dev/serin/internal/sharding"
	"github.com/serin-dev/serin/test/sim/store"
)

// Controller is the production code that an instance runs for one kind of release.
type Controller interface {
	// Reconcile reconciles one release.
	Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error)
	// Watches returns the kinds that are watched from the start.
	Watches() []schema.GroupKind
	// RequestsFor returns the releases to reconcile after a change that a watch delivered.
	RequestsFor(change store.Change) []reconcile.Request
	// Flush sends everything that is queued for receivers outside the process: queries, notifications, events.
	Flush()
}

// Instance is a process of Serin. Its memory is lost when it crashes, and its view of the cluster may differ from that of other
// processes.
type Instance struct {
	Name  string
	Clock clock.PassiveClock
	// Cache contains what the process has observed. Client reads from it and writes to the server; Reader reads from the
	// server.
	Cache          *store.Cache
	Client, Reader client.Client
	// Shards are the shards that the process holds; nil: it is not sharded.
	Shards *sharding.Held
	// Enqueue queues a release for immediate reconciliation.
	Enqueue func(reconcile.Request)

	world          *World
	skew           time.Duration
	controllers    []*workQueue
	tasks          map[*task]bool
	alive          bool
	suspended      bool
	draining       bool     // it hands the shard over, and waits for running reconciliations
	drained        bool     // it has handed the shard over, and no reconciliation was running
	deferred       []func() // what became due while the process was suspended
	fence          *fence.Fence
	receivedEvents int // number of deliveries to the cache
	forbiddenKind  schema.GroupKind
	forbiddenUntil time.Time // when writes of forbiddenKind are allowed again
}

// workQueue is a controller and its work queue, which behaves like a queue of controller-runtime: at most one worker processes
// a key at any time, and a key that is added repeatedly in the meantime is queued once.
type workQueue struct {
	controller Controller
	instance   *Instance
	queue      []reconcile.Request
	dirty      map[reconcile.Request]bool
	processing map[reconcile.Request]*reconciliation
	timers     map[reconcile.Request]*scheduled
	failures   map[reconcile.Request]int
	requeued   map[reconcile.Request]bool // releases whose last reconciliation requested a requeue after some time
}

// workers is the maximum number of concurrent reconciliations of a controller.
const workers = 3

// The backoff of reconciliations that return an error, as the controllers configure it.
const (
	firstBackoff   = 20 * time.Millisecond
	longestBackoff = 30 * time.Second
)

// Start creates a process, which reconciles every release once.
func (w *World) Start(name string) *Instance {
	i := w.startStandby(name)
	i.acquire()
	return i
}

// startStandby creates a process that fills its caches. Until it acquires the shard, a sharded process reconciles nothing.
func (w *World) startStandby(name string) *Instance {
	w.sequence++
	i := &Instance{Name: name, world: w, tasks: map[*task]bool{}, alive: true, Shards: w.newHeld()}
	i.Clock = &wallClock{w, i}
	i.fence = fence.New(monotonic{w}, leaseDuration, shardLease)
	i.Cache = w.Server.NewCache(store.CacheOptions{
		ListLag: i.firstListLag,
		Started: func(kind schema.GroupKind, changes []store.Change) {
			i.enqueueChanges(changes)
			i.scheduleCatchUp(kind)
		},
		Await: func(ctx context.Context, _ store.Wait) error {
			heard := i.receivedEvents
			w.WaitUntil(func() bool { return i.receivedEvents > heard || ctx.Err() != nil })
			return nil
		},
	})
	i.Reader = w.Server.Client(name)
	i.Client = readyourwrites.WithBoundedWait(i.Cache.Client(name, store.AsLibrary), i.Reader, i.Clock, i.afterFunc)
	w.instances = append(w.instances, i)
	w.Trace("%s starts", name)
	for _, kind := range w.kinds {
		r := &workQueue{
			instance: i, dirty: map[reconcile.Request]bool{}, processing: map[reconcile.Request]*reconciliation{},
			timers: map[reconcile.Request]*scheduled{}, failures: map[reconcile.Request]int{},
			requeued: map[reconcile.Request]bool{},
		}
		i.Enqueue = r.add
		r.controller = kind.Controller(i)
		i.controllers = append(i.controllers, r)
	}
	for _, r := range i.controllers { // after all controllers exist: each of them handles the first list of a kind
		for _, watched := range r.controller.Watches() {
			i.Watch(watched)
		}
	}
	return i
}

// firstListLag returns by how many writes the first list of a kind is outdated.
func (i *Instance) firstListLag(kind schema.GroupKind) int {
	if list, outdated := i.world.outdatedLists[kind]; outdated {
		return list.writes
	}
	t := i.world.Faults
	if !t.Inject(Relists) {
		return 0
	}
	return t.Stream(Relists).Int(1, 5)
}

// After schedules an action of this process. If the process crashes before, it does not happen; while the process is suspended,
// it is deferred.
func (i *Instance) After(d time.Duration, run func()) *scheduled {
	return i.world.agenda.schedule(i.world.now.Add(d), func() { i.runOrDefer(run) })
}

// afterFunc implements readyourwrites.AfterFunc.
func (i *Instance) afterFunc(d time.Duration, f func()) (stop func() bool) {
	timer := i.After(d, func() {
		f()
		i.resumeReadyTasks()
	})
	return func() bool {
		i.world.agenda.cancel(timer)
		return true
	}
}

// Go runs a task concurrently with the reconciliations of the process. The task may wait, and ends when the process crashes.
func (i *Instance) Go(name string, run func()) {
	i.world.sequence++
	i.world.spawn(i, fmt.Sprintf("%s/%09d", name, i.world.sequence), run)
}

func (i *Instance) runOrDefer(run func()) {
	switch {
	case !i.alive:
	case i.suspended:
		i.deferred = append(i.deferred, run)
	default:
		run()
	}
}

// Alive reports whether the process has not crashed.
func (i *Instance) Alive() bool { return i.alive }

func (i *Instance) sortedTasks() []*task {
	tasks := make([]*task, 0, len(i.tasks))
	for t := range i.tasks {
		tasks = append(tasks, t)
	}
	slices.SortFunc(tasks, func(a, b *task) int { return strings.Compare(a.name, b.name) })
	return tasks
}

// Crash ends the process at the current instruction.
func (i *Instance) Crash(why string) {
	if !i.alive {
		return
	}
	i.world.Trace("%s crashes: %s", i.Name, why)
	i.alive = false
	i.world.Publish(ProcessCrashed{Instance: i.Name})
	i.killTasks()
	i.world.instances = slices.DeleteFunc(i.world.instances, func(o *Instance) bool { return o == i })
	if i.world.holder == i {
		i.world.replaceHolder()
	}
}

// Suspend suspends the process until Resume, which runs everything that became due in the meantime.
func (i *Instance) Suspend() {
	i.renewLease()
	i.suspended = true
}

// renewLease renews the Lease unless another process has taken over. A real process does so all the time while it runs; the
// simulator does when the Lease is needed.
func (i *Instance) renewLease() {
	if i.world.holder == i {
		i.fence.Renew(i.world.now)
	}
}

// isFenced reports whether this process must not write, because its Lease has expired. As in the transport of the real client,
// events are exempt.
func (i *Instance) isFenced(call store.Call) bool {
	if call.Read() || call.Kind == (schema.GroupKind{Kind: "Event"}) {
		return false
	}
	return i.CheckLease() != nil
}

// CheckLease returns fence.ErrNotLeader if this process must neither write nor send queries now.
func (i *Instance) CheckLease() error {
	i.renewLease()
	return i.fence.Check()
}

// Resume ends a suspension.
func (i *Instance) Resume() {
	i.suspended = false
	deferred := i.deferred
	i.deferred = nil
	for _, run := range deferred {
		i.runOrDefer(run)
	}
	if i.alive {
		i.reacquire()
	}
}

// Watch starts a watch of a kind.
func (i *Instance) Watch(kind schema.GroupKind) {
	if !i.Cache.Watches(kind) {
		i.enqueueChanges(i.Cache.Start(kind, i.firstListLag(kind)))
		i.scheduleCatchUp(kind)
	}
}

// Reconnect ends the watch of a kind and lists its objects as they are now. An object that was created and deleted since the
// last event is never observed.
func (i *Instance) Reconnect(kind schema.GroupKind) {
	i.enqueueChanges(i.Cache.Relist(kind, 0))
	i.finishDelivery()
}

// scheduleCatchUp schedules the delivery of the changes that an outdated list did not contain: the watch that follows it
// delivers them.
func (i *Instance) scheduleCatchUp(kind schema.GroupKind) {
	if i.Cache.Pending(kind) == 0 {
		return
	}
	list, outdated := i.world.outdatedLists[kind]
	if !outdated {
		list.delay = i.world.lag()
	}
	i.After(list.delay, func() { i.enqueueChanges(i.Cache.Deliver(kind, i.Cache.Pending(kind))); i.finishDelivery() })
}

// scheduleDelivery schedules the delivery of a write to this process.
func (i *Instance) scheduleDelivery(kind schema.GroupKind) {
	i.After(i.world.lag(), func() { i.deliver(kind) })
}

// deliver delivers the changes of a kind that are due.
func (i *Instance) deliver(kind schema.GroupKind) {
	t := i.world.Faults
	n := 1
	switch {
	case t.Inject(Repeats):
		i.Cache.Rewind(kind, t.Stream(Repeats).Int(1, 3))
		n = i.Cache.Pending(kind)
	case t.Inject(Relists):
		// A reflector lists a state that is at least as new as its own; only its first list may be arbitrarily old.
		i.enqueueChanges(i.Cache.Relist(kind, min(t.Stream(Relists).Int(0, 3), i.Cache.Pending(kind))))
		i.scheduleCatchUp(kind)
		n = 0
	}
	i.enqueueChanges(i.Cache.Deliver(kind, n))
	i.finishDelivery()
}

func (i *Instance) enqueueChanges(changes []store.Change) {
	for _, change := range changes {
		for _, r := range i.controllers {
			r.enqueueChange(change)
		}
	}
}

// busy reports whether reconciliations are running, queued or to be retried, or events have not been delivered.
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

// finishDelivery resumes the tasks that waited for the events of a delivery.
func (i *Instance) finishDelivery() {
	i.receivedEvents++
	i.resumeReadyTasks()
}

// resumeReadyTasks resumes the tasks whose condition is fulfilled.
func (i *Instance) resumeReadyTasks() {
	for _, t := range i.sortedTasks() {
		if t.condition != nil && i.alive && t.condition() {
			t.condition = nil
			i.world.resumeTask(t, true)
		}
	}
}

func (q *workQueue) add(request reconcile.Request) {
	if q.dirty[request] {
		return
	}
	q.dirty[request] = true
	if q.processing[request] != nil {
		return
	}
	q.queue = append(q.queue, request)
	q.instance.After(q.instance.world.scheduling.Between(0, time.Millisecond), q.startNext)
}

func (q *workQueue) startNext() {
	if len(q.queue) == 0 || len(q.processing) >= workers {
		return
	}
	request := q.queue[0]
	q.queue = q.queue[1:]
	delete(q.dirty, request)
	running := &reconciliation{}
	q.processing[request] = running
	i := q.instance
	i.world.reconciliations++
	i.world.spawn(i, fmt.Sprintf("%s/%09d", request, i.world.reconciliations), func() {
		i.world.runningTask.reconciliation = running
		skipped := !i.Shards.Holds(request.Namespace)
		result, err := q.controller.Reconcile(context.Background(), request)
		i.world.Publish(Reconciled{Instance: i.Name, Release: request.NamespacedName, Result: result, Err: err, Skipped: skipped})
		q.finish(request, result, err)
	})
}

func (q *workQueue) finish(request reconcile.Request, result reconcile.Result, err error) {
	i := q.instance
	running := q.processing[request]
	delete(q.processing, request)
	q.requeued[request] = result.RequeueAfter > 0
	switch {
	case errors.Is(err, reconcile.TerminalError(nil)):
	case err != nil:
		i.world.Trace("  %s: %v", request.Name, err)
		wait := longestBackoff
		if n := q.failures[request]; n < 20 {
			wait = min(longestBackoff, firstBackoff<<n)
		}
		q.failures[request]++
		q.addAfter(request, wait)
	case result.RequeueAfter > 0:
		delete(q.failures, request)
		q.addAfter(request, result.RequeueAfter)
	default:
		delete(q.failures, request)
	}
	q.checkLostChanges(request, running)
	if q.dirty[request] {
		q.queue = append(q.queue, request)
	}
	i.After(0, q.controller.Flush)
	if len(q.queue) > 0 {
		i.After(0, q.startNext)
	}
}

// addAfter requests a reconciliation after a delay. Of several such requests, the earliest applies.
func (q *workQueue) addAfter(request reconcile.Request, wait time.Duration) {
	at := q.instance.world.now.Add(wait)
	if old := q.timers[request]; old != nil && old.index >= 0 {
		if !old.at.After(at) {
			return
		}
		q.instance.world.agenda.cancel(old)
	}
	q.timers[request] = q.instance.After(wait, func() { q.add(request) })
}

// callHook implements store.Hook for the requests of Serin: during each of them simulated time may pass, the request may fail,
// or the process may crash.
type callHook struct{ *World }

// Before implements store.Hook.
func (w callHook) Before(call store.Call) store.Fault {
	t := w.runningTask
	if t == nil || call.Actor != t.instance.Name {
		return store.Fault{}
	}
	i := t.instance
	if call.Cached {
		w.preempt()
	}
	if t.reconciliation != nil && call.Read() {
		t.reconciliation.recordRead(call)
	}
	if call.Read() && w.unreadable[call.Kind] {
		return store.Fault{Err: store.Forbidden(call)}
	}
	if call.Cached {
		return store.Fault{}
	}
	if i.isFenced(call) { // the request is not sent
		w.checkWriteAttempt(t, call)
		return store.Fault{Err: fence.ErrNotLeader}
	}
	w.callCount++
	w.Publish(RequestSent{Instance: i.Name, Call: call})
	if call.Read() {
		w.Trace("  %s → %s %s %s", i.Name, call.Verb, strings.ToLower(call.Kind.Kind), call.Key.Name)
	}
	faults := w.Faults
	latency := w.scheduling.Skewed(callLatency/4, callLatency*4)
	if faults.Inject(SlowCalls) {
		latency = faults.Stream(SlowCalls).Between(time.Second, slowCallLatency)
	}
	w.Sleep(latency / 2)
	switch {
	case i.isFenced(call): // the process was suspended before the request left it
		return store.Fault{Err: fence.ErrNotLeader}
	case w.faultScheduled(CrashBefore), faults.Inject(Crashes):
		w.crashRunningTask(i, "before "+describe(call))
	case faults.Inject(FailBefore):
		return w.failCall(call, "failed without any effect", Pick(faults.Stream(FailBefore), store.ServerError, store.Unavailable, store.Timeout)(call))
	case faults.Inject(Throttled):
		return w.failCall(call, "429", store.TooManyRequests(call, time.Second))
	case !call.Read() && (w.faultScheduled(FailConflict) || faults.Inject(Conflicts)):
		return w.failCall(call, "conflict", store.Conflict(call))
	case i.isForbidden(call):
		return w.failCall(call, "403", store.Forbidden(call))
	}
	return store.Fault{}
}

// After implements store.Hook.
func (w callHook) After(call store.Call, err error) store.Fault {
	t := w.runningTask
	if t == nil || call.Actor != t.instance.Name || call.Cached {
		return store.Fault{}
	}
	faults := w.Faults
	switch {
	case w.faultScheduled(CrashAfter), err == nil && faults.Inject(Crashes):
		w.crashRunningTask(t.instance, "after "+describe(call))
	case err == nil && !call.Read() && (w.faultScheduled(LoseResponse) || faults.Inject(FailAfter)):
		return w.failCall(call, "took effect, but the response was lost", Pick(faults.Stream(FailAfter), store.ServerError, store.Timeout)(call))
	}
	w.Sleep(w.scheduling.Skewed(0, callLatency))
	return store.Fault{}
}

// faultScheduled reports whether this fault is scheduled for the current request.
func (w *World) faultScheduled(how Failure) bool {
	return slices.Contains(w.options.ScheduledFaults, ScheduledFault{w.callCount, how})
}

// CountQuery counts a query that a process sends. The returned function reports whether a given fault is scheduled for it.
func (w *World) CountQuery(name string) (scheduled func(Failure) bool) {
	w.queries = append(w.queries, name)
	n := len(w.queries)
	return func(how Failure) bool { return slices.Contains(w.options.ScheduledFaults, ScheduledFault{n, how}) }
}

// CrashAndRestart crashes the process and starts it again after a while.
func (i *Instance) CrashAndRestart(why string) {
	i.Crash(why)
	i.world.restart(i.Name)
}

func (w *World) failCall(call store.Call, how string, err error) store.Fault {
	w.Trace("  %s: %s", describe(call), how)
	w.Publish(RequestFailed{Call: call, Reason: how})
	return store.Fault{Err: err}
}

// crashRunningTask crashes the process of the running task, and ends the task.
func (callHook) crashRunningTask(i *Instance, why string) {
	i.CrashAndRestart(why)
	runtime.Goexit()
}

// isForbidden draws whether this process loses its permission to write a kind, which lasts for a while.
func (i *Instance) isForbidden(call store.Call) bool {
	w := i.world
	if w.Faults.ended {
		return false
	}
	if w.now.Before(i.forbiddenUntil) {
		return call.Kind == i.forbiddenKind && !call.Read()
	}
	if call.Read() || !w.Faults.Inject(Forbidden) {
		return false
	}
	i.forbiddenKind, i.forbiddenUntil = call.Kind, w.now.Add(w.Faults.Stream(Forbidden).Between(time.Second, 2*time.Minute))
	return true
}

func describe(c store.Call) string {
	verb := c.Verb
	if c.Subresource != "" {
		verb += " " + c.Subresource
	}
	return fmt.Sprintf("%s %s %s", verb, c.Kind.Kind, c.Key.Name)
}

// wallClock is the clock of a process: the time of the world plus the skew of the process.
type wallClock struct {
	world    *World
	instance *Instance
}

// monotonic is the monotonic clock of all processes.
type monotonic struct{ *World }

func (m monotonic) Now() time.Time                  { return m.now }
func (m monotonic) Since(t time.Time) time.Duration { return m.now.Sub(t) }

func (c *wallClock) Now() time.Time                  { return c.world.now.Add(c.instance.skew) }
func (c *wallClock) Since(t time.Time) time.Duration { return c.Now().Sub(t) }
