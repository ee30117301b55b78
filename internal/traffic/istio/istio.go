// Package istio routes traffic with an Istio VirtualService and one DestinationRule for each side.
//
// It must not know other providers, clients, or the reason for a weight.
package istio

import (
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/internal/traffic"
)

// The kinds that are written. Istio serves later versions from the same objects.
var (
	virtualServiceKind  = schema.GroupVersionKind{Group: "networking.istio.io", Version: "v1beta1", Kind: "VirtualService"}
	destinationRuleKind = schema.GroupVersionKind{Group: "networking.istio.io", Version: "v1beta1", Kind: "DestinationRule"}
)

// Renderer creates a VirtualService with the name of the apex, and a DestinationRule each for primary and canary.
type Renderer struct{}

// New returns the renderer of the provider istio.
func New() Renderer { return Renderer{} }

// Features of a TCP route are weights only.
func (Renderer) Features(t traffic.Target) traffic.Features {
	if tcp(t) {
		return traffic.Features{Weights: true, ServiceMatch: release.MatchWhole}
	}
	return traffic.Features{
		Weights: true, Matches: true, QueryParams: true, SourceLabels: true,
		Mirror: true, WeightedMirror: true, MirrorPercent: true,
		Sticky: true, PrimarySticky: true, ServiceMatch: release.MatchWhole,
	}
}

// The positions of the objects.
const (
	canaryRule = iota
	primaryRule
	virtualService
)

// Refs names the DestinationRules before the VirtualService, so that their policy exists before traffic is routed.
func (Renderer) Refs(t traffic.Target, _ release.Route, _ traffic.Objects) []traffic.Ref {
	return []traffic.Ref{
		canaryRule:     {GVK: destinationRuleKind, Namespace: t.Namespace, Name: t.CanaryService, Owned: true},
		primaryRule:    {GVK: destinationRuleKind, Namespace: t.Namespace, Name: t.StableService, Owned: true},
		virtualService: {GVK: virtualServiceKind, Namespace: t.Namespace, Name: t.Apex, Owned: true},
	}
}

// Render renders all three objects.
func (r Renderer) Render(t traffic.Target, route release.Route, existing traffic.Objects) ([]*unstructured.Unstructured, error) {
	if err := r.Features(t).Check(t, route); err != nil {
		return nil, err
	}
	service, err := renderVirtualService(t, route, existing[virtualService])
	if err != nil {
		return nil, err
	}
	out := make([]*unstructured.Unstructured, len(existing))
	out[virtualService] = service
	for _, i := range []int{canaryRule, primaryRule} {
		if out[i], err = renderDestinationRule(t, existing[i]); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// Restore restores the adopted fields: hosts, gateways and routes of the VirtualService, host and policy of the
// DestinationRules.
func (r Renderer) Restore(t traffic.Target, existing traffic.Objects) ([]*unstructured.Unstructured, error) {
	return existing.Originals(t, func(i int) traffic.Written {
		if i == virtualService {
			return traffic.Written{Spec: virtualServiceFields(t)}
		}
		return traffic.Written{Spec: destinationRuleFields, NoApexMetadata: true}
	})
}

// tcp reports whether the service is plain TCP, whose requests cannot be matched or mirrored.
func tcp(t traffic.Target) bool {
	return strings.EqualFold(t.Canary.Spec.Service.AppProtocol, "tcp")
}
