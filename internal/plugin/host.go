package plugin

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"github.com/serin-dev/serin/internal/fairshare"
	"github.com/serin-dev/serin/internal/outbound"
)

const (
	// maxConcurrentCalls is the number of calls of one plugin that are in progress at a time. Namespaces share it.
	maxConcurrentCalls = 32
	// minBackoff and maxBackoff limit the time until a process is started again. It doubles with each failure, and is reset
	// by a process that has run for stableAfter.
	minBackoff  = time.Second
	maxBackoff  = 5 * time.Minute
	stableAfter = 10 * time.Minute
	// maxTextBytes is the maximum size of texts of plugins that users see.
	maxTextBytes = 4 << 10
)

// Options are the settings of a Host.
type Options struct {
	// Dir is a directory for downloaded files, SocketDir one for sockets; the default is that for temporary files.
	Dir, SocketDir string
	// CallTimeout is the timeout of each call, StartTimeout the time that a process has until it has announced its address, and then
	// for its initialization. They must be positive.
	CallTimeout, StartTimeout time.Duration
	// Launcher is the program that calls Launch if its first argument is LaunchArgument: Serin itself.
	Launcher string
	// MemoryLimit is the maximum size of the writable memory of each process, in bytes; 0: no limit.
	MemoryLimit uint64
	// UID is the user and the group of the processes; 0: those of Serin.
	UID    int
	Clock  clock.PassiveClock
	Logger logr.Logger
	// Metrics record calls and processes; nil: nothing does.
	Metrics Metrics
	// Client downloads files, ReadSecret reads the Secrets with headers.
	Client     *outbound.Client
	ReadSecret func(ctx context.Context, name string) (map[string][]byte, error)
}

// Metrics record the calls and the processes of plugins. kind is the list of the configuration that contains the plugin. plugin is a
// configured name or unknownPlugin: other names are chosen by users, who could add any number of series.
type Metrics interface {
	RecordPluginCall(plugin, kind, outcome string, took time.Duration)
	// CountPluginStart counts an attempt to start a process, CountPluginEnd the end of a process that has been running.
	CountPluginStart(plugin, kind, outcome string)
	CountPluginEnd(plugin, kind string)
}

// The outcomes of calls and starts.
const (
	outcomeSuccess = "success"
	// outcomeError is the outcome of a call without an answer, or whose answer is an error or is not usable.
	outcomeError = "error"
	// outcomeRefused is the outcome of a call that was not sent: the plugin is not configured, cannot be started, or is busy.
	outcomeRefused = "refused"
)

// unknownPlugin is the name under which calls of plugins that are not configured are recorded. It is not a valid name of a plugin.
const unknownPlugin = "unknown"

// noMetrics records nothing.
type noMetrics struct{}

func (noMetrics) RecordPluginCall(_, _, _ string, _ time.Duration) {}
func (noMetrics) CountPluginStart(_, _, _ string)                  {}
func (noMetrics) CountPluginEnd(_, _ string)                       {}

// Host runs the processes of plugins. Its methods are safe for concurrent use. The functions that call a plugin wait until its
// answer, and must not be called by a worker of a reconciler.
type Host struct {
	options Options
	store   store
	ctx     context.Context //nolint:containedctx // the lifetime of all processes
	stop    context.CancelFunc
	owners  sync.WaitGroup

	mu      sync.Mutex
	config  Config
	plugins map[pluginKey]*pluginState
}

type pluginKey struct {
	kind Kind
	name string
}

// pluginState is the process of one plugin, and its failures.
type pluginState struct {
	// starting is held while a process is started.
	starting *fairshare.Semaphore
	calls    *fairshare.Semaphore

	// The fields below are protected by Host.mu.
	process  *process
	failures int
	retryAt  time.Time
	lastErr  error
}

// NewHost returns a Host without processes. They end with ctx at the latest. Configure must be called before calls.
func NewHost(ctx context.Context, o Options) *Host {
	registerWireTypes()
	if o.Metrics == nil {
		o.Metrics = noMetrics{}
	}
	ctx, stop := context.WithCancel(ctx)
	return &Host{
		options: o, store: store{filepath.Clean(o.Dir), o.Client, o.ReadSecret}, ctx: ctx, stop: stop,
		config: ParseConfig(nil), plugins: map[pluginKey]*pluginState{},
	}
}

// Close ends all processes and waits for their end.
func (h *Host) Close() {
	h.stop()
	h.owners.Wait()
}

// errReconfigured is the cause for which a process ends, and for which a call that waited for its start is refused.
var errReconfigured = errors.New("its configuration has changed: the next call uses the present one")

// Configure sets the configuration. Processes of plugins that it no longer contains, or that it changes, end; those that are
// being started end after that.
func (h *Host) Configure(c Config) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.config = c
	for key, state := range h.plugins {
		item, err := c.Find(key.kind, key.name)
		if err == nil && (state.process == nil || item.isSame(state.process.item)) && !item.Disabled {
			state.retryAt = time.Time{} // the correction may be elsewhere
			continue
		}
		if state.process != nil {
			state.process.end(errReconfigured)
		}
		delete(h.plugins, key)
	}
}

// Find returns the configuration of a plugin. The error is a RefusedError.
func (h *Host) Find(kind Kind, name string) (Item, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.config.Find(kind, name)
}

