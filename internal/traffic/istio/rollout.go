package istio

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/internal/traffic"
)

// The texts of Argo Rollouts for invalid configurations.
const (
	textEitherService   = "either VirtualService or VirtualServices must be configured"
	textInvalidRoutes   = "Istio VirtualService has invalid %s routes. Error: %s"
	textNoCanaryService = "Canary Service '%s' not found in route"
	textNoStableService = "Stable Service '%s' not found in route"
	textNoCanarySubset  = "Canary DestinationRule subset '%s' not found in route"
	textNoStableSubset  = "Stable DestinationRule subset '%s' not found in route"
)

// DefaultRolloutVersion is the default version of Istio's API.
const DefaultRolloutVersion = "v1alpha3"

// RolloutRenderer writes weights into VirtualServices of the user, and revisions into the subsets of a DestinationRule.
type RolloutRenderer struct {
	version string
}

// NewRollout returns the router istio. An empty version means DefaultRolloutVersion.
func NewRollout(version string) RolloutRenderer {
	return RolloutRenderer{version: cmp.Or(version, DefaultRolloutVersion)}
}

// Features are all except for another total.
func (RolloutRenderer) Features(traffic.Target) traffic.Features {
	return traffic.Features{Weights: true, Others: true, HeaderRoutes: true, MirrorRoutes: true}
}

// Refs names the DestinationRule first, so that a subset is updated before it receives traffic.
func (rd RolloutRenderer) Refs(t traffic.Target, _ release.Route, _ traffic.Objects) []traffic.Ref {
	var refs []traffic.Ref
	if rule := ruleOf(t); rule != nil {
		refs = append(refs, traffic.Ref{
			GVK: rd.kind("DestinationRule"), Namespace: t.Namespace, Name: rule.Name, Shared: true, SelectsPods: true,
			Events: traffic.EventReasons{Changed: "UpdatedDestinationRule", Missing: "DestinationRuleNotFound"},
		})
	}
	for _, service := range servicesOf(t) {
		namespace, name := parseName(t, service.Name)
		refs = append(refs, traffic.Ref{
			GVK: rd.kind("VirtualService"), Namespace: namespace, Name: name, Shared: true,
			Events: traffic.EventReasons{Changed: "Updated VirtualService", Missing: "VirtualServiceNotFound"},
		})
	}
	return refs
}

// MarkedKind implements traffic.Marker.
func (rd RolloutRenderer) MarkedKind() schema.GroupVersionKind { return rd.kind("DestinationRule") }

func (rd RolloutRenderer) kind(kind string) schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: "networking.istio.io", Version: rd.version, Kind: kind}
}

func ruleOf(t traffic.Target) *argov1.IstioDestinationRule {
	if istio := t.Routing().Istio; istio != nil {
		return istio.DestinationRule
	}
	return nil
}

// servicesOf are the VirtualServices in a spec, each once.
func servicesOf(t traffic.Target) []argov1.IstioVirtualService {
	istio := t.Routing().Istio
	if istio == nil {
		return nil
	}
	var out []argov1.IstioVirtualService
	if istio.VirtualService != nil {
		out = append(out, *istio.VirtualService)
	}
	for _, service := range istio.VirtualServices {
		if !slices.ContainsFunc(out, func(other argov1.IstioVirtualService) bool { return other.Name == service.Name }) {
			out = append(out, service)
		}
	}
	return out
}

// parseName splits the name of a VirtualService in a spec: it may include the namespace, followed by the domain of a cluster.
func parseName(t traffic.Target, text string) (namespace, name string) {
	text = strings.TrimSuffix(text, ".svc.cluster.local")
	if i := strings.LastIndex(text, "."); i >= 0 {
		return text[i+1:], text[:i]
	}
	return t.Namespace, text
}

// Render writes the subsets and the routes.
func (rd RolloutRenderer) Render(t traffic.Target, r release.Route, existing traffic.Objects) ([]*unstructured.Unstructured, error) {
	if err := rd.Features(t).Check(t, r); err != nil {
		return nil, err
	}
	if len(servicesOf(t)) == 0 {
		return nil, traffic.Refuse(traffic.ErrInvalid, textEitherService)
	}
	if ruleOf(t) == nil && (t.CanaryService == "" || t.StableService == "") {
		return nil, traffic.Refuse(traffic.ErrInvalid, "router istio needs canaryService and stableService, or a destinationRule")
	}
	out := existing.Unchanged()
	e := editor{t: t, ruleHost: hostOfRule(existing)}
	for i, x := range existing {
		obj, err := x.EditShared()
		if err != nil {
			return nil, err
		}
		if x.Ref.SelectsPods {
			err = e.subsets(x.Ref, r, obj)
		} else {
			err = e.routes(x, r, obj)
		}
		if err != nil {
			return nil, err
		}
		out[i] = obj
	}
	return out, nil
}

