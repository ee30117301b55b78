// Package ambassador routes traffic with a second Mapping of Emissary (formerly Ambassador) for each Mapping of the user.
//
// It must not know other providers, clients, or the reason for a weight.
package ambassador

import (
	"cmp"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/internal/traffic"
)

// The texts of Argo Rollouts for Mappings that cannot be used.
const (
	textNoMapping = "must provide at least one mapping"
	textWeight    = "Ambassador mapping %q can not define weight"
)

// DefaultAPI is the default API version of Mappings.
const DefaultAPI = "getambassador.io/v2"

const (
	suffix = "-canary"
	// maxBase is the maximum length of the user's name in the name of the canary's Mapping.
	maxBase = 253 - len(suffix)
)

// RolloutRenderer creates a Mapping for the canary for each Mapping of the user.
type RolloutRenderer struct {
	gvk schema.GroupVersionKind
}

// NewRollout returns the router ambassador. The API has the form group/version; an empty one means DefaultAPI.
func NewRollout(api string) RolloutRenderer {
	group, version, _ := strings.Cut(cmp.Or(api, DefaultAPI), "/")
	kind := "Mapping"
	if group == "x.getambassador.io" {
		kind = "AmbassadorMapping"
	}
	return RolloutRenderer{gvk: schema.GroupVersionKind{Group: group, Version: version, Kind: kind}}
}

// Features are weights only.
func (RolloutRenderer) Features(traffic.Target) traffic.Features {
	return traffic.Features{Weights: true}
}

// Refs are the Mappings of the user, each followed by the canary's.
func (rd RolloutRenderer) Refs(t traffic.Target, _ release.Route, _ traffic.Objects) []traffic.Ref {
	ambassador := t.Routing().Ambassador
	if ambassador == nil {
		return nil
	}
	var refs []traffic.Ref
	for _, name := range traffic.UniqueNames("", ambassador.Mappings) {
		refs = append(refs,
			traffic.Ref{
				GVK: rd.gvk, Namespace: t.Namespace, Name: name, Events: traffic.EventReasons{Missing: "AmbassadorMappingNotFound"},
			},
			traffic.Ref{
				GVK: rd.gvk, Namespace: t.Namespace, Name: name[:min(len(name), maxBase)] + suffix, Owned: true, Derived: true,
			})
	}
	return refs
}

// Render creates the canary's Mappings, and deletes them when they are no longer needed.
func (rd RolloutRenderer) Render(t traffic.Target, r release.Route, existing traffic.Objects) ([]*unstructured.Unstructured, error) {
	if err := rd.Features(t).Check(t, r); err != nil {
		return nil, err
	}
	if faults := rd.Validate(t, existing); len(faults) > 0 {
		return nil, traffic.Refuse(traffic.ErrInvalid, "%s", faults[0].Detail)
	}
	out := existing.Unchanged()
	for i := 1; i < len(existing); i++ {
		if !existing[i].Ref.Owned {
			continue
		}
		obj, err := canaryMapping(t, r, existing[i-1], existing[i])
		if err != nil {
			return nil, err
		}
		out[i] = obj
	}
	return out, nil
}

// canaryMapping is the desired Mapping of the canary; nil if it must not exist. Without a weight it remains until no request
// is in flight any longer.
func canaryMapping(t traffic.Target, r release.Route, users, canary traffic.Lookup) (*unstructured.Unstructured, error) {
	if canary.Object == nil && r.Canary == 0 {
		return nil, nil
	}
	obj, err := editCanary(t, users, canary)
	if err != nil {
		return nil, err
	}
	if canary.Object == nil {
		obj.Object["spec"] = runtime.DeepCopyJSON(traffic.Spec(users.Object.DeepCopy()))
		traffic.Spec(obj)["service"] = serviceOfCanary(t, users)
	}
	if r.Canary == 0 && t.Drained && t.Owns(canary.Object) {
		return nil, nil
	}
	traffic.Spec(obj)["weight"] = int64(r.Canary)
	return obj, nil
}

// editCanary returns the object to render the canary's Mapping into. One that Argo Rollouts created has no owner, and is
// recognized by its service.
func editCanary(t traffic.Target, users, canary traffic.Lookup) (*unstructured.Unstructured, error) {
	if canary.Object != nil && metav1.GetControllerOf(canary.Object) == nil && serviceOf(canary) == serviceOfCanary(t, users) {
		obj := canary.Object.DeepCopy()
		obj.SetOwnerReferences(append(obj.GetOwnerReferences(), t.OwnerReference()))
		return obj, nil
	}
	return canary.EditOwned(t)
}

func serviceOf(x traffic.Lookup) string {
	service, _, _ := unstructured.NestedString(x.Object.Object, "spec", "service")
	return service
}

// serviceOfCanary is the service of the user's Mapping, with the canary's Service in place of the stable one.
func serviceOfCanary(t traffic.Target, users traffic.Lookup) string {
	return strings.Replace(serviceOf(users), t.StableService, t.CanaryService, 1)
}

// Read reads the weights from the canary's Mappings; without one the canary has none. Emissary does not report what it
// serves.
func (RolloutRenderer) Read(_ traffic.Target, existing traffic.Objects) (traffic.Observed, error) {
	out := traffic.Observed{Confirmed: traffic.CannotTell}
	for _, x := range existing {
		if x.Object == nil {
			continue
		}
		out.Found = true
		if !x.Ref.Owned {
			continue
		}
		value, _, _ := unstructured.NestedFieldNoCopy(x.Object.Object, "spec", "weight")
		weight, err := traffic.Number(value)
		if err != nil || weight < 0 {
			return traffic.Observed{Confirmed: traffic.CannotTell}, fmt.Errorf("read %s: the weight is %v, which is not a non-negative number", x.Ref, value)
		}
		out.Route.Canary = max(out.Route.Canary, int(weight))
	}
	return out, nil
}

// Validate finds Mappings of the user that are missing, or have a weight of their own.
func (RolloutRenderer) Validate(t traffic.Target, existing traffic.Objects) field.ErrorList {
	path := traffic.RoutingPath().Child("ambassador", "mappings")
	if len(existing) == 0 {
		return field.ErrorList{field.Invalid(path, "", textNoMapping)}
	}
	var all field.ErrorList
	for _, x := range existing {
		switch {
		case x.Ref.Owned:
		case x.Object == nil:
			all = append(all, field.Invalid(path, x.Ref.Name, x.Ref.String()+" not found"))
		case hasWeight(x.Object):
			all = append(all, field.Invalid(path, x.Ref.Name, fmt.Sprintf(textWeight, x.Ref.Name)))
		case !strings.Contains(serviceOf(x), t.StableService):
			all = append(all, field.Invalid(path, x.Ref.Name, fmt.Sprintf("%s routes to %q, and not to Service %s", x.Ref, serviceOf(x), t.StableService)))
		}
	}
	return all
}

func hasWeight(mapping *unstructured.Unstructured) bool {
	value, _, _ := unstructured.NestedFieldNoCopy(mapping.Object, "spec", "weight")
	weight, err := traffic.Number(value)
	return err != nil || weight != 0
}

// Restore has nothing to restore: the user's Mappings were never changed.
func (RolloutRenderer) Restore(_ traffic.Target, existing traffic.Objects) ([]*unstructured.Unstructured, error) {
	return existing.Unchanged(), nil
}
