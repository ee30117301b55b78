// Package gloo routes the traffic of a Canary with a RouteTable of Gloo Edge, to which the user's VirtualService delegates, and
// one Upstream for each side. That of a Rollout is routed with a VirtualService or RouteTables of the user.
//
// It must not know other providers, clients, or the reason for a weight.
package gloo

import (
	"cmp"
	"strconv"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/internal/traffic"
)

// The kinds that are written.
var (
	routeTableKind = schema.GroupVersionKind{Group: "gateway.solo.io", Version: "v1", Kind: "RouteTable"}
	upstreamKind   = schema.GroupVersionKind{Group: "gloo.solo.io", Version: "v1", Kind: "Upstream"}
)

// Renderer creates a RouteTable with the name of the apex, and an Upstream each for primary and canary.
type Renderer struct {
	prefixes []string
}

// New returns the renderer of the provider gloo. Labels with these prefixes are copied to the Upstreams from the one that
// spec.upstreamRef names.
func New(prefixes []string) *Renderer { return &Renderer{prefixes: prefixes} }

// Features are weights, and matches by header.
func (*Renderer) Features(traffic.Target) traffic.Features {
	return traffic.Features{Weights: true, Matches: true}
}

// The positions of the objects. The one that spec.upstreamRef names comes last.
const (
	primaryUpstream = iota
	canaryUpstream
	routeTable
)

// Refs names the Upstreams before the RouteTable that refers to them.
func (*Renderer) Refs(t traffic.Target, _ release.Route, _ traffic.Objects) []traffic.Ref {
	refs := []traffic.Ref{
		primaryUpstream: {GVK: upstreamKind, Namespace: t.Namespace, Name: upstreamName(t, "primary"), Owned: true, Derived: true},
		canaryUpstream:  {GVK: upstreamKind, Namespace: t.Namespace, Name: upstreamName(t, "canary"), Owned: true, Derived: true},
		routeTable:      {GVK: routeTableKind, Namespace: t.Namespace, Name: t.Apex, Owned: true},
	}
	if ref, named := usersRef(t); named {
		refs = append(refs, ref)
	}
	return refs
}

// usersRef is the Upstream that the Canary names, if it names one.
func usersRef(t traffic.Target) (traffic.Ref, bool) {
	ref := t.Canary.Spec.UpstreamRef
	if ref == nil {
		return traffic.Ref{}, false
	}
	return traffic.Ref{GVK: upstreamKind, Namespace: cmp.Or(ref.Namespace, t.Namespace), Name: ref.Name}, true
}

// users is the Upstream that the Canary names; nil if it names none.
func users(t traffic.Target, existing traffic.Objects) (*unstructured.Unstructured, error) {
	ref, named := usersRef(t)
	if !named {
		return nil, nil
	}
	if obj := existing.Get(ref.GVK.Kind, ref.Namespace, ref.Name); obj != nil {
		return obj, nil
	}
	return nil, traffic.Refuse(traffic.ErrInvalid, "%s, which spec.upstreamRef names, does not exist: create it, or correct spec.upstreamRef", ref)
}

func upstreamName(t traffic.Target, side string) string {
	return t.Namespace + "-" + t.Apex + "-" + side + "upstream-" + strconv.Itoa(int(t.Canary.Spec.Service.Port))
}

// Render renders all three objects.
func (r *Renderer) Render(t traffic.Target, route release.Route, existing traffic.Objects) ([]*unstructured.Unstructured, error) {
	if err := r.Features(t).Check(t, route); err != nil {
		return nil, err
	}
	out := existing.Unchanged()
	pattern, err := users(t, existing)
	if err != nil {
		return nil, err
	}
	for i, service := range []string{primaryUpstream: t.StableService, canaryUpstream: t.CanaryService} {
		if out[i], err = r.renderUpstream(t, service, pattern, existing[i]); err != nil {
			return nil, err
		}
	}
	if out[routeTable], err = renderRouteTable(t, route, existing); err != nil {
		return nil, err
	}
	return out, nil
}

// Restore restores the routes of an adopted RouteTable. Upstreams are deleted with the release, unless they were handed over.
func (r *Renderer) Restore(t traffic.Target, existing traffic.Objects) ([]*unstructured.Unstructured, error) {
	return existing.Originals(t, func(i int) traffic.Written {
		if i == routeTable {
			return traffic.Written{Spec: specFields(existing)}
		}
		return traffic.Written{Spec: traffic.Fields{"kube": {Fields: kubeFields}}, NoApexMetadata: true}
	})
}

// RenderApex routes all requests to the Upstream of the primary, and this Upstream to the apex Service. A route to the Service
// itself would lose the settings of the Upstream, and Gloo may be configured without such routes.
func (r *Renderer) RenderApex(t traffic.Target, existing traffic.Objects) ([]*unstructured.Unstructured, error) {
	out := make([]*unstructured.Unstructured, len(existing))
	if upstream := existing[primaryUpstream].Object; upstream != nil {
		out[primaryUpstream] = upstream.DeepCopy()
		setKube(t, traffic.Spec(out[primaryUpstream]), t.Apex)
	}
	if table := existing[routeTable].Object; table != nil {
		out[routeTable] = table.DeepCopy()
		routeToPrimary(existing, traffic.Spec(out[routeTable]))
	}
	return out, nil
}
