package controller

import (
	"context"
	"errors"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/ownwrites"
)

func TestTakeOver(t *testing.T) {
	at := func(uid types.UID, version string) *argov1.Rollout {
		return &argov1.Rollout{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "cart", UID: uid, ResourceVersion: version}}
	}
	for _, test := range []struct {
		name   string
		knows  string // the version that this process knows; empty: none
		proves string // the version that a write of this process proved to be the newest; empty: none
		live   bool
		cached *argov1.Rollout
		behind bool
		reads  int
	}{
		{"an old list", "", "", true, at("1", "10"), true, 1},
		{"a list that is up to date", "", "", true, at("1", "30"), false, 1},
		{"what this process wrote itself, and sees", "30", "", true, at("1", "30"), false, 0},
		{"what this process wrote itself, and does not see", "30", "", true, at("1", "29"), true, 0},
		{"what a write proved", "", "10", true, at("1", "10"), false, 0},
		{"what a later write proves of the same pass", "10", "11", true, at("1", "10"), false, 0},
		{"gone by now", "", "", false, at("1", "10"), true, 1},
		{"made again by now", "", "", true, at("2", "31"), true, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			var manifests []string
			if test.live {
				manifests = []string{`{apiVersion: argoproj.io/v1alpha1, kind: Rollout, metadata: {namespace: shop, name: cart, uid: "1", resourceVersion: "30"}}`}
			}
			p := newPocket(t, manifests...)
			m := p.reconciler.memory
			if test.knows != "" {
				m.knows(key, test.knows)
			}
			if test.proves != "" {
				m.proves(key, test.proves)
			}
			check := p.reconciler.takeOver(test.cached)
			for range 2 { // what was read once is not read again, but for one that is gone
				err := check(t.Context(), &appsv1.ReplicaSet{})
				if got := errors.Is(err, ownwrites.ErrBehind); got != test.behind || err != nil && !got {
					t.Errorf("%v, behind should be %t", err, test.behind)
				}
				if !test.live || test.cached.UID != "1" {
					break
				}
			}
			if err := check(t.Context(), test.cached); err != nil {
				t.Errorf("a write of the Rollout itself is not left to its precondition: %v", err)
			}
			if len(p.live) != test.reads {
				t.Errorf("reads %v, want %d", p.live, test.reads)
			}
		})
	}
}

func TestTakeOverWorkload(t *testing.T) {
	for _, test := range []struct {
		name         string
		kind         string
		live         string // its UID in the API server; empty: it is not there
		uid, version string // as the cache has it
		known        lender
		behind       bool
		reads        int
	}{
		{"an old list", "Deployment", "1", "1", "10", lender{}, true, 1},
		{"a list that is up to date", "Deployment", "1", "1", "30", lender{}, false, 1},
		{"read before", "Deployment", "1", "1", "31", lender{"1", "30"}, false, 0},
		{"read before, and the cache is older", "Deployment", "1", "1", "29", lender{"1", "30"}, true, 0},
		{"another one", "Deployment", "1", "1", "30", lender{"9", "50"}, false, 1},
		{"gone by now", "Deployment", "", "1", "10", lender{}, true, 1},
		{"made again by now", "Deployment", "2", "1", "10", lender{}, true, 1},
		{"a ReplicaSet, which no cache has", "ReplicaSet", "1", "1", "10", lender{}, false, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			var manifests []string
			if test.live != "" {
				manifests = []string{`{apiVersion: apps/v1, kind: ` + test.kind + `, metadata: {namespace: shop, name: app, uid: "` + test.live + `", resourceVersion: "30"}}`}
			}
			p := newPocket(t, manifests...)
			p.reconciler.memory.lends(key, test.known)
			object := &unstructured.Unstructured{}
			object.SetGroupVersionKind(appsv1.SchemeGroupVersion.WithKind(test.kind))
			object.SetNamespace("shop")
			object.SetName("app")
			object.SetUID(types.UID(test.uid))
			object.SetResourceVersion(test.version)
			rollout := &argov1.Rollout{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "cart"}}
			asked := 0
			check := p.reconciler.takeOverWorkload(&seen{object: rollout, workload: &workloadObject{object: object}}, func(context.Context, client.Object) error {
				asked++
				return nil
			})
			for range 2 { // what was read once is not read again, but for one that is gone
				err := check(t.Context(), rollout)
				if got := errors.Is(err, ownwrites.ErrBehind); got != test.behind || err != nil && !got {
					t.Errorf("%v, behind should be %t", err, test.behind)
				}
				if test.live != test.uid {
					break
				}
			}
			if !test.behind && asked != 2 {
				t.Errorf("the check of the Rollout was asked %d times, want 2", asked)
			}
			if len(p.live) != test.reads {
				t.Errorf("reads %v, want %d", p.live, test.reads)
			}
		})
	}
}