// serviceFor is the configuration of a VirtualService in the spec.
func serviceFor(t traffic.Target, ref traffic.Ref) argov1.IstioVirtualService {
	for _, service := range servicesOf(t) {
		if namespace, name := parseName(t, service.Name); namespace == ref.Namespace && name == ref.Name {
			return service
		}
	}
	return argov1.IstioVirtualService{}
}

func hostOfRule(existing traffic.Objects) string {
	for _, x := range existing {
		if x.Ref.SelectsPods && x.Object != nil {
			host, _, _ := unstructured.NestedString(x.Object.Object, "spec", "host")
			return host
		}
	}
	return ""
}

// subsets sets the revisions of the subsets, and adds a subset for each experiment.
func (e editor) subsets(ref traffic.Ref, r release.Route, obj *unstructured.Unstructured) error {
	rule := ruleOf(e.t)
	if err := e.t.MarkManaged(ref, obj); err != nil {
		return err
	}
	spec := traffic.Spec(obj)
	all := traffic.Maps(spec["subsets"])
	subsets := e.withoutExperiments(spec, traffic.ExperimentServices(e.t, obj))
	for name, hash := range map[string]string{rule.CanarySubsetName: e.t.CanaryHash, rule.StableSubsetName: e.t.StableHash} {
		i := slices.IndexFunc(subsets, func(subset map[string]any) bool { return subset["name"] == name })
		if i < 0 {
			return traffic.Refuse(traffic.ErrInvalid, "%s has no subset %s, which spec.strategy.canary.trafficRouting.istio.destinationRule names", ref, name)
		}
		setHash(subsets[i], hash)
	}
	for _, d := range r.Others {
		subset := map[string]any{"name": d.Service}
		setHash(subset, d.Revision)
		if i := slices.IndexFunc(all, func(was map[string]any) bool { return was["name"] == d.Service }); i >= 0 {
			subset = traffic.PreserveUnknownFields(subset, all[i], traffic.WholeFields("name", "labels"))
		}
		subsets = append(subsets, subset)
	}
	spec["subsets"] = traffic.List(subsets)
	traffic.RecordExperiments(e.t, obj, r.Others)
	return nil
}

// withoutExperiments are the user's subsets.
func (e editor) withoutExperiments(spec map[string]any, added []string) []map[string]any {
	return slices.DeleteFunc(traffic.Maps(spec["subsets"]), func(subset map[string]any) bool {
		name, _ := subset["name"].(string)
		rule := ruleOf(e.t)
		return slices.Contains(added, name) && name != rule.CanarySubsetName && name != rule.StableSubsetName
	})
}

// setHash makes a subset select the pods of a revision, or of any revision if the hash is empty.
func setHash(subset map[string]any, hash string) {
	labels, ok := subset["labels"].(map[string]any)
	switch {
	case !ok && hash == "":
		return
	case !ok:
		labels = map[string]any{}
		subset["labels"] = labels
	}
	if hash != "" {
		labels[argov1.PodTemplateHashLabel] = hash
		return
	}
	delete(labels, argov1.PodTemplateHashLabel)
	if len(labels) == 0 {
		delete(subset, "labels")
	}
}

// subsetHash is the revision that a subset of a DestinationRule selects; empty: any.
func subsetHash(rule *unstructured.Unstructured, name string) string {
	spec, _, _ := unstructured.NestedFieldNoCopy(rule.Object, "spec")
	fields, _ := spec.(map[string]any)
	for _, subset := range traffic.Maps(fields["subsets"]) {
		if labels, _ := subset["labels"].(map[string]any); subset["name"] == name {
			hash, _ := labels[argov1.PodTemplateHashLabel].(string)
			return hash
		}
	}
	return ""
}

