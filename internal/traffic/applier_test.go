package traffic_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/cachetest"
	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/internal/traffic"
	"github.com/serin-dev/serin/internal/traffic/appmesh"
	"github.com/serin-dev/serin/internal/traffic/gatewayapi"
	"github.com/serin-dev/serin/internal/traffic/istio"
	"github.com/serin-dev/serin/internal/traffic/kuma"
)

// cluster is a fake API server that records writes.
type cluster struct {
	client.Client
	writes []string
	// fail has the errors of calls by verb and kind, as in "create VirtualService".
	fail map[string]error
}

func newCluster(t *testing.T, objs ...client.Object) *cluster {
	t.Helper()
	scheme := runtime.NewScheme()
	for gvk, list := range map[schema.GroupVersionKind]string{
		{Group: "networking.istio.io", Version: "v1beta1", Kind: "VirtualService"}:  "VirtualServiceList",
		{Group: "networking.istio.io", Version: "v1beta1", Kind: "DestinationRule"}: "DestinationRuleList",
		{Group: "gateway.networking.k8s.io", Version: "v1", Kind: "HTTPRoute"}:      "HTTPRouteList",
		{Group: "appmesh.k8s.aws", Version: "v1beta2", Kind: "VirtualNode"}:         "VirtualNodeList",
		{Group: "appmesh.k8s.aws", Version: "v1beta2", Kind: "VirtualRouter"}:       "VirtualRouterList",
		{Group: "appmesh.k8s.aws", Version: "v1beta2", Kind: "VirtualService"}:      "VirtualServiceList",
		{Group: "kuma.io", Version: "v1alpha1", Kind: "TrafficRoute"}:               "TrafficRouteList",
	} {
		scheme.AddKnownTypeWithName(gvk, &unstructured.Unstructured{})
		scheme.AddKnownTypeWithName(gvk.GroupVersion().WithKind(list), &unstructured.UnstructuredList{})
	}
	c := &cluster{fail: map[string]error{}}
	cache := cachetest.New(t)
	answer := func(verb string, obj client.Object) error {
		call := verb + " " + obj.GetObjectKind().GroupVersionKind().Kind
		if verb != "get" {
			c.writes = append(c.writes, call)
		}
		return c.fail[call]
	}
	c.Client = interceptor.NewClient(fake.NewClientBuilder().WithScheme(scheme).WithObjects(objs...).Build(), interceptor.Funcs{
		Get: func(ctx context.Context, w client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			if err := answer("get", obj); err != nil {
				return err
			}
			return cache.Get(ctx, w, key, obj, opts...)
		},
		Create: func(ctx context.Context, w client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
			if err := answer("create", obj); err != nil {
				return err
			}
			return w.Create(ctx, obj, opts...)
		},
		Patch: func(ctx context.Context, w client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
			if err := answer("patch", obj); err != nil {
				return err
			}
			return w.Patch(ctx, obj, patch, opts...)
		},
		Delete: func(ctx context.Context, w client.WithWatch, obj client.Object, opts ...client.DeleteOption) error {
			if err := answer("delete", obj); err != nil {
				return err
			}
			return w.Delete(ctx, obj, opts...)
		},
	})
	return c
}

func (c *cluster) wrote() []string {
	out := c.writes
	c.writes = nil
	return out
}

func (c *cluster) get(t *testing.T, kind, name string) *unstructured.Unstructured {
	t.Helper()
	obj := &unstructured.Unstructured{}
	group := "networking.istio.io/v1beta1"
	if kind == "HTTPRoute" {
		group = "gateway.networking.k8s.io/v1"
	}
	obj.SetAPIVersion(group)
	obj.SetKind(kind)
	if err := c.Get(t.Context(), client.ObjectKey{Namespace: "web", Name: name}, obj); err != nil {
		t.Fatalf("get %s %s: %v", kind, name, err)
	}
	return obj
}

func cart() traffic.Target {
	c := &flaggerv1.Canary{}
	c.Name, c.Namespace, c.UID = "cart", "web", "0d3a5fd7-uid"
	c.Spec.TargetRef.Name = "cart"
	c.Spec.Service.Port = 80
	c.Spec.Service.GatewayRefs = []flaggerv1.GatewayReference{{Name: "edge"}}
	return traffic.NewCanaryTarget(c, "istio", "app")
}

