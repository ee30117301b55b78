package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/reconciler"
	"github.com/serin-dev/serin/internal/rollout"
	"github.com/serin-dev/serin/internal/traffic"
	"github.com/serin-dev/serin/internal/watching"
)

var (
	deploymentKind  = appsv1.SchemeGroupVersion.WithKind("Deployment")
	replicaSetKind  = appsv1.SchemeGroupVersion.WithKind("ReplicaSet")
	podTemplateKind = corev1.SchemeGroupVersion.WithKind("PodTemplate")
)

// byWorkload is the index of Rollouts by the workload that they refer to.
const byWorkload = "spec.workloadRef"

// IndexWorkloads lets caches find the Rollouts that refer to a workload without looking at all.
func IndexWorkloads(ctx context.Context, indexer client.FieldIndexer) error {
	err := indexer.IndexField(ctx, &argov1.Rollout{}, byWorkload, func(object client.Object) []string {
		if of, ok := object.(*argov1.Rollout); ok && of.Spec.WorkloadRef != nil {
			return []string{of.Spec.WorkloadRef.Kind + "/" + of.Spec.WorkloadRef.Name}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("index Rollouts by workload: %w", err)
	}
	return nil
}

// IndexMarkedWorkloads lets caches find the Deployments that a Rollout has scaled down without looking at all. It begins to
// watch Deployments, and so is for where Parts.Marked has their kind.
func IndexMarkedWorkloads(ctx context.Context, indexer client.FieldIndexer) error {
	kind := &unstructured.Unstructured{}
	kind.SetGroupVersionKind(deploymentKind)
	return indexManaged(ctx, indexer, kind)
}

// Referring are the Rollouts that refer to a workload.
func Referring(ctx context.Context, reader client.Reader, namespace, kind, name string) ([]argov1.Rollout, error) {
	var all argov1.RolloutList
	err := reader.List(ctx, &all, client.InNamespace(namespace), client.MatchingFields{byWorkload: kind + "/" + name}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil, fmt.Errorf("list the Rollouts that refer to %s %s.%s: %w", kind, name, namespace, err)
	}
	return all.Items, nil
}

// workloadObject is the workload that a Rollout refers to.
type workloadObject struct {
	object  *unstructured.Unstructured
	problem string
}

// lookAtWorkload takes template and selector of the workload that the spec refers to. They live in memory only.
func (r *Reconciler) lookAtWorkload(ctx context.Context, s *seen) error {
	ref := s.object.Spec.WorkloadRef
	if ref == nil {
		return nil
	}
	kind, supported := kindOf(*ref)
	if !supported {
		s.workload = &workloadObject{problem: fmt.Sprintf("workload of type %s/%s is not supported", ref.APIVersion, ref.Kind)}
		return nil
	}
	var err error
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(kind)
	key := client.ObjectKey{Namespace: s.object.Namespace, Name: ref.Name}
	if kind == replicaSetKind {
		// The cache has those of Rollouts alone, and so no watch tells of it.
		err = r.Reader.Get(ctx, key, object)
		s.again = s.snapshot.Now.Add(r.Resync)
	} else {
		s.things = append(s.things, watching.Object{Kind: kind.GroupKind(), Namespace: key.Namespace, Name: key.Name})
		s.kinds = append(s.kinds, kind)
		err = r.Client.Get(ctx, key, object)
	}
	switch {
	case apierrors.IsNotFound(err):
		if kind == replicaSetKind {
			s.missing = true
		}
		s.workload = &workloadObject{problem: fmt.Sprintf("%s %q not found", resourceOf[kind], key)}
		return nil
	case err != nil:
		return fmt.Errorf("get %s %s: %w", kind.Kind, key, err)
	}
	s.workload = &workloadObject{object: object}
	return s.use(object, kind)
}

// resourceOf are the names by which errors of the API server call kinds.
var resourceOf = map[schema.GroupVersionKind]string{
	deploymentKind: "deployments.apps", replicaSetKind: "replicasets.apps", podTemplateKind: "podtemplates",
}

func kindOf(ref argov1.ObjectRef) (kind schema.GroupVersionKind, supported bool) {
	for kind := range resourceOf {
		if ref.Kind == kind.Kind && ref.APIVersion == kind.GroupVersion().String() {
			return kind, true
		}
	}
	return schema.GroupVersionKind{}, false
}

// use takes over what the workload says of its pods.
func (s *seen) use(object *unstructured.Unstructured, kind schema.GroupVersionKind) error {
	var form struct {
		Template corev1.PodTemplateSpec `json:"template"`
		Spec     struct {
			Replicas *int32                 `json:"replicas"`
			Selector *metav1.LabelSelector  `json:"selector"`
			Template corev1.PodTemplateSpec `json:"template"`
		} `json:"spec"`
		Status struct {
			ReadyReplicas int32 `json:"readyReplicas"`
		} `json:"status"`
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &form); err != nil {
		return fmt.Errorf("read %s %s: %w", kind.Kind, object.GetName(), err)
	}
	template := form.Spec.Template
	if kind == podTemplateKind {
		template = form.Template
	}
	if !emptyTemplate(s.object.Spec.Template) {
		return nil // the spec is not valid, and says so
	}
	s.spec.Template = template
	if s.spec.Selector == nil {
		s.spec.Selector = form.Spec.Selector
		if kind == podTemplateKind {
			s.spec.Selector = &metav1.LabelSelector{MatchLabels: template.Labels}
		}
	}
	s.snapshot.Workload = &rollout.WorkloadScale{
		Generation: strconv.FormatInt(object.GetGeneration(), 10), Scalable: kind == deploymentKind, Ready: form.Status.ReadyReplicas,
	}
	if form.Spec.Replicas != nil {
		s.snapshot.Workload.Spec = *form.Spec.Replicas
	}
	return nil
}

func emptyTemplate(template corev1.PodTemplateSpec) bool {
	return len(template.Labels) == 0 && len(template.Annotations) == 0
}

// found is what a validation needs to know of the workload.
func (w *workloadObject) found(spec argov1.RolloutSpec) rollout.ReferencedWorkload {
	if w == nil {
		return rollout.ReferencedWorkload{}
	}
	return rollout.ReferencedWorkload{Problem: w.problem, Template: spec.Template, Selector: spec.Selector}
}

// scaleWorkload sets the number of pods of the Deployment that the Rollout refers to.
func (r *Reconciler) scaleWorkload(ctx context.Context, s *seen, e rollout.WorkloadScaled) (bool, error) {
	if s.workload == nil || s.workload.object == nil || s.workload.object.GroupVersionKind() != deploymentKind {
		return false, fmt.Errorf("scale the workload of Rollout %s: %w", s.key(), reconciler.ErrChanged)
	}
	after := s.workload.object.DeepCopy()
	annotations := after.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	if annotations[argov1.ReplicasBeforeAnnotation] == "" {
		annotations[argov1.ReplicasBeforeAnnotation] = strconv.Itoa(int(s.snapshot.Workload.Spec))
	}
	annotations[argov1.ManagedByAnnotation] = s.object.Name
	after.SetAnnotations(annotations)
	if err := unstructured.SetNestedField(after.Object, int64(e.Pods), "spec", "replicas"); err != nil {
		return false, errors.Join(reconciler.ErrChanged, err)
	}
	changed, err := r.change(ctx, s.workload.object, after)
	if err == nil {
		s.workload.object = after
	}
	return changed, err
}

// markedWorkloads are the Deployments that a Rollout of that name has scaled down. They must not be changed.
func (r *Reconciler) markedWorkloads(ctx context.Context, key types.NamespacedName) ([]*unstructured.Unstructured, error) {
	return r.managed(ctx, deploymentKind, key)
}

// lookForFormerWorkloads finds the Deployments that the Rollout has scaled down and does not refer to any more.
func (r *Reconciler) lookForFormerWorkloads(ctx context.Context, s *seen) error {
	if !slices.Contains(r.Marked, deploymentKind) {
		return nil
	}
	marked, err := r.markedWorkloads(ctx, s.key())
	if err != nil {
		return err
	}
	for _, name := range namesOf(marked) {
		ref := s.object.Spec.WorkloadRef
		if ref == nil || ref.Kind != deploymentKind.Kind || ref.Name != name {
			s.snapshot.FormerWorkloads = append(s.snapshot.FormerWorkloads, name)
		}
	}
	return nil
}

// releaseWorkload gives a Deployment the replicas back that it had, or those of the Rollout where these are more. One that
// somebody has scaled up since keeps its number.
func (r *Reconciler) releaseWorkload(ctx context.Context, of *argov1.Rollout, name string) (bool, error) {
	before := &unstructured.Unstructured{}
	before.SetGroupVersionKind(deploymentKind)
	switch err := r.Client.Get(ctx, client.ObjectKey{Namespace: of.Namespace, Name: name}, before); {
	case apierrors.IsNotFound(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("get Deployment %s.%s: %w", name, of.Namespace, err)
	}
	annotations := before.GetAnnotations()
	if annotations[argov1.ManagedByAnnotation] != of.Name {
		return false, nil
	}
	after := before.DeepCopy()
	replicas, _ := strconv.ParseInt(annotations[argov1.ReplicasBeforeAnnotation], 10, 32)
	if of.Spec.Replicas != nil {
		replicas = max(replicas, int64(*of.Spec.Replicas))
	}
	if now, found, _ := unstructured.NestedInt64(before.Object, "spec", "replicas"); found && now < replicas {
		if err := unstructured.SetNestedField(after.Object, replicas, "spec", "replicas"); err != nil {
			return false, errors.Join(reconciler.ErrChanged, err)
		}
	}
	traffic.RemoveAnnotations(after, argov1.ManagedByAnnotation, argov1.ReplicasBeforeAnnotation)
	return r.change(ctx, before, after)
}
