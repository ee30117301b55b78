package gatewayapi

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/internal/traffic"
)

// PluginName is the name of this router under plugins.
const PluginName = "argoproj-labs/gatewayAPI"

// RolloutRenderer writes weights into routes of the user.
type RolloutRenderer struct{}

// NewRollout returns the renderer of the plugin PluginName.
func NewRollout() RolloutRenderer { return RolloutRenderer{} }

// pluginConfig is the configuration of the plugin in a Rollout. Unknown fields are accepted, as by the original plugin.
type pluginConfig struct {
	HTTPRoute string `json:"httpRoute"`
	GRPCRoute string `json:"grpcRoute"`
	TCPRoute  string `json:"tcpRoute"`
	TLSRoute  string `json:"tlsRoute"`

	HTTPRoutes []namedRoute `json:"httpRoutes"`
	GRPCRoutes []namedRoute `json:"grpcRoutes"`
	TCPRoutes  []namedRoute `json:"tcpRoutes"`
	TLSRoutes  []namedRoute `json:"tlsRoutes"`

	HTTPRouteSelector *metav1.LabelSelector `json:"httpRouteSelector"`
	GRPCRouteSelector *metav1.LabelSelector `json:"grpcRouteSelector"`
	TCPRouteSelector  *metav1.LabelSelector `json:"tcpRouteSelector"`
	TLSRouteSelector  *metav1.LabelSelector `json:"tlsRouteSelector"`

	// Namespace of the routes. Defaults to that of the Rollout.
	Namespace string `json:"namespace"`

	DisableInProgressLabel bool   `json:"disableInProgressLabel"`
	InProgressLabelKey     string `json:"inProgressLabelKey"`
	InProgressLabelValue   string `json:"inProgressLabelValue"`
}

type namedRoute struct {
	Name            string `json:"name"`
	UseHeaderRoutes bool   `json:"useHeaderRoutes"`
}

// The label of routes during a release, unless the configuration has another.
const (
	inProgressKey   = "rollouts.argoproj.io/gatewayapi-canary"
	inProgressValue = "in-progress"
)

// inProgressAnnotation lists the Rollouts for which a route has the label: several may write into one route, and the first to end
// must not remove the label of the others.
const inProgressAnnotation = "serin.dev/in-progress"

// routeSet has the routes of one kind in a configuration.
type routeSet struct {
	gvk      schema.GroupVersionKind
	routes   []namedRoute
	selector *metav1.LabelSelector
}

// The kinds of routes. Only the first two can match requests by headers.
var (
	httpKind = schema.GroupVersionKind{Group: gatewayv1.GroupName, Version: "v1", Kind: "HTTPRoute"}
	grpcKind = schema.GroupVersionKind{Group: gatewayv1.GroupName, Version: "v1", Kind: "GRPCRoute"}
	tcpKind  = schema.GroupVersionKind{Group: gatewayv1.GroupName, Version: "v1alpha2", Kind: "TCPRoute"}
	tlsKind  = schema.GroupVersionKind{Group: gatewayv1.GroupName, Version: "v1alpha2", Kind: "TLSRoute"}

	serviceGVK = schema.GroupVersionKind{Version: "v1", Kind: serviceKind}
)

// pluginConfigOf reads the configuration, and validates it.
func pluginConfigOf(t traffic.Target) (pluginConfig, error) {
	var l pluginConfig
	if err := t.ReadPluginConfig(PluginName, &l); err != nil {
		return l, err
	}
	if l.Namespace == "" {
		l.Namespace = t.Namespace
	}
	if l.InProgressLabelKey == "" {
		l.InProgressLabelKey = inProgressKey
	}
	if l.InProgressLabelValue == "" {
		l.InProgressLabelValue = inProgressValue
	}
	for _, n := range l.routeSets() {
		if len(n.routes) > 0 || n.selector != nil {
			return l, nil
		}
	}
	return l, traffic.Refuse(traffic.ErrInvalid, "the configuration of plugin %s names no route: set httpRoute, grpcRoute, tcpRoute or tlsRoute",
		PluginName)
}

