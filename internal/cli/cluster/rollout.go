package cluster

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/analysis/launch"
	"github.com/serin-dev/serin/internal/cli/explain"
	"github.com/serin-dev/serin/internal/operator"
	"github.com/serin-dev/serin/internal/rollout"
	"github.com/serin-dev/serin/internal/rollout/controller"
	"github.com/serin-dev/serin/internal/traffic"
)

// rolloutObserver looks as the controller does that serves the object.
func rolloutObserver(c client.Client, object *argov1.Rollout, flags flags) *controller.Observer {
	instance := object.Labels[argov1.InstanceIDLabel]
	return &controller.Observer{
		Client: c, Reader: c, Routers: flags.RolloutRouters(), Applier: &traffic.Applier{Client: c}, InstanceID: instance, Beside: true,
		Runs: &launch.Launcher{Client: c, Cluster: c, Live: c, InstanceID: instance},
		Rival: func(ctx context.Context, object *argov1.Rollout) (string, error) {
			rival, err := operator.CanaryBeside(ctx, c, object)
			if unknown(err) {
				return "", nil
			}
			return rival, err
		},
	}
}

// seeRollout looks at everything around one Rollout. Where the person may not read all of it, what is said comes from the
// status.
func (s *Session) seeRollout(ctx context.Context, l *lens, object *argov1.Rollout, flags flags) (*explain.Rollout, error) {
	out := &explain.Rollout{Object: object}
	if c := object.Spec.Strategy.Canary; c != nil {
		out.Routers = traffic.RouterNames(c.TrafficRouting)
	}
	now := s.Clock.Now()
	observer := rolloutObserver(l, object, flags)
	asked := object.DeepCopy()
	asked.ManagedFields = nil
	snapshot, err := observer.Snapshot(ctx, asked, now)
	if err == nil {
		out.Runs, err = runsOf(ctx, l, object)
	}
	switch {
	case forbidden(err):
		out.Assumed = true
		out.Unread = append(out.Unread, fmt.Sprintf("What is around Rollout %s%s may not be read (%v).", object.Name, inNamespace(object.Namespace), err))
		out.Snapshot = rolloutFromStatus(object)
		out.Snapshot.Now = now
	case err != nil:
		return nil, explained("look at Rollout "+object.Name+inNamespace(object.Namespace), err, explain.KindRollout)
	default:
		out.Snapshot = snapshot
	}
	return out, nil
}

// rolloutFromStatus is the snapshot of a world of which only the status is known.
func rolloutFromStatus(object *argov1.Rollout) rollout.Snapshot {
	return rollout.Snapshot{
		Namespace: object.Namespace, Name: object.Name, UID: object.UID, Generation: object.Generation,
		Spec: *object.Spec.DeepCopy(), Status: *object.Status.DeepCopy(), Hash: object.Status.CurrentPodHash,
	}
}

// runsOf are the AnalysisRuns of a Rollout.
func runsOf(ctx context.Context, c client.Reader, object *argov1.Rollout) ([]argov1.AnalysisRun, error) {
	var runs argov1.AnalysisRunList
	if err := c.List(ctx, &runs, controller.OwnedBy(object)...); err != nil {
		return nil, fmt.Errorf("list the AnalysisRuns of Rollout %s: %w", object.Name, err)
	}
	return runs.Items, nil
}
