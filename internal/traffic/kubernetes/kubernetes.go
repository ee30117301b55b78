// Package kubernetes is the provider of releases that no mesh, gateway or ingress controller carries: there is nothing
// to write, clients follow the Services.
//
// It must not know what the Services select; that is the workload's business.
package kubernetes

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/internal/traffic"
)

// Renderer has no objects. A route is accepted when it moves no share of the traffic, and forgotten.
type Renderer struct{}

// New returns the renderer of the provider kubernetes.
func New() Renderer { return Renderer{} }

// Features are none: a blue/green release needs none of them.
func (Renderer) Features(traffic.Target) traffic.Features { return traffic.Features{} }

// Refs are none.
func (Renderer) Refs(traffic.Target, release.Route, traffic.Objects) []traffic.Ref { return nil }

// Render refuses what only a router could do.
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