func (l pluginConfig) routeSets() []routeSet {
	all := func(one string, many []namedRoute) []namedRoute {
		var out []namedRoute
		if one != "" {
			out = append(out, namedRoute{Name: one, UseHeaderRoutes: true})
		}
		for _, route := range many {
			if route.Name != "" && !slices.ContainsFunc(out, func(n namedRoute) bool { return n.Name == route.Name }) {
				out = append(out, route)
			}
		}
		return out
	}
	return []routeSet{
		{httpKind, all(l.HTTPRoute, l.HTTPRoutes), l.HTTPRouteSelector},
		{grpcKind, all(l.GRPCRoute, l.GRPCRoutes), l.GRPCRouteSelector},
		{tcpKind, all(l.TCPRoute, l.TCPRoutes), l.TCPRouteSelector},
		{tlsKind, all(l.TLSRoute, l.TLSRoutes), l.TLSRouteSelector},
	}
}

// headerRoutes reports whether rules by header are added to a route of the user.
func (l pluginConfig) headerRoutes(ref traffic.Ref) bool {
	if ref.GVK.Kind != httpKind.Kind && ref.GVK.Kind != grpcKind.Kind {
		return false
	}
	for _, n := range l.routeSets() {
		for _, route := range n.routes {
			if n.gvk.Kind == ref.GVK.Kind && route.Name == ref.Name {
				return route.UseHeaderRoutes
			}
		}
	}
	return false
}

// ValidateConfig implements traffic.ConfigValidator.
func (RolloutRenderer) ValidateConfig(t traffic.Target) error {
	_, err := pluginConfigOf(t)
	return err
}

// Features depend on the kinds of the routes: only HTTPRoutes support experiments and mirroring, and only some get rules of steps.
func (RolloutRenderer) Features(t traffic.Target) traffic.Features {
	f := traffic.Features{Weights: true, MaxWeight: true, Confirms: true}
	l, err := pluginConfigOf(t)
	if err != nil { // an invalid configuration routes nothing, so no feature is refused
		f.Others, f.HeaderRoutes, f.MirrorRoutes = true, true, true
		return f
	}
	for _, n := range l.routeSets() {
		if n.gvk == httpKind && (len(n.routes) > 0 || n.selector != nil) {
			f.Others = true
		}
		for _, route := range n.routes {
			if l.headerRoutes(traffic.Ref{GVK: n.gvk, Name: route.Name}) {
				f.HeaderRoutes, f.MirrorRoutes = true, f.MirrorRoutes || n.gvk == httpKind
			}
		}
	}
	return f
}

// Refs are the routes, and the Services of experiments, from which the ports are read.
func (RolloutRenderer) Refs(t traffic.Target, r release.Route, _ traffic.Objects) []traffic.Ref {
	l, err := pluginConfigOf(t)
	if err != nil {
		return nil
	}
	var refs []traffic.Ref
	for _, n := range l.routeSets() {
		ref := traffic.Ref{GVK: n.gvk, Namespace: l.Namespace, Shared: true}
		for _, route := range n.routes {
			ref.Name = route.Name
			refs = append(refs, ref)
		}
		if n.selector != nil {
			ref.Name, ref.Selector = "", metav1.FormatLabelSelector(n.selector)
			refs = append(refs, ref)
		}
	}
	for _, d := range r.Others {
		refs = append(refs, traffic.Ref{GVK: serviceGVK, Namespace: t.Namespace, Name: d.Service})
	}
	return refs
}

// Render writes weights, experiments and managed rules into each route.
func (rd RolloutRenderer) Render(t traffic.Target, r release.Route, existing traffic.Objects) ([]*unstructured.Unstructured, error) {
	l, err := pluginConfigOf(t)
	if err != nil {
		return nil, err
	}
	if err := rd.Features(t).Check(t, r); err != nil {
		return nil, err
	}
	if t.CanaryService == "" || t.StableService == "" {
		return nil, traffic.Refuse(traffic.ErrInvalid, "plugin %s requires canaryService and stableService, which the backends of a route name", PluginName)
	}
	if !existing.AnyShared() {
		return nil, traffic.Refuse(traffic.ErrInvalid, "plugin %s: %s", PluginName, noRouteFound)
	}
	out := existing.Unchanged()
	for i, x := range existing {
		if !x.Ref.Shared {
			continue
		}
		obj, err := x.EditShared()
		if err != nil {
			return nil, err
		}
		if err := l.render(t, r, existing, x.Ref, obj); err != nil {
			return nil, err
		}
		out[i] = obj
	}
	return out, verifyMirrors(t, r, out)
}

