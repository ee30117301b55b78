// Package load generates load, and asks for health, by programs that are built in under the names of well-known ones:
// hey for HTTP, ghz for gRPC, grpc_health_probe.
//
// It knows their command lines as webhooks use them. It must not know webhooks, releases, or who reads what it prints.
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

// maxWorkers bounds the requests that one program has under way at once.
const maxWorkers = 2000

// Options are what a program works with.
type Options struct {
	// Out gets what the program prints.
	Out   io.Writer
	Clock clock.Clock
	// Policy says where requests may go.
	Policy outbound.Policy
}

// A program reads its arguments and does its work. An error says that it could not, or found what it asks for wanting.
type program func(ctx context.Context, o Options, args []string) error

func programs() map[string]program {
	return map[string]program{"hey": hey, "ghz": ghz, "grpc_health_probe": healthProbe}
}

// Programs are the names of the programs.
func Programs() []string { return slices.Sorted(maps.Keys(programs())) }

// Has says that there is a program of that name.
func Has(name string) bool { return programs()[name] != nil }

// Run runs the program that argv names, until it is over or ctx is.
func Run(ctx context.Context, o Options, argv []string) error {
	if len(argv) == 0 || !Has(argv[0]) {
		return fmt.Errorf("name a program: %v", Programs())
	}
	return programs()[argv[0]](ctx, o, argv[1:])
}

// volume is how much is sent.
type volume struct {
	// workers is the number of requests at a time.
	workers int
	// requests is the number in all; it does not count where there is a duration.
	requests int
	duration time.Duration
	// rate is the number of requests a second in all; 0: as many as are answered.
	rate float64
}

func (v volume) validate() error {
	switch {
	case v.workers < 1 || v.workers > maxWorkers:
		return fmt.Errorf("the number of workers (-c) must be from 1 to %d", maxWorkers)
	case v.duration < 0, v.duration == 0 && v.requests < 1:
		return fmt.Errorf("give a number of requests (-n) or a duration (-z)")
	case v.duration == 0 && v.requests < v.workers:
		return fmt.Errorf("the number of requests (-n) cannot be less than that of workers (-c)")
	case v.rate < 0:
		return fmt.Errorf("a rate cannot be negative")
	default:
		return nil
	}
}

// ask makes one request and says what came: a status for the distribution, or an error.
type ask func(ctx context.Context) (status string, err error)

// send makes requests. None begins after the duration; those under way then are still answered, because the other side
// would count requests that are cut off as errors. The end of ctx cuts them off.
func send(ctx context.Context, o Options, v volume, one ask) *report {
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
	// All workers share one pace, so a slow answer does not lower the rate while another worker is free; and what was
	// missed while all of them waited is not made up for.
	pace := rate.NewLimiter(limit, 1)
	turns := newTurns(v)
	var workers sync.WaitGroup
	for range v.workers {
		workers.Go(func() {
			for turns.take() && pace.Wait(starting) == nil && starting.Err() == nil {
				at := o.Clock.Now()
				status, err := one(ctx)
				if ctx.Err() != nil {
					return // we cut it off; that says nothing about the other side
				}
				r.add(o.Clock.Since(at), status, err)
			}
		})
	}
	workers.Wait()
	r.took = o.Clock.Since(began)
	return r
}

// turns counts requests down.
type turns struct {
	mu        sync.Mutex
	left      int
	unlimited bool
}

func newTurns(v volume) *turns { return &turns{left: v.requests, unlimited: v.duration > 0} }

func (t *turns) take() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.unlimited {
		return true
	}
	t.left--
	return t.left >= 0
}
