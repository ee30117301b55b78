// Package gloo carries traffic by a RouteTable of Gloo Edge, to which the user's VirtualService delegates, and one
// Upstream for each side.
//
// It must not know other providers, clients, or why a weight is what it is.
package gloo

import (
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

// Renderer makes a RouteTable named as the apex, and an Upstream for primary and canary.
type Renderer struct {
	prefixes []string
}

// New makes the renderer of the provider gloo. Upstreams take labels with these prefixes from the one that
// spec.upstreamRef names.
func New(prefixes []string) *Renderer { return &Renderer{prefixes: prefixes} }

// Features are weights, and matches by header.
func (*Renderer) Features(traffic.Target) traffic.Features {
	return traffic.Features{Weights: true, Matches: true}
}

// The places of the objects among the references.
const (
	primaryUpstream = iota
	canaryUpstream
	routeTable
	usersUpstream // only where the Canary names one
)

// Refs names the Upstreams before the RouteTable that leads to them.
func (*Renderer) Refs(t traffic.Target) []traffic.Ref {
	refs := []traffic.Ref{
		primaryUpstream: {GVK: upstreamKind, Namespace: t.Namespace, Name: upstreamName(t, "primary"), Owned: true, Derived: true},
		canaryUpstream:  {GVK: upstreamKind, Namespace: t.Namespace, Name: upstreamName(t, "canary"), Owned: true, Derived: true},
		routeTable:      {GVK: routeTableKind, Namespace: t.Namespace, Name: t.Apex, Owned: true},
	}
	if ref := t.Canary.Spec.UpstreamRef; ref != nil {
		namespace := ref.Namespace
		if namespace == "" {
			namespace = t.Namespace
		}
		refs = append(refs, traffic.Ref{GVK: upstreamKind, Namespace: namespace, Name: ref.Name})
	}
	return refs
}

func upstreamName(t traffic.Target, side string) string {
	return t.Namespace + "-" + t.Apex + "-" + side + "upstream-" + strconv.Itoa(int(t.Canary.Spec.Service.Port))
}

// Render makes all three objects.
func (r *Renderer) Render(t traffic.Target, route release.Route, existing []*unstructured.Unstructured) ([]*unstructured.Unstructured, error) {
	if err := r.Features(t).Check(t, route); err != nil {
		return nil, err
	}
	refs := r.Refs(t)
	out := make([]*unstructured.Unstructured, len(refs))
	copy(out, existing) // what is the user's stays as it is
	var pattern *unstructured.Unstructured
	if len(refs) > usersUpstream {
		if pattern = existing[usersUpstream]; pattern == nil {
			return nil, traffic.Refuse(traffic.ErrInvalid, "%s, which spec.upstreamRef names, does not exist: create it, or correct spec.upstreamRef", refs[usersUpstream])
		}
	}
	var err error
	for i, service := range []string{primaryUpstream: t.Primary, canaryUpstream: t.CanaryService} {
		if out[i], err = r.renderUpstream(t, refs[i], service, pattern, existing[i]); err != nil {
			return nil, err
		}
	}
	if out[routeTable], err = renderRouteTable(t, route, refs, existing[routeTable]); err != nil {
		return nil, err
	}
	return out, nil
}

// Restore gives back the routes of an adopted RouteTable. Upstreams go with the release.
func (r *Renderer) Restore(t traffic.Target, existing []*unstructured.Unstructured) ([]*unstructured.Unstructured, error) {
	refs := r.Refs(t)
	out := make([]*unstructured.Unstructured, len(refs))
	copy(out, existing)
	var unknown error
	for _, i := range []int{primaryUpstream, canaryUpstream, routeTable} {
		obj, err := traffic.GivenBack(t, refs[i], existing[i], specFields(refs).Names()...)
		if err != nil {
			unknown = err
		}
		out[i] = obj
	}
	return out, unknown
}
