// Package contour routes the traffic of a Canary with an HTTPProxy without a host, which the user's root HTTPProxy includes, and
// that of a Rollout with any HTTPProxies of the user.
//
// It must not know other providers, clients, or the reason for a weight.
package contour

import (
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/internal/traffic"
)

var httpProxyKind = schema.GroupVersionKind{Group: "projectcontour.io", Version: "v1", Kind: "HTTPProxy"}

// Renderer creates an HTTPProxy with the name of the apex.
type Renderer struct {
	class string
}

// New returns the renderer of the provider contour. The class selects the instance of Contour that reads the HTTPProxy; if it
// is empty, the class of an existing HTTPProxy is unchanged.
func New(class string) Renderer { return Renderer{class: class} }

// Features are weights, and matches by header.
func (Renderer) Features(traffic.Target) traffic.Features {
	return traffic.Features{Weights: true, Matches: true, ServiceMatch: release.MatchPrefix}
}

// Refs is the HTTPProxy.
func (Renderer) Refs(t traffic.Target, _ release.Route, _ traffic.Objects) []traffic.Ref {
	return []traffic.Ref{{GVK: httpProxyKind, Namespace: t.Namespace, Name: t.Apex, Owned: true}}
}

// Render renders the HTTPProxy.
func (r Renderer) Render(t traffic.Target, route release.Route, existing traffic.Objects) ([]*unstructured.Unstructured, error) {
	if err := r.Features(t).Check(t, route); err != nil {
		return nil, err
	}
	obj, err := existing[0].Adopt(t)
	if err != nil {
		return nil, err
	}
	traffic.SetApexMetadata(t, obj)

	spec := traffic.Spec(obj)
	want := map[string]any{"routes": traffic.List(renderRoutes(t, route))}
	if r.class != "" {
		want["ingressClassName"] = r.class
	}
	traffic.WriteFields(spec, want, r.specFields(t))
	return []*unstructured.Unstructured{obj}, nil
}

// specFields are the fields of the spec that Serin writes. Other tools may write hosts, includes and all other fields.
func (r Renderer) specFields(t traffic.Target) traffic.Fields {
	out := traffic.Fields{"routes": {
		Fields: routeFields,
		Same:   func(was, now map[string]any) bool { return role(t, was) == role(t, now) },
	}}
	if r.class != "" {
		out["ingressClassName"] = traffic.Field{}
	}
	return out
}

// Restore restores the routes of an adopted HTTPProxy.
func (r Renderer) Restore(t traffic.Target, existing traffic.Objects) ([]*unstructured.Unstructured, error) {
	obj, err := existing[0].Original(t, r.specFields(t))
	return []*unstructured.Unstructured{obj}, err
}

// role distinguishes the routes of a release from each other and from other routes, whose role is empty.
func role(t traffic.Target, route map[string]any) string {
	ours := slices.ContainsFunc(traffic.Maps(route["services"]), func(service map[string]any) bool {
		return service["name"] == t.StableService || service["name"] == t.CanaryService
	})
	switch {
	case !ours:
		return ""
	case slices.ContainsFunc(traffic.Maps(route["conditions"]), func(c map[string]any) bool { return c["header"] != nil }):
		return "matched"
	default:
		return "rest"
	}
}
