package loadtester

import (
	"errors"
	"sync"
)

// maxOpen bounds the gates that are open at the same time, because clients choose their names.
const maxOpen = 10_000

var errTooManyGates = errors.New("too many gates are open: close some")

// gates stores the open gates; every other gate is closed. It is in memory only: after a restart, all gates are closed.
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
	if _, isOpen := g.open[name]; !isOpen && len(g.open) >= maxOpen {
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