func usersService() *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "networking.istio.io/v1beta1", "kind": "VirtualService",
		"metadata": map[string]any{"name": "cart", "namespace": "web", "labels": map[string]any{"mine": "yes"}},
		"spec": map[string]any{
			"hosts": []any{"cart"}, "exportTo": []any{"."},
			"http": []any{map[string]any{"route": []any{map[string]any{"destination": map[string]any{"host": "cart"}}}}},
		},
	}}
}

func TestApplyWritesOnlyDifferences(t *testing.T) {
	c := newCluster(t)
	a := &traffic.Applier{Client: c, FieldOwner: "serin"}
	steps := []struct {
		route release.Route
		want  []string
	}{
		{release.Route{}, []string{"create DestinationRule", "create DestinationRule", "create VirtualService"}},
		{release.Route{}, nil},
		{release.Route{Canary: 20}, []string{"patch VirtualService"}},
		{release.Route{Canary: 20}, nil},
		{release.Route{}, []string{"patch VirtualService"}},
	}
	for i, step := range steps {
		got, err := a.Apply(t.Context(), istio.New(), cart(), step.route, nil)
		if err != nil {
			t.Fatalf("step %d: %v", i, err)
		}
		if wrote := c.wrote(); !cmp.Equal(wrote, step.want) || got.Changed != (len(step.want) > 0) {
			t.Errorf("step %d to %s: wrote %v, changed %v; want %v", i, step.route, wrote, got.Changed, step.want)
		}
		seen, _, err := a.Observe(t.Context(), istio.New(), cart())
		if err != nil || seen.Route.Canary != step.route.Canary {
			t.Errorf("step %d: observed %+v, error %v", i, seen, err)
		}
	}
	want := []metav1.OwnerReference{{
		APIVersion: "flagger.app/v1beta1", Kind: "Canary", Name: "cart", UID: "0d3a5fd7-uid",
		Controller: new(true), BlockOwnerDeletion: new(true),
	}}
	if diff := cmp.Diff(want, c.get(t, "VirtualService", "cart").GetOwnerReferences()); diff != "" {
		t.Errorf("owner (-want +got):\n%s", diff)
	}
}

// TestApplyExceptWeightsPreservesExistingWeights: a caller with an outdated view must not revert a step.
func TestApplyExceptWeightsPreservesExistingWeights(t *testing.T) {
	c := newCluster(t)
	a := &traffic.Applier{Client: c}
	if _, err := a.ApplyExceptWeights(t.Context(), istio.New(), cart(), release.Route{Canary: 10}, false); err != nil {
		t.Fatal(err)
	}
	if seen, _, err := a.Observe(t.Context(), istio.New(), cart()); err != nil || seen.Route.Canary != 10 {
		t.Errorf("created: observed %+v, error %v, want weight 10", seen, err)
	}
	if _, err := a.Apply(t.Context(), istio.New(), cart(), release.Route{Canary: 40}, nil); err != nil {
		t.Fatal(err)
	}
	behind := cart()
	behind.Canary.Spec.Service.Timeout = "7s"
	if got, err := a.ApplyExceptWeights(t.Context(), istio.New(), behind, release.Route{Canary: 30}, true); err != nil || !got.Changed {
		t.Errorf("changed %v, error %v: want the timeout written", got.Changed, err)
	}
	if seen, _, err := a.Observe(t.Context(), istio.New(), cart()); err != nil || seen.Route.Canary != 40 {
		t.Errorf("preserved: observed %+v, error %v, want weight 40", seen, err)
	}
}

// TestApplyExceptWeightsDoesNotRecreateAnObservedRoute: its weight may be one that another user wrote a moment before they
// deleted the route. It must not return as Serin's.
func TestApplyExceptWeightsDoesNotRecreateAnObservedRoute(t *testing.T) {
	c := newCluster(t)
	a := &traffic.Applier{Client: c}
	if _, err := a.ApplyExceptWeights(t.Context(), istio.New(), cart(), release.Route{Canary: 77}, true); !errors.Is(err, traffic.ErrRouteChanged) {
		t.Errorf("got error %v, want ErrRouteChanged", err)
	}
	if seen, _, err := a.Observe(t.Context(), istio.New(), cart()); err != nil || seen.Found {
		t.Errorf("observed %+v, error %v, want no route", seen, err)
	}
}

