package controller

import (
	"context"
	"fmt"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/canary"
	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/internal/traffic"
	"github.com/serin-dev/serin/internal/traffic/istio"
	"github.com/serin-dev/serin/internal/workload"
)

// applications counts how often the effects were applied.
type applications struct {
	workload.Workload
	services int
}

func (a *applications) ForCanary(*flaggerv1.Canary) workload.Workload { return a }
func (*applications) ScalesTarget(context.Context, *flaggerv1.Canary) (bool, error) {
	return false, nil
}
func (*applications) Forget(types.NamespacedName)        {}
func (*applications) CachedKeys() []types.NamespacedName { return nil }

// cartWorkload is the kind of the target of Canary cart.
func cartWorkload(c client.Client, live client.Reader) workload.Workload {
	return (&workload.Workloads{Client: c, APIReader: live}).ForCanary(&flaggerv1.Canary{Spec: flaggerv1.CanarySpec{TargetRef: flaggerv1.TargetReference{Kind: "Deployment"}}})
}

func (a *applications) EnsureServices(ctx context.Context, c *flaggerv1.Canary, apex bool) error {
	a.services++
	return a.Workload.EnsureServices(ctx, c, apex)
}

// steadyStateCluster is a cluster in which Canary cart is in its steady state, and a reconciler that has observed it.
type steadyStateCluster struct {
	client     client.WithWatch
	reconciler *Reconciler
	applied    *applications
}

func newSteadyStateCluster(tb testing.TB) *steadyStateCluster {
	tb.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, appsv1.AddToScheme, flaggerv1.AddToScheme} {
		if err := add(scheme); err != nil {
			tb.Fatal(err)
		}
	}
	service := schema.GroupVersionKind{Group: "networking.istio.io", Version: "v1beta1", Kind: "VirtualService"}
	scheme.AddKnownTypeWithName(service, &unstructured.Unstructured{})
	service.Kind += "List"
	scheme.AddKnownTypeWithName(service, &unstructured.UnstructuredList{})
	labels := map[string]string{"app": "cart"}
	target := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: cart.Namespace, Name: cart.Name, UID: "target"},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "cart", Image: "cart:1"}}},
			},
		},
	}
	c := &flaggerv1.Canary{ObjectMeta: metav1.ObjectMeta{Namespace: cart.Namespace, Name: cart.Name, UID: "canary"}}
	c.Spec.TargetRef = flaggerv1.TargetReference{APIVersion: "apps/v1", Kind: "Deployment", Name: cart.Name}
	c.Spec.Service.Port = 80
	uids := 0
	w := &steadyStateCluster{client: interceptor.NewClient(fake.NewClientBuilder().WithScheme(scheme).WithObjects(target, c).Build(), interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
			uids++
			obj.SetUID(types.UID(fmt.Sprint("uid-", uids)))
			return c.Create(ctx, obj, opts...)
		},
	})}
	noting := RecordReads(w.client)
	w.applied = &applications{Workload: cartWorkload(noting, w.client)}
	w.reconciler = New(Parts{Observer: Observer{Workloads: w.applied, Applier: &traffic.Applier{Client: noting}}})
	for range 2 { // the first writes
		w.applyFresh(tb, canary.ServicesExist{Apex: true})
		w.applyFresh(tb, canary.RouteMaintained{Canary: 20})
	}
	w.applied.services = 0
	return w
}

// applyFresh applies an effect in a reconciliation of its own.
func (w *steadyStateCluster) applyFresh(tb testing.TB, effect canary.Effect) {
	tb.Helper()
	w.apply(tb, w.observe(tb), effect)
}

func (w *steadyStateCluster) observe(tb testing.TB) *observation {
	tb.Helper()
	c := &flaggerv1.Canary{}
	if err := w.client.Get(context.Background(), cart, c); err != nil {
		tb.Fatal(err)
	}
	return &observation{object: c, renderer: istio.New(), target: traffic.NewCanaryTarget(c, "istio", "app"), selector: "app"}
}

func (w *steadyStateCluster) apply(tb testing.TB, s *observation, effect canary.Effect) {
	tb.Helper()
	if err := w.reconciler.effectApplier().applyIfNeeded(context.Background(), s, effect, s.object.Status); err != nil {
		tb.Fatal(err)
	}
}

