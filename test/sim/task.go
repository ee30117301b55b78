package sim

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"time"
)

// task is one pass of a controller that may be in the middle of something while the world goes on. It runs in a goroutine
// of its own, but only while it has the baton: it gets it from the world and gives it back when it waits for something,
// so that at any moment one goroutine runs and the agenda alone says which.
type task struct {
	of     *Instance
	name   string
	resume chan bool // true: go on; false: die where you are
	back   chan struct{}
	over   bool
	// until is what the task waits for, where that is not a moment.
	until func() bool
}

// spawn runs a task until it waits for the first time, or to its end.
func (w *World) spawn(of *Instance, name string, run func()) {
	t := &task{of: of, name: name, resume: make(chan bool), back: make(chan struct{})}
	of.tasks[t] = true
	go func() {
		defer func() {
			if cause := recover(); cause != nil {
				w.broken = append(w.broken, fmt.Sprintf("%s panicked: %v\n%s", name, cause, debug.Stack()))
			}
			t.over = true
			t.back <- struct{}{}
		}()
		if !<-t.resume {
			runtime.Goexit() // unlike a panic it passes by all who recover
		}
		run()
	}()
	w.goOn(t, true)
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

// wait gives the baton back until somebody hands it on. It never returns in a process that died.
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

// Until lets the running task wait until what it waits for is true. It is looked at after each event that reaches the
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
