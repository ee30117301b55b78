package traefik

import (
	"cmp"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/internal/traffic"
)

// RolloutRenderer writes weights into a TraefikService of the user.
type RolloutRenderer struct {
	gvk schema.GroupVersionKind
}

// DefaultAPI is the API of Traefik 3.
const DefaultAPI = "traefik.io/v1alpha1"

// NewRollout returns the router traefik. The API has the form group/version; an empty one means DefaultAPI.
func NewRollout(api string) RolloutRenderer {
	group, version, _ := strings.Cut(cmp.Or(api, DefaultAPI), "/")
	return RolloutRenderer{gvk: schema.GroupVersionKind{Group: group, Version: version, Kind: traefikServiceKind.Kind}}
}

// Features are weights only.
func (RolloutRenderer) Features(traffic.Target) traffic.Features {
	return traffic.Features{Weights: true}
}

// Refs is the TraefikService.
func (rd RolloutRenderer) Refs(t traffic.Target, _ release.Route, _ traffic.Objects) []traffic.Ref {
	name := ""
	if traefik := t.Routing().Traefik; traefik != nil {
		name = traefik.WeightedTraefikServiceName
	}
	return []traffic.Ref{{GVK: rd.gvk, Namespace: t.Namespace, Name: name, Shared: true}}
}

// Render writes the weights of both Services.
func (rd RolloutRenderer) Render(t traffic.Target, r release.Route, existing traffic.Objects) ([]*unstructured.Unstructured, error) {
	if err := rd.Features(t).Check(t, r); err != nil {
		return nil, err
	}
	obj, err := existing[0].EditShared()
	if err != nil {
		return nil, err
	}
	canary, stable, fault := entries(t, obj)
	if fault != "" {
		return nil, traffic.Refuse(traffic.ErrInvalid, "%s %s", existing[0].Ref, fault)
	}
	canary["weight"], stable["weight"] = int64(r.Canary), int64(r.Stable())
	return []*unstructured.Unstructured{obj}, nil
}

// entries returns the entries of both Services, which are not copies, and what is wrong if one is missing.
func entries(t traffic.Target, obj *unstructured.Unstructured) (canary, stable map[string]any, fault string) {
	list, _, _ := unstructured.NestedFieldNoCopy(obj.Object, "spec", "weighted", "services")
	for _, e := range traffic.Maps(list) {
		switch {
		case isService(t, e, t.CanaryService):
			canary = e
		case isService(t, e, t.StableService):
			stable = e
		}
	}
	for _, side := range []struct {
		entry map[string]any
		name  string
	}{{canary, t.CanaryService}, {stable, t.StableService}} {
		if side.entry == nil {
			return nil, nil, fmt.Sprintf("has no Service %s in spec.weighted.services", side.name)
		}
	}
	return canary, stable, ""
}

// Read reads the weight of the canary's entry. Traefik does not report what it serves.
func (RolloutRenderer) Read(t traffic.Target, existing traffic.Objects) (traffic.Observed, error) {
	out := traffic.Observed{Confirmed: traffic.CannotTell}
	if existing[0].Object == nil {
		return out, nil
	}
	canary, _, fault := entries(t, existing[0].Object)
	if fault != "" {
		return out, nil
	}
	weight, err := weightOf(canary)
	if err != nil {
		return out, fmt.Errorf("read %s: %w", existing[0].Ref, err)
	}
	out.Found, out.Route.Canary = true, weight
	return out, nil
}

// Validate finds a TraefikService that is missing or does not name both Services.
func (RolloutRenderer) Validate(t traffic.Target, existing traffic.Objects) field.ErrorList {
	path, x := traffic.RoutingPath().Child("traefik", "weightedTraefikServiceName"), existing[0]
	if x.Object == nil {
		return field.ErrorList{field.Invalid(path, x.Ref.Name, x.Ref.String()+" not found")}
	}
	if _, _, fault := entries(t, x.Object); fault != "" {
		return field.ErrorList{field.Invalid(path, x.Ref.Name, x.Ref.String()+" "+fault)}
	}
	return nil
}

// Restore has nothing to restore: weights remain.
func (RolloutRenderer) Restore(_ traffic.Target, existing traffic.Objects) ([]*unstructured.Unstructured, error) {
	return existing.Unchanged(), nil
}
