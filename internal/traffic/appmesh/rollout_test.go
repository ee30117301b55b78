package appmesh_test

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"pgregory.net/rapid"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/traffic"
	"github.com/serin-dev/serin/internal/traffic/appmesh"
	"github.com/serin-dev/serin/internal/traffic/traffictest"
)

func TestRolloutContract(t *testing.T) {
	admission := traffictest.LocalAdmission(t, "testdata/crds/v1beta2.yaml")
	for name, routes := range map[string][]string{"all routes": nil, "one route": {"main"}} {
		t.Run(name, func(t *testing.T) {
			traffictest.Run(t, appmesh.NewRollout(), traffictest.Options{
				Provider: "appMesh", Admission: admission, Given: users,
				Rollout: func(_ *rapid.T, ro *argov1.Rollout) {
					ro.Spec.Strategy.Canary.TrafficRouting.AppMesh = &argov1.AppMeshTrafficRouting{
						VirtualService: &argov1.AppMeshVirtualService{Name: "cart", Routes: routes},
						VirtualNodeGroup: &argov1.AppMeshVirtualNodeGroup{
							CanaryVirtualNodeRef: &argov1.AppMeshVirtualNodeReference{Name: "cart-canary"},
							StableVirtualNodeRef: &argov1.AppMeshVirtualNodeReference{Name: "cart-stable"},
						},
					}
				},
			})
		})
	}
}

// users are the objects of a mesh as they are when a Rollout is at rest.
func users(t traffic.Target) []*unstructured.Unstructured {
	object := func(kind, namespace, name string, spec map[string]any) *unstructured.Unstructured {
		obj := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "appmesh.k8s.aws/v1beta2", "kind": kind, "spec": spec}}
		obj.SetNamespace(namespace)
		obj.SetName(name)
		return obj
	}
	node := func(name, hash string) *unstructured.Unstructured {
		return object("VirtualNode", "web", name, map[string]any{
			"podSelector": map[string]any{"matchLabels": map[string]any{"app": "cart", argov1.PodTemplateHashLabel: hash}},
			"listeners":   []any{map[string]any{"portMapping": map[string]any{"port": int64(80), "protocol": "http"}}},
		})
	}
	target := func(node string, weight int64) any {
		return map[string]any{"virtualNodeRef": map[string]any{"name": node, "namespace": "web"}, "weight": weight, "port": int64(80)}
	}
	canary := t.CanaryHash
	if canary == "" || canary == t.StableHash {
		canary = "canary-hash"
	}
	return []*unstructured.Unstructured{
		node("cart-canary", canary), node("cart-stable", t.StableHash),
		object("VirtualService", "web", "cart", map[string]any{"provider": map[string]any{"virtualRouter": map[string]any{
			"virtualRouterRef": map[string]any{"name": "cart", "namespace": "mesh"},
		}}}),
		object("VirtualRouter", "mesh", "cart", map[string]any{
			"listeners": []any{map[string]any{"portMapping": map[string]any{"port": int64(80), "protocol": "http"}}},
			"routes": []any{map[string]any{"name": "main", "httpRoute": map[string]any{
				"match":  map[string]any{"prefix": "/"},
				"action": map[string]any{"weightedTargets": []any{target("cart-canary", 0), target("cart-stable", 100)}},
			}}},
		}),
	}
}

func TestRolloutGolden(t *testing.T) {
	traffictest.Golden(t, appmesh.NewRollout(), "appMesh", "testdata/rollout")
}
