// Package kubernetes is the provider of releases without a mesh, gateway or ingress controller: there is nothing to write,
// because clients follow the Services.
//
// It must not know what the Services select, which belongs to the workload.
package kubernetes

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/internal/traffic"
)

// Renderer has no objects. It accepts routes without shares, and does not store them.
type Renderer struct{}

// New returns the renderer of the provider kubernetes.
func New() Renderer { return Renderer{} }

// Features returns none: a blue/green release needs no feature.
func (Renderer) Features(traffic.Target) traffic.Features { return traffic.Features{} }

// Refs returns none.
func (Renderer) Refs(traffic.Target, release.Route, traffic.Objects) []traffic.Ref { return nil }

// Render refuses routes that need a router.
func (r Renderer) Render(t traffic.Target, route release.Route, _ traffic.Objects) ([]*unstructured.Unstructured, error) {
	return nil, r.Features(t).Check(t, route)
}

// Read finds a route without weights: they are not stored anywhere, and not confirmed.
func (Renderer) Read(traffic.Target, traffic.Objects) (traffic.Observed, error) {
	return traffic.Observed{Found: true, Confirmed: traffic.CannotTell}, nil
}

// Restore has nothing to restore.
func (Renderer) Restore(traffic.Target, traffic.Objects) ([]*unstructured.Unstructured, error) {
	return nil, nil
}
