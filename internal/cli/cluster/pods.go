package cluster

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/canary"
	"github.com/serin-dev/serin/internal/cli/explain"
	"github.com/serin-dev/serin/internal/rollout"
	"github.com/serin-dev/serin/internal/workload"
)

// observeCanaryPods lists the pods of the target and of the primary of a Canary that are not ready. The controller does so only
// after a delay, to spare the API server; a user wants to know the reason at once.
func observeCanaryPods(ctx context.Context, workloads *workload.Workloads, out *explain.Canary) error {
	pods := workloads.ForCanary(out.Object)
	for _, side := range []struct {
		revision string
		state    canary.WorkloadState
	}{{"canary", out.Snapshot.Workload.Target}, {"primary", out.Snapshot.Workload.Primary}} {
		if !side.state.Found || side.state.Ready || side.state.Replicas == 0 {
			continue
		}
		found, err := pods.Pods(ctx, out.Object, side.revision == "primary")
		if err != nil {
			return err
		}
		addPods(&out.SharedObservation, side.revision, found)
	}
	return nil
}

// observeRolloutPods lists the pods of the new and of the stable revision of a Rollout that are not available.
func observeRolloutPods(ctx context.Context, reader *cachedReader, out *explain.Rollout) error {
	for _, rs := range out.Snapshot.ReplicaSets {
		revision := ""
		switch rs.Hash {
		case out.Snapshot.Status.StableRS:
			revision = "stable"
		case out.Snapshot.Hash:
			revision = "new"
		}
		if rs.Hash == out.Snapshot.Hash && !rollout.WasHealthy(out.Snapshot.Status) {
			revision = "new" // the first one is the stable one before any of its pods runs
		}
		if revision == "" || rs.Deleting || rs.SpecReplicas <= rs.Available {
			continue
		}
		selector, err := podsOfReplicaSet(out.Snapshot.Spec, rs)
		if err != nil {
			return err
		}
		found, err := workload.ListPods(ctx, reader, out.Object.Namespace, selector)
		if isForbidden(err) {
			out.Unread = append(out.Unread, noPermission("read Pods"+inNamespace(out.Object.Namespace)))
			return nil
		}
		if err != nil {
			return fmt.Errorf("list the pods of ReplicaSet %s: %w", rs.Name, err)
		}
		addPods(&out.SharedObservation, revision, found)
	}
	return nil
}

// podsOfReplicaSet selects the pods of a ReplicaSet of a Rollout.
func podsOfReplicaSet(spec argov1.RolloutSpec, rs rollout.ReplicaSet) (labels.Selector, error) {
	selector, err := metav1.LabelSelectorAsSelector(spec.Selector)
	if err != nil {
		return nil, fmt.Errorf("read the selector of ReplicaSet %s: %w", rs.Name, err)
	}
	hash, err := labels.NewRequirement(argov1.PodTemplateHashLabel, selection.Equals, []string{rs.Hash})
	if err != nil {
		return nil, fmt.Errorf("read the hash of ReplicaSet %s: %w", rs.Name, err)
	}
	return selector.Add(*hash), nil
}

// addPods adds the pods of a revision that is not ready, with their problem.
func addPods(out *explain.SharedObservation, revision string, pods workload.Pods) {
	if pods.Selector == nil {
		return
	}
	out.UnreadyPods = append(out.UnreadyPods, pods.Selector)
	if p := pods.Problem(); p != (workload.PodProblem{}) {
		out.PodProblems = append(out.PodProblems, newPodProblem(revision, p))
	}
}

func newPodProblem(revision string, p workload.PodProblem) explain.PodProblem {
	return explain.PodProblem{Revision: revision, Pod: p.Pod, Container: p.Container, Image: p.Image, Reason: p.Reason, Message: p.Message}
}