func (w *steadyStateCluster) object(tb testing.TB, kind, name string) *unstructured.Unstructured {
	tb.Helper()
	object := &unstructured.Unstructured{}
	object.SetAPIVersion(map[string]string{
		"Deployment": "apps/v1", "Service": "v1", "Canary": "flagger.app/v1beta1", "VirtualService": "networking.istio.io/v1beta1",
	}[kind])
	object.SetKind(kind)
	if err := w.client.Get(context.Background(), types.NamespacedName{Namespace: cart.Namespace, Name: name}, object); err != nil {
		tb.Fatal(err)
	}
	return object
}

// edit changes an object as a user would.
func (w *steadyStateCluster) edit(tb testing.TB, kind, name, mergePatch string) {
	tb.Helper()
	if err := w.client.Patch(context.Background(), w.object(tb, kind, name), client.RawPatch(types.MergePatchType, []byte(mergePatch))); err != nil {
		tb.Fatal(err)
	}
}

func (w *steadyStateCluster) remove(tb testing.TB, kind, name string) {
	tb.Helper()
	if err := w.client.Delete(context.Background(), w.object(tb, kind, name)); err != nil {
		tb.Fatal(err)
	}
}

func TestASteadyStateEffectIsSkippedWhileItsReadsAreUnchanged(t *testing.T) {
	w := newSteadyStateCluster(t)
	w.edit(t, "Canary", "cart", `{"status":{"phase":"Progressing"},"metadata":{"annotations":{"serin.dev/command":"abort@1"}}}`)
	for range 3 {
		w.applyFresh(t, canary.ServicesExist{Apex: true})
	}
	if w.applied.services != 0 {
		t.Errorf("applied %d times, want never", w.applied.services)
	}
}

func TestASteadyStateEffectIsAppliedAgainWhenAReadChanged(t *testing.T) {
	for name, change := range map[string]func(*testing.T, *steadyStateCluster){
		"a Service": func(t *testing.T, w *steadyStateCluster) {
			w.edit(t, "Service", "cart-primary", `{"metadata":{"labels":{"a":"b"}}}`)
		},
		"a Service is deleted": func(t *testing.T, w *steadyStateCluster) { w.remove(t, "Service", "cart-primary") },
		"the target":           func(t *testing.T, w *steadyStateCluster) { w.edit(t, "Deployment", "cart", `{"spec":{"paused":true}}`) },
		"the Canary": func(t *testing.T, w *steadyStateCluster) {
			w.edit(t, "Canary", "cart", `{"metadata":{"generation":2},"spec":{"service":{"port":81}}}`)
		},
		"an annotation of the Canary, which no generation counts": func(t *testing.T, w *steadyStateCluster) {
			w.edit(t, "Canary", "cart", `{"metadata":{"annotations":{"kuma.io/mesh":"prod"}}}`)
		},
		"memory is lost": func(_ *testing.T, w *steadyStateCluster) { w.reconciler.memory = newMemory() },
		"the Canary is forgotten": func(_ *testing.T, w *steadyStateCluster) {
			w.reconciler.memory.Forget(cart)
		},
		"a Service is recreated": func(t *testing.T, w *steadyStateCluster) {
			w.remove(t, "Service", "cart-canary")
			made := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: cart.Namespace, Name: "cart-canary"}}
			if err := w.client.Create(t.Context(), made); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newSteadyStateCluster(t)
			change(t, w)
			w.applyFresh(t, canary.ServicesExist{Apex: true})
			if w.applied.services != 1 {
				t.Errorf("applied %d times, want once", w.applied.services)
			}
		})
	}
	t.Run("the cookie of a run", func(t *testing.T) {
		w := newSteadyStateCluster(t)
		s := w.observe(t)
		s.object.Status.SessionAffinityCookie = "cookie=1"
		w.apply(t, s, canary.ServicesExist{Apex: true})
		if w.applied.services != 1 {
			t.Errorf("applied %d times, want once", w.applied.services)
		}
	})
	t.Run("the effect", func(t *testing.T) {
		w := newSteadyStateCluster(t)
		w.applyFresh(t, canary.ServicesExist{})
		if w.applied.services != 1 {
			t.Errorf("applied %d times, want once", w.applied.services)
		}
	})
}

