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
	"github.com/serin-dev/serin/internal/workload"
)

// apiConflicts prevents the two APIs from releasing the same workload.
type apiConflicts struct {
	workloads *workload.Workloads

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

// conflictingRollout returns a message with the Rollout that releases the target of a Canary; empty means none.
func (a *apiConflicts) conflictingRollout(ctx context.Context, c *flaggerv1.Canary) (string, error) {
	a.mu.Lock()
	reader := a.rollouts
	a.mu.Unlock()
	if reader == nil {
		return "", nil
	}
	return ConflictingRollout(ctx, reader, a.workloads, c)
}

// ConflictingRollout returns a message with the Rollout that releases the target of a Canary; empty means none.
// The reader must have an index of Rollouts by workload.
func ConflictingRollout(ctx context.Context, reader client.Reader, workloads *workload.Workloads, c *flaggerv1.Canary) (string, error) {
	ref := c.Spec.TargetRef
	rollouts, err := rolloutcontroller.RolloutsReferringTo(ctx, reader, c.Namespace, ref.Kind, ref.Name)
	if err != nil {
		return "", err
	}
	for i := range rollouts {
		first, err := canaryPrecedes(ctx, workloads, c, &rollouts[i])
		if err != nil {
			return "", err
		}
		if !first {
			return fmt.Sprintf("Rollout %s already releases %s %s, so %s does nothing: delete one of the two, or point it at another target",
				rollouts[i].Name, ref.Kind, ref.Name, c.Name), nil
		}
	}
	return "", nil
}

// conflictingCanary returns a message with the Canary that releases the workload of a Rollout; empty means none.
func (a *apiConflicts) conflictingCanary(ctx context.Context, object *argov1.Rollout) (string, error) {
	a.mu.Lock()
	reader := a.canaries
	a.mu.Unlock()
	if reader == nil {
		return "", nil
	}
	return ConflictingCanary(ctx, reader, a.workloads, object)
}

// ConflictingCanary returns a message with the Canary that releases the workload of a Rollout; empty means none.
// The reader must have an index of Canaries by target.
func ConflictingCanary(ctx context.Context, reader client.Reader, workloads *workload.Workloads, object *argov1.Rollout) (string, error) {
	ref := object.Spec.WorkloadRef
	if ref == nil {
		return "", nil
	}
	canaries, err := controller.CanariesTargeting(ctx, reader, object.Namespace, ref.Kind, ref.Name)
	if err != nil {
		return "", err
	}
	for i := range canaries {
		first, err := canaryPrecedes(ctx, workloads, &canaries[i], object)
		if err != nil {
			return "", err
		}
		if first {
			return fmt.Sprintf("Canary %s already releases %s %s, so Rollout %s does nothing: delete one of the two, or point it at another workload",
				canaries[i].Name, ref.Kind, ref.Name, object.Name), nil
		}
	}
	return "", nil
}

// canaryPrecedes reports whether a Canary releases a workload rather than a Rollout: the one that controls objects of it does,
// otherwise the older one. Age alone is not sufficient: of two objects that were created in the same second, the one with the higher
// UID may have begun before the other one existed.
func canaryPrecedes(ctx context.Context, workloads *workload.Workloads, c *flaggerv1.Canary, rollout *argov1.Rollout) (bool, error) {
	var owned workload.Ownership
	if target := workloads.ForCanary(c); target != nil {
		var err error
		if owned, err = target.Ownership(ctx, c); err != nil {
			return false, fmt.Errorf("find the owner of %s %s: %w", c.Spec.TargetRef.Kind, c.Spec.TargetRef.Name, err)
		}
	}
	owns := owned.Primary || owned.Services
	if hasReplicaSets := rollout.Status.CurrentPodHash != ""; owns != hasReplicaSets {
		return owns, nil
	}
	return isOlder(c, rollout), nil
}

func isOlder(a, b client.Object) bool {
	at, bt := a.GetCreationTimestamp(), b.GetCreationTimestamp()
	if !at.Equal(&bt) {
		return at.Before(&bt)
	}
	return a.GetUID() < b.GetUID()
}
