package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/analysis/launch"
	"github.com/serin-dev/serin/internal/cli/explain"
	"github.com/serin-dev/serin/internal/operator"
	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/internal/rollout"
	"github.com/serin-dev/serin/internal/rollout/controller"
	"github.com/serin-dev/serin/internal/traffic"
	"github.com/serin-dev/serin/internal/traffic/istio/remotecluster"
	"github.com/serin-dev/serin/internal/workload"
)

// rolloutObserver returns an observer that observes a Rollout as its controller does.
func rolloutObserver(ctx context.Context, reader *cachedReader, object *argov1.Rollout, flags flags) *controller.Observer {
	instance := object.Labels[argov1.InstanceIDLabel]
	return &controller.Observer{
		Client: reader, APIReader: reader, Routers: flags.Routers(), Applier: &traffic.Applier{Client: reader, Groups: reader.remoteClients(ctx, object, flags)}, InstanceID: instance, AnswersFromStatus: true,
		Queue: newQueue(flags.concurrencyLimits(rolloutTurnMessage(object)), flags, reader),
		Runs:  &launch.Launcher{Client: reader, ClusterTemplates: reader, APIReader: reader, InstanceID: instance},
		FindConflict: func(ctx context.Context, object *argov1.Rollout) (string, error) {
			canary, err := operator.ConflictingCanary(ctx, reader, &workload.Workloads{Client: reader, APIReader: reader}, object)
			if isUnknownKind(err) {
				return "", nil
			}
			return canary, err
		},
	}
}

// remoteClients returns the clients for the objects of a Rollout in another cluster: Istio's objects, if a Secret refers to a
// primary cluster. The commands do not use the credentials in that Secret, so the clients refuse every request. Without permission
// to list Secrets, only this cluster is read. If the namespace of Serin is unknown, the Secret may be in any namespace.
func (r *cachedReader) remoteClients(ctx context.Context, object *argov1.Rollout, flags flags) map[string]client.Client {
	c := object.Spec.Strategy.Canary
	if c == nil || !slices.Contains(traffic.RouterNames(c.TrafficRouting), "istio") {
		return nil
	}
	hasOther, err := r.cache.hasPrimaryCluster(func() (bool, error) {
		found := &metav1.PartialObjectMetadataList{} // without their content
		found.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("SecretList"))
		err := r.recordingClient.List(ctx, found, client.InNamespace(flags.PrimarySecretNamespace()), client.MatchingLabels{remotecluster.SecretLabel: "true"})
		return len(found.Items) > 0, err
	})
	if err != nil || !hasOther {
		return nil
	}
	return map[string]client.Client{remotecluster.Group: remotecluster.Refusing(traffic.ErrUnreachable,
		"A Secret with the label "+remotecluster.SecretLabel+" refers to another cluster for the Istio objects of Rollouts, which the command does not read.")}
}

// observeRollout observes one Rollout and its related objects. If the user has no permission to read all of them, it derives the
// snapshot from the status.
func (s *Session) observeRollout(ctx context.Context, l *cachedReader, object *argov1.Rollout, flags flags) (*explain.Rollout, error) {
	out := &explain.Rollout{Object: object}
	if c := object.Spec.Strategy.Canary; c != nil {
		out.Routers = traffic.RouterNames(c.TrafficRouting)
	}
	now := s.Clock.Now()
	observer := rolloutObserver(ctx, l, object, flags)
	input := object.DeepCopy()
	input.ManagedFields = nil
	snapshot, err := observer.Snapshot(ctx, input, now)
	if err == nil {
		out.Runs, err = runsOf(ctx, l, object)
	}
	switch {
	case isForbidden(err):
		out.Assumed = []release.Part{release.WorkloadPart, release.RoutePart}
		out.Unread = append(out.Unread, fmt.Sprintf("No permission to read all objects of Rollout %s%s (%v).", object.Name, inNamespace(object.Namespace), err))
		out.Snapshot = rolloutSnapshotFromStatus(object)
		out.Snapshot.Now = now
	case errors.Is(err, traffic.ErrUnreachable):
		out.Assumed = []release.Part{release.WorkloadPart, release.RoutePart}
		out.Unread = append(out.Unread, err.Error())
		out.Snapshot = rolloutSnapshotFromStatus(object)
		out.Snapshot.Now = now
	case err != nil:
		return nil, describeError("observe Rollout "+object.Name+inNamespace(object.Namespace), err, explain.KindRollout)
	default:
		out.Snapshot = snapshot
		if out.StableImages, err = stableImages(ctx, l, object); err != nil {
			return nil, describeError("observe Rollout "+object.Name+inNamespace(object.Namespace), err, explain.KindRollout)
		}
		if err := observeRolloutPods(ctx, l, out); err != nil {
			return nil, describeError("observe Rollout "+object.Name+inNamespace(object.Namespace), err, explain.KindRollout)
		}
	}
	return out, nil
}

// stableImages returns the images of the stable revision. The snapshot of the state machine does not contain them, but the observer
// has read the ReplicaSets through the same reader, so this sends no request.
func stableImages(ctx context.Context, reader *cachedReader, object *argov1.Rollout) ([]string, error) {
	sets, err := replicaSetsOf(ctx, reader, object)
	if err != nil {
		return nil, fmt.Errorf("list the ReplicaSets of Rollout %s: %w", object.Name, err)
	}
	for i := range sets {
		if sets[i].Labels[argov1.PodTemplateHashLabel] == object.Status.StableRS {
			return explain.ImagesOf(sets[i].Spec.Template), nil
		}
	}
	return nil, nil
}

// rolloutSnapshotFromStatus derives a snapshot from the status.
func rolloutSnapshotFromStatus(object *argov1.Rollout) rollout.Snapshot {
	return rollout.Snapshot{
		Namespace: object.Namespace, Name: object.Name, UID: object.UID, Generation: object.Generation,
		Spec: *object.Spec.DeepCopy(), Status: *object.Status.DeepCopy(), Hash: object.Status.CurrentPodHash,
	}
}

// runsOf returns the AnalysisRuns of a Rollout.
func runsOf(ctx context.Context, c client.Reader, object *argov1.Rollout) ([]argov1.AnalysisRun, error) {
	var runs argov1.AnalysisRunList
	if err := c.List(ctx, &runs, controller.OwnedBy(object)...); err != nil {
		return nil, fmt.Errorf("list the AnalysisRuns of Rollout %s: %w", object.Name, err)
	}
	return runs.Items, nil
}
