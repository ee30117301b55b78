// Package traefik carries traffic by a TraefikService, which the user's IngressRoute names in place of a Service.
//
// It must not know other providers, clients, or why a weight is what it is.
package traefik

import (
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/internal/traffic"
)

var traefikServiceKind = schema.GroupVersionKind{Group: "traefik.io", Version: "v1alpha1", Kind: "TraefikService"}

// specFields are what of the spec Serin writes. Stickiness, settings of one entry and all else may be written by others.
func specFields(t traffic.Target) traffic.Fields {
	return traffic.Fields{"weighted": {Fields: traffic.Fields{"services": {
		Fields: traffic.Whole("kind", "name", "namespace", "port", "weight"),
		Same:   func(was, now map[string]any) bool { return isService(t, was, now["name"]) },
	}}}}
}

// Renderer makes a TraefikService named as the apex.
type Renderer struct{}

// New makes the renderer of the provider traefik.
func New() Renderer { return Renderer{} }

// Features are weights alone: what a request looks like is decided before a TraefikService is asked.
func (Renderer) Features(traffic.Target) traffic.Features { return traffic.Features{Weights: true} }

// Refs is the TraefikService.
func (Renderer) Refs(t traffic.Target) []traffic.Ref {
	return []traffic.Ref{{GVK: traefikServiceKind, Namespace: t.Namespace, Name: t.Apex, Owned: true}}
}

// Render makes the TraefikService. The canary is in it only while it gets requests: at rest it has no pods, of which
// Traefik would complain.
func (r Renderer) Render(t traffic.Target, route release.Route, existing []*unstructured.Unstructured) ([]*unstructured.Unstructured, error) {
	if err := r.Features(t).Check(t, route); err != nil {
		return nil, err
	}
	obj, err := traffic.Desired(t, r.Refs(t)[0], existing[0])
	if err != nil {
		return nil, err
	}
	traffic.SetApexMetadata(t, obj)

	entries := []map[string]any{entry(t, t.Primary, release.Total-route.Canary)}
	if route.Canary > 0 {
		entries = append(entries, entry(t, t.CanaryService, route.Canary))
	}
	want := map[string]any{"weighted": map[string]any{"services": traffic.List(entries)}}
	traffic.Write(traffic.Spec(obj), want, specFields(t))
	return []*unstructured.Unstructured{obj}, nil
}

// entry always has its weight: Traefik takes one that is left out for 1.
func entry(t traffic.Target, name string, weight int) map[string]any {
	return map[string]any{
		"name": name, "namespace": t.Namespace, "port": int64(t.Canary.Spec.Service.Port), "weight": int64(weight),
	}
}

// Read takes the weights from the entries of the two Services. Traefik does not report what it serves.
func (r Renderer) Read(t traffic.Target, existing []*unstructured.Unstructured) (traffic.Observed, error) {
	out := traffic.Observed{Confirmed: traffic.CannotTell}
	if existing[0] == nil {
		return out, nil
	}
	services, _, _ := unstructured.NestedFieldNoCopy(existing[0].Object, "spec", "weighted", "services")
	var primary, canary int
	for _, e := range traffic.Maps(services) {
		toPrimary, toCanary := isService(t, e, t.Primary), isService(t, e, t.CanaryService)
		if !toPrimary && !toCanary {
			continue
		}
		out.Found = true
		weight := 1.0
		if value := e["weight"]; value != nil {
			var err error
			if weight, err = traffic.Number(value); err != nil || weight < 0 {
				return out, fmt.Errorf("read %s: the weight of %v is %v, which is not a number from 0", r.Refs(t)[0], e["name"], value)
			}
		}
		if toPrimary {
			primary = int(weight)
		} else {
			canary = int(weight)
		}
	}
	if !out.Found {
		return out, nil
	}
	if primary+canary == 0 {
		return out, fmt.Errorf("read %s: the weights of %s and %s are both 0: give one of them requests", r.Refs(t)[0], t.Primary, t.CanaryService)
	}
	out.Route.Canary = traffic.Share(primary, canary)
	return out, nil
}

// isService says whether an entry is the Service of that name; kind and namespace may be left out.
func isService(t traffic.Target, entry map[string]any, name any) bool {
	kind, namespace := entry["kind"], entry["namespace"]
	return entry["name"] == name && (kind == nil || kind == "Service") && (namespace == nil || namespace == "" || namespace == t.Namespace)
}

// Restore gives back the weighted services of an adopted TraefikService.
func (r Renderer) Restore(t traffic.Target, existing []*unstructured.Unstructured) ([]*unstructured.Unstructured, error) {
	obj, err := traffic.GivenBack(t, r.Refs(t)[0], existing[0], specFields(t).Names()...)
	return []*unstructured.Unstructured{obj}, err
}
