package loadtester

import (
	"errors"
	"sync"
)

// maxOpen bounds the gates that are open at once: callers choose the names.
const maxOpen = 10_000

var errTooManyGates = errors.New("too many gates are open: close some")

// gates are what people opened; every other gate is closed. They live in memory: after a restart all are closed.
type gates struct {
	mu   sync.Mutex
	open map[string]struct{}
}

func newGates() *gates { return &gates{open: map[string]struct{}{}} }

// set opens or closes a gate.
func (g *gates) set(name string, open bool) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !open {
		delete(g.open, name)
		return nil
	}
	if _, is := g.open[name]; !is && len(g.open) >= maxOpen {
		return errTooManyGates
	}
	g.open[name] = struct{}{}
	return nil
}

func (g *gates) isOpen(name string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	_, open := g.open[name]
	return open
}
