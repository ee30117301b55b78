package loadtester

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"sync"

	"github.com/serin-dev/serin/internal/telemetry"
)

const (
	// maxRunning bounds the tasks that run at once; whoever wants more is asked to come back.
	maxRunning = 256
	// answersKept bounds the answers that are remembered for questions that come again.
	answersKept = 256
)

var (
	errBusy    = fmt.Errorf("%d tasks run already: try again later", maxRunning)
	errStopped = errors.New("the load tester stops")
)

// result is what came of a task.
type result struct {
	output string
	// err is nil where the task succeeded; a person may read it.
	err error
}

// run is a task under way, or one that is over.
type run struct {
	done chan struct{}
	// result may be read once done is closed.
	result result
}

// runs is what is under way: each task once, no more than maxRunning, all of them waited for.
type runs struct {
	// life ends when the load tester stops, and with it every task.
	life context.Context //nolint:containedctx // tasks outlive the requests that begin them, and end with the process
	all  sync.WaitGroup

	mu      sync.Mutex
	closed  bool
	running int
	known   map[string]*run
	kept    []string // the names of runs that are over and answered yes, the oldest first
}

func newRuns(life context.Context) *runs { return &runs{life: life, known: map[string]*run{}} }

// start begins a task, unless one of that name runs: then that is it, and fresh is false. Where keep is said, one that
// was successful stays known, and is the answer to who comes again. An empty name is nobody's but the caller's.
func (r *runs) start(name string, keep bool, do func(context.Context) result) (of *run, fresh bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if known := r.known[name]; known != nil {
		return known, false, nil
	}
	switch {
	case r.closed:
		return nil, false, errStopped
	case r.running >= maxRunning:
		return nil, false, errBusy
	}
	of = &run{done: make(chan struct{})}
	if name != "" {
		r.known[name] = of
	}
	r.running++
	r.all.Go(func() {
		of.result = guarded(r.life, do)
		r.ended(name, of, keep)
	})
	return of, true, nil
}

func (r *runs) ended(name string, of *run, keep bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	defer close(of.done)
	r.running--
	switch {
	case name == "":
		return
	case !keep || of.result.err != nil:
		delete(r.known, name)
		return
	}
	of.result.output = clip(of.result.output)
	r.kept = append(r.kept, name)
	if len(r.kept) > answersKept {
		delete(r.known, r.kept[0])
		r.kept = slices.Delete(r.kept, 0, 1)
	}
}

// clip is the part of an output that is remembered.
func clip(text string) string { return text[:min(len(text), 4<<10)] }

// guarded makes a failure of a panic: a fault in one task must not end the others.
func guarded(ctx context.Context, do func(context.Context) result) (came result) {
	defer func() {
		if fault := recover(); fault != nil {
			came = result{err: fmt.Errorf("%w\n%s", telemetry.PanicError(fault), debug.Stack())}
		}
	}()
	return do(ctx)
}

// wait refuses new tasks and returns when none runs any more. The end of life makes them end.
func (r *runs) wait() {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.all.Wait()
}