// TestApplyExceptWeightsDoesNotChangeTheRequestsOfAWeight: the caller did not observe that the existing weight is that of an A/B
// test. It must not become one for all requests, and the reverse.
func TestApplyExceptWeightsDoesNotChangeTheRequestsOfAWeight(t *testing.T) {
	matching := release.Route{Canary: release.Total, Matches: []release.Match{{Headers: map[string]release.StringMatch{"x-user": {Exact: "insider"}}}}}
	for name, test := range map[string]struct{ existing, desired release.Route }{
		"matches removed": {matching, release.Route{}},
		"matches added":   {release.Route{Canary: 20}, matching},
	} {
		t.Run(name, func(t *testing.T) {
			a := &traffic.Applier{Client: newCluster(t)}
			if _, err := a.Apply(t.Context(), istio.New(), cart(), test.existing, nil); err != nil {
				t.Fatal(err)
			}
			before, _, err := a.Observe(t.Context(), istio.New(), cart())
			if err != nil {
				t.Fatal(err)
			}
			if _, err := a.ApplyExceptWeights(t.Context(), istio.New(), cart(), test.desired, true); !errors.Is(err, traffic.ErrRouteChanged) {
				t.Errorf("got error %v, want ErrRouteChanged", err)
			}
			after, _, err := a.Observe(t.Context(), istio.New(), cart())
			if diff := cmp.Diff(before, after); diff != "" || err != nil {
				t.Errorf("error %v, the route was written (-before +after):\n%s", err, diff)
			}
		})
	}
}

func TestApplyNamesTheVersionThatWasRead(t *testing.T) {
	c := newCluster(t)
	a := &traffic.Applier{Client: c}
	if _, err := a.Apply(t.Context(), istio.New(), cart(), release.Route{}, nil); err != nil {
		t.Fatal(err)
	}
	stale := &staleReader{cluster: c, served: c.get(t, "VirtualService", "cart")}
	edited := c.get(t, "VirtualService", "cart")
	edited.SetLabels(map[string]string{"by": "another tool"})
	if err := c.Update(t.Context(), edited); err != nil {
		t.Fatal(err)
	}
	_, err := (&traffic.Applier{Client: stale}).Apply(t.Context(), istio.New(), cart(), release.Route{Canary: 20}, nil)
	if !apierrors.IsConflict(err) {
		t.Fatalf("apply over a stale object: got %v, want a conflict", err)
	}
	if got := c.get(t, "VirtualService", "cart").GetLabels()["by"]; got != "another tool" {
		t.Errorf("label of another tool is %q", got)
	}
}

// TestApplyRefusesARouteThatHasChangedSinceItWasDecided: the caller must decide again, because another process may have
// removed traffic from the canary, and the cache of that process is the first to show it.
func TestApplyRefusesARouteThatHasChangedSinceItWasDecided(t *testing.T) {
	c := newCluster(t)
	a := &traffic.Applier{Client: c}
	if _, err := a.Apply(t.Context(), istio.New(), cart(), release.Route{Canary: 20}, nil); err != nil {
		t.Fatal(err)
	}
	_, decided, err := a.Observe(t.Context(), istio.New(), cart())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.Apply(t.Context(), istio.New(), cart(), release.Route{}, decided); err != nil {
		t.Fatalf("unchanged route: %v", err)
	}
	if _, err := a.Apply(t.Context(), istio.New(), cart(), release.Route{Canary: 50}, decided); !errors.Is(err, traffic.ErrRouteChanged) {
		t.Errorf("weight 50, decided on an outdated route: got %v, want ErrRouteChanged", err)
	}
	if seen, _, err := a.Observe(t.Context(), istio.New(), cart()); err != nil || seen.Route.Canary != 0 {
		t.Errorf("observed %+v, error %v, want weight 0", seen, err)
	}
}

