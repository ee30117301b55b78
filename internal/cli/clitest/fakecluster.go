package clitest

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/yaml"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/cli/cluster"
	"github.com/serin-dev/serin/internal/rollout"
	"github.com/serin-dev/serin/internal/workload"
)

// World is a cluster without controllers.
type World struct {
	// Session is the user's session; Admin has all permissions, and its requests never fail.
	Session *cluster.Session
	Admin   client.WithWatch

	t         testing.TB
	mu        sync.Mutex
	forbidden map[string]bool
	missing   map[string]bool
	failing   error
	streams   []watch.Interface
}

// NewWorld creates a cluster with objects in YAML, one document each. In the status of a Canary, the revision "now" is replaced
// with the revision of its target.
func NewWorld(t testing.TB, manifests string) *World {
	t.Helper()
	scheme, err := cluster.Scheme()
	if err != nil {
		t.Fatal(err)
	}
	if err := gatewayv1.Install(scheme); err != nil { // the fake client returns metadata of known kinds only
		t.Fatal(err)
	}
	builder := fake.NewClientBuilder().WithScheme(scheme).WithReturnManagedFields().WithStatusSubresource(&argov1.Rollout{}).
		WithIndex(&coordinationv1.Lease{}, "metadata.name", func(o client.Object) []string { return []string{o.GetName()} }).
		WithIndex(&corev1.Event{}, "involvedObject.kind", func(o client.Object) []string { return []string{o.(*corev1.Event).InvolvedObject.Kind} }).
		WithIndex(&corev1.Event{}, "involvedObject.name", func(o client.Object) []string { return []string{o.(*corev1.Event).InvolvedObject.Name} })
	for document := range strings.SplitSeq(manifests, "\n---\n") {
		builder = builder.WithObjects(object(t, scheme, document))
	}
	w := &World{t: t, Admin: builder.Build(), forbidden: map[string]bool{}, missing: map[string]bool{}}
	w.Session = &cluster.Session{Clock: clock.RealClock{}, Client: interceptor.NewClient(w.Admin, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			if err := w.refusal(scheme, obj, key.Name); err != nil {
				return err
			}
			return c.Get(ctx, key, obj, opts...)
		},
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if err := w.refusal(scheme, list, ""); err != nil {
				return err
			}
			return c.List(ctx, list, opts...)
		},
		Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
			review, is := obj.(*authorizationv1.LocalSubjectAccessReview)
			if !is {
				return c.Create(ctx, obj, opts...)
			}
			if err := w.refusal(scheme, obj, ""); err != nil {
				return err
			}
			review.Status.Allowed = strings.HasPrefix(review.Spec.User, "system:serviceaccount:flagger-system:") ||
				strings.HasPrefix(review.Spec.User, "system:serviceaccount:argo-rollouts:")
			return nil
		},
		Watch: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) (watch.Interface, error) {
			if err := w.refusal(scheme, list, ""); err != nil {
				return nil, err
			}
			stream, err := c.Watch(ctx, list, opts...)
			w.mu.Lock()
			defer w.mu.Unlock()
			w.streams = append(w.streams, stream)
			return stream, err
		},
	})}
	w.settle()
	return w
}

func object(t testing.TB, scheme *runtime.Scheme, document string) client.Object {
	t.Helper()
	u := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(document), &u.Object); err != nil {
		t.Fatalf("read a manifest: %v", err)
	}
	if u.GetNamespace() == "" {
		u.SetNamespace("shop")
	}
	typed, err := scheme.New(u.GroupVersionKind())
	if err != nil {
		return u // a kind of a provider
	}
	o, ok := typed.(client.Object)
	if !ok {
		t.Fatalf("%T is not an object", typed)
	}
	text, err := yaml.Marshal(u.Object)
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(text, o); err != nil {
		t.Fatalf("read a manifest: %v", err)
	}
	return o
}

// settle sets the revisions.
func (w *World) settle() {
	w.t.Helper()
	var list flaggerv1.CanaryList
	if err := w.Admin.List(w.t.Context(), &list); err != nil {
		w.t.Fatal(err)
	}
	for i := range list.Items {
		c := &list.Items[i]
		if c.Status.Serin == nil || c.Status.Serin.Revision != "now" {
			continue
		}
		workloads := &workload.Workloads{Client: w.Admin, Reader: w.Admin, Options: workload.Options{ConfigTracking: true}}
		observed, err := workloads.ForCanary(c).Observe(w.t.Context(), c)
		if err != nil {
			w.t.Fatalf("observe the target: %v", err)
		}
		w.Change(c, func() {
			c.Status.Serin.Revision, c.Status.LastAppliedSpec = observed.Target.Revision, observed.Target.FlaggerHash
		})
	}
	w.settleSteps()
}

// settleSteps sets the hash of the steps in statuses.
func (w *World) settleSteps() {
	w.t.Helper()
	var list argov1.RolloutList
	if err := w.Admin.List(w.t.Context(), &list); err != nil {
		w.t.Fatal(err)
	}
	for i := range list.Items {
		r := &list.Items[i]
		if r.Status.CurrentStepHash != "STEPS" {
			continue
		}
		hash, err := rollout.StepHash(r.Spec.Strategy.Canary.Steps)
		if err != nil {
			w.t.Fatal(err)
		}
		w.Change(r, func() { r.Status.CurrentStepHash = hash })
	}
}

