// Package traefik routes traffic with a TraefikService, which the user's IngressRoute names in place of a Service.
//
// It must not know other providers, clients, or the reason for a weight.
package traefik

import (
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/internal/traffic"
)

var traefikServiceKind = schema.GroupVersionKind{Group: "traefik.io", Version: "v1alpha1", Kind: "TraefikService"}

// specFields are the fields of the spec that Serin writes. Other tools may write stickiness, settings of one entry and all
// other fields.
func specFields(t traffic.Target) traffic.Fields {
	return traffic.Fields{"weighted": {Fields: traffic.Fields{"services": {
		Fields: traffic.WholeFields("kind", "name", "namespace", "port", "weight"),
		Same:   func(was, now map[string]any) bool { return isService(t, was, now["name"]) },
	}}}}
}

// Renderer creates a TraefikService with the name of the apex.
type Renderer struct{}

// New returns the renderer of the provider traefik.
func New() Renderer { return Renderer{} }

// Features are weights only: requests are matched before they reach a TraefikService.
func (Renderer) Features(traffic.Target) traffic.Features { return traffic.Features{Weights: true} }

// Refs is the TraefikService.
func (Renderer) Refs(t traffic.Target, _ release.Route, _ traffic.Objects) []traffic.Ref {
	return []traffic.Ref{{GVK: traefikServiceKind, Namespace: t.Namespace, Name: t.Apex, Owned: true}}
}

// Render creates the TraefikService. It contains the canary only while that receives requests: the canary of an idle release
// has no pods, and Traefik would report errors.
func (r Renderer) Render(t traffic.Target, route release.Route, existing traffic.Objects) ([]*unstructured.Unstructured, error) {
	if err := r.Features(t).Check(t, route); err != nil {
		return nil, err
	}
	obj, err := existing[0].Adopt(t)
	if err != nil {
		return nil, err
	}
	traffic.SetApexMetadata(t, obj)

	entries := []map[string]any{entry(t, t.StableService, release.Total-route.Canary)}
	if route.Canary > 0 {
		entries = append(entries, entry(t, t.CanaryService, route.Canary))
	}
	want := map[string]any{"weighted": map[string]any{"services": traffic.List(entries)}}
	traffic.WriteFields(traffic.Spec(obj), want, specFields(t))
	return []*unstructured.Unstructured{obj}, nil
}

// entry always sets the weight: Traefik's default is 1.
func entry(t traffic.Target, name string, weight int) map[string]any {
	return map[string]any{
		"name": name, "namespace": t.Namespace, "port": int64(t.Canary.Spec.Service.Port), "weight": int64(weight),
	}
}

// Read reads the weights from the entries of the two Services. Traefik does not report what it serves.
func (r Renderer) Read(t traffic.Target, existing traffic.Objects) (traffic.Observed, error) {
	out := traffic.Observed{Confirmed: traffic.CannotTell}
	if existing[0].Object == nil {
		return out, nil
	}
	services, _, _ := unstructured.NestedFieldNoCopy(existing[0].Object.Object, "spec", "weighted", "services")
	weights := map[string]int{}
	for _, e := range traffic.Maps(services) {
		for _, side := range []string{t.StableService, t.CanaryService} {
			if !isService(t, e, side) {
				continue
			}
			weight, err := weightOf(e)
			if err != nil {
				return out, fmt.Errorf("read %s: %w", existing[0].Ref, err)
			}
			weights[side] = weight
		}
	}
	if len(weights) == 0 {
		return out, nil
	}
	return traffic.ObserveShare(existing[0].Ref, weights, t.StableService, t.CanaryService)
}

// weightOf is the weight of an entry. Traefik's default is 1.
func weightOf(entry map[string]any) (int, error) {
	if entry["weight"] == nil {
		return 1, nil
	}
	return traffic.Weight(entry["name"], entry["weight"])
}

// isService reports whether an entry is the Service of that name; kind and namespace may be omitted.
func isService(t traffic.Target, entry map[string]any, name any) bool {
	kind, namespace := entry["kind"], entry["namespace"]
	return entry["name"] == name && (kind == nil || kind == "Service") && (namespace == nil || namespace == "" || namespace == t.Namespace)
}

// Restore restores the weighted services of an adopted TraefikService.
func (r Renderer) Restore(t traffic.Target, existing traffic.Objects) ([]*unstructured.Unstructured, error) {
	obj, err := existing[0].Original(t, specFields(t))
	return []*unstructured.Unstructured{obj}, err
}
