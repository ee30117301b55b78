package sim

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"time"
)

// task is one reconciliation, which may be in progress while simulated time passes. It runs in a goroutine
// of its own, but only while it has the baton: it gets it from the world and gives it back when it waits for something,
// so that at any moment one goroutine runs and the agenda alone says which.
type task struct {
	*thread

	of   *Instance
	name string
	run  func()
	over bool
	// until is what the task waits for, where that is not a moment.
	until func() bool
}

// spawn runs a task until it waits for the first time, or to its end.
func (w *World) spawn(of *Instance, name string, run func()) {
	t := &task{of: of, name: name, run: run, thread: w.thread()}
	t.runs = t
	of.tasks[t] = true
	w.goOn(t, true)
}

// thread is a goroutine that runs one task after the other: one that is used again need not let its stack grow again.
type thread struct {
	runs   *task
	resume chan bool // true: begin, or go on; false: die where you are
	back   chan struct{}
}

// thread gives one that has nothing to do.
func (w *World) thread() *thread {
	if last := len(w.resting) - 1; last >= 0 {
		rested := w.resting[last]
		w.resting = w.resting[:last]
		return rested
	}
	th := &thread{resume: make(chan bool), back: make(chan struct{})}
	go func() {
		for range th.resume {
			w.runTask(th.runs)
		}
	}()
	return th
}

// runTask gives the baton back at the end, also of a task that dies, and its thread with it.
func (w *World) runTask(t *task) {
	died := true
	defer func() {
		if cause := recover(); cause != nil {
			w.panics = append(w.panics, fmt.Sprintf("%s panicked: %v\n%s", t.name, cause, debug.Stack()))
			died = false
		}
		t.over = true
		if !died {
			w.resting = append(w.resting, t.thread)
		}
		t.back <- struct{}{}
	}()
	t.run()
	died = false
}

// rest ends the threads.
func (w *World) rest() {
	for _, th := range w.resting {
		close(th.resume)
	}
	w.resting = nil
}

// goOn hands the baton to a task and takes it back.
func (w *World) goOn(t *task, alive bool) {
	before := w.running
	w.running = t
	t.resume <- alive
	<-t.back
	w.running = before
	if t.over {
		delete(t.of.tasks, t)
	}
}

// wait gives the baton back until someone hands it on. It never returns in a process that died.
func (w *World) wait() {
	t := w.running
	t.back <- struct{}{}
	if !<-t.resume {
		runtime.Goexit() // unlike a panic it passes by all who recover
	}
}

// Sleep lets the running task wait for d; outside a task it does nothing.
func (w *World) Sleep(d time.Duration) {
	t := w.running
	if t == nil || d <= 0 {
		return
	}
	t.of.After(d, func() { w.goOn(t, true) })
	w.wait()
}

// Until lets the running task wait for a condition. It is evaluated after each event that reaches the
// task's instance.
func (w *World) Until(met func() bool) {
	t := w.running
	if t == nil || met() {
		return
	}
	t.until = met
	w.wait()
}

// kill ends all tasks of an instance where they are, the running one apart: that one ends itself.
func (i *Instance) kill() {
	for _, t := range i.inOrder() {
		if !t.over && t != i.world.running {
			i.world.goOn(t, false)
		}
	}
}
