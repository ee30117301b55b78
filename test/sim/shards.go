package sim

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/serin-dev/serin/internal/fence"
	"github.com/serin-dev/serin/internal/sharding"
	"github.com/serin-dev/serin/test/sim/store"
)

// shardLease is the Lease of the only shard: all releases of a run belong to it.
const shardLease = "serin"

// The bounds of a move of the shard, as in package sharding.
const (
	drainTimeout  = 10 * time.Second
	drainInterval = 100 * time.Millisecond
)

// newHeld returns the shards that a new process holds: none yet. Without moves, processes are not sharded.
func (w *World) newHeld() *sharding.Held {
	if !w.sharded {
		return nil
	}
	return sharding.NewHeld([]string{shardLease})
}

// acquire makes a process the one that reconciles all releases. Its memory of what it did before an earlier loss is as outdated as
// that of a process that has just started.
func (i *Instance) acquire() {
	w := i.world
	w.holder, i.draining, i.drained = i, false, false
	if i.Shards != nil {
		i.Shards.Acquire(0)
	}
	w.Publish(ProcessStarted{Instance: i.Name})
	i.requeueAll()
}

// requeueAll requeues all objects, as package sharding does when a process acquires or loses a shard.
func (i *Instance) requeueAll() {
	for _, r := range i.controllers {
		for _, kind := range r.controller.Watches() {
			for _, object := range i.Cache.Objects(kind) {
				for _, request := range r.controller.RequestsFor(store.Change{Kind: kind, Key: types.NamespacedName{Namespace: object.Meta().Namespace, Name: object.Meta().Name}, New: object}) {
					r.add(request)
				}
			}
		}
	}
}

// isReconciling reports whether a reconciliation is running.
func (i *Instance) isReconciling() bool {
	return slices.ContainsFunc(i.controllers, func(r *workQueue) bool { return len(r.processing) > 0 })
}

// moveShard starts a second process. The shard moves to it, and in half of the cases back to the first one. After that, the
// process that does not hold the shard is scaled down.
func (w *World) moveShard(s *Stream) {
	if len(w.instances) != 1 || w.instances[0].suspended {
		return
	}
	first := w.instances[0]
	second := w.startStandby(first.Name + "'")
	w.After(s.Between(0, 20*time.Second), func() { w.handOver(first, second) })
	if s.Chance(0.5) {
		w.After(s.Between(30*time.Second, 3*time.Minute), func() { w.handOver(second, first) })
	}
	w.After(s.Between(3*time.Minute, 6*time.Minute), func() {
		for _, i := range slices.Clone(w.instances) {
			if i != w.holder && !i.suspended && len(w.instances) > 1 {
				i.Crash("it is scaled down")
			}
		}
	})
}

// handOver moves the shard from one process to another: the first one begins no reconciliation, waits for the running ones, and
// releases the Lease.
func (w *World) handOver(from, to *Instance) {
	if !from.alive || !to.alive || from.suspended || w.holder != from || from.draining {
		return
	}
	w.Trace("%s is to hand the shard over to %s", from.Name, to.Name)
	from.draining = true
	from.Shards.Lose(0)
	from.requeueAll()
	deadline := w.now.Add(drainTimeout)
	var release func()
	release = func() {
		switch {
		case !from.alive || !from.draining: // it has crashed, or acquired the shard again
		case from.isReconciling() && w.now.Before(deadline):
			from.After(drainInterval, release)
		case !to.alive:
			from.acquire()
		default:
			from.draining, from.drained = false, !from.isReconciling()
			from.fence = fence.New(monotonic{w}, leaseDuration, shardLease) // closed, as after the release of the Lease
			w.Publish(ShardLost{Instance: from.Name})
			to.acquire()
		}
	}
	release()
}

// replaceHolder lets another process acquire the shard of one that has crashed, when its Lease has expired.
func (w *World) replaceHolder() {
	w.holder = nil
	if !w.sharded {
		return
	}
	w.After(leaseDuration, func() {
		if w.holder == nil && len(w.instances) > 0 && !w.instances[0].suspended {
			w.instances[0].acquire()
		}
	})
}

// reacquire lets a process that resumes, and that no other process has replaced, acquire the Lease again.
func (i *Instance) reacquire() {
	w := i.world
	if w.holder != nil {
		return
	}
	if i.Shards == nil {
		w.holder = i
		return
	}
	i.Shards.Lose(0)
	var acquire func()
	acquire = func() {
		switch {
		case w.holder != nil || !i.alive:
		case i.isReconciling():
			i.After(drainInterval, acquire)
		default:
			w.Publish(ShardLost{Instance: i.Name})
			i.acquire()
		}
	}
	acquire()
}

// checkWriteAttempt is I40: a process that has released the shard reconciles nothing. The fence would refuse its writes, but is
// there for processes that cannot know.
func (w *World) checkWriteAttempt(t *task, call store.Call) {
	if i := t.instance; i.drained && w.holder != i && t.reconciliation != nil {
		w.Violate("I40", "%s reconciles %s, although it has released the shard: %s", i.Name, t.name, describe(call))
	}
}