// Read reads the weights from the routes that are written. Istio does not report what its proxies serve.
func (RolloutRenderer) Read(t traffic.Target, existing traffic.Objects) (traffic.Observed, error) {
	out := traffic.Observed{Confirmed: traffic.CannotTell}
	for _, x := range existing {
		if x.Object == nil {
			continue
		}
		if x.Ref.SelectsPods {
			out.CanaryHash, out.StableHash = subsetHash(x.Object, ruleOf(t).CanarySubsetName), subsetHash(x.Object, ruleOf(t).StableSubsetName)
			continue
		}
		e := editor{t: t, added: traffic.ExperimentServices(t, x.Object)}
		spec, _, _ := unstructured.NestedFieldNoCopy(x.Object.Object, "spec")
		fields, _ := spec.(map[string]any)
		for _, route := range traffic.Maps(fields["http"]) {
			if e.managed(route) {
				out.ManagedRoutes = append(out.ManagedRoutes, nameOf(route))
			}
		}
		chosen, err := e.choose(serviceFor(t, x.Ref), fields)
		if err != nil {
			continue // Serin writes no weight to an invalid VirtualService
		}
		for _, route := range chosen.all {
			canary, others, err := e.weights(route)
			if err != nil {
				return traffic.Observed{Confirmed: traffic.CannotTell}, fmt.Errorf("read %s: %w", x.Ref, err)
			}
			if !out.Found || canary > out.Route.Canary {
				out.Route.Canary, out.Route.Others = canary, others
			}
			out.Found = true
		}
	}
	return out, nil
}

// Validate finds VirtualServices and DestinationRules that are missing or do not name both sides.
func (RolloutRenderer) Validate(t traffic.Target, existing traffic.Objects) field.ErrorList {
	istio := traffic.RoutingPath().Child("istio")
	named := t.Routing().Istio
	if named != nil && (named.VirtualService == nil) == (len(named.VirtualServices) == 0) {
		return field.ErrorList{field.Invalid(istio.Child("virtualService"), len(servicesOf(t)), textEitherService)}
	}
	var all field.ErrorList
	for _, x := range existing {
		path := istio.Child("virtualService", "name")
		switch {
		case x.Ref.SelectsPods:
			path = istio.Child("destinationRule", "name")
		case len(named.VirtualServices) > 0:
			path = istio.Child("virtualServices", "name")
		}
		if x.Object == nil {
			all = append(all, field.Invalid(path, x.Ref.Name, x.Ref.String()+" not found"))
			continue
		}
		e := editor{t: t, added: traffic.ExperimentServices(t, x.Object)}
		if fault := e.fault(x); fault != nil {
			all = append(all, field.Invalid(path, x.Ref.Name, fault.Error()))
		}
	}
	return all
}

// fault is why an object of the user cannot be written; nil if it can.
func (e editor) fault(x traffic.Lookup) error {
	if x.Ref.SelectsPods {
		return e.subsets(x.Ref, release.Route{}, x.Object.DeepCopy())
	}
	spec := traffic.Spec(x.Object.DeepCopy())
	_, err := e.choose(serviceFor(e.t, x.Ref), spec)
	return err
}

// Restore removes managed routes, experiments, revisions and the mark. Weights remain.
func (RolloutRenderer) Restore(t traffic.Target, existing traffic.Objects) ([]*unstructured.Unstructured, error) {
	out := existing.Unchanged()
	for i, x := range existing {
		if x.Object == nil {
			continue
		}
		obj := x.Object.DeepCopy()
		out[i] = obj
		spec, ok := obj.Object["spec"].(map[string]any)
		if !ok {
			continue
		}
		e := editor{t: t, added: traffic.ExperimentServices(t, obj)}
		if !x.Ref.SelectsPods {
			e.restoreRoutes(spec)
			traffic.RecordExperiments(t, obj, nil)
			continue
		}
		if !t.UnmarkManaged(obj) {
			continue // another Rollout's, or no longer managed
		}
		if subsets := e.withoutExperiments(spec, e.added); spec["subsets"] != nil {
			rule := ruleOf(t)
			for _, subset := range subsets {
				if subset["name"] == rule.CanarySubsetName || subset["name"] == rule.StableSubsetName {
					setHash(subset, "")
				}
			}
			spec["subsets"] = traffic.List(subsets)
		}
		traffic.RecordExperiments(t, obj, nil)
	}
	return out, nil
}
