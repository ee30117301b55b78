package traffic

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/serin-dev/serin/internal/release"
)

// ReadPluginConfig reads the configuration under plugins of a router that is built in. Unknown fields are accepted, as by the
// original plugins. Errors: ErrInvalid.
func (t Target) ReadPluginConfig(plugin string, into any) error {
	err := json.Unmarshal(t.Routing().Plugins[plugin], into)
	if wrongType := (*json.UnmarshalTypeError)(nil); errors.As(err, &wrongType) && wrongType.Field != "" {
		return Refuse(ErrInvalid, "the configuration of plugin %s cannot be read: field %s has the wrong type (%s)", plugin, wrongType.Field, wrongType.Value)
	}
	if err != nil {
		return Refuse(ErrInvalid, "the configuration of plugin %s cannot be read: %v", plugin, err)
	}
	return nil
}

// Pair are the destinations of both sides in one route. They are parts of the object, not copies.
type Pair struct{ Stable, Canary map[string]any }

// WeightEditor is a Renderer for routers that write nothing but weights: it sets the field weight of both destinations in
// objects of the user, in every route that has both. Packages of providers embed it, and define where the destinations are.
type WeightEditor struct {
	// Plugin is the name under which a Rollout configures the router.
	Plugin string
	// Objects are the references in the configuration. Errors: ErrInvalid.
	Objects func(Target) ([]Ref, error)
	// Pairs finds the destinations in a copy of an object. It may add a missing destination with weight 0. The fault is why
	// the object cannot be used, to be appended to its name; empty if it can.
	Pairs func(Target, *unstructured.Unstructured) (pairs []Pair, fault string)
	// CanaryWeight reads the weight of the canary, including the default of the router.
	CanaryWeight func(Pair) (int, error)
	// Confirm reports whether the router serves an object, with the reason if it does not; nil: the router never reports that.
	Confirm func(Ref, *unstructured.Unstructured) (Confirmation, string)
}

// Features are weights, and confirmation if the router reports it.
func (e WeightEditor) Features(Target) Features {
	return Features{Weights: true, Confirms: e.Confirm != nil}
}

// Refs are the objects in the configuration; none if it is invalid.
func (e WeightEditor) Refs(t Target, _ release.Route, _ Objects) []Ref {
	refs, err := e.Objects(t)
	if err != nil {
		return nil
	}
	return refs
}

// Render writes both weights into every route with both destinations.
func (e WeightEditor) Render(t Target, r release.Route, existing Objects) ([]*unstructured.Unstructured, error) {
	if err := e.Features(t).Check(t, r); err != nil {
		return nil, err
	}
	if err := e.configError(t, existing); err != nil {
		return nil, err
	}
	out := existing.Unchanged()
	for i, x := range existing {
		obj, err := x.EditShared()
		if err != nil {
			return nil, err
		}
		pairs, fault := e.Pairs(t, obj)
		switch {
		case fault == "":
		case x.Ref.Selector != "" && e.usable(t, existing):
			continue
		default:
			return nil, Refuse(ErrInvalid, "%s %s", x.Ref, fault)
		}
		for _, pair := range pairs {
			pair.Canary["weight"], pair.Stable["weight"] = int64(r.Canary), int64(r.Stable())
		}
		out[i] = obj
	}
	return out, nil
}

// usable reports whether any object has a route with both destinations. Of objects that were found by their labels, not all
// need one.
func (e WeightEditor) usable(t Target, existing Objects) bool {
	return slices.ContainsFunc(existing, func(x Lookup) bool {
		if x.Object == nil {
			return false
		}
		_, fault := e.Pairs(t, x.Object.DeepCopy())
		return fault == ""
	})
}

// ValidateConfig implements ConfigValidator.
func (e WeightEditor) ValidateConfig(t Target) error {
	_, err := e.Objects(t)
	return err
}

// configError is an error in the spec of the Rollout; nil if there is none.
func (e WeightEditor) configError(t Target, existing Objects) error {
	if err := e.ValidateConfig(t); err != nil {
		return err
	}
	switch {
	case t.StableService == "" || t.CanaryService == "":
		return Refuse(ErrInvalid, "router %s needs both Services of the Rollout: set canaryService and stableService in spec.strategy.canary", e.Plugin)
	case !existing.AnyShared():
		return Refuse(ErrInvalid, "the selector in the configuration of plugin %s finds no object: label the objects, or name one", e.Plugin)
	default:
		return nil
	}
}

// Read reads the highest weight of the canary.
func (e WeightEditor) Read(t Target, existing Objects) (Observed, error) {
	out := Observed{Confirmed: CannotTell}
	if e.Confirm != nil {
		out.Confirmed = ConfirmedYes
	}
	for _, x := range existing {
		if x.Object == nil {
			continue
		}
		pairs, fault := e.Pairs(t, x.Object.DeepCopy())
		if fault != "" {
			continue // Serin writes no weight to an invalid object
		}
		for _, pair := range pairs {
			weight, err := e.CanaryWeight(pair)
			if err != nil {
				return Observed{Confirmed: CannotTell}, fmt.Errorf("read %s: %w", x.Ref, err)
			}
			out.Found, out.Route.Canary = true, max(out.Route.Canary, weight)
		}
		if e.Confirm == nil || out.Confirmed == ConfirmedNo {
			continue
		}
		if confirmation, reason := e.Confirm(x.Ref, x.Object); confirmation != ConfirmedYes {
			out.Confirmed, out.Reason = confirmation, reason
		}
	}
	if !out.Found {
		return Observed{Confirmed: CannotTell}, nil
	}
	return out, nil
}

// Validate finds errors in the configuration, and objects that are missing or do not name both Services.
func (e WeightEditor) Validate(t Target, existing Objects) field.ErrorList {
	path := RoutingPath().Child("plugins").Key(e.Plugin)
	if err := e.configError(t, existing); err != nil {
		return field.ErrorList{field.Invalid(path, string(t.Routing().Plugins[e.Plugin]), err.Error())}
	}
	var all field.ErrorList
	for _, x := range existing {
		fault := "not found"
		if x.Object != nil {
			_, fault = e.Pairs(t, x.Object.DeepCopy())
		}
		if fault != "" && (x.Ref.Selector == "" || !e.usable(t, existing)) {
			all = append(all, field.Invalid(path, x.Ref.Name, x.Ref.String()+" "+fault))
		}
	}
	return all
}

// Restore has nothing to restore: weights remain.
func (WeightEditor) Restore(_ Target, existing Objects) ([]*unstructured.Unstructured, error) {
	return existing.Unchanged(), nil
}