// Change changes an object of the cluster.
func (w *World) Change(o client.Object, change func()) {
	w.t.Helper()
	if err := w.Admin.Get(w.t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
		w.t.Fatal(err)
	}
	change()
	wanted, _ := o.DeepCopyObject().(client.Object)
	if err := w.Admin.Update(w.t.Context(), o); err != nil {
		w.t.Fatal(err)
	}
	wanted.SetResourceVersion(o.GetResourceVersion()) // for kinds whose status is written separately
	if err := w.Admin.Status().Update(w.t.Context(), wanted); err != nil && !apierrors.IsNotFound(err) {
		w.t.Fatal(err)
	}
}

// Canary of namespace shop.
func (w *World) Canary(name string) *flaggerv1.Canary {
	w.t.Helper()
	var c flaggerv1.Canary
	if err := w.Admin.Get(w.t.Context(), client.ObjectKey{Namespace: "shop", Name: name}, &c); err != nil {
		w.t.Fatal(err)
	}
	return &c
}

// Rollout of namespace shop. Its status refers to its current steps.
func (w *World) Rollout(name string) *argov1.Rollout {
	w.t.Helper()
	var r argov1.Rollout
	if err := w.Admin.Get(w.t.Context(), client.ObjectKey{Namespace: "shop", Name: name}, &r); err != nil {
		w.t.Fatal(err)
	}
	return &r
}

// Scale changes the numbers of pods of a ReplicaSet of namespace shop.
func (w *World) Scale(name string, pods, available int32) {
	w.t.Helper()
	rs := &appsv1.ReplicaSet{}
	rs.Namespace, rs.Name = "shop", name
	w.Change(rs, func() {
		rs.Spec.Replicas = &pods
		rs.Status.Replicas, rs.Status.ReadyReplicas, rs.Status.AvailableReplicas = pods, available, available
	})
}

// Judge ends an AnalysisRun of namespace shop, and its first metric.
func (w *World) Judge(name string, phase argov1.AnalysisPhase) {
	w.t.Helper()
	run := &argov1.AnalysisRun{}
	run.Namespace, run.Name = "shop", name
	w.Change(run, func() {
		run.Status.Phase = phase
		result := &run.Status.MetricResults[0]
		result.Phase, result.Failed, result.Count = phase, 3, 4
		result.Message = "Metric \"success-rate\" assessed Failed due to failed (3) > failureLimit (2)"
	})
}

// Route sets the canary's weight of HTTPRoute cart.
func (w *World) Route(weight int32) {
	w.t.Helper()
	route := &gatewayv1.HTTPRoute{}
	route.Name, route.Namespace = "cart", "shop"
	w.Change(route, func() {
		backends := route.Spec.Rules[0].BackendRefs
		*backends[0].Weight, *backends[1].Weight = 100-weight, weight
	})
}

// Deployment of namespace shop.
func (w *World) Deployment(name string) *appsv1.Deployment {
	w.t.Helper()
	var d appsv1.Deployment
	if err := w.Admin.Get(w.t.Context(), client.ObjectKey{Namespace: "shop", Name: name}, &d); err != nil {
		w.t.Fatal(err)
	}
	return &d
}

// Forbid removes the user's permission to read kinds.
func (w *World) Forbid(kinds ...string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, kind := range kinds {
		w.forbidden[kind] = true
	}
}

// Uninstall removes the definitions of kinds from the cluster.
func (w *World) Uninstall(kinds ...string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, kind := range kinds {
		w.missing[kind] = true
	}
}

// Fail makes every request of the user fail, and ends watches; nil: the cluster responds again.
func (w *World) Fail(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.failing = err
	if err == nil {
		return
	}
	for _, stream := range w.streams {
		stream.Stop()
	}
	w.streams = nil
}

func (w *World) refusal(scheme *runtime.Scheme, o runtime.Object, name string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.failing != nil {
		return w.failing
	}
	kind := o.GetObjectKind().GroupVersionKind().Kind
	if kinds, _, err := scheme.ObjectKinds(o); err == nil && kind == "" {
		kind = kinds[0].Kind
	}
	kind = strings.TrimSuffix(kind, "List")
	if w.missing[kind] {
		return &meta.NoKindMatchError{GroupKind: schema.GroupKind{Kind: kind}}
	}
	if !w.forbidden[kind] {
		return nil
	}
	return apierrors.NewForbidden(schema.GroupResource{Resource: strings.ToLower(kind) + "s"}, name, nil)
}

// All returns the versions of all objects as one text, to show whether anything was changed.
func (w *World) All(t testing.TB) string {
	t.Helper()
	var out strings.Builder
	for _, list := range []client.ObjectList{
		&flaggerv1.CanaryList{}, &argov1.RolloutList{}, &appsv1.ReplicaSetList{}, &appsv1.DeploymentList{}, &corev1.ServiceList{}, &corev1.EventList{}, &gatewayv1.HTTPRouteList{},
	} {
		if err := w.Admin.List(t.Context(), list); err != nil {
			t.Fatal(err)
		}
		if err := meta.EachListItem(list, func(o runtime.Object) error {
			object, err := meta.Accessor(o)
			if err == nil {
				fmt.Fprintln(&out, object.GetNamespace(), object.GetName(), object.GetUID(), object.GetResourceVersion())
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	return out.String()
}
