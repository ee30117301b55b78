package sim

import (
	"slices"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/serin-dev/serin/test/sim/store"
)

// reconciliation is one reconciliation in progress.
type reconciliation struct {
	// reads are the objects and lists that it has read. missed are the changes of them that were delivered since, without requeueing
	// the release.
	reads  []store.Call
	missed []store.Change
}

// recordRead records a read, which shows all changes that were delivered before.
func (r *reconciliation) recordRead(call store.Call) {
	r.reads = append(r.reads, call)
	r.missed = slices.DeleteFunc(r.missed, func(change store.Change) bool { return returns(call, change) })
}

// recordMissed records a change that does not requeue the release, if the reconciliation has read the object.
func (r *reconciliation) recordMissed(change store.Change) {
	if slices.ContainsFunc(r.reads, func(call store.Call) bool { return returns(call, change) }) {
		r.missed = append(r.missed, change)
	}
}

// returns reports whether a read returns the changed object, if it selects it.
func returns(call store.Call, change store.Change) bool {
	return change.Kind == call.Kind && (call.Key.Name == "" || call.Key == change.Key)
}

// enqueueChange queues what a change affects.
func (q *workQueue) enqueueChange(change store.Change) {
	var affected []reconcile.Request
	q.instance.world.outsideTask(func() { affected = q.controller.RequestsFor(change) })
	for _, request := range affected {
		q.add(request)
	}
	for request, running := range q.processing {
		if !slices.Contains(affected, request) {
			running.recordMissed(change)
		}
	}
}

// checkLostChanges is I39. At the end of a reconciliation, the process knows what the object depends on. A change that would
// requeue the object now, but was delivered before the process knew, is lost, unless the object is requeued anyway: because of
// a retry, or of another change that the watches will deliver, such as that of an own write.
func (q *workQueue) checkLostChanges(request reconcile.Request, ended *reconciliation) {
	i := q.instance
	if timer := q.timers[request]; len(ended.missed) == 0 || q.dirty[request] || timer != nil && timer.index >= 0 && timer.at.Sub(i.world.now) <= longestBackoff {
		return
	}
	i.world.outsideTask(func() {
		affects := func(change store.Change) bool { return slices.Contains(q.controller.RequestsFor(change), request) }
		for _, kind := range i.Cache.Kinds() {
			if slices.ContainsFunc(i.Cache.Upcoming(kind), affects) {
				return
			}
		}
		for _, change := range ended.missed {
			if affects(change) {
				i.world.Violate("I39", "%s %s: it was delivered while %s was reconciled, which depends on it and did not notice it", change.Kind.Kind, change, request.Name)
			}
		}
	})
}

// outsideTask executes what other goroutines of a process do, such as handlers of events: it takes no simulated time.
func (w *World) outsideTask(run func()) {
	running := w.runningTask
	w.runningTask = nil
	run()
	w.runningTask = running
}

// maxPreemption is the maximum time for which a task is preempted.
const maxPreemption = 200 * time.Millisecond

// preempt lets simulated time pass before a read of a cache, as on a busy machine: events may arrive between two reads.
func (w *World) preempt() {
	if w.Faults.Inject(Preemption) {
		w.Sleep(w.Faults.Stream(Preemption).Between(0, maxPreemption))
	}
}
