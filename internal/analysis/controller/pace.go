package controller

import (
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/types"
)

// The status of one run is written as often as this at most, but for its end. A run with sixteen metrics that are measured
// each second has sixteen answers a second; they fit into one write.
const (
	writesPerSecond = 1
	writesAtOnce    = 10 // so that an ordinary run waits for nothing
)

// pace bounds the status writes of each run. It is safe for concurrent use.
type pace struct {
	mu   sync.Mutex
	runs map[types.NamespacedName]*rate.Limiter
}

func newPace() *pace { return &pace{runs: map[types.NamespacedName]*rate.Limiter{}} }

// wait returns after what time a run may be written; 0: now, which it then was.
func (p *pace) wait(key types.NamespacedName, now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	limiter := p.runs[key]
	if limiter == nil {
		limiter = rate.NewLimiter(writesPerSecond, writesAtOnce)
		p.runs[key] = limiter
	}
	reserved := limiter.ReserveN(now, 1)
	delay := reserved.DelayFrom(now)
	if delay > 0 {
		reserved.CancelAt(now)
	}
	return delay
}

// forget drops what is known of a run that is over or gone.
func (p *pace) forget(key types.NamespacedName) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.runs, key)
}

// keys are the runs that something is known of.
func (p *pace) keys() []types.NamespacedName {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Collect(maps.Keys(p.runs))
}