func TestVerifyNewestRefusesAnOutdatedCache(t *testing.T) {
	c := newCluster(t)
	a := &traffic.Applier{Client: c}
	_, absent, err := a.Observe(t.Context(), istio.New(), cart())
	if err != nil {
		t.Fatal(err)
	}
	if err := a.VerifyNewest(t.Context(), c, absent); err != nil {
		t.Errorf("no route exists: %v", err)
	}
	if _, err := a.Apply(t.Context(), istio.New(), cart(), release.Route{Canary: 20}, nil); err != nil {
		t.Fatal(err)
	}
	_, read, err := a.Observe(t.Context(), istio.New(), cart())
	if err != nil {
		t.Fatal(err)
	}
	if err := a.VerifyNewest(t.Context(), c, read); err != nil {
		t.Errorf("nothing has changed: %v", err)
	}
	if err := a.VerifyNewest(t.Context(), c, absent); !errors.Is(err, traffic.ErrRouteChanged) {
		t.Errorf("the route was created: got %v, want ErrRouteChanged", err)
	}
	if _, err := a.Apply(t.Context(), istio.New(), cart(), release.Route{}, nil); err != nil {
		t.Fatal(err)
	}
	if err := a.VerifyNewest(t.Context(), c, read); !errors.Is(err, traffic.ErrRouteChanged) {
		t.Errorf("the weights have changed: got %v, want ErrRouteChanged", err)
	}
	elsewhere := &traffic.Applier{Client: c, Groups: map[string]client.Client{"networking.istio.io": c}}
	if err := elsewhere.VerifyNewest(t.Context(), c, read); err != nil {
		t.Errorf("a route in another cluster: %v", err)
	}
}

// TestVerifyNewestReadsInAFixedOrder verifies that the same faults have the same consequences in each replay of a simulation run.
func TestVerifyNewestReadsInAFixedOrder(t *testing.T) {
	c := newCluster(t)
	a := &traffic.Applier{Client: c}
	_, read, err := a.Observe(t.Context(), istio.New(), cart())
	if err != nil {
		t.Fatal(err)
	}
	var first []string
	for range 20 {
		reader := &orderOfReads{Reader: c}
		if err := a.VerifyNewest(t.Context(), reader, read); err != nil {
			t.Fatal(err)
		}
		if first == nil {
			first = reader.read
		}
		if len(reader.read) < 2 || !slices.Equal(reader.read, first) {
			t.Fatalf("read %q, and %q before", reader.read, first)
		}
	}
}

// orderOfReads records which objects are read.
type orderOfReads struct {
	client.Reader
	read []string
}

func (r *orderOfReads) Get(ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
	r.read = append(r.read, object.GetObjectKind().GroupVersionKind().Kind+" "+key.Name)
	return r.Reader.Get(ctx, key, object, options...)
}

// staleReader serves an old version of one object, like an outdated cache.
type staleReader struct {
	*cluster
	served *unstructured.Unstructured
}

func (s *staleReader) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	if u, ok := obj.(*unstructured.Unstructured); ok && u.GetKind() == s.served.GetKind() {
		s.served.DeepCopyInto(u)
		return nil
	}
	return s.cluster.Get(ctx, key, obj, opts...)
}

func TestAdoptionAndRestoration(t *testing.T) {
	c := newCluster(t, usersService())
	before := c.get(t, "VirtualService", "cart")
	a := &traffic.Applier{Client: c}
	for _, weight := range []int{0, 30, 0} {
		if _, err := a.Apply(t.Context(), istio.New(), cart(), release.Route{Canary: weight}, nil); err != nil {
			t.Fatal(err)
		}
	}
	adopted := c.get(t, "VirtualService", "cart")
	if len(adopted.GetOwnerReferences()) > 0 {
		t.Errorf("an adopted object got an owner, with which it would be deleted")
	}
	if adopted.GetAnnotations()[traffic.OriginalAnnotation] == "" {
		t.Errorf("the original was not recorded")
	}
	c.wrote()
	if err := a.Restore(t.Context(), istio.New(), cart()); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"patch VirtualService"}, c.wrote()); diff != "" {
		t.Errorf("restore wrote (-want +got):\n%s", diff)
	}
	after := c.get(t, "VirtualService", "cart")
	after.SetResourceVersion(before.GetResourceVersion())
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("restored (-before +after):\n%s", diff)
	}
	if err := a.Restore(t.Context(), istio.New(), cart()); err != nil || len(c.wrote()) > 0 {
		t.Errorf("restored again: error %v", err)
	}
}

