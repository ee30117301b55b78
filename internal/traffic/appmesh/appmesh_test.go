package appmesh_test

import (
	"errors"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/intstr"
	"pgregory.net/rapid"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/internal/traffic"
	"github.com/serin-dev/serin/internal/traffic/appmesh"
	"github.com/serin-dev/serin/internal/traffic/traffictest"
)

// providers are the provider names of the versions.
var providers = map[appmesh.Version]string{appmesh.V1Beta1: "appmesh", appmesh.V1Beta2: "appmesh:v1beta2"}

func TestContract(t *testing.T) {
	for version, provider := range providers {
		t.Run(string(version), func(t *testing.T) {
			traffictest.Run(t, appmesh.New(version), traffictest.Options{
				Provider: provider, Admission: traffictest.LocalAdmission(t, "testdata/crds/"+string(version)+".yaml"), Canary: meshFields,
				// The node of the canary, but not its DNS name.
				Remains: func(t traffic.Target) []string {
					return []string{"name:" + t.CanaryService, "virtualNodeName:" + t.CanaryService}
				},
			})
		})
	}
}

// meshFields sets fields that App Mesh requires, and those that only App Mesh uses.
func meshFields(t *rapid.T, c *flaggerv1.Canary) {
	s := &c.Spec.Service
	s.MeshName = "prod"
	s.Backends = rapid.SampledFrom([][]string{nil, {"stock.shop"}, {"stock.shop", "arn:aws:appmesh:eu-west-1:1:mesh/prod/virtualService/bank"}}).Draw(t, "backends")
	s.PortName = rapid.SampledFrom([]string{"", "http", "grpc-api"}).Draw(t, "port name")
	s.TargetPort = rapid.SampledFrom([]*intstr.IntOrString{nil, new(intstr.FromInt32(8080)), new(intstr.FromString("web"))}).Draw(t, "target port")
	if s.Retries != nil {
		s.Retries.RetryOn = rapid.SampledFrom([]string{"", "server-error", "gateway-error, connection-error"}).Draw(t, "retry on")
		s.Retries.PerTryTimeout = rapid.SampledFrom([]string{"", "1s"}).Draw(t, "retry timeout")
	}
	c.Annotations = rapid.SampledFrom([]map[string]string{nil, {"appmesh.flagger.app/accesslog": "enabled"}}).Draw(t, "canary annotations")
}

func TestGolden(t *testing.T) {
	for version, provider := range providers {
		traffictest.Golden(t, appmesh.New(version), provider, "testdata/golden/"+string(version))
	}
}

// TestRecorded compares with objects that Flagger wrote.
func TestRecorded(t *testing.T) {
	traffictest.Recorded(t, appmesh.New(appmesh.V1Beta1), providers[appmesh.V1Beta1], 15, nil)
	traffictest.Recorded(t, appmesh.New(appmesh.V1Beta2), providers[appmesh.V1Beta2], 17, nil)
}

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

// users are the objects of a mesh without a Rollout: the stable node selects all pods, and the other one none.
func users(traffic.Target) []*unstructured.Unstructured {
	object := func(kind, namespace, name string, spec map[string]any) *unstructured.Unstructured {
		obj := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "appmesh.k8s.aws/v1beta2", "kind": kind, "spec": spec}}
		obj.SetNamespace(namespace)
		obj.SetName(name)
		return obj
	}
	node := func(name string, selected map[string]any) *unstructured.Unstructured {
		return object("VirtualNode", "web", name, map[string]any{
			"podSelector": map[string]any{"matchLabels": selected},
			"listeners":   []any{map[string]any{"portMapping": map[string]any{"port": int64(80), "protocol": "http"}}},
		})
	}
	target := func(node string, weight int64) any {
		return map[string]any{"virtualNodeRef": map[string]any{"name": node, "namespace": "web"}, "weight": weight, "port": int64(80)}
	}
	return []*unstructured.Unstructured{
		node("cart-canary", map[string]any{"app": "cart", argov1.PodTemplateHashLabel: "canary-hash"}), node("cart-stable", map[string]any{"app": "cart"}),
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

// TestARouterInAnotherNamespaceIsRefused if the target does not permit it: no field of the Rollout names it, but the VirtualService does.
func TestARouterInAnotherNamespaceIsRefused(t *testing.T) {
	ro := &argov1.Rollout{}
	ro.Name, ro.Namespace = "cart", "web"
	ro.Spec.Strategy.Canary = &argov1.CanaryStrategy{TrafficRouting: &argov1.RolloutTrafficRouting{
		AppMesh: &argov1.AppMeshTrafficRouting{VirtualService: &argov1.AppMeshVirtualService{Name: "cart"}},
	}}
	target := traffic.Target{Namespace: "web", Rollout: ro}
	read := func(ref traffic.Ref) (traffic.Objects, error) {
		for _, obj := range users(target) {
			if obj.GetKind() == ref.GVK.Kind && obj.GetNamespace() == ref.Namespace && obj.GetName() == ref.Name {
				return traffic.Objects{{Ref: ref, Object: obj}}, nil
			}
		}
		return traffic.Objects{{Ref: ref}}, nil
	}
	if objects, err := traffic.FindObjects(appmesh.NewRollout(), target, release.Route{}, read); err != nil || objects.Get("VirtualRouter", "mesh", "cart") == nil {
		t.Errorf("found %v, %v", objects, err)
	}
	target.NoCrossNamespace = true
	objects, err := traffic.FindObjects(appmesh.NewRollout(), target, release.Route{}, read)
	if !errors.Is(err, traffic.ErrCrossNamespace) || !strings.Contains(err.Error(), "VirtualRouter cart.mesh") || objects.Get("VirtualService", "web", "cart") == nil {
		t.Errorf("found %v, %v", objects, err)
	}
}
