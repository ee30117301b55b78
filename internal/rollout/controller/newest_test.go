package controller

import (
	"context"
	"errors"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/readyourwrites"
	"github.com/serin-dev/serin/internal/traffic"
)

func TestWritesRequireTheNewestRollout(t *testing.T) {
	at := func(uid types.UID, version string) *argov1.Rollout {
		return &argov1.Rollout{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "cart", UID: uid, ResourceVersion: version}}
	}
	for _, test := range []struct {
		name   string
		knows  string // the version that this process knows; empty: none
		live   bool
		cached *argov1.Rollout
		behind bool
		reads  int
	}{
		{"an old list", "", true, at("1", "10"), true, 1},
		{"a list that is up to date", "", true, at("1", "30"), false, 1},
		{"what this process wrote itself, and sees", "30", true, at("1", "30"), false, 0},
		{"what this process wrote itself, and does not see", "30", true, at("1", "29"), true, 0},
		{"gone by now", "", false, at("1", "10"), true, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			var manifests []string
			if test.live {
				manifests = []string{`{apiVersion: argoproj.io/v1alpha1, kind: Rollout, metadata: {namespace: shop, name: cart, uid: "1", resourceVersion: "30"}}`}
			}
			p := newFakeCluster(t, manifests...)
			if test.knows != "" {
				p.reconciler.newest.rollouts.RecordVersion(key, at("1", test.knows))
			}
			check := p.reconciler.newest.requireNewest(test.cached)
			for range 2 { // nothing is read twice, except for a deleted object
				err := check(t.Context(), &appsv1.ReplicaSet{})
				if got := errors.Is(err, readyourwrites.ErrStale); got != test.behind || err != nil && !got {
					t.Errorf("%v, behind should be %t", err, test.behind)
				}
				if !test.live {
					break
				}
			}
			if err := check(t.Context(), test.cached); err != nil {
				t.Errorf("a write of the Rollout itself is checked beside its precondition: %v", err)
			}
			if len(p.live) != test.reads {
				t.Errorf("reads %v, want %d", p.live, test.reads)
			}
		})
	}
}

func TestWritesRequireTheNewestWorkload(t *testing.T) {
	for _, test := range []struct {
		name         string
		kind         string
		live         string // its UID in the API server; empty: it does not exist
		uid, version string // withFormerStrategy the cache has it
		known        string // the version of it that is known; empty: none
		behind       bool
		reads        int
	}{
		{"an old list", "Deployment", "1", "1", "10", "", true, 1},
		{"a list that is up to date", "Deployment", "1", "1", "30", "", false, 1},
		{"read before", "Deployment", "1", "1", "31", "30", false, 0},
		{"read before, and the cache is older", "Deployment", "1", "1", "29", "30", true, 0},
		{"gone by now", "Deployment", "", "1", "10", "", true, 1},
		{"made again by now", "Deployment", "2", "1", "10", "", true, 1},
		{"a ReplicaSet, which no cache has", "ReplicaSet", "1", "1", "10", "", false, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			var manifests []string
			if test.live != "" {
				manifests = []string{`{apiVersion: apps/v1, kind: ` + test.kind + `, metadata: {namespace: shop, name: app, uid: "` + test.live + `", resourceVersion: "30"}}`}
			}
			p := newFakeCluster(t, manifests...)
			at := func(version string) *unstructured.Unstructured {
				object := &unstructured.Unstructured{}
				object.SetGroupVersionKind(appsv1.SchemeGroupVersion.WithKind(test.kind))
				object.SetNamespace("shop")
				object.SetName("app")
				object.SetUID(types.UID(test.uid))
				object.SetResourceVersion(version)
				return object
			}
			if test.known != "" {
				p.reconciler.newest.workloads.RecordVersion(key, at(test.known))
			}
			object := at(test.version)
			rollout := &argov1.Rollout{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "cart"}}
			asked := 0
			check := p.reconciler.newest.requireNewestWorkload(&observation{object: rollout, workload: &workloadObject{object: object}}, func(context.Context, client.Object) error {
				asked++
				return nil
			})
			for range 2 { // nothing is read twice, except for a deleted object
				err := check(t.Context(), rollout)
				if got := errors.Is(err, readyourwrites.ErrStale); got != test.behind || err != nil && !got {
					t.Errorf("%v, behind should be %t", err, test.behind)
				}
				if test.live != test.uid {
					break
				}
			}
			if !test.behind && asked != 2 {
				t.Errorf("the check of the Rollout was called %d times, want 2", asked)
			}
			if len(p.live) != test.reads {
				t.Errorf("reads %v, want %d", p.live, test.reads)
			}
		})
	}
}

