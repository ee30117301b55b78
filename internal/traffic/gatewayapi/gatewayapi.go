// Package gatewayapi routes traffic with routes of the Gateway API, for every gateway and mesh that serves them.
//
// It must not know other providers, clients, or which controller reads the route.
package gatewayapi

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

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

// Renderer creates a route with the name of the apex: an HTTPRoute, unless an annotation of the Canary selects another kind.
type Renderer struct {
	version Version
}

// New returns the renderer of the provider gatewayapi:<version>.
func New(version Version) Renderer { return Renderer{version: version} }

// Features are the same in both versions, and depend on the kind of the route.
func (r Renderer) Features(t traffic.Target) traffic.Features {
	switch kind, _ := r.kindOf(t); kind {
	case grpcKind:
		return traffic.Features{Weights: true, Matches: true, Mirror: true, Confirms: true, ServiceMatch: release.MatchWhole}
	case tcpKind:
		return traffic.Features{Weights: true, Confirms: true}
	}
	return traffic.Features{
		Weights: true, Matches: true, QueryParams: true,
		Mirror: true, Sticky: true, PrimarySticky: true, Confirms: true, ServiceMatch: release.MatchWhole,
	}
}

// Refs is the route.
func (r Renderer) Refs(t traffic.Target, _ release.Route, _ traffic.Objects) []traffic.Ref {
	kind, _ := r.kindOf(t) // Render refuses an invalid one
	return []traffic.Ref{{GVK: kind, Namespace: t.Namespace, Name: t.Apex, Owned: true}}
}

// Render renders the route.
func (r Renderer) Render(t traffic.Target, route release.Route, existing traffic.Objects) ([]*unstructured.Unstructured, error) {
	kind, err := r.kindOf(t)
	if err != nil {
		return nil, err
	}
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
	if err := r.renderSpec(t, route, kind, traffic.Spec(obj)); err != nil {
		return nil, err
	}
	return []*unstructured.Unstructured{obj}, nil
}

// Restore restores the parents, host names and rules of an adopted route.
func (r Renderer) Restore(t traffic.Target, existing traffic.Objects) ([]*unstructured.Unstructured, error) {
	obj, err := existing[0].Original(t, r.specFields(t, existing[0].Ref.GVK))
	return []*unstructured.Unstructured{obj}, err
}
