package sim

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// leaseDuration is how long a process remains the leader without renewing its lease.
const leaseDuration = 15 * time.Second

// scheduleProcessFaults schedules the faults of processes: they crash, are suspended while another process becomes the leader,
// and have their clocks set.
func (w *World) scheduleProcessFaults() {
	for _, fault := range []struct {
		class  FaultClass
		every  time.Duration
		inject func(*Stream)
	}{
		{Crashes, 4 * time.Minute, func(*Stream) { w.crashLeader() }},
		{Pauses, 6 * time.Minute, w.suspendLeader},
		{ClockJumps, 5 * time.Minute, w.jumpClocks},
		{Moves, 6 * time.Minute, w.moveShard},
	} {
		w.ScheduleFaults(fault.class, fault.every, fault.inject)
	}
}

// ScheduleFaults injects faults of a class at the given mean interval. The details of each fault are drawn from a stream of its
// own.
func (w *World) ScheduleFaults(class FaultClass, every time.Duration, inject func(*Stream)) {
	if !w.Faults.Has(class) {
		return
	}
	w.After(w.Faults.Stream(class).Between(0, 2*every), func() {
		if w.Faults.Has(class) {
			if name, occurs := w.Faults.injectNext(class); occurs {
				inject(w.Draws.Stream(name))
			}
		}
		w.ScheduleFaults(class, every, inject)
	})
}

func (w *World) crashLeader() {
	if len(w.instances) == 0 {
		return
	}
	w.instances[0].CrashAndRestart("killed by the node")
}

// restart starts a process again after a while, unless another process is the leader by then.
func (w *World) restart(name string) {
	s := w.Draws.Stream(faultName("restart", w.sequence))
	w.After(s.Skewed(100*time.Millisecond, 40*time.Second), func() {
		if len(w.instances) == 0 {
			w.Start(name)
		}
	})
}

// outdatedList is a first list without the last writes, which the process observes after a delay.
type outdatedList struct {
	writes int
	delay  time.Duration
}

// OutdateFirstLists makes processes that start from now on begin with an outdated list of a kind: it lacks the last writes, which
// they observe after a delay.
func (w *World) OutdateFirstLists(kind schema.GroupKind, writes int, delay time.Duration) {
	if w.outdatedLists == nil {
		w.outdatedLists = map[schema.GroupKind]outdatedList{}
	}
	w.outdatedLists[kind] = outdatedList{writes, delay}
}

// ensureOneProcess leaves exactly one process running, the one that holds the Lease if there is one.
func (w *World) ensureOneProcess() {
	for _, i := range slices.Clone(w.instances) {
		if i != w.holder && len(w.instances) > 1 {
			i.Crash("it is not the leader")
		}
	}
	switch {
	case len(w.instances) == 0:
		w.Start("serin")
	case w.holder == nil:
		w.instances[0].acquire()
	case w.holder.draining: // it acquires the shard again when its running reconciliations have ended
		holder := w.holder
		w.holder = nil
		holder.reacquire()
	}
}

// suspendLeader suspends the leader. If the suspension is longer than the lease, another process becomes the leader; the first
// one resumes, and its workers continue until it notices that it lost the lease.
func (w *World) suspendLeader(s *Stream) {
	if len(w.instances) != 1 || w.instances[0].suspended {
		return
	}
	first := w.instances[0]
	duration := s.Between(time.Second, time.Minute)
	w.Trace("%s is suspended for %s", first.Name, duration)
	first.Suspend()
	if duration > leaseDuration {
		w.After(leaseDuration, func() {
			if first.alive && first.suspended && !w.Faults.ended {
				w.Start(first.Name + "'")
			}
		})
	}
	w.After(duration, func() {
		if !first.alive || !first.suspended {
			return
		}
		w.Trace("%s resumes", first.Name)
		first.Resume()
	})
	w.After(duration+s.Between(0, 5*time.Second), func() {
		if first.alive && len(w.instances) > 1 {
			first.Crash("it lost the lease")
		}
	})
}

// jumpClocks sets the clock of the node, and so of all processes.
func (w *World) jumpClocks(s *Stream) {
	by := Pick(s, time.Second, 10*time.Second, time.Minute, time.Hour, 24*time.Hour)
	if s.Chance(0.5) {
		by = -by
	}
	for _, i := range w.instances {
		i.setClock(i.skew + by)
	}
}

// SetClocks sets the clocks of all processes to a time that differs from that of the world by skew.
func (w *World) SetClocks(skew time.Duration) {
	for _, i := range w.instances {
		i.setClock(skew)
	}
}

func (i *Instance) setClock(skew time.Duration) {
	i.world.Trace("the clock of %s is set by %s", i.Name, skew-i.skew)
	i.skew, i.world.clockSet = skew, true
	i.world.Publish(ClockChanged{i.Name})
}

// MaxLag returns how much later than usual a process of this run may act on what it observed.
func (w *World) MaxLag() time.Duration {
	if w.options.FaultFree { // only scheduled faults cause a delay
		return time.Duration(len(w.options.ScheduledFaults)) * 10 * time.Second
	}
	var total time.Duration
	for _, lag := range []struct {
		class FaultClass
		by    time.Duration
	}{
		{LateEvents, 25 * time.Second},
		{Relists, 25 * time.Second},
		{Repeats, 25 * time.Second},
		{SlowCalls, 40 * time.Second},
		{Pauses, 70 * time.Second},
		{Moves, 70 * time.Second},
		{Crashes, 10 * time.Second},
		{FailBefore, 10 * time.Second},
		{FailAfter, 10 * time.Second},
		{Throttled, 10 * time.Second},
		{Forbidden, 10 * time.Second},
		{Conflicts, 10 * time.Second},
	} {
		if w.Faults.Has(lag.class) {
			total += lag.by
		}
	}
	return total
}