// TestPrepareCreatesTheObjectsThatSelectPods, and no others, which Apply creates.
func TestPrepareCreatesTheObjectsThatSelectPods(t *testing.T) {
	c := newCluster(t)
	a := &traffic.Applier{Client: c}
	for i, want := range [][]string{{"create VirtualNode", "create VirtualNode"}, nil} {
		changed, err := a.Prepare(t.Context(), appmesh.New(appmesh.V1Beta2), cart())
		if err != nil || changed != (i == 0) {
			t.Errorf("prepare: changed %v, error %v", changed, err)
		}
		if diff := cmp.Diff(want, c.wrote()); diff != "" {
			t.Errorf("prepare wrote (-want +got):\n%s", diff)
		}
	}
	if _, err := a.Prepare(t.Context(), appmesh.New(appmesh.V1Beta1), cart()); !errors.Is(err, traffic.ErrInvalid) {
		t.Errorf("prepared a route that cannot be created later: error %v", err)
	}
}

// TestAClusterScopedRouteIsMarkedAndDeleted: no namespaced owner can own it, so garbage collection does not delete it.
func TestAClusterScopedRouteIsMarkedAndDeleted(t *testing.T) {
	c := newCluster(t)
	a := &traffic.Applier{Client: c}
	if _, err := a.Apply(t.Context(), kuma.New(), cart(), release.Route{}, nil); err != nil {
		t.Fatal(err)
	}
	made := &unstructured.Unstructured{}
	made.SetAPIVersion("kuma.io/v1alpha1")
	made.SetKind("TrafficRoute")
	if err := c.Get(t.Context(), client.ObjectKey{Name: "cart"}, made); err != nil {
		t.Fatal(err)
	}
	if got := made.GetAnnotations()[traffic.CanaryAnnotation]; got != "web/cart" || len(made.GetOwnerReferences()) > 0 {
		t.Errorf("annotated %q and owned by %v", got, made.GetOwnerReferences())
	}
	for range 2 {
		if err := a.Restore(t.Context(), kuma.New(), cart()); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff([]string{"create TrafficRoute", "delete TrafficRoute"}, c.wrote()); diff != "" {
		t.Errorf("wrote (-want +got):\n%s", diff)
	}
}

func TestRestoreWithoutObjectsSucceeds(t *testing.T) {
	c := newCluster(t)
	if err := (&traffic.Applier{Client: c}).Restore(t.Context(), istio.New(), cart()); err != nil || len(c.wrote()) > 0 {
		t.Errorf("restore of nothing: error %v", err)
	}
}

// TestRestoreWithoutDefinitionsSucceeds: the objects were deleted with the definitions of their kinds, and a Canary waits for their
// restoration before its deletion.
func TestRestoreWithoutDefinitionsSucceeds(t *testing.T) {
	c := newCluster(t, usersService())
	a := &traffic.Applier{Client: c}
	if _, err := a.Apply(t.Context(), istio.New(), cart(), release.Route{Canary: 20}, nil); err != nil {
		t.Fatal(err)
	}
	c.wrote()
	for _, kind := range []string{"DestinationRule", "VirtualService"} {
		c.fail["get "+kind] = &meta.NoKindMatchError{GroupKind: schema.GroupKind{Group: "networking.istio.io", Kind: kind}}
		if err := a.Restore(t.Context(), istio.New(), cart()); err != nil {
			t.Errorf("without %s: %v", kind, err)
		}
	}
	if diff := cmp.Diff([]string{"patch VirtualService"}, c.wrote()); diff != "" {
		t.Errorf("wrote (-want +got):\n%s", diff)
	}
}

func TestRestoreReportsAMissingOriginal(t *testing.T) {
	users := usersService()
	users.SetAnnotations(map[string]string{"kustomize.toolkit.fluxcd.io/reconcile": "disabled"})
	c := newCluster(t, users)
	if err := (&traffic.Applier{Client: c}).Restore(t.Context(), istio.New(), cart()); !errors.Is(err, traffic.ErrNoOriginal) {
		t.Errorf("restore: got %v, want ErrNoOriginal", err)
	}
}

// TestRestoreChangesOnlyRoutesThatWereTakenOver: a route may differ from what kubectl applied, because something else changed it. A
// Canary that never wrote it does not change it, nor does a second restoration.
func TestRestoreChangesOnlyRoutesThatWereTakenOver(t *testing.T) {
	users := usersService()
	users.SetAnnotations(map[string]string{"kubectl.kubernetes.io/last-applied-configuration": `{"spec":{"hosts":["elsewhere"],"http":[{"route":[{"destination":{"host":"elsewhere"}}]}]}}`})
	c := newCluster(t, users)
	a := &traffic.Applier{Client: c}
	if err := a.Restore(t.Context(), istio.New(), cart()); err != nil {
		t.Fatal(err)
	}
	if wrote := c.wrote(); len(wrote) > 0 {
		t.Errorf("without a takeover: wrote %v", wrote)
	}
	if _, err := a.Apply(t.Context(), istio.New(), cart(), release.Route{Canary: 20}, nil); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := a.Restore(t.Context(), istio.New(), cart()); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(users.Object["spec"], c.get(t, "VirtualService", "cart").Object["spec"]); diff != "" {
			t.Errorf("the spec after the restoration (-want +got):\n%s", diff)
		}
	}
}

