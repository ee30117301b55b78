// Package apisix routes traffic with a second ApisixRoute, whose rules are copies of the user's rules with a higher priority.
//
// It must not know other providers, clients, or the reason for a weight.
package apisix

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/internal/traffic"
)

var apisixRouteKind = schema.GroupVersionKind{Group: "apisix.apache.org", Version: "v2", Kind: "ApisixRoute"}

// priorityOffset is added to the priority of a copied rule: it has precedence over the user's rule, and the copies keep their
// order.
const priorityOffset = 10000

// specKeys are the fields of the spec that Serin writes.
var specKeys = []string{"http", "ingressClassName"}

// Renderer creates an ApisixRoute with the names of the user's and of the apex, and the suffix -canary.
type Renderer struct{}

// New returns the renderer of the provider apisix.
func New() Renderer { return Renderer{} }

// Features are weights only.
func (Renderer) Features(traffic.Target) traffic.Features { return traffic.Features{Weights: true} }

// The positions of the objects among the references.
const (
	usersRoute = iota
	canaryRoute
)

// Refs are the user's ApisixRoute, which is only read, and the canary's; none if the Canary names no ApisixRoute.
func (Renderer) Refs(t traffic.Target, _ release.Route, _ traffic.Objects) []traffic.Ref {
	ref := t.Canary.Spec.RouteRef
	if ref == nil || ref.Name == "" {
		return nil
	}
	return []traffic.Ref{
		usersRoute:  {GVK: apisixRouteKind, Namespace: t.Namespace, Name: ref.Name},
		canaryRoute: {GVK: apisixRouteKind, Namespace: t.Namespace, Name: ref.Name + "-" + t.Apex + "-canary", Owned: true, Derived: true},
	}
}

// Render creates the canary's ApisixRoute from the user's rules for the apex.
func (r Renderer) Render(t traffic.Target, route release.Route, existing traffic.Objects) ([]*unstructured.Unstructured, error) {
	if err := r.Features(t).Check(t, route); err != nil {
		return nil, err
	}
	if len(existing) == 0 {
		return nil, traffic.Refuse(traffic.ErrInvalid, "apisix route selector is empty")
	}
	ref, user := existing[usersRoute].Ref, existing[usersRoute].Object
	if user == nil {
		return nil, traffic.Refuse(traffic.ErrInvalid, "APISIX route %s.%s get query error: apisixroutes.apisix.apache.org %q not found",
			ref.Name, t.Namespace, ref.Name)
	}
	rules, err := renderRules(t, route, ref, user)
	if err != nil {
		return nil, err
	}
	obj, err := existing[canaryRoute].Adopt(t)
	if err != nil {
		return nil, err
	}
	writeCopy(obj, user, rules)
	return []*unstructured.Unstructured{usersRoute: user, canaryRoute: obj}, nil
}

// writeCopy writes the rules into a copy of the user's ApisixRoute.
func writeCopy(obj, user *unstructured.Unstructured, rules []map[string]any) {
	traffic.CopyMetadata(obj, user, func(string) bool { return false })
	want := map[string]any{"http": traffic.List(rules)}
	if class, ok, _ := unstructured.NestedString(user.Object, "spec", "ingressClassName"); ok {
		want["ingressClassName"] = class
	}
	traffic.SetFields(traffic.Spec(obj), want, specKeys...)
}

// renderRules copies the user's rules for the apex, with both sides in place of it.
func renderRules(t traffic.Target, route release.Route, ref traffic.Ref, user *unstructured.Unstructured) ([]map[string]any, error) {
	list, _, _ := unstructured.NestedFieldNoCopy(user.Object, "spec", "http")
	rules := traffic.Maps(list)
	if len(rules) == 0 {
		return nil, traffic.Refuse(traffic.ErrInvalid, "APISIX route %s.%s's spec.http is empty", ref.Name, t.Namespace)
	}
	var out []map[string]any
	for _, rule := range rules {
		backends := traffic.Maps(rule["backends"])
		i := slices.IndexFunc(backends, func(b map[string]any) bool { return b["serviceName"] == t.Apex })
		if i < 0 {
			continue
		}
		if len(backends) > 1 {
			return nil, traffic.Refuse(traffic.ErrInvalid, "%s has a rule %v with %s beside other backends: give it a rule of its own",
				ref, rule["name"], t.Apex)
		}
		copied := runtime.DeepCopyJSON(rule)
		priority, err := traffic.Number(rule["priority"])
		if err != nil {
			return nil, fmt.Errorf("read %s: priority of rule %v: %w", ref, rule["name"], err)
		}
		copied["priority"] = int64(priority) + priorityOffset
		copied["backends"] = []any{
			backend(backends[0], t.StableService, release.Total-route.Canary), backend(backends[0], t.CanaryService, route.Canary),
		}
		out = append(out, copied)
	}
	if len(out) == 0 {
		// The trailing space is part of Flagger's text.
		return nil, traffic.Refuse(traffic.ErrInvalid, "Can not find %s backend on apisix route %s.%s ", t.Apex, ref.Name, t.Namespace)
	}
	return out, nil
}

// backend is the user's backend with one side in place of the apex.
func backend(users map[string]any, service string, weight int) map[string]any {
	out := runtime.DeepCopyJSON(users)
	out["serviceName"], out["weight"] = service, int64(weight)
	return out
}

// Read reads the weights from the first rule that names the release. APISIX reports that it has processed a route, but not
// which version of it.
func (r Renderer) Read(t traffic.Target, existing traffic.Objects) (traffic.Observed, error) {
	out := traffic.Observed{Confirmed: traffic.CannotTell}
	if len(existing) == 0 || existing[canaryRoute].Object == nil {
		return out, nil
	}
	ref := existing[canaryRoute].Ref
	list, _, _ := unstructured.NestedFieldNoCopy(existing[canaryRoute].Object.Object, "spec", "http")
	for _, rule := range traffic.Maps(list) {
		weights := map[string]int{}
		for _, b := range traffic.Maps(rule["backends"]) {
			weight, err := traffic.Weight(b["serviceName"], b["weight"])
			if err != nil {
				return out, fmt.Errorf("read %s: %w", ref, err)
			}
			name, _ := b["serviceName"].(string)
			weights[name] = weight
		}
		_, toStable := weights[t.StableService]
		_, toCanary := weights[t.CanaryService]
		if toStable || toCanary {
			return traffic.ObserveShare(ref, weights, t.StableService, t.CanaryService)
		}
	}
	return out, nil
}

// Restore deletes the copy: the user's ApisixRoute was never changed.
func (r Renderer) Restore(t traffic.Target, existing traffic.Objects) ([]*unstructured.Unstructured, error) {
	return traffic.RestoreCopy(t, existing)
}
