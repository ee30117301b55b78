// Package kuma carries traffic by a TrafficRoute of Kuma, which has no namespace.
//
// It must not know other providers, clients, or why a weight is what it is.
package kuma

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/internal/traffic"
)

const (
	// meshAnnotation of a Canary names the mesh of its route.
	meshAnnotation = "kuma.io/mesh"
	defaultMesh    = "default"
	// serviceTag is the tag that Kuma gives to the pods behind a Service.
	serviceTag = "kuma.io/service"
)

// specFields are what of the spec Serin writes. All else may be written by others.
var specFields = traffic.Fields{
	"sources":      {Fields: traffic.Whole("match")},
	"destinations": {Fields: traffic.Whole("match")},
	"conf": {Fields: traffic.Fields{
		"split": {
			Fields: traffic.Whole("weight", "destination"),
			Same:   func(was, now map[string]any) bool { return tagged(was) == tagged(now) },
		},
		"destination": {}, // all requests to one place, which Kuma takes for a contradiction beside a split
	}},
}

// Renderer makes a TrafficRoute named as the apex.
type Renderer struct{}

// New makes the renderer of the provider kuma.
func New() Renderer { return Renderer{} }

// Features are weights alone.
func (Renderer) Features(traffic.Target) traffic.Features { return traffic.Features{Weights: true} }

// Refs is the TrafficRoute.
func (Renderer) Refs(t traffic.Target) []traffic.Ref {
	gvk := schema.GroupVersionKind{Group: "kuma.io", Version: "v1alpha1", Kind: "TrafficRoute"}
	return []traffic.Ref{{GVK: gvk, Name: t.Apex, Owned: true}}
}

// Render makes the TrafficRoute.
func (r Renderer) Render(t traffic.Target, route release.Route, existing []*unstructured.Unstructured) ([]*unstructured.Unstructured, error) {
	if err := r.Features(t).Check(t, route); err != nil {
		return nil, err
	}
	ref := r.Refs(t)[0]
	if err := sameNamespace(t, ref, existing[0]); err != nil {
		return nil, err
	}
	obj, err := traffic.Desired(t, ref, left(t, existing[0]))
	if err != nil {
		return nil, err
	}
	traffic.SetApexMetadata(t, obj)
	if existing[0] == nil { // a route cannot change its mesh
		obj.Object["mesh"] = mesh(t)
	}
	split := []map[string]any{share(t, t.Primary, release.Total-route.Canary), share(t, t.CanaryService, route.Canary)}
	traffic.Write(traffic.Spec(obj), map[string]any{
		"sources":      []any{match("*")},
		"destinations": []any{match(tag(t, t.Apex))},
		"conf":         map[string]any{"split": traffic.List(split)},
	}, specFields)
	return []*unstructured.Unstructured{obj}, nil
}

func mesh(t traffic.Target) string {
	if name := t.Canary.Annotations[meshAnnotation]; name != "" {
		return name
	}
	return defaultMesh
}

// tag is how Kuma names a Service with its namespace and port.
func tag(t traffic.Target, service string) string {
	return fmt.Sprintf("%s_%s_svc_%d", service, t.Namespace, t.Canary.Spec.Service.Port)
}

func match(value string) map[string]any {
	return map[string]any{"match": map[string]any{serviceTag: value}}
}

func share(t traffic.Target, service string, weight int) map[string]any {
	return map[string]any{"weight": int64(weight), "destination": map[string]any{serviceTag: tag(t, service)}}
}

// tagged is the tag of an entry of a split, or of a list of matches.
func tagged(entry map[string]any) string {
	for _, key := range []string{"destination", "match"} {
		if value, ok, _ := unstructured.NestedString(entry, key, serviceTag); ok {
			return value
		}
	}
	return ""
}

// sameNamespace refuses a route of a service of the same name in another namespace: names are shared by the whole mesh.
func sameNamespace(t traffic.Target, ref traffic.Ref, existing *unstructured.Unstructured) error {
	if existing == nil {
		return nil
	}
	destinations, _, _ := unstructured.NestedFieldNoCopy(existing.Object, "spec", "destinations")
	for _, destination := range traffic.Maps(destinations) {
		// <service>_<namespace>_svc_<port>; anything else is no Service of Kubernetes.
		parts := strings.Split(tagged(destination), "_")
		if len(parts) == 4 && parts[2] == "svc" && parts[1] != t.Namespace {
			return traffic.Refuse(traffic.ErrForeign,
				"%s is the route of a service in namespace %s, and routes have no namespace: choose another name in spec.service.name",
				ref, parts[1])
		}
	}
	return nil
}

// left is a route that Flagger made for this very Canary, marked as made for it: it has no owner that could say so, and
// nothing else would take it away with the release.
func left(t traffic.Target, existing *unstructured.Unstructured) *unstructured.Unstructured {
	if existing == nil || !traffic.MadeByFlagger(existing) {
		return existing
	}
	list, _, _ := unstructured.NestedFieldNoCopy(existing.Object, "spec", "conf", "split")
	split := traffic.Maps(list)
	if len(split) != 2 || tagged(split[0]) != tag(t, t.Primary) || tagged(split[1]) != tag(t, t.CanaryService) {
		return existing
	}
	return traffic.Claimed(t, existing)
}

// Read takes the weights by the names of the Services, whatever their port. Kuma does not report what its proxies serve.
func (r Renderer) Read(t traffic.Target, existing []*unstructured.Unstructured) (traffic.Observed, error) {
	out := traffic.Observed{Confirmed: traffic.CannotTell}
	if existing[0] == nil {
		return out, nil
	}
	ref := r.Refs(t)[0]
	if err := sameNamespace(t, ref, existing[0]); err != nil {
		return out, err
	}
	list, _, err := unstructured.NestedFieldNoCopy(existing[0].Object, "spec", "conf", "split")
	if err != nil {
		return out, fmt.Errorf("read %s: %w", ref, err)
	}
	var primary, canary int
	for _, part := range traffic.Maps(list) {
		service, _, _ := strings.Cut(tagged(part), "_")
		if service != t.Primary && service != t.CanaryService {
			continue
		}
		weight, err := traffic.Number(part["weight"])
		if err != nil || weight < 0 {
			return out, fmt.Errorf("read %s: the weight of %s is %v, which is not a number from 0", ref, service, part["weight"])
		}
		if service == t.Primary {
			primary = int(weight)
		} else {
			out.Found, canary = true, int(weight)
		}
	}
	if !out.Found {
		return out, nil
	}
	if primary+canary == 0 {
		return traffic.Observed{Confirmed: traffic.CannotTell},
			fmt.Errorf("read %s: the weights of %s and %s are both 0: give one of them requests", ref, t.Primary, t.CanaryService)
	}
	out.Route.Canary = traffic.Share(primary, canary)
	return out, nil
}

// Restore gives back an adopted TrafficRoute. One that was made for the release shall not exist: nothing collects it.
func (r Renderer) Restore(t traffic.Target, existing []*unstructured.Unstructured) ([]*unstructured.Unstructured, error) {
	obj, err := traffic.GivenBack(t, r.Refs(t)[0], left(t, existing[0]), specFields.Names()...)
	return []*unstructured.Unstructured{obj}, err
}