func TestWithoutOwnerReferencesObjectsAreMarkedAndRemoved(t *testing.T) {
	c := newCluster(t, usersService())
	a := &traffic.Applier{Client: c, NoOwnerReferences: true}
	for range 2 {
		if _, err := a.Apply(t.Context(), istio.New(), cart(), release.Route{Canary: 20}, nil); err != nil {
			t.Fatal(err)
		}
	}
	rule := c.get(t, "DestinationRule", "cart-canary")
	if rule.GetAnnotations()[traffic.CanaryAnnotation] != "web/cart" || len(rule.GetOwnerReferences()) > 0 {
		t.Errorf("annotations of a created object: %v, owners %v", rule.GetAnnotations(), rule.GetOwnerReferences())
	}
	if _, recorded := rule.GetAnnotations()[traffic.OriginalAnnotation]; recorded {
		t.Errorf("a created object was treated as the user's")
	}
	c.wrote()
	if err := a.Restore(t.Context(), istio.New(), cart()); err != nil {
		t.Fatal(err)
	}
	want := []string{"patch VirtualService", "delete DestinationRule", "delete DestinationRule"} // in reverse order of the writes
	if diff := cmp.Diff(want, c.wrote()); diff != "" {
		t.Errorf("restore wrote (-want +got):\n%s", diff)
	}
}

func TestObjectsOfOtherOwnersAreUnchanged(t *testing.T) {
	theirs := usersService()
	theirs.SetOwnerReferences([]metav1.OwnerReference{{
		APIVersion: "flagger.app/v1beta1", Kind: "Canary", Name: "basket", UID: "other", Controller: new(true),
	}})
	c := newCluster(t, theirs)
	a := &traffic.Applier{Client: c}
	_, err := a.Apply(t.Context(), istio.New(), cart(), release.Route{}, nil)
	if !errors.Is(err, traffic.ErrNotOwned) {
		t.Errorf("apply: got %v, want ErrNotOwned", err)
	}
	if err := a.Restore(t.Context(), istio.New(), cart()); err != nil {
		t.Errorf("restore: %v", err)
	}
	if wrote := c.wrote(); len(wrote) > 0 {
		t.Errorf("wrote %v", wrote)
	}
}