// verifyMirrors refuses a mirror route without a rule: the paths, methods and headers of the routes exclude those of its match.
func verifyMirrors(t traffic.Target, r release.Route, rendered []*unstructured.Unstructured) error {
	names := map[string]bool{}
	for _, obj := range rendered {
		if obj == nil || obj.GetKind() != httpKind.Kind {
			continue
		}
		for _, rule := range traffic.Maps(traffic.Spec(obj)["rules"]) {
			name, _ := (editor{t: t}).routeOf(rule)
			names[name] = true
		}
	}
	for _, route := range r.MirrorRoutes {
		if len(route.Match) > 0 && !names[route.Name] {
			return traffic.Refuse(traffic.ErrInvalid, "no rule of an HTTPRoute serves requests that setMirrorRoute %s matches: correct its match", route.Name)
		}
	}
	return nil
}

func (l pluginConfig) render(t traffic.Target, r release.Route, existing traffic.Objects, ref traffic.Ref, obj *unstructured.Unstructured) error {
	if ref.GVK != httpKind {
		r.Others = nil // not supported: the stable side keeps their share
	}
	if !l.headerRoutes(ref) {
		r.HeaderRoutes, r.MirrorRoutes = nil, nil
	}
	if ref.GVK != httpKind {
		r.MirrorRoutes = nil
	}
	if fault := unfit(t, obj); fault != "" {
		return traffic.Refuse(traffic.ErrInvalid, "%s %s", ref, fault)
	}
	rules, err := editor{t: t, added: traffic.ExperimentServices(t, obj)}.rules(traffic.Spec(obj), r, existing)
	switch {
	case err != nil:
		return fmt.Errorf("%s: %w", ref, err)
	case len(rules) > maxRules:
		return traffic.Refuse(traffic.ErrInvalid, "%s would have %d rules with those of the steps, and the API allows %d: split it, or remove steps setHeaderRoute or setMirrorRoute",
			ref, len(rules), maxRules)
	}
	traffic.Spec(obj)["rules"] = traffic.List(rules)
	traffic.RecordExperiments(t, obj, r.Others)
	l.label(t, obj, r.Canary > 0)
	return nil
}

// label sets the label of a route during a release of the Rollout, and removes it unless the route is part of a release of another
// Rollout.
func (l pluginConfig) label(t traffic.Target, obj *unstructured.Unstructured, inProgress bool) {
	if l.DisableInProgressLabel {
		return
	}
	annotations, labels := obj.GetAnnotations(), obj.GetLabels()
	rollouts := slices.DeleteFunc(strings.Split(annotations[inProgressAnnotation], ","), func(key string) bool { return key == "" || key == t.RolloutKey() })
	if inProgress {
		rollouts = append(rollouts, t.RolloutKey())
	}
	if len(rollouts) == 0 {
		traffic.RemoveLabels(obj, l.InProgressLabelKey)
		traffic.RemoveAnnotations(obj, inProgressAnnotation)
		return
	}
	slices.Sort(rollouts)
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[inProgressAnnotation] = strings.Join(rollouts, ",")
	obj.SetAnnotations(annotations)
	if !inProgress {
		return
	}
	if labels == nil {
		labels = map[string]string{}
	}
	labels[l.InProgressLabelKey] = l.InProgressLabelValue
	obj.SetLabels(labels)
}

// maxRules is the number of rules that the API allows in a route.
const maxRules = 16

const noRouteFound = "its selectors find no route: label the routes, or name them"

// unfit is why a route of the user cannot be used, to be appended to its name; empty if it can.
func unfit(t traffic.Target, obj *unstructured.Unstructured) string {
	rules, _, _ := unstructured.NestedFieldNoCopy(obj.Object, "spec", "rules")
	e := editor{t: t}
	if slices.ContainsFunc(traffic.Maps(rules), func(rule map[string]any) bool { return shares(t, rule) && !e.managed(rule) }) {
		return ""
	}
	return fmt.Sprintf("has no rule with both Services %s and %s among its backendRefs", t.StableService, t.CanaryService)
}

// Read reads the weights from the rules with both Services. A route is confirmed if all its parents accepted it.
func (rd RolloutRenderer) Read(t traffic.Target, existing traffic.Objects) (traffic.Observed, error) {
	out := traffic.Observed{Confirmed: traffic.ConfirmedYes}
	for _, x := range existing {
		if x.Object == nil || !x.Ref.Shared {
			continue
		}
		if err := readRoute(t, x, &out); err != nil {
			return traffic.Observed{Confirmed: traffic.CannotTell}, err
		}
	}
	if !out.Found {
		return traffic.Observed{Confirmed: traffic.CannotTell}, nil
	}
	return out, nil
}

