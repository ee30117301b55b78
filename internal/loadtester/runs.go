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
	// maxRunning bounds the tasks that run at the same time; requests for more are answered with Retry-After.
	maxRunning = 256
	// maxStoredResults bounds the results that are stored for repeated requests.
	maxStoredResults = 256
)

var (
	errBusy    = fmt.Errorf("%d tasks are already running: try again later", maxRunning)
	errStopped = errors.New("the load tester is shutting down")
)

// result is the result of a task.
type result struct {
	output string
	// err is nil if the task succeeded. Its text is sent to the client.
	err error
}

// run is one execution of a task, running or completed.
type run struct {
	done chan struct{}
	// result may be read once done is closed.
	result result
}

// runs starts tasks and waits for them. It runs each named task once at a time, and at most maxRunning in total.
type runs struct {
	// tasksCtx is the context of all tasks. It ends when the load tester stops.
	tasksCtx  context.Context //nolint:containedctx // tasks outlive the requests that begin them, and end with the process
	waitGroup sync.WaitGroup

	mu          sync.Mutex
	closed      bool
	running     int
	known       map[string]*run
	storedNames []string // the names of successful runs whose results are stored, the oldest first
}

func newRuns(tasksCtx context.Context) *runs {
	return &runs{tasksCtx: tasksCtx, known: map[string]*run{}}
}

// start starts a task, unless a run of that name exists: then it returns that run, and fresh is false. If keep is set,
// the run remains known after it succeeded, so that its result answers repeated requests. A run with an empty name is
// never shared.
func (r *runs) start(name string, storeResult bool, do func(context.Context) result) (current *run, fresh bool, err error) {
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
	current = &run{done: make(chan struct{})}
	if name != "" {
		r.known[name] = current
	}
	r.running++
	r.waitGroup.Go(func() {
		current.result = runRecovered(r.tasksCtx, do)
		r.recordEnd(name, current, storeResult)
	})
	return current, true, nil
}

func (r *runs) recordEnd(name string, ended *run, storeResult bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	defer close(ended.done)
	r.running--
	switch {
	case name == "":
		return
	case !storeResult || ended.result.err != nil:
		delete(r.known, name)
		return
	}
	ended.result.output = truncate(ended.result.output)
	r.storedNames = append(r.storedNames, name)
	if len(r.storedNames) > maxStoredResults {
		delete(r.known, r.storedNames[0])
		r.storedNames = slices.Delete(r.storedNames, 0, 1)
	}
}

// truncate returns the part of an output that is stored.
func truncate(text string) string { return text[:min(len(text), 4<<10)] }

// runRecovered converts a panic into an error, because a panic in one task must not end the others.
func runRecovered(ctx context.Context, do func(context.Context) result) (taskResult result) {
	defer func() {
		if value := recover(); value != nil {
			taskResult = result{err: fmt.Errorf("%w\n%s", telemetry.PanicError(value), debug.Stack())}
		}
	}()
	return do(ctx)
}

// wait refuses new tasks and returns when all have ended. The tasks end when tasksCtx does.
func (r *runs) wait() {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.waitGroup.Wait()
}
