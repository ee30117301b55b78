package sim

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"time"
)

// task is a reconciliation or another activity of a process that may be in progress while simulated time passes. It has its own
// goroutine, but runs only while the world has handed control to it, and returns control when it waits. So exactly one
// goroutine runs at any time, and the agenda alone determines which.
type task struct {
	*thread

	instance *Instance
	name     string
	run      func()
	done     bool
	// condition is what the task waits for, unless it waits for a point in time.
	condition func() bool
	// reconciliation is nil for other activities.
	reconciliation *reconciliation
}

// spawn runs a task until it waits for the first time, or to its end.
func (w *World) spawn(of *Instance, name string, run func()) {
	t := &task{instance: of, name: name, run: run, thread: w.acquireThread()}
	t.task = t
	of.tasks[t] = true
	w.resumeTask(t, true)
}

// thread is a goroutine that runs one task after another. Reusing a goroutine avoids growing its stack again.
type thread struct {
	task    *task
	resume  chan bool // true: start or continue; false: exit immediately
	yielded chan struct{}
}

// acquireThread returns an idle thread, or a new one.
func (w *World) acquireThread() *thread {
	if last := len(w.idleThreads) - 1; last >= 0 {
		idle := w.idleThreads[last]
		w.idleThreads = w.idleThreads[:last]
		return idle
	}
	th := &thread{resume: make(chan bool), yielded: make(chan struct{})}
	go func() {
		for range th.resume {
			w.runTask(th.task)
		}
	}()
	return th
}

// runTask runs a task and then returns control to the world. If the task is killed, its thread ends as well.
func (w *World) runTask(t *task) {
	killed := true
	defer func() {
		if cause := recover(); cause != nil {
			w.panics = append(w.panics, fmt.Sprintf("%s panicked: %v\n%s", t.name, cause, debug.Stack()))
			killed = false
		}
		t.done = true
		if !killed {
			w.idleThreads = append(w.idleThreads, t.thread)
		}
		t.yielded <- struct{}{}
	}()
	t.run()
	killed = false
}

// closeThreads ends all idle threads.
func (w *World) closeThreads() {
	for _, th := range w.idleThreads {
		close(th.resume)
	}
	w.idleThreads = nil
}

// resumeTask hands control to a task until it waits or ends.
func (w *World) resumeTask(t *task, alive bool) {
	before := w.runningTask
	w.runningTask = t
	t.resume <- alive
	<-t.yielded
	w.runningTask = before
	if t.done {
		delete(t.instance.tasks, t)
	}
}

// yield returns control to the world until the task is resumed. In a process that crashed it never returns.
func (w *World) yield() {
	t := w.runningTask
	t.yielded <- struct{}{}
	if !<-t.resume {
		runtime.Goexit() // unlike a panic, it cannot be recovered
	}
}

// Sleep suspends the running task for d. Outside a task it does nothing.
func (w *World) Sleep(d time.Duration) {
	t := w.runningTask
	if t == nil || d <= 0 {
		return
	}
	t.instance.After(d, func() { w.resumeTask(t, true) })
	w.yield()
}

// WaitUntil suspends the running task until a condition is met. The condition is evaluated after each event that is delivered
// to the task's instance.
func (w *World) WaitUntil(met func() bool) {
	t := w.runningTask
	if t == nil || met() {
		return
	}
	t.condition = met
	w.yield()
}

// killTasks ends all tasks of an instance immediately, except for the running one, which ends itself.
func (i *Instance) killTasks() {
	for _, t := range i.sortedTasks() {
		if !t.done && t != i.world.runningTask {
			i.world.resumeTask(t, false)
		}
	}
}