func readRoute(t traffic.Target, x traffic.Lookup, out *traffic.Observed) error {
	added := traffic.ExperimentServices(t, x.Object)
	rules, _, _ := unstructured.NestedFieldNoCopy(x.Object.Object, "spec", "rules")
	e := editor{t: t, added: added}
	for _, rule := range traffic.Maps(rules) {
		if route, managed := e.routeOf(rule); managed {
			out.ManagedRoutes = append(out.ManagedRoutes, route)
		}
		if !shares(t, rule) {
			continue
		}
		_, canary, _, err := weights(t, rule)
		if err != nil {
			return fmt.Errorf("read %s: spec.rules: %w", x.Ref, err)
		}
		if !out.Found || canary > out.Route.Canary {
			out.Route.Canary, out.Route.Others = canary, others(rule, added)
		}
		out.Found = true
	}
	parents, err := parentsOf(x.Ref, x.Object)
	if err != nil {
		return err
	}
	confirmation, reason, unreported := parents.confirmed(x.Ref, x.Object)
	if unreported != nil { // pods are removed and releases are promoted as if it had applied the route
		confirmation, reason, out.Unreported = traffic.CannotTell, "", unreported
	}
	if out.Confirmed != traffic.ConfirmedNo && confirmation != traffic.ConfirmedYes {
		out.Confirmed, out.Reason = confirmation, reason
	}
	return nil
}

func others(rule map[string]any, added []string) []release.Destination {
	var out []release.Destination
	for _, ref := range traffic.Maps(rule["backendRefs"]) {
		name, _ := ref["name"].(string)
		weight, err := traffic.Number(ref["weight"])
		if err == nil && slices.Contains(added, name) {
			out = append(out, release.Destination{Service: name, Weight: int(weight)})
		}
	}
	return out
}

// Validate finds routes that are missing or do not name both Services, and mirror routes of steps that they cannot express.
func (rd RolloutRenderer) Validate(t traffic.Target, existing traffic.Objects) field.ErrorList {
	path := traffic.RoutingPath().Child("plugins").Key(PluginName)
	if _, err := pluginConfigOf(t); err != nil {
		return field.ErrorList{field.Invalid(path, string(t.Routing().Plugins[PluginName]), err.Error())}
	}
	if !existing.AnyShared() {
		return field.ErrorList{field.Invalid(path, string(t.Routing().Plugins[PluginName]), noRouteFound)}
	}
	var all field.ErrorList
	for _, x := range existing {
		switch {
		case !x.Ref.Shared:
		case x.Object == nil:
			all = append(all, field.Invalid(path, x.Ref.Name, x.Ref.String()+" not found"))
		default:
			if fault := unfit(t, x.Object); fault != "" {
				all = append(all, field.Invalid(path, x.Ref.Name, x.Ref.String()+" "+fault))
			}
		}
	}
	if len(all) > 0 || t.Rollout.Spec.Strategy.Canary == nil || !rd.Features(t).MirrorRoutes {
		return all
	}
	for i, step := range t.Rollout.Spec.Strategy.Canary.Steps {
		if step.SetMirrorRoute == nil {
			continue
		}
		mirror := traffic.MirrorRoute(*step.SetMirrorRoute)
		if _, err := rd.Render(t, release.Route{MirrorRoutes: []release.MirrorRoute{mirror}}, existing); err != nil {
			at := field.NewPath("spec", "strategy", "canary", "steps").Index(i).Child("setMirrorRoute")
			all = append(all, field.Invalid(at, mirror.Name, err.Error()))
		}
	}
	return all
}

// Restore removes managed rules, experiments and the label. Weights remain.
func (RolloutRenderer) Restore(t traffic.Target, existing traffic.Objects) ([]*unstructured.Unstructured, error) {
	out := existing.Unchanged()
	l, err := pluginConfigOf(t)
	if err != nil {
		return out, nil //nolint:nilerr // nothing was written for an invalid configuration
	}
	for i, x := range existing {
		if x.Object == nil || !x.Ref.Shared {
			continue
		}
		obj := x.Object.DeepCopy()
		if spec, ok := obj.Object["spec"].(map[string]any); ok && spec["rules"] != nil {
			spec["rules"] = traffic.List(editor{t: t, added: traffic.ExperimentServices(t, obj)}.users(spec))
		}
		traffic.RecordExperiments(t, obj, nil)
		l.label(t, obj, false)
		out[i] = obj
	}
	return out, nil
}
