package dispatch

import (
	"context"
	"maps"
	"slices"
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

// Configs returns the namespaces whose parsed configuration is in memory, sorted.
func (d *Dispatcher) Configs() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Sorted(maps.Keys(d.configs))
}
