// Package skipper routes traffic with a second Ingress for Skipper, which has precedence over the user's Ingress while the
// canary receives requests, and splits them between both sides.
//
// It must not know other providers, clients, or the reason for a weight.
package skipper

import (
	"encoding/json"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/internal/traffic"
)

// The annotations that Skipper reads.
const (
	domain     = "zalando.org/"
	weights    = domain + "backend-weights"
	predicate  = domain + "skipper-predicate"
	always     = "Weight(100)" // has precedence over the routes of the user's Ingress, which have no weight
	never      = "False()"     // never matches
	connective = " && "
)

// Renderer creates an Ingress with the name of the user's, and the suffix -canary.
type Renderer struct{}

// New returns the renderer of the provider skipper.
func New() Renderer { return Renderer{} }

// Features are weights only.
func (Renderer) Features(traffic.Target) traffic.Features { return traffic.Features{Weights: true} }

// Refs are the user's Ingress, which is only read, and the canary's.
func (Renderer) Refs(t traffic.Target, _ release.Route, _ traffic.Objects) []traffic.Ref {
	return traffic.IngressRefs(t)
}

// Render renders the canary's Ingress: the user's, with both sides in place of the apex.
func (r Renderer) Render(t traffic.Target, route release.Route, existing traffic.Objects) ([]*unstructured.Unstructured, error) {
	if err := r.Features(t).Check(t, route); err != nil {
		return nil, err
	}
	obj, err := traffic.IngressCopy(t, existing, func(key string) bool { return strings.HasPrefix(key, domain) })
	if err != nil {
		return nil, err
	}
	if !toBoth(t, obj) {
		return nil, traffic.NoIngressBackend(t)
	}
	annotations := obj.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	if annotations[weights], err = backendWeights(t, route, annotations[weights]); err != nil {
		return nil, err
	}
	annotations[predicate] = guardedPredicate(route, annotations[predicate])
	obj.SetAnnotations(annotations)
	return []*unstructured.Unstructured{
		traffic.UsersIngress: existing[traffic.UsersIngress].Object, traffic.CanaryIngress: obj,
	}, nil
}

// toBoth changes the backends of the apex's paths to the primary, adds the same paths for the canary, and reports whether
// there are any.
func toBoth(t traffic.Target, ingress *unstructured.Unstructured) bool {
	found := false
	for _, rule := range traffic.Maps(traffic.Spec(ingress)["rules"]) {
		http, _ := rule["http"].(map[string]any)
		paths, _ := http["paths"].([]any)
		for _, path := range traffic.Maps(paths) {
			service := traffic.IngressBackend(path)
			if service["name"] != t.Apex {
				continue
			}
			service["name"], found = t.StableService, true
			added := runtime.DeepCopyJSON(path)
			traffic.IngressBackend(added)["name"] = t.CanaryService
			paths = append(paths, added)
		}
		if http != nil {
			http["paths"] = paths
		}
	}
	return found
}

// backendWeights is the value of the annotation with the weights of the backends of one path. Weights of the user for other
// backends are retained.
func backendWeights(t traffic.Target, route release.Route, users string) (string, error) {
	all := map[string]json.RawMessage{}
	if err := json.Unmarshal([]byte(users), &all); users != "" && (err != nil || all == nil) {
		return "", traffic.Refuse(traffic.ErrInvalid, "Ingress %s.%s has an annotation %s that is not a JSON object of numbers: correct it",
			t.Canary.Spec.IngressRef.Name, t.Namespace, weights)
	}
	for name, weight := range map[string]int{t.CanaryService: route.Canary, t.StableService: release.Total - route.Canary} {
		text, err := json.Marshal(weight)
		if err != nil {
			return "", fmt.Errorf("write the weight of %s: %w", name, err)
		}
		all[name] = text
	}
	text, err := json.Marshal(all)
	if err != nil {
		return "", fmt.Errorf("write the annotation %s: %w", weights, err)
	}
	return string(text), nil
}

// guardedPredicate is the user's predicate, after the predicate that enables the routes of this Ingress.
func guardedPredicate(route release.Route, users string) string {
	guard := always
	if route.Canary == 0 {
		guard = never
	}
	if users == "" {
		return guard
	}
	return guard + connective + users
}

// Read reads the weights from the canary's Ingress, if its routes are enabled. An Ingress without readable weights is not a
// route of the release. Skipper does not report what it serves.
func (Renderer) Read(t traffic.Target, existing traffic.Objects) (traffic.Observed, error) {
	out := traffic.Observed{Confirmed: traffic.CannotTell}
	if len(existing) == 0 || existing[traffic.CanaryIngress].Object == nil {
		return out, nil
	}
	annotations := existing[traffic.CanaryIngress].Object.GetAnnotations()
	var numbers map[string]float64
	if err := json.Unmarshal([]byte(annotations[weights]), &numbers); err != nil {
		return out, nil //nolint:nilerr // an unreadable value is replaced
	}
	canary, named := numbers[t.CanaryService]
	primary, both := numbers[t.StableService]
	if out.Found = named && both; !out.Found {
		return out, nil
	}
	if !strings.HasPrefix(annotations[predicate], never) {
		out.Route.Canary = traffic.Share(int(primary), int(canary))
	}
	return out, nil
}

// Restore has nothing to restore: the user's Ingress was never changed.
func (Renderer) Restore(t traffic.Target, existing traffic.Objects) ([]*unstructured.Unstructured, error) {
	return traffic.RestoreCopy(t, existing)
}
