package cluster

import (
	"context"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/cli/explain"
	"github.com/serin-dev/serin/internal/rollout/controller"
	"github.com/serin-dev/serin/internal/workload"
)

// Tree returns the tree of an observed release. Kinds that the user has no permission to read are missing in it, with a message.
// Errors: ErrUnreachable.
func (s *Session) Tree(ctx context.Context, observed explain.Observation, now time.Time) (explain.Tree, error) {
	r := treeReader{Reader: s.Client, namespace: observed.Key().Namespace}
	var err error
	switch observed := observed.(type) {
	case *explain.Canary:
		err = r.readCanary(ctx, observed)
	case *explain.Rollout:
		err = r.readRollout(ctx, s, observed)
	}
	if err != nil {
		key := observed.Key()
		return explain.Tree{}, describeError("read the pods of "+string(key.Kind)+" "+key.Name+inNamespace(key.Namespace), err, key.Kind)
	}
	return observed.Tree(r.objects, now), nil
}

// treeReader reads the objects below one release.
type treeReader struct {
	client.Reader

	namespace string
	objects   explain.TreeObjects
}

// isDenied reports whether the user has no permission to read a kind, and records that.
func (r *treeReader) isDenied(err error, kind string) bool {
	if !isForbidden(err) {
		return false
	}
	if message := noPermission("read " + plural(kind) + inNamespace(r.namespace)); !slices.Contains(r.objects.Unread, message) {
		r.objects.Unread = append(r.objects.Unread, message)
	}
	return true
}

// readCanary reads the target and the primary of a Canary. Those of other kinds than Deployment and DaemonSet have no pods that
// Serin knows.
func (r *treeReader) readCanary(ctx context.Context, observed *explain.Canary) error {
	for i, object := range workloadsOf(observed.Object) {
		found, err := r.readWorkload(ctx, object)
		switch {
		case apierrors.IsNotFound(err), r.isDenied(err, object.Kind.Kind):
			continue
		case err != nil:
			return err
		case found == nil:
			continue
		case i == 0:
			r.objects.Target = found
		default:
			r.objects.Primary = found
		}
		if err := r.readBelow(ctx, found); err != nil {
			return err
		}
	}
	return nil
}

// readWorkload reads a Deployment or a DaemonSet; nil for other kinds.
func (r *treeReader) readWorkload(ctx context.Context, object workload.Object) (*explain.WorkloadObject, error) {
	key, kind := client.ObjectKey{Namespace: r.namespace, Name: object.Name}, object.Kind
	switch {
	case kind.Group != appsv1.GroupName:
		return nil, nil // there is nothing to read
	case kind.Kind == "Deployment":
		var d appsv1.Deployment
		if err := r.Get(ctx, key, &d); err != nil {
			return nil, err
		}
		desired := int32(1) // the default of the API
		if d.Spec.Replicas != nil {
			desired = *d.Spec.Replicas
		}
		return &explain.WorkloadObject{Kind: kind.Kind, Name: d.Name, UID: d.UID, Selector: d.Spec.Selector, Template: d.Spec.Template, Desired: desired, Ready: d.Status.ReadyReplicas}, nil
	case kind.Kind == "DaemonSet":
		var d appsv1.DaemonSet
		if err := r.Get(ctx, key, &d); err != nil {
			return nil, err
		}
		return &explain.WorkloadObject{
			Kind: kind.Kind, Name: d.Name, UID: d.UID, Selector: d.Spec.Selector, Template: d.Spec.Template,
			Desired: d.Status.DesiredNumberScheduled, Ready: d.Status.NumberReady,
		}, nil
	default:
		return nil, nil // there is nothing to read
	}
}

// readBelow reads the ReplicaSets and the pods of a workload.
func (r *treeReader) readBelow(ctx context.Context, of *explain.WorkloadObject) error {
	if of.Kind == "Deployment" {
		var sets appsv1.ReplicaSetList
		err := r.listSelected(ctx, &sets, of.Selector)
		switch {
		case r.isDenied(err, "ReplicaSet"):
			r.objects.ReplicaSetsUnread = true
		case err != nil:
			return fmt.Errorf("list ReplicaSets: %w", err)
		}
		r.objects.ReplicaSets = append(r.objects.ReplicaSets, sets.Items...)
	}
	return r.readPods(ctx, of.Selector)
}

// readRollout reads the ReplicaSets of a Rollout and its pods.
func (r *treeReader) readRollout(ctx context.Context, s *Session, observed *explain.Rollout) error {
	reader, err := newCachedReader(ctx, s.Client)
	if err != nil {
		return err
	}
	r.objects.ReplicaSets, err = replicaSetsOf(ctx, reader, observed.Object)
	switch {
	case r.isDenied(err, "ReplicaSet"):
		r.objects.ReplicaSetsUnread = true
		return nil // the pods of a ReplicaSet are found by its selector
	case err != nil:
		return fmt.Errorf("list ReplicaSets: %w", err)
	}
	selector := observed.Snapshot.Spec.Selector
	if selector == nil && len(r.objects.ReplicaSets) == 0 {
		return nil
	}
	if selector == nil { // that of a workload that cannot be read
		for i := range r.objects.ReplicaSets {
			if err := r.readPods(ctx, r.objects.ReplicaSets[i].Spec.Selector); err != nil {
				return err
			}
		}
		return nil
	}
	return r.readPods(ctx, selector)
}

// replicaSetsOf returns the ReplicaSets of a Rollout.
func replicaSetsOf(ctx context.Context, reader client.Reader, object *argov1.Rollout) ([]appsv1.ReplicaSet, error) {
	var sets appsv1.ReplicaSetList
	if err := reader.List(ctx, &sets, controller.OwnedBy(object)...); err != nil {
		return nil, err
	}
	return sets.Items, nil
}

// readPods reads all selected pods, because one that fails may be the last one of many.
func (r *treeReader) readPods(ctx context.Context, selector *metav1.LabelSelector) error {
	var list corev1.PodList
	if err := r.listSelected(ctx, &list, selector); err != nil {
		if r.isDenied(err, podKind) {
			return nil
		}
		return fmt.Errorf("list pods: %w", err)
	}
	for _, pod := range list.Items {
		pods := workload.Pods{Items: []corev1.Pod{pod}}
		r.objects.Pods = append(r.objects.Pods, explain.PodObject{Pod: pod, Problem: newPodProblem("", pods.Problem())})
	}
	return nil
}

func (r *treeReader) listSelected(ctx context.Context, list client.ObjectList, selector *metav1.LabelSelector) error {
	matching, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil {
		return fmt.Errorf("read the selector: %w", err)
	}
	return r.List(ctx, list, client.InNamespace(r.namespace), client.MatchingLabelsSelector{Selector: matching})
}
