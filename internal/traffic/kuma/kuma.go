// Package kuma routes traffic with a TrafficRoute of Kuma, which is cluster-scoped.
//
// It must not know other providers, clients, or the reason for a weight.
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
	// serviceTag is the tag that Kuma assigns to the pods behind a Service.
	serviceTag = "kuma.io/service"
)

// specFields are the fields of the spec that Serin writes. Other tools may write all other fields.
var specFields = traffic.Fields{
	"sources":      {Fields: traffic.WholeFields("match")},
	"destinations": {Fields: traffic.WholeFields("match")},
	"conf": {Fields: traffic.Fields{
		"split": {
			Fields: traffic.WholeFields("weight", "destination"),
			Same:   func(was, now map[string]any) bool { return tagOf(was) == tagOf(now) },
		},
		"destination": {}, // Kuma refuses a destination for all requests together with a split
	}},
}

// Renderer creates a TrafficRoute with the name of the apex.
type Renderer struct{}

// New returns the renderer of the provider kuma.
func New() Renderer { return Renderer{} }

// Features are weights only.
func (Renderer) Features(traffic.Target) traffic.Features { return traffic.Features{Weights: true} }

// Refs is the TrafficRoute.
func (Renderer) Refs(t traffic.Target, _ release.Route, _ traffic.Objects) []traffic.Ref {
	gvk := schema.GroupVersionKind{Group: "kuma.io", Version: "v1alpha1", Kind: "TrafficRoute"}
	return []traffic.Ref{{GVK: gvk, Name: t.Apex, Owned: true}}
}

// Render renders the TrafficRoute.
func (r Renderer) Render(t traffic.Target, route release.Route, existing traffic.Objects) ([]*unstructured.Unstructured, error) {
	if err := r.Features(t).Check(t, route); err != nil {
		return nil, err
	}
	if err := sameNamespace(t, existing[0]); err != nil {
		return nil, err
	}
	obj, err := markIfCreatedByFlagger(t, existing[0]).Adopt(t)
	if err != nil {
		return nil, err
	}
	traffic.SetApexMetadata(t, obj)
	if existing[0].Object == nil { // a route cannot change its mesh
		obj.Object["mesh"] = mesh(t)
	}
	split := []map[string]any{share(t, t.StableService, release.Total-route.Canary), share(t, t.CanaryService, route.Canary)}
	traffic.WriteFields(traffic.Spec(obj), map[string]any{
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

// tag is Kuma's name of a Service with its namespace and port.
func tag(t traffic.Target, service string) string {
	return fmt.Sprintf("%s_%s_svc_%d", service, t.Namespace, t.Canary.Spec.Service.Port)
}

func match(value string) map[string]any {
	return map[string]any{"match": map[string]any{serviceTag: value}}
}

func share(t traffic.Target, service string, weight int) map[string]any {
	return map[string]any{"weight": int64(weight), "destination": map[string]any{serviceTag: tag(t, service)}}
}

// tagOf is the tag of an entry of a split, or of a list of matches.
func tagOf(entry map[string]any) string {
	for _, key := range []string{"destination", "match"} {
		if value, ok, _ := unstructured.NestedString(entry, key, serviceTag); ok {
			return value
		}
	}
	return ""
}

// sameNamespace refuses the route of a Service with the same name in another namespace: the names of routes are shared by the
// whole mesh.
func sameNamespace(t traffic.Target, x traffic.Lookup) error {
	if x.Object == nil {
		return nil
	}
	destinations, _, _ := unstructured.NestedFieldNoCopy(x.Object.Object, "spec", "destinations")
	for _, destination := range traffic.Maps(destinations) {
		// <service>_<namespace>_svc_<port>; anything else is not a Service of Kubernetes.
		parts := strings.Split(tagOf(destination), "_")
		if len(parts) == 4 && parts[2] == "svc" && parts[1] != t.Namespace {
			return traffic.Refuse(traffic.ErrNotOwned,
				"%s is the route of a service in namespace %s, and routes have no namespace: choose another name in spec.service.name",
				x.Ref, parts[1])
		}
	}
	return nil
}

// markIfCreatedByFlagger marks a route that Flagger created for this Canary as owned by it: it has no owner reference, and
// otherwise it would not be deleted with the release.
func markIfCreatedByFlagger(t traffic.Target, x traffic.Lookup) traffic.Lookup {
	if x.Object == nil || !traffic.CreatedByFlagger(x.Object) {
		return x
	}
	list, _, _ := unstructured.NestedFieldNoCopy(x.Object.Object, "spec", "conf", "split")
	split := traffic.Maps(list)
	if len(split) == 2 && tagOf(split[0]) == tag(t, t.StableService) && tagOf(split[1]) == tag(t, t.CanaryService) {
		x.Object = traffic.MarkedAsOwned(t, x.Object)
	}
	return x
}

// Read reads the weights by the names of the Services, whatever their port. Kuma does not report what its proxies serve.
func (r Renderer) Read(t traffic.Target, existing traffic.Objects) (traffic.Observed, error) {
	out := traffic.Observed{Confirmed: traffic.CannotTell}
	ref, obj := existing[0].Ref, existing[0].Object
	if obj == nil {
		return out, nil
	}
	if err := sameNamespace(t, existing[0]); err != nil {
		return out, err
	}
	list, _, err := unstructured.NestedFieldNoCopy(obj.Object, "spec", "conf", "split")
	if err != nil {
		return out, fmt.Errorf("read %s: %w", ref, err)
	}
	weights, err := t.SideWeights(traffic.Maps(list), func(part map[string]any) string {
		service, _, _ := strings.Cut(tagOf(part), "_")
		return service
	})
	if err != nil {
		return out, fmt.Errorf("read %s: %w", ref, err)
	}
	if _, named := weights[t.CanaryService]; !named {
		return out, nil
	}
	return traffic.ObserveShare(ref, weights, t.StableService, t.CanaryService)
}

// Restore restores an adopted TrafficRoute. One that was created for the release must be deleted, because garbage collection
// does not delete it.
func (r Renderer) Restore(t traffic.Target, existing traffic.Objects) ([]*unstructured.Unstructured, error) {
	obj, err := markIfCreatedByFlagger(t, existing[0]).Original(t, specFields)
	return []*unstructured.Unstructured{obj}, err
}

// SplitsService implements traffic.ServiceSplitter.
func (Renderer) SplitsService() {}
