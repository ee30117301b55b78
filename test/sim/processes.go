package sim

import (
	"time"
)

// leaseDuration is how long after its last renewal a process is still the leader.
const leaseDuration = 15 * time.Second

// scheduleProcessFaults schedules the faults of processes: they crash, sleep while another one leads, and have their clocks
// set.
func (w *World) scheduleProcessFaults() {
	for _, trouble := range []struct {
		class  FaultClass
		every  time.Duration
		happen func(*Stream)
	}{
		{Crashes, 4 * time.Minute, func(*Stream) { w.crashOne() }},
		{Pauses, 6 * time.Minute, w.pauseOne},
		{ClockJumps, 5 * time.Minute, w.jumpOne},
	} {
		w.ScheduleFaults(trouble.class, trouble.every, trouble.happen)
	}
}

// ScheduleFaults lets one class of faults strike about that often. What it does each time is drawn from a stream of its own.
func (w *World) ScheduleFaults(class FaultClass, every time.Duration, happen func(*Stream)) {
	if !w.Faults.Has(class) {
		return
	}
	w.After(w.Faults.Stream(class).Between(0, 2*every), func() {
		if w.Faults.Has(class) {
			if name, happens := w.Faults.next(class); happens {
				happen(w.Draws.Stream(name))
			}
		}
		w.ScheduleFaults(class, every, happen)
	})
}

func (w *World) crashOne() {
	if len(w.instances) == 0 {
		return
	}
	w.instances[0].CrashAndRestart("killed from outside")
}

// restart brings a process back after a while, unless another one leads by then.
func (w *World) restart(name string) {
	s := w.Draws.Stream(nth("restart", w.lives))
	w.After(s.Skewed(100*time.Millisecond, 40*time.Second), func() {
		if len(w.instances) == 0 {
			w.Start(name)
		}
	})
}

// leaveOneProcess makes sure that exactly one process lives.
func (w *World) leaveOneProcess() {
	for len(w.instances) > 1 {
		w.instances[0].Crash("it does not lead")
	}
	if len(w.instances) == 0 {
		w.Start("serin")
	}
}

// pauseOne lets the leader sleep. Another one leads when its Lease has expired; the first wakes up, and its workers continue
// until it notices that it lost the Lease.
func (w *World) pauseOne(s *Stream) {
	if len(w.instances) != 1 || w.instances[0].frozen {
		return
	}
	first := w.instances[0]
	asleep := s.Between(time.Second, time.Minute)
	w.Trace("%s sleeps for %s", first.Name, asleep)
	first.Freeze()
	if asleep > leaseDuration {
		w.After(leaseDuration, func() {
			if first.alive && first.frozen && !w.Faults.over {
				w.Start(first.Name + "'")
			}
		})
	}
	w.After(asleep, func() {
		if !first.alive || !first.frozen {
			return
		}
		w.Trace("%s wakes up", first.Name)
		first.Thaw()
	})
	w.After(asleep+s.Between(0, 5*time.Second), func() {
		if first.alive && len(w.instances) > 1 {
			first.Crash("it lost the lease")
		}
	})
}

// jumpOne sets the clock of the machine.
func (w *World) jumpOne(s *Stream) {
	by := Pick(s, time.Second, 10*time.Second, time.Minute, time.Hour, 24*time.Hour)
	if s.Chance(0.5) {
		by = -by
	}
	for _, i := range w.instances {
		w.Trace("the clock of %s is set by %s", i.Name, by)
		i.skew += by
		w.clockSet = true
		w.Publish(ClockChanged{i.Name})
	}
}

// Lags is how much later than usual a process of this run may act on what it saw.
func (w *World) Lags() time.Duration {
	if w.o.FaultFree { // only what strikes it makes anybody late
		return time.Duration(len(w.o.ScheduledFaults)) * 10 * time.Second
	}
	var lags time.Duration
	for _, lag := range []struct {
		class FaultClass
		by    time.Duration
	}{
		{LateEvents, 25 * time.Second},
		{Relists, 25 * time.Second},
		{Repeats, 25 * time.Second},
		{SlowCalls, 40 * time.Second},
		{Pauses, 70 * time.Second},
		{Crashes, 10 * time.Second},
		{FailBefore, 10 * time.Second},
		{FailAfter, 10 * time.Second},
		{Throttled, 10 * time.Second},
		{Forbidden, 10 * time.Second},
		{Conflicts, 10 * time.Second},
	} {
		if w.Faults.Has(lag.class) {
			lags += lag.by
		}
	}
	return lags
}