// TestErrorTexts has Flagger's texts (canary.md, 9.2).
func TestErrorTexts(t *testing.T) {
	cause := errors.New("no answer")
	missing := &meta.NoKindMatchError{GroupKind: schema.GroupKind{Group: "gateway.networking.k8s.io", Kind: "HTTPRoute"}}
	for _, tt := range []struct {
		name     string
		renderer traffic.Renderer
		fail     map[string]error
		change   func(*flaggerv1.Canary)
		text     string
		is       error
	}{
		{
			"get of one object", gatewayapi.New(gatewayapi.V1),
			map[string]error{"get HTTPRoute": cause},
			nil,
			"HTTPRoute cart.web get query error: no answer", cause,
		},
		{
			"create of one object", gatewayapi.New(gatewayapi.V1),
			map[string]error{"create HTTPRoute": cause},
			nil,
			"HTTPRoute cart.web create error: no answer", cause,
		},
		{
			"create of one of several", istio.New(),
			map[string]error{"create DestinationRule": cause},
			nil,
			"reconcileDestinationRule failed: DestinationRule cart-canary.web create error: no answer", cause,
		},
		{
			"update of one of several", istio.New(),
			map[string]error{"patch VirtualService": cause},
			nil,
			"reconcileVirtualService failed: VirtualService cart.web update error: no answer", cause,
		},
		{
			"delegation", istio.New(), nil,
			func(c *flaggerv1.Canary) { c.Spec.Service.Delegation, c.Spec.Service.Hosts = true, []string{"a"} },
			"reconcileVirtualService failed: VirtualService cart.web cannot have hosts and gateways when delegation enabled",
			traffic.ErrInvalid,
		},
		{
			"no gateway", gatewayapi.New(gatewayapi.V1), nil, func(c *flaggerv1.Canary) { c.Spec.Service.GatewayRefs = nil },
			"GatewayRefs must be specified when using Gateway API as a provider.", traffic.ErrInvalid,
		},
		{
			"a kind that is not installed", gatewayapi.New(gatewayapi.V1),
			map[string]error{"get HTTPRoute": missing},
			nil,
			"HTTPRoute is not known to this cluster: install its definition (gateway.networking.k8s.io, v1), or choose another spec.provider",
			traffic.ErrNotInstalled,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := newCluster(t, usersService())
			if tt.fail != nil {
				c.fail = tt.fail
			}
			target := cart()
			if tt.change != nil {
				tt.change(target.Canary)
			}
			_, err := (&traffic.Applier{Client: c}).Apply(t.Context(), tt.renderer, target, release.Route{}, nil)
			if err == nil || err.Error() != tt.text || !errors.Is(err, tt.is) {
				t.Errorf("got  %v\nwant %s", err, tt.text)
			}
		})
	}
}

func TestAnOriginalThatIsTooLarge(t *testing.T) {
	large := usersService()
	if err := unstructured.SetNestedField(large.Object, strings.Repeat("x", 70_000), "spec", "note"); err != nil {
		t.Fatal(err)
	}
	t.Run("is refused if it must be restored", func(t *testing.T) {
		target := cart()
		target.Canary.Spec.RevertOnDeletion = true
		_, err := (&traffic.Applier{Client: newCluster(t, large.DeepCopy())}).Apply(t.Context(), istio.New(), target, release.Route{}, nil)
		if !errors.Is(err, traffic.ErrInvalid) {
			t.Errorf("got %v, want ErrInvalid", err)
		}
	})
	t.Run("is not recorded otherwise", func(t *testing.T) {
		c := newCluster(t, large.DeepCopy())
		if _, err := (&traffic.Applier{Client: c}).Apply(t.Context(), istio.New(), cart(), release.Route{}, nil); err != nil {
			t.Fatal(err)
		}
		if _, recorded := c.get(t, "VirtualService", "cart").GetAnnotations()[traffic.OriginalAnnotation]; recorded {
			t.Errorf("the original was recorded")
		}
	})
}

// deletingRenderer requests the deletion of every object.
type deletingRenderer struct{ istio.Renderer }

func (deletingRenderer) Render(traffic.Target, release.Route, traffic.Objects) ([]*unstructured.Unstructured, error) {
	return make([]*unstructured.Unstructured, 3), nil
}

func TestOnlyObjectsOfTheReleaseAreDeleted(t *testing.T) {
	c := newCluster(t, usersService())
	a := &traffic.Applier{Client: c}
	if _, err := a.Apply(t.Context(), deletingRenderer{}, cart(), release.Route{}, nil); !errors.Is(err, traffic.ErrNotOwned) {
		t.Errorf("delete the user's object: got %v, want ErrNotOwned", err)
	}
	if wrote := c.wrote(); len(wrote) > 0 {
		t.Errorf("wrote %v", wrote)
	}
}
