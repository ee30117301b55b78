package controller

import (
	"context"
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
	"sigs.k8s.io/controller-runtime/pkg/client"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/rollout"
	"github.com/serin-dev/serin/internal/watching"
)

var (
	deploymentKind  = appsv1.SchemeGroupVersion.WithKind("Deployment")
	replicaSetKind  = appsv1.SchemeGroupVersion.WithKind("ReplicaSet")
	podTemplateKind = corev1.SchemeGroupVersion.WithKind("PodTemplate")
)

// workloadObject is the workload that a Rollout refers to.
type workloadObject struct {
	object  *unstructured.Unstructured
	problem string
}

// observeWorkload takes the template and the selector from the workload that the spec refers to. They are never written to the
// Rollout.
func (o *Observer) observeWorkload(ctx context.Context, s *observation) error {
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
		// The cache contains only ReplicaSets of Rollouts, so no watch notifies of its changes.
		err = o.APIReader.Get(ctx, key, object)
		s.retryAt = s.snapshot.Now.Add(o.Resync)
	} else {
		s.dependencies = append(s.dependencies, watching.Object{Kind: kind.GroupKind(), Namespace: key.Namespace, Name: key.Name})
		s.watchedKinds = append(s.watchedKinds, kind)
		err = o.Client.Get(ctx, key, object)
	}
	switch {
	case apierrors.IsNotFound(err):
		if kind == replicaSetKind {
			s.needsRetry = true
		}
		s.workload = &workloadObject{problem: fmt.Sprintf("%s %q not found", resourceOf[kind], key)}
		return nil
	case err != nil:
		return fmt.Errorf("get %s %s: %w", kind.Kind, key, err)
	}
	s.workload = &workloadObject{object: object}
	return s.useWorkload(object, kind)
}

// resourceOf are the resource names of kinds, as errors of the API server contain them.
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

// useWorkload copies the template, the selector and the scale of the workload.
func (s *observation) useWorkload(object *unstructured.Unstructured, kind schema.GroupVersionKind) error {
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
		return nil // the spec is not valid: validation reports this
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
		s.snapshot.Workload.SpecReplicas = *form.Spec.Replicas
	}
	return nil
}

func emptyTemplate(template corev1.PodTemplateSpec) bool {
	return len(template.Labels) == 0 && len(template.Annotations) == 0
}

// referencedWorkload returns the workload in the form that validation needs.
func (w *workloadObject) referencedWorkload(spec argov1.RolloutSpec) rollout.ReferencedWorkload {
	if w == nil {
		return rollout.ReferencedWorkload{}
	}
	return rollout.ReferencedWorkload{Problem: w.problem, Template: spec.Template, Selector: spec.Selector}
}

// observeFormerWorkloads finds the Deployments that the Rollout has scaled down and no longer refers to.
func (o *Observer) observeFormerWorkloads(ctx context.Context, s *observation) error {
	if !slices.Contains(o.MarkedKinds, deploymentKind) {
		return nil
	}
	marked, err := managedObjects{o.Client}.markedWorkloads(ctx, s.key())
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
