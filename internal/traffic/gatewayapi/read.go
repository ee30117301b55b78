package gatewayapi

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/serin-dev/serin/internal/traffic"
)

// Read reads the weights from the last rule that names the canary: the weighted rule follows those for cookies. If both
// weights are 0, the canary has no traffic.
func (r Renderer) Read(t traffic.Target, existing traffic.Objects) (traffic.Observed, error) {
	out := traffic.Observed{Confirmed: traffic.CannotTell}
	ref, obj := existing[0].Ref, existing[0].Object
	if obj == nil {
		return out, nil
	}
	rules, _, err := unstructured.NestedFieldNoCopy(obj.Object, "spec", "rules")
	if err != nil {
		return out, fmt.Errorf("read %s: %w", ref, err)
	}
	for _, rule := range traffic.Maps(rules) {
		primary, canary, named, err := weights(t, rule)
		if err != nil {
			return out, fmt.Errorf("read %s: spec.rules: %w", ref, err)
		}
		switch {
		case named:
			out.Found, out.Route.Canary, out.Matched = true, traffic.Share(primary, canary), false
		case primary > 0:
			out.Matched = true // a rule for all other requests follows
		}
		for _, filter := range traffic.Maps(rule["filters"]) {
			if to, ok, _ := unstructured.NestedMap(filter, "requestMirror", "backendRef"); ok && isService(to, t.CanaryService) {
				out.Route.Mirror.Enabled = true
			}
		}
	}
	if !out.Found {
		return traffic.Observed{Confirmed: traffic.CannotTell}, nil
	}
	route, err := parentsOf(ref, obj)
	if err != nil {
		return out, err
	}
	out.Confirmed, out.Reason, out.Unreported = route.confirmed(ref, obj)
	return out, nil
}

func weights(t traffic.Target, rule map[string]any) (primary, canary int, namesCanary bool, err error) {
	for _, ref := range traffic.Maps(rule["backendRefs"]) {
		toPrimary, toCanary := isBackend(t, ref, t.StableService), isBackend(t, ref, t.CanaryService)
		if !toPrimary && !toCanary {
			continue
		}
		weight := 1 // the default of the API
		if value := ref["weight"]; value != nil {
			if weight, err = traffic.Weight(ref["name"], value); err != nil {
				return 0, 0, false, err
			}
		}
		if toPrimary {
			primary = weight
		} else {
			canary, namesCanary = weight, true
		}
	}
	return primary, canary, namesCanary, nil
}

// routeParents are the parents of a route, in its spec and in its status.
type routeParents struct {
	Spec   gatewayv1.CommonRouteSpec `json:"spec"`
	Status gatewayv1.RouteStatus     `json:"status"`
}

// parentsOf reads the parents of a route. Only these fields are converted to typed structs, never the object itself.
func parentsOf(ref traffic.Ref, obj *unstructured.Unstructured) (routeParents, error) {
	var route routeParents
	partial := map[string]any{"spec": map[string]any{}, "status": map[string]any{}}
	for _, path := range [][]string{{"spec", "parentRefs"}, {"status", "parents"}} {
		value, found, err := unstructured.NestedFieldCopy(obj.Object, path...)
		if err != nil {
			return route, fmt.Errorf("read %s: %w", ref, err)
		}
		if found {
			partial[path[0]].(map[string]any)[path[1]] = value
		}
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(partial, &route); err != nil {
		return route, fmt.Errorf("read %s: %w", ref, err)
	}
	return route, nil
}

// confirmed reports whether every parent accepted the current generation of the route, and a Gateway that prevents this because no
// controller has reported on it: the Gateway API requires controllers to report. Other kinds of parents are those of meshes, which may
// report nothing: the result is then CannotTell.
func (route routeParents) confirmed(ref traffic.Ref, obj *unstructured.Unstructured) (traffic.Confirmation, string, *traffic.UnreportedParent) {
	all := len(route.Spec.ParentRefs) > 0
	for _, parent := range route.Spec.ParentRefs {
		accepted := false
		for _, status := range route.Status.Parents {
			if keyOf(status.ParentRef, obj.GetNamespace()) != keyOf(parent, obj.GetNamespace()) {
				continue
			}
			condition := acceptance(status.Conditions)
			if condition == nil {
				continue
			}
			if condition.Status != metav1.ConditionTrue || condition.ObservedGeneration < obj.GetGeneration() {
				return traffic.ConfirmedNo, fmt.Sprintf(
					"%s parent %s is not ready (status: %s, observed generation: %d, current generation: %d)",
					ref, parent.Name, condition.Status, condition.ObservedGeneration, obj.GetGeneration()), nil
			}
			accepted = true
		}
		all = all && accepted
	}
	switch unreported := route.unreported(ref, obj); {
	case unreported != nil:
		return traffic.ConfirmedNo, unreported.Message(), unreported
	case !all:
		return traffic.CannotTell, "", nil
	default:
		return traffic.ConfirmedYes, "", nil
	}
}

// unreported returns the first Gateway about which the status contains nothing; nil: there is none. A report about another
// listener or port of the Gateway counts.
func (route routeParents) unreported(ref traffic.Ref, obj *unstructured.Unstructured) *traffic.UnreportedParent {
	reported := map[parentKey]bool{}
	for _, status := range route.Status.Parents {
		reported[keyOf(status.ParentRef, obj.GetNamespace()).object()] = true
	}
	for _, parent := range route.Spec.ParentRefs {
		key := keyOf(parent, obj.GetNamespace()).object()
		if key.group != gatewayv1.GroupName || key.kind != gatewayKind || reported[key] {
			continue
		}
		gvk := ref.GVK
		gvk.Kind = key.kind
		if gvk.Version == tcpKind.Version {
			gvk.Version = string(V1) // a Gateway does not have the version of an experimental route
		}
		return &traffic.UnreportedParent{
			Route: ref, Parent: traffic.Ref{GVK: gvk, Namespace: key.namespace, Name: key.name},
			Field: "spec.service.gatewayRefs", RouteCreated: obj.GetCreationTimestamp().Time,
		}
	}
	return nil
}

func acceptance(conditions []metav1.Condition) *metav1.Condition {
	for i := range conditions {
		if conditions[i].Type == string(gatewayv1.RouteConditionAccepted) {
			return &conditions[i]
		}
	}
	return nil
}

// gatewayKind is the default kind of a parent.
const gatewayKind = "Gateway"

// coreGroup is the name that meshes accept for the group of Services, whose actual name is empty.
const coreGroup = "core"

// parentKey is a reference to a parent with the defaults of the API: controllers may set or omit them in the status.
type parentKey struct {
	group, kind, namespace, name, section string
	port                                  int32
}

// object returns the reference to the parent as a whole, without a listener or port of it.
func (k parentKey) object() parentKey {
	k.section, k.port = "", 0
	return k
}

func keyOf(ref gatewayv1.ParentReference, namespace string) parentKey {
	key := parentKey{group: gatewayv1.GroupName, kind: gatewayKind, namespace: namespace, name: string(ref.Name)}
	if ref.Group != nil {
		key.group = string(*ref.Group)
	}
	if key.group == coreGroup {
		key.group = ""
	}
	if ref.Kind != nil {
		key.kind = string(*ref.Kind)
	}
	if ref.Namespace != nil {
		key.namespace = string(*ref.Namespace)
	}
	if ref.SectionName != nil {
		key.section = string(*ref.SectionName)
	}
	if ref.Port != nil {
		key.port = *ref.Port
	}
	return key
}
