package controller

import (
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/types"
)

// The status of one run is written at most once per interval, except for its completion. A run with sixteen metrics
// that are measured every second receives sixteen answers per second; they fit into one write.
const (
	writesPerSecond = 1
	writeBurst      = 10 // so that the writes of an ordinary run are not delayed
)

// writePacer limits the status writes of each run. It is safe for concurrent use.
type writePacer struct {
	mu   sync.Mutex
	runs map[types.NamespacedName]*rate.Limiter
}

func newWritePacer() *writePacer { return &writePacer{runs: map[types.NamespacedName]*rate.Limiter{}} }

// delay returns the time until a run may be written; 0: it may be written now, which is recorded.
func (p *writePacer) delay(key types.NamespacedName, now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	limiter := p.runs[key]
	if limiter == nil {
		limiter = rate.NewLimiter(writesPerSecond, writeBurst)
		p.runs[key] = limiter
	}
	reserved := limiter.ReserveN(now, 1)
	delay := reserved.DelayFrom(now)
	if delay > 0 {
		reserved.CancelAt(now)
	}
	return delay
}

// forget deletes the state of a run that is complete or deleted.
func (p *writePacer) forget(key types.NamespacedName) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.runs, key)
}

// keys returns the runs with state.
func (p *writePacer) keys() []types.NamespacedName {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Collect(maps.Keys(p.runs))
}
