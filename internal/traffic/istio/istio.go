// Package istio carries traffic by an Istio VirtualService and one DestinationRule for each side.
//
// It must not know other providers, clients, or why a weight is what it is.
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

// Renderer makes a VirtualService named as the apex, and a DestinationRule for primary and canary.
type Renderer struct{}

// New makes the renderer of the provider istio.
func New() Renderer { return Renderer{} }

// Features of a TCP route are weights alone.
func (Renderer) Features(t traffic.Target) traffic.Features {
	if tcp(t) {
		return traffic.Features{Weights: true}
	}
	return traffic.Features{
		Weights: true, Matches: true, QueryParams: true, SourceLabels: true,
		Mirror: true, WeightedMirror: true, MirrorPercent: true,
		Sticky: true, PrimarySticky: true,
	}
}

// The places of the objects among the references.
const (
	canaryRule = iota
	primaryRule
	virtualService
)

// Refs names the DestinationRules before the VirtualService, so that their policy is there when traffic comes.
func (Renderer) Refs(t traffic.Target) []traffic.Ref {
	return []traffic.Ref{
		canaryRule:     {GVK: destinationRuleKind, Namespace: t.Namespace, Name: t.CanaryService, Owned: true},
		primaryRule:    {GVK: destinationRuleKind, Namespace: t.Namespace, Name: t.Primary, Owned: true},
		virtualService: {GVK: virtualServiceKind, Namespace: t.Namespace, Name: t.Apex, Owned: true},
	}
}

// Render makes all three objects.
func (r Renderer) Render(t traffic.Target, route release.Route, existing []*unstructured.Unstructured) ([]*unstructured.Unstructured, error) {
	if err := r.Features(t).Check(t, route); err != nil {
		return nil, err
	}
	refs := r.Refs(t)
	service, err := renderVirtualService(t, route, refs[virtualService], existing[virtualService])
	if err != nil {
		return nil, err
	}
	out := make([]*unstructured.Unstructured, len(refs))
	out[virtualService] = service
	for _, i := range []int{canaryRule, primaryRule} {
		if out[i], err = renderDestinationRule(t, refs[i], existing[i]); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// Restore gives back what was adopted: hosts, gateways and routes of the VirtualService, host and policy of the
// DestinationRules.
func (r Renderer) Restore(t traffic.Target, existing []*unstructured.Unstructured) ([]*unstructured.Unstructured, error) {
	refs := r.Refs(t)
	out := make([]*unstructured.Unstructured, len(refs))
	var unknown error
	for i, ref := range refs {
		ours := traffic.Ours{Spec: destinationRuleFields.Names(), Bare: true}
		if i == virtualService {
			ours = traffic.Ours{Spec: virtualServiceFields(t).Names()}
		}
		obj, err := ours.GivenBack(t, ref, existing[i])
		if err != nil {
			unknown = err
		}
		out[i] = obj
	}
	return out, unknown
}

// tcp says whether the service speaks TCP and nothing above it that could be matched or mirrored.
func tcp(t traffic.Target) bool {
	return strings.EqualFold(t.Canary.Spec.Service.AppProtocol, "tcp")
}