func TestChangesOfServicesAndRouteAreReverted(t *testing.T) {
	w := newSteadyStateCluster(t)
	w.edit(t, "Service", "cart", `{"spec":{"selector":{"app":"stolen"}}}`)
	w.remove(t, "Service", "cart-canary")
	w.edit(t, "VirtualService", "cart", `{"spec":{"hosts":["stolen"]}}`)
	w.applyFresh(t, canary.ServicesExist{Apex: true})
	w.applyFresh(t, canary.RouteMaintained{Canary: 20})
	if got, _, _ := unstructured.NestedString(w.object(t, "Service", "cart").Object, "spec", "selector", "app"); got != "cart-primary" {
		t.Errorf("the apex selects %q, want cart-primary", got)
	}
	w.object(t, "Service", "cart-canary")
	if got, _, _ := unstructured.NestedStringSlice(w.object(t, "VirtualService", "cart").Object, "spec", "hosts"); len(got) == 0 || got[0] != "cart" {
		t.Errorf("the route is for %v, want cart", got)
	}
	w.remove(t, "VirtualService", "cart")
	w.applyFresh(t, canary.RouteMaintained{Canary: 20})
	w.object(t, "VirtualService", "cart")
}

// A warning remains as long as its cause: skipping the effect would drop it.
func TestAnEffectThatWarnsIsAppliedInEveryReconciliation(t *testing.T) {
	w := newSteadyStateCluster(t)
	w.edit(t, "Service", "cart", `{"spec":{"clusterIP":"None"}}`)
	for reconciliation := range 3 {
		decision, _, err := w.reconciler.effectApplier().applyDecision(t.Context(), w.observe(t), canary.Decision{Effects: []release.Effect{canary.ServicesExist{Apex: true}}})
		if err != nil || len(decision.Events) != 1 {
			t.Fatalf("reconciliation %d: got warnings %v, error %v, want one warning", reconciliation, decision.Events, err)
		}
	}
}

func TestWithAClientThatDoesNotRecordReadsNoEffectIsSkipped(t *testing.T) {
	w := newSteadyStateCluster(t)
	w.reconciler.memory = newMemory()
	w.applied.Workload = cartWorkload(w.client, w.client)
	for range 3 {
		w.applyFresh(t, canary.ServicesExist{Apex: true})
	}
	if w.applied.services != 3 {
		t.Errorf("applied %d times, want 3", w.applied.services)
	}
}

// BenchmarkSteadyState measures the steady-state effects of a reconciliation: skipped and applied.
func BenchmarkSteadyState(b *testing.B) {
	for _, remembers := range []bool{true, false} {
		b.Run(fmt.Sprint("remembers=", remembers), func(b *testing.B) {
			w := newSteadyStateCluster(b)
			cache := RecordReads(cachedReader{w.client, map[string]*unstructured.Unstructured{}})
			w.applied.Workload = cartWorkload(cache, w.client)
			w.reconciler.Applier = &traffic.Applier{Client: cache}
			w.reconciler.memory = newMemory()
			s := w.observe(b)
			b.ReportAllocs()
			for b.Loop() {
				if !remembers {
					w.reconciler.memory = newMemory()
				}
				w.apply(b, s, canary.ServicesExist{Apex: true})
				w.apply(b, s, canary.RouteMaintained{Canary: 20})
			}
		})
	}
}

// cachedReader reads each object once and returns copies of it from then on, as a cache does.
type cachedReader struct {
	client.Client
	objects map[string]*unstructured.Unstructured
}

func (c cachedReader) Get(ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
	generic, ok := object.(*unstructured.Unstructured)
	if !ok {
		return c.Client.Get(ctx, key, object, options...)
	}
	name := generic.GetKind() + "/" + key.String()
	if c.objects[name] == nil {
		read := generic.DeepCopy()
		if err := c.Client.Get(ctx, key, read); err != nil {
			return err
		}
		c.objects[name] = read
	}
	*generic = *c.objects[name]
	if shared := (&client.GetOptions{}).ApplyOptions(options).UnsafeDisableDeepCopy; shared == nil || !*shared {
		*generic = *c.objects[name].DeepCopy()
	}
	return nil
}
