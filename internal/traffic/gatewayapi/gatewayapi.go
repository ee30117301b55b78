// Package gatewayapi routes traffic with an HTTPRoute of the Gateway API, for every gateway and mesh that serves it.
//
// It must not know other providers, clients, or which controller reads the route.
package gatewayapi

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/internal/traffic"
)

// Version of the Gateway API that is written.
type Version string

// The versions. Timeouts and CORS are written in V1 only.
const (
	V1      Version = "v1"
	V1Beta1 Version = "v1beta1"
)

// Renderer creates an HTTPRoute with the name of the apex.
type Renderer struct {
	version Version
}

// New returns the renderer of the provider gatewayapi:<version>.
func New(version Version) Renderer { return Renderer{version: version} }

// Features are the same in both versions.
func (Renderer) Features(traffic.Target) traffic.Features {
	return traffic.Features{
		Weights: true, Matches: true, QueryParams: true,
		Mirror: true, Sticky: true, PrimarySticky: true, Confirms: true,
	}
}

// Refs is the HTTPRoute.
func (r Renderer) Refs(t traffic.Target, _ release.Route, _ traffic.Objects) []traffic.Ref {
	gvk := schema.GroupVersionKind{Group: gatewayv1.GroupName, Version: string(r.version), Kind: "HTTPRoute"}
	return []traffic.Ref{{GVK: gvk, Namespace: t.Namespace, Name: t.Apex, Owned: true}}
}

// Render renders the HTTPRoute.
func (r Renderer) Render(t traffic.Target, route release.Route, existing traffic.Objects) ([]*unstructured.Unstructured, error) {
	if err := r.Features(t).Check(t, route); err != nil {
		return nil, err
	}
	if len(t.Canary.Spec.Service.GatewayRefs) == 0 {
		return nil, traffic.Refuse(traffic.ErrInvalid, "GatewayRefs must be specified when using Gateway API as a provider.")
	}
	obj, err := existing[0].Adopt(t)
	if err != nil {
		return nil, err
	}
	traffic.SetApexMetadata(t, obj)
	if err := r.renderSpec(t, route, traffic.Spec(obj)); err != nil {
		return nil, err
	}
	return []*unstructured.Unstructured{obj}, nil
}

// Restore restores the parents, host names and rules of an adopted HTTPRoute.
func (r Renderer) Restore(t traffic.Target, existing traffic.Objects) ([]*unstructured.Unstructured, error) {
	obj, err := existing[0].Original(t, r.specFields(t).Names()...)
	return []*unstructured.Unstructured{obj}, err
}
