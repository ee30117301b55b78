package dispatch

import "context"

// Occupy acquires all slots that one namespace can have, as evaluations that never end would.
func (d *Dispatcher) Occupy(ctx context.Context, namespace string) error {
	for range maxEvaluations - 1 {
		if _, err := d.evaluations.Acquire(ctx, namespace); err != nil {
			return err
		}
	}
	return nil
}
