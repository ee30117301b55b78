// Package apisix carries traffic by a second ApisixRoute, whose rules win over those of the user's that they are copies
// of.
//
// It must not know other providers, clients, or why a weight is what it is.
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

// ahead is added to the priority of a copied rule: it beats the user's, and the copies keep their order.
const ahead = 10000

// specKeys are what of the spec is ours.
var specKeys = []string{"http", "ingressClassName"}

// Renderer makes an ApisixRoute named as the user's and the apex, with the suffix -canary.
type Renderer struct{}

// New makes the renderer of the provider apisix.
func New() Renderer { return Renderer{} }

// Features are weights alone.
func (Renderer) Features(traffic.Target) traffic.Features { return traffic.Features{Weights: true} }

// The places of the objects among the references.
const (
	usersRoute = iota
	canaryRoute
)

// Refs are the user's ApisixRoute, which is only read, and the canary's; none where the Canary names no ApisixRoute.
func (Renderer) Refs(t traffic.Target) []traffic.Ref {
	ref := t.Canary.Spec.RouteRef
	if ref == nil || ref.Name == "" {
		return nil
	}
	return []traffic.Ref{
		usersRoute:  {GVK: apisixRouteKind, Namespace: t.Namespace, Name: ref.Name},
		canaryRoute: {GVK: apisixRouteKind, Namespace: t.Namespace, Name: ref.Name + "-" + t.Apex + "-canary", Owned: true, Derived: true},
	}
}

// Render makes the canary's ApisixRoute of the user's rules that lead to the apex.
func (r Renderer) Render(t traffic.Target, route release.Route, existing []*unstructured.Unstructured) ([]*unstructured.Unstructured, error) {
	if err := r.Features(t).Check(t, route); err != nil {
		return nil, err
	}
	refs := r.Refs(t)
	if len(refs) == 0 {
		return nil, traffic.Refuse(traffic.ErrInvalid, "apisix route selector is empty")
	}
	user := existing[usersRoute]
	if user == nil {
		return nil, traffic.Refuse(traffic.ErrInvalid, "APISIX route %s.%s get query error: apisixroutes.apisix.apache.org %q not found",
			refs[usersRoute].Name, t.Namespace, refs[usersRoute].Name)
	}
	rules, err := renderRules(t, route, refs[usersRoute], user)
	if err != nil {
		return nil, err
	}
	obj, err := traffic.Desired(t, refs[canaryRoute], existing[canaryRoute])
	if err != nil {
		return nil, err
	}
	traffic.CopyMetadata(obj, user, func(string) bool { return false })
	want := map[string]any{"http": traffic.List(rules)}
	if class, ok, _ := unstructured.NestedString(user.Object, "spec", "ingressClassName"); ok {
		want["ingressClassName"] = class
	}
	traffic.Own(traffic.Spec(obj), want, specKeys...)
	return []*unstructured.Unstructured{usersRoute: user, canaryRoute: obj}, nil
}

// renderRules copies the user's rules that lead to the apex, with both sides in place of it.
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
		copied["priority"] = int64(priority) + ahead
		copied["backends"] = []any{
			backend(backends[0], t.Primary, release.Total-route.Canary), backend(backends[0], t.CanaryService, route.Canary),
		}
		out = append(out, copied)
	}
	if len(out) == 0 {
		// The blank at the end is part of the text that users of Flagger search for.
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

// Read takes the weights from the first rule that names the release. APISIX reports whether it has taken a route over,
// and not which version of it it serves.
func (r Renderer) Read(t traffic.Target, existing []*unstructured.Unstructured) (traffic.Observed, error) {
	out := traffic.Observed{Confirmed: traffic.CannotTell}
	if len(existing) == 0 || existing[canaryRoute] == nil {
		return out, nil
	}
	ref := r.Refs(t)[canaryRoute]
	list, _, _ := unstructured.NestedFieldNoCopy(existing[canaryRoute].Object, "spec", "http")
	for _, rule := range traffic.Maps(list) {
		weights := map[string]int{}
		for _, b := range traffic.Maps(rule["backends"]) {
			weight, err := traffic.Number(b["weight"])
			if err != nil || weight < 0 {
				return out, fmt.Errorf("read %s: the weight of %v is %v, which is not a number from 0", ref, b["serviceName"], b["weight"])
			}
			name, _ := b["serviceName"].(string)
			weights[name] = int(weight)
		}
		primary, toPrimary := weights[t.Primary]
		canary, toCanary := weights[t.CanaryService]
		if !toPrimary && !toCanary {
			continue
		}
		if primary+canary == 0 {
			return out, fmt.Errorf("read %s: the weights of %s and %s are both 0: give one of them requests", ref, t.Primary, t.CanaryService)
		}
		out.Found, out.Route.Canary = true, traffic.Share(primary, canary)
		return out, nil
	}
	return out, nil
}

// Restore has nothing to give back: the user's ApisixRoute was never changed, and the canary's goes with the release.
func (r Renderer) Restore(t traffic.Target, existing []*unstructured.Unstructured) ([]*unstructured.Unstructured, error) {
	refs := r.Refs(t)
	if len(refs) == 0 {
		return nil, nil
	}
	obj, err := traffic.GivenBack(t, refs[canaryRoute], existing[canaryRoute])
	return []*unstructured.Unstructured{usersRoute: existing[usersRoute], canaryRoute: obj}, err
}
