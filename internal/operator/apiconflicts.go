package operator

import (
	"context"
	"fmt"
	"sync"

	"sigs.k8s.io/controller-runtime/pkg/client"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/canary/controller"
	rolloutcontroller "github.com/serin-dev/serin/internal/rollout/controller"
)

// apiConflicts prevents the two APIs from releasing the same workload: only the older of the two objects does.
type apiConflicts struct {
	mu                 sync.Mutex
	canaries, rollouts client.Reader
}

func (a *apiConflicts) setCanaries(reader client.Reader) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.canaries = reader
}

func (a *apiConflicts) setRollouts(reader client.Reader) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.rollouts = reader
}

// conflictingRollout returns a message with the older Rollout that refers to the target of a Canary; empty means none.
func (a *apiConflicts) conflictingRollout(ctx context.Context, c *flaggerv1.Canary) (string, error) {
	a.mu.Lock()
	reader := a.rollouts
	a.mu.Unlock()
	if reader == nil {
		return "", nil
	}
	return ConflictingRollout(ctx, reader, c)
}

// ConflictingRollout returns a message with the older Rollout that refers to the target of a Canary; empty means none.
// The reader must have an index of Rollouts by workload.
func ConflictingRollout(ctx context.Context, reader client.Reader, c *flaggerv1.Canary) (string, error) {
	ref := c.Spec.TargetRef
	rollouts, err := rolloutcontroller.RolloutsReferringTo(ctx, reader, c.Namespace, ref.Kind, ref.Name)
	if err != nil {
		return "", err
	}
	for i := range rollouts {
		if isOlder(&rollouts[i], c) {
			return fmt.Sprintf("Rollout %s already releases %s %s, so %s does nothing: delete one of the two, or point it at another target",
				rollouts[i].Name, ref.Kind, ref.Name, c.Name), nil
		}
	}
	return "", nil
}

// conflictingCanary returns a message with the older Canary that targets the workload of a Rollout; empty means none.
func (a *apiConflicts) conflictingCanary(ctx context.Context, object *argov1.Rollout) (string, error) {
	a.mu.Lock()
	reader := a.canaries
	a.mu.Unlock()
	if reader == nil {
		return "", nil
	}
	return ConflictingCanary(ctx, reader, object)
}

// ConflictingCanary returns a message with the older Canary that targets the workload of a Rollout; empty means none.
// The reader must have an index of Canaries by target.
func ConflictingCanary(ctx context.Context, reader client.Reader, object *argov1.Rollout) (string, error) {
	ref := object.Spec.WorkloadRef
	if ref == nil {
		return "", nil
	}
	canaries, err := controller.CanariesTargeting(ctx, reader, object.Namespace, ref.Kind, ref.Name)
	if err != nil {
		return "", err
	}
	for i := range canaries {
		if isOlder(&canaries[i], object) {
			return fmt.Sprintf("Canary %s already releases %s %s, so Rollout %s does nothing: delete one of the two, or point it at another workload",
				canaries[i].Name, ref.Kind, ref.Name, object.Name), nil
		}
	}
	return "", nil
}

func isOlder(a, b client.Object) bool {
	at, bt := a.GetCreationTimestamp(), b.GetCreationTimestamp()
	if !at.Equal(&bt) {
		return at.Before(&bt)
	}
	return a.GetUID() < b.GetUID()
}
