package dispatch

import (
	"context"
	"maps"
	"slices"

	"github.com/serin-dev/serin/internal/notification"
)

// Occupy acquires all slots that one namespace can have, as evaluations that never end would.
func (d *Dispatcher) Occupy(ctx context.Context, namespace string) error {
	for range maxEvaluations - 1 {
		if _, err := d.evaluations.Acquire(ctx, namespace); err != nil {
			return err
		}
	}
	return nil
}

// Queued returns the queued and the undeliverable messages about an object.
func (d *Dispatcher) Queued(about About) notification.SentLog {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.ledger(about.key(), about.Object.GetUID()).queued
}

// Configs returns the namespaces whose parsed configuration is in memory, sorted.
func (d *Dispatcher) Configs() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Sorted(maps.Keys(d.configs))
}
