// Package load contains built-in programs that generate load and check health. They have the names and command lines of
// well-known tools: hey for HTTP, ghz for gRPC, grpc_health_probe.
//
// It knows the flags that webhooks commonly use. It must not know webhooks, releases, or what reads the output.
package load

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/utils/clock"

	"github.com/serin-dev/serin/internal/outbound"
)

// maxWorkers bounds the concurrent requests of one program.
const maxWorkers = 2000

// Options are the dependencies of a program.
type Options struct {
	// Out receives the output of the program.
	Out   io.Writer
	Clock clock.Clock
	// Policy restricts the addresses to which requests are sent.
	Policy outbound.Policy
}

// A program parses its arguments and runs. It returns an error if it could not run, or if its check failed.
type program func(ctx context.Context, o Options, args []string) error

func programs() map[string]program {
	return map[string]program{"hey": hey, "ghz": ghz, "grpc_health_probe": healthProbe}
}

// Programs returns the names of the built-in programs, sorted.
func Programs() []string { return slices.Sorted(maps.Keys(programs())) }

// HasProgram reports whether there is a built-in program of that name.
func HasProgram(name string) bool { return programs()[name] != nil }

// Run runs the program that argv names, until it ends or ctx does.
func Run(ctx context.Context, o Options, argv []string) error {
	if len(argv) == 0 || !HasProgram(argv[0]) {
		return fmt.Errorf("unknown program: use one of %v", Programs())
	}
	return programs()[argv[0]](ctx, o, argv[1:])
}

// volume is the amount of load.
type volume struct {
	// workers is the number of concurrent requests.
	workers int
	// requests is the total number of requests; it is ignored if there is a duration.
	requests int
	duration time.Duration
	// rate is the total number of requests per second; 0: as many as are answered.
	rate float64
}

func (v volume) validate() error {
	switch {
	case v.workers < 1 || v.workers > maxWorkers:
		return fmt.Errorf("the number of workers (-c) must be from 1 to %d", maxWorkers)
	case v.duration < 0, v.duration == 0 && v.requests < 1:
		return fmt.Errorf("give a number of requests (-n) or a duration (-z)")
	case v.duration == 0 && v.requests < v.workers:
		return fmt.Errorf("the number of requests (-n) cannot be less than the number of workers (-c)")
	case v.rate < 0:
		return fmt.Errorf("a rate cannot be negative")
	default:
		return nil
	}
}

// requestFunc sends one request and returns its status for the distribution, or an error.
type requestFunc func(ctx context.Context) (status string, err error)

// generateLoad sends requests. It starts none after the duration, but waits for the answers to those in progress, because
// the server would count aborted requests as errors. The end of ctx aborts them.
func generateLoad(ctx context.Context, o Options, v volume, sendRequest requestFunc) *report {
	r := newReport()
	began := o.Clock.Now()
	starting, cancel := ctx, context.CancelFunc(func() {})
	if v.duration > 0 {
		starting, cancel = context.WithTimeout(ctx, v.duration)
	}
	defer cancel()
	limit := rate.Inf
	if v.rate > 0 {
		limit = rate.Limit(v.rate)
	}
	// All workers share one limiter, so that a slow answer does not lower the rate while another worker is free. Its burst
	// of 1 prevents a peak of load after a time in which all of them waited.
	pace := rate.NewLimiter(limit, 1)
	budget := newRequestBudget(v)
	var workers sync.WaitGroup
	for range v.workers {
		workers.Go(func() {
			for budget.take() && pace.Wait(starting) == nil && starting.Err() == nil {
				sent := o.Clock.Now()
				status, err := sendRequest(ctx)
				if ctx.Err() != nil {
					return // the request was aborted here, which is not an error of the server
				}
				r.add(o.Clock.Since(sent), status, err)
			}
		})
	}
	workers.Wait()
	r.duration = o.Clock.Since(began)
	return r
}

// requestBudget counts the requests that remain to be sent.
type requestBudget struct {
	mu        sync.Mutex
	remaining int
	unlimited bool
}

func newRequestBudget(v volume) *requestBudget {
	return &requestBudget{remaining: v.requests, unlimited: v.duration > 0}
}

func (t *requestBudget) take() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.unlimited {
		return true
	}
	t.remaining--
	return t.remaining >= 0
}