// call calls a method of a plugin for a namespace. check returns the error in the reply, or the reason why the reply is not usable. The
// error is a RefusedError if there was no call, and otherwise a CallError. Unless check returned it, the reply must not be read then: it
// may still be written.
func (h *Host) call(ctx context.Context, key pluginKey, namespace, method string, args, reply any, check func() error) error {
	began := h.options.Clock.Now()
	err := h.send(ctx, key, namespace, method, args, reply)
	if err == nil {
		if cause := check(); cause != nil {
			err = &CallError{method, cause}
		}
	}
	outcome := outcomeError
	if err == nil {
		outcome = outcomeSuccess
	} else if _, refused := errors.AsType[*RefusedError](err); refused {
		outcome = outcomeRefused
	}
	h.options.Metrics.RecordPluginCall(h.recordedName(key), string(key.kind), outcome, h.options.Clock.Since(began))
	return err
}

// recordedName returns the name under which calls of a plugin are recorded.
func (h *Host) recordedName(key pluginKey) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.config.contains(key.kind, key.name) {
		return unknownPlugin
	}
	return key.name
}

func (h *Host) send(caller context.Context, key pluginKey, namespace, method string, args, reply any) error {
	ctx, cancel := context.WithTimeoutCause(caller, h.options.CallTimeout, fmt.Errorf("no answer within %s", h.options.CallTimeout))
	defer cancel()
	state, err := h.state(key)
	if err != nil {
		return err
	}
	done, err := state.calls.Acquire(ctx, namespace)
	if err != nil {
		return &RefusedError{key.name, fmt.Errorf("%d calls of it are in progress: %w", maxConcurrentCalls, context.Cause(ctx))}
	}
	defer done()
	p, err := h.running(ctx, key, state, namespace)
	if err != nil {
		return &RefusedError{key.name, err}
	}
	wrapped := args // arguments are sent as a value of an interface
	err = p.call(ctx, method, &wrapped, reply)
	if err == nil {
		return nil
	}
	if errors.Is(err, errAbandoned) && p.ended.Err() == nil {
		if !restartAfterLateCall(caller, key.kind, p) {
			h.owners.Go(func() { p.restartIfHanging(h.ctx) })
		}
		err = context.Cause(ctx)
	}
	return &CallError{method, err}
}

// state returns the state of a configured plugin, and creates it. The error is a RefusedError.
func (h *Host) state(key pluginKey) (*pluginState, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, err := h.config.Find(key.kind, key.name); err != nil {
		return nil, err
	}
	state := h.plugins[key]
	if state == nil {
		state = &pluginState{starting: fairshare.NewSemaphore(1), calls: fairshare.NewSemaphore(maxConcurrentCalls)}
		h.plugins[key] = state
	}
	return state, nil
}

// running returns the process of a plugin, and starts it if necessary.
func (h *Host) running(ctx context.Context, key pluginKey, state *pluginState, namespace string) (*process, error) {
	done, err := state.starting.Acquire(ctx, namespace)
	if err != nil {
		return nil, fmt.Errorf("its process has not started yet: %w", context.Cause(ctx))
	}
	defer done()
	p, item, err := h.runningOrDue(key, state)
	if p != nil || err != nil {
		return p, err
	}
	path, err := h.store.provide(h.ctx, item) //nolint:contextcheck // the file is for all callers: one that gives up does not end the download
	if err == nil {
		err = checkExecutable(path)
	}
	if err == nil {
		p, err = h.startProcess(key.kind, item, path) //nolint:contextcheck // the process is for all callers
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if current, findErr := h.config.Find(key.kind, key.name); h.plugins[key] != state || findErr != nil || !current.isSame(item) {
		if p != nil {
			p.end(errReconfigured)
		}
		return nil, errReconfigured // also if the former configuration cannot be started: the present one has not failed
	}
	state.lastErr = err
	if err != nil {
		h.options.Metrics.CountPluginStart(key.name, string(key.kind), outcomeError)
		h.recordFailure(state, h.options.Clock.Now())
		return nil, fmt.Errorf("it cannot be started: %w", err)
	}
	state.process = p
	return p, nil
}

// runningOrDue returns the running process, or nil if one is to be started now.
func (h *Host) runningOrDue(key pluginKey, state *pluginState) (*process, Item, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	item, err := h.config.Find(key.kind, key.name)
	if err != nil {
		return nil, item, errors.Unwrap(err)
	}
	if h.plugins[key] != state {
		return nil, item, errReconfigured
	}
	if p := state.process; p != nil {
		if p.ended.Err() == nil {
			return p, item, nil
		}
		endedAt := p.endedAt.Load()
		if endedAt == nil {
			return nil, item, errShuttingDown
		}
		if endedAt.Sub(p.startedAt) > stableAfter {
			state.failures = 0
		}
		state.process, state.lastErr = nil, context.Cause(p.ended)
		if !errors.Is(state.lastErr, errUnanswered) { // the call has already waited for its timeout: others need not wait, too
			h.recordFailure(state, *endedAt)
		}
	}
	if h.options.Clock.Now().Before(state.retryAt) {
		return nil, item, fmt.Errorf("it is started again at %s: %w", state.retryAt.UTC().Format(time.TimeOnly), state.lastErr)
	}
	return nil, item, nil
}

// recordFailure sets the time at which the process may be started again, after a failure at a given time.
func (h *Host) recordFailure(state *pluginState, at time.Time) {
	backoff := min(minBackoff<<min(state.failures, 16), maxBackoff)
	state.failures++
	state.retryAt = at.Add(backoff)
}

// Processes returns the names of the plugins whose process is running, sorted.
func (h *Host) Processes() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	running := map[string]bool{}
	for key, state := range h.plugins {
		if state.process != nil && state.process.ended.Err() == nil {
			running[key.name] = true
		}
	}
	return slices.Sorted(maps.Keys(running))
}
