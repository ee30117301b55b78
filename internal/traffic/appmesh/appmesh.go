// Package appmesh routes traffic with the objects of AWS App Mesh: nodes for the pods, a router with weighted targets, and
// services that clients call, in two versions of its API.
//
// It must not know other providers, clients, or the reason for a weight.
package appmesh

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/internal/traffic"
)

// Version of the API that is written.
type Version string

// The versions. In V1Beta1 routes are part of a VirtualService, in V1Beta2 of a VirtualRouter.
const (
	V1Beta1 Version = "v1beta1"
	V1Beta2 Version = "v1beta2"
)

// Renderer creates nodes for both sides, and services and routers for the apex and its canary.
type Renderer struct {
	version Version
}

// New returns the renderer of the provider appmesh (V1Beta1) or appmesh:v1beta2.
func New(version Version) Renderer { return Renderer{version: version} }

// Features are weights, and matches by header.
func (Renderer) Features(traffic.Target) traffic.Features {
	return traffic.Features{Weights: true, Matches: true, ServiceMatch: release.MatchPrefix}
}

// part is one object: its name, its spec, and its metadata.
type part struct {
	kind, name string
	// fields of the spec that Serin writes.
	fields traffic.Fields
	// node is true for objects with the metadata of the apex, exposed for the object that gateways read.
	node, exposed bool
	// routed is true for the object whose first route has the weights.
	routed bool
	// remains is true for an object that serin eject makes independent of the Canary: see RenderApex.
	remains bool
	spec    func(release.Route) (map[string]any, error)
}

func (r Renderer) parts(t traffic.Target) []part {
	if r.version == V1Beta1 {
		return embedded(t)
	}
	return separate(t)
}

// Refs names nodes before the routes to them, and routes before the services, so that no reference is dangling while they are
// written.
func (r Renderer) Refs(t traffic.Target, _ release.Route, _ traffic.Objects) []traffic.Ref {
	parts := r.parts(t)
	refs := make([]traffic.Ref, len(parts))
	for i, p := range parts {
		gvk := schema.GroupVersionKind{Group: "appmesh.k8s.aws", Version: string(r.version), Kind: p.kind}
		refs[i] = traffic.Ref{GVK: gvk, Namespace: t.Namespace, Name: p.name, Owned: true, SelectsPods: p.node}
	}
	return refs
}

// Render renders all objects.
func (r Renderer) Render(t traffic.Target, route release.Route, existing traffic.Objects) ([]*unstructured.Unstructured, error) {
	if err := r.Features(t).Check(t, route); err != nil {
		return nil, err
	}
	if r.version == V1Beta1 && t.Canary.Spec.Service.MeshName == "" {
		return nil, traffic.Refuse(traffic.ErrInvalid, "mesh name cannot be empty")
	}
	out := make([]*unstructured.Unstructured, len(existing))
	for i, p := range r.parts(t) {
		obj, err := existing[i].Adopt(t)
		if err != nil {
			return nil, err
		}
		want, err := p.spec(route)
		if err != nil {
			return nil, err
		}
		if p.node {
			traffic.SetApexMetadata(t, obj)
		}
		if p.exposed {
			setGateway(t, obj)
		}
		traffic.WriteFields(traffic.Spec(obj), want, p.fields)
		out[i] = obj
	}
	return out, nil
}

// Restore restores adopted objects.
func (r Renderer) Restore(t traffic.Target, existing traffic.Objects) ([]*unstructured.Unstructured, error) {
	parts := r.parts(t)
	return existing.Originals(t, func(i int) traffic.Written {
		written := traffic.Written{Spec: parts[i].fields, NoApexMetadata: !parts[i].node}
		if parts[i].exposed {
			written.Annotations = gatewayAnnotations
		}
		return written
	})
}

// RenderApex routes all requests to the node of the canary, and this node to the apex Service. A pod belongs to one node from its
// start: those of the target to the node of the canary, which selects them, or in V1Beta1 to a node that is identified by its name,
// which may also be that of the apex.
func (r Renderer) RenderApex(t traffic.Target, existing traffic.Objects) ([]*unstructured.Unstructured, error) {
	out, err := r.Render(t, release.Route{Canary: release.Total}, existing)
	if err != nil {
		return nil, err
	}
	for i, p := range r.parts(t) {
		switch {
		case !p.remains:
			out[i] = nil
		case p.node:
			if err := unstructured.SetNestedMap(out[i].Object, r.version.dns(t, t.Apex), "spec", "serviceDiscovery", "dns"); err != nil {
				return nil, err
			}
		}
	}
	return out, nil
}