func TestWritesRequireTheNewestReplicaSets(t *testing.T) {
	set := func(name string, uid types.UID, generation int64) *appsv1.ReplicaSet {
		return &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: uid, Generation: generation}}
	}
	const live = `{apiVersion: apps/v1, kind: ReplicaSet, metadata: {namespace: shop, name: cart-a, uid: a, generation: 4, labels: {app: cart},
		ownerReferences: [{apiVersion: argoproj.io/v1alpha1, kind: Rollout, name: cart, uid: "1", controller: true}]}}`
	const strangers = `{apiVersion: apps/v1, kind: ReplicaSet, metadata: {namespace: shop, name: web-a, uid: w, labels: {app: cart},
		ownerReferences: [{apiVersion: argoproj.io/v1alpha1, kind: Rollout, name: web, uid: "2", controller: true}]}}`
	rollout := &argov1.Rollout{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "cart", UID: "1"}}
	crowded := set("cart-a", "a", 4)
	crowded.Status.AvailableReplicas = 1
	for _, test := range []struct {
		name   string
		cached []*appsv1.ReplicaSet
		behind bool
		reads  int
	}{
		{"a list that is up to date", []*appsv1.ReplicaSet{set("cart-a", "a", 4)}, false, 1},
		{"newer by a write of this pass", []*appsv1.ReplicaSet{set("cart-a", "a", 5)}, false, 1},
		{"one is gone by now", []*appsv1.ReplicaSet{set("cart-a", "a", 4), set("cart-b", "b", 1)}, true, 2},
		{"one has lost its pods", []*appsv1.ReplicaSet{crowded}, true, 2},
		{"one is missing", nil, true, 2},
		{"one has been scaled since", []*appsv1.ReplicaSet{set("cart-a", "a", 3)}, true, 2},
		{"one was made again", []*appsv1.ReplicaSet{set("cart-a", "z", 9)}, true, 2},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := newFakeCluster(t, live, strangers)
			s := &observation{object: rollout, replicaSets: map[string]*appsv1.ReplicaSet{}}
			s.spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "cart"}}
			for _, rs := range test.cached {
				s.replicaSets[rs.Name] = rs
			}
			check := p.reconciler.newest.requireNewestReplicaSets(s, func(context.Context, client.Object) error { return nil })
			for range 2 { // what was found to be current is not read again
				err := check(t.Context(), rollout)
				if got := errors.Is(err, readyourwrites.ErrStale); got != test.behind || err != nil && !got {
					t.Errorf("%v, behind should be %t", err, test.behind)
				}
			}
			if len(p.live) != test.reads {
				t.Errorf("reads %v, want %d", p.live, test.reads)
			}
		})
	}
}

// TestTheFirstWriteRequiresTheNewestRoute: in an old list, a revision that still has traffic may seem to have none.
func TestTheFirstWriteRequiresTheNewestRoute(t *testing.T) {
	p := clusterWithTwoRouters(t)
	s := &observation{object: p.rollout()}
	routers, err := p.reconciler.Routers.ForRollout(s.object.Spec.Strategy.Canary.TrafficRouting)
	if err != nil {
		t.Fatal(err)
	}
	for _, router := range routers {
		_, versions, err := p.reconciler.Applier.Observe(t.Context(), router.Renderer, router.Target(s.object, "", ""))
		if err != nil {
			t.Fatal(err)
		}
		s.versions = append(s.versions, versions)
	}
	edit := func() {
		t.Helper()
		ingress := &networkingv1.Ingress{}
		if err := p.client.Get(t.Context(), client.ObjectKey{Namespace: s.object.Namespace, Name: "cart"}, ingress); err != nil {
			t.Fatal(err)
		}
		ingress.Labels = map[string]string{"edited": ingress.ResourceVersion}
		if err := p.client.Update(t.Context(), ingress); err != nil {
			t.Fatal(err)
		}
	}
	verify := func() error {
		check := p.reconciler.newest.requireNewestRoute(s, func(context.Context, client.Object) error { return nil })
		return check(t.Context(), newService())
	}
	if err := verify(); err != nil {
		t.Errorf("nothing has changed: %v", err)
	}
	edit()
	if err := verify(); err != nil {
		t.Errorf("it was compared already: %v", err)
	}
	p.restart()
	if err := verify(); !errors.Is(err, traffic.ErrRouteChanged) {
		t.Errorf("another process with an outdated cache: got error %v, want ErrRouteChanged", err)
	}
}
