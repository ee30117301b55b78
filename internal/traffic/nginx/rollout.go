package nginx

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation/field"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/internal/traffic"
)

const (
	// classAnnotation is the only annotation that is copied from the user's Ingress to the canary's.
	classAnnotation = "kubernetes.io/ingress.class"
	// maxName is the maximum length of the name of an object.
	maxName = 253

	byWeightTotal = "-weight-total"
)

// canaryKeys are the fields of the spec of a canary's Ingress that Serin writes.
var canaryKeys = []string{"ingressClassName", "rules", "tls"}

// RolloutRenderer creates an Ingress for the canary for each Ingress of the user.
type RolloutRenderer struct{}

// NewRollout returns the router nginx.
func NewRollout() RolloutRenderer { return RolloutRenderer{} }

// Features are weights, of any total.
func (RolloutRenderer) Features(traffic.Target) traffic.Features {
	return traffic.Features{Weights: true, MaxWeight: true}
}

// configuration is the configuration of the Ingresses in the spec of the Rollout.
func configuration(t traffic.Target) argov1.NginxTrafficRouting {
	if nginx := t.Routing().Nginx; nginx != nil {
		return *nginx
	}
	return argov1.NginxTrafficRouting{}
}

// Refs are the Ingresses of the user, each followed by the canary's.
func (RolloutRenderer) Refs(t traffic.Target, _ release.Route, _ traffic.Objects) []traffic.Ref {
	c := configuration(t)
	var refs []traffic.Ref
	for _, name := range traffic.UniqueNames(c.StableIngress, c.StableIngresses) {
		refs = append(refs,
			traffic.Ref{GVK: traffic.IngressKind, Namespace: t.Namespace, Name: name},
			traffic.Ref{
				GVK: traffic.IngressKind, Namespace: t.Namespace, Name: canaryName(t.Rollout.Name, name), Owned: true, Derived: true,
				Events: traffic.EventReasons{Created: "CreatingCanaryIngress", Changed: "PatchingCanaryIngress"},
			})
	}
	return refs
}

// canaryName is truncated before its suffix, so that the suffix shows its purpose.
func canaryName(rollout, ingress string) string {
	const end = "-canary"
	name := rollout + "-" + ingress
	return name[:min(len(name), maxName-len(end))] + end
}

// Render renders the canary's Ingresses.
func (rd RolloutRenderer) Render(t traffic.Target, r release.Route, existing traffic.Objects) ([]*unstructured.Unstructured, error) {
	if err := rd.Features(t).Check(t, r); err != nil {
		return nil, err
	}
	if len(existing) == 0 {
		return nil, traffic.Refuse(traffic.ErrInvalid, "%s", traffic.NoIngress("StableIngress", "StableIngresses"))
	}
	out := existing.Unchanged()
	for i := 1; i < len(existing); i++ {
		user, canary := existing[i-1], existing[i]
		if !canary.Ref.Owned {
			continue
		}
		if fault := traffic.IngressProblem(user, t.StableService); fault != "" {
			return nil, traffic.Refuse(traffic.ErrInvalid, "%s", fault)
		}
		obj, err := canary.EditOwned(t)
		if err != nil {
			return nil, err
		}
		traffic.SetFields(traffic.Spec(obj), canarySpec(t, user.Object), canaryKeys...)
		annotate(t, r, user.Object, obj)
		out[i] = obj
	}
	return out, nil
}

// canarySpec has the rules of the user's Ingress for the stable Service, with the canary's Service in place of it.
func canarySpec(t traffic.Target, user *unstructured.Unstructured) map[string]any {
	spec := traffic.Spec(user.DeepCopy())
	var rules []map[string]any
	for _, rule := range traffic.Maps(spec["rules"]) {
		found := false
		http, _ := rule["http"].(map[string]any)
		for _, path := range traffic.Maps(http["paths"]) {
			if service := traffic.IngressBackend(path); service["name"] == t.StableService {
				service["name"], found = t.CanaryService, true
			}
		}
		if found {
			rules = append(rules, rule)
		}
	}
	spec["rules"] = traffic.List(rules)
	return spec
}

// annotate sets the annotations that the controller reads. Annotations of other tools on the Ingress are unchanged.
func annotate(t traffic.Target, r release.Route, user, obj *unstructured.Unstructured) {
	c := configuration(t)
	key := New(c.AnnotationPrefix).key
	annotations := obj.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	delete(annotations, classAnnotation)
	if class, ok := user.GetAnnotations()[classAnnotation]; ok {
		annotations[classAnnotation] = class
	}
	prefix := key("")[:len(key(""))-len("canary")]
	for name, value := range c.AdditionalIngressAnnotations {
		if !strings.HasPrefix(name, prefix) {
			name = prefix + name
		}
		annotations[name] = value
	}
	maps.Copy(annotations, c.CanaryIngressAnnotations)
	annotations[key("")] = "true"
	annotations[key(byWeight)] = strconv.Itoa(r.Canary)
	delete(annotations, key(byWeightTotal))
	if total := cmp.Or(r.Total, release.Total); total != release.Total || t.Routing().MaxTrafficWeight != nil {
		annotations[key(byWeightTotal)] = strconv.Itoa(total)
	}
	obj.SetAnnotations(annotations)
}

// Read reads the weight from the canary's Ingresses. The controller does not report what it serves.
func (RolloutRenderer) Read(t traffic.Target, existing traffic.Objects) (traffic.Observed, error) {
	out := traffic.Observed{Confirmed: traffic.CannotTell}
	key := New(configuration(t).AnnotationPrefix).key(byWeight)
	for _, x := range existing {
		if !x.Ref.Owned || x.Object == nil {
			continue
		}
		out.Found = true
		if text, ok := x.Object.GetAnnotations()[key]; ok {
			weight, err := strconv.Atoi(text)
			if err != nil || weight < 0 {
				return traffic.Observed{Confirmed: traffic.CannotTell}, fmt.Errorf("read %s: annotation %s is %q, which is not a non-negative number", x.Ref, key, text)
			}
			out.Route.Canary = max(out.Route.Canary, weight)
		}
	}
	return out, nil
}

// Validate finds Ingresses of the user that are missing or do not route to the stable Service.
func (RolloutRenderer) Validate(t traffic.Target, existing traffic.Objects) field.ErrorList {
	c := configuration(t)
	return traffic.ValidateIngresses(traffic.RoutingPath().Child("nginx"), c.StableIngress, c.StableIngresses,
		[2]string{"stableIngress", "stableIngresses"}, t.StableService,
		slices.DeleteFunc(slices.Clone(existing), func(x traffic.Lookup) bool { return x.Ref.Owned }))
}

// Restore has nothing to restore: the user's Ingresses were never changed.
func (RolloutRenderer) Restore(_ traffic.Target, existing traffic.Objects) ([]*unstructured.Unstructured, error) {
	return existing.Unchanged(), nil
}
