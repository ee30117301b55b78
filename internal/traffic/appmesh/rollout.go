package appmesh

import (
	"cmp"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/internal/traffic"
)

// Messages about an invalid configuration.
const (
	textNoService = "must provide virtual-service"
	textNoRoutes  = "No routes defined for AppMesh virtual-router %s"
	textTargets   = "route %s has %d weightedTargets: exactly 2 are needed, one for each VirtualNode of virtualNodeGroup"
)

// The hashes of nodes without pods. App Mesh refuses two nodes that select the same pods, so each has a different one.
const (
	noStableHash = "stable-hash"
	noCanaryHash = "canary-hash"
)

// routeKinds are the protocols that a route may have.
var routeKinds = []string{"httpRoute", "tcpRoute", "http2Route", "grpcRoute"}

// RolloutRenderer writes weights into a VirtualRouter of the user, and revisions into two VirtualNodes.
type RolloutRenderer struct{}

// NewRollout returns the router appMesh, for V1Beta2.
func NewRollout() RolloutRenderer { return RolloutRenderer{} }

// Features are weights only.
func (RolloutRenderer) Features(traffic.Target) traffic.Features {
	return traffic.Features{Weights: true}
}

func rolloutKind(kind string) schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: "appmesh.k8s.aws", Version: string(V1Beta2), Kind: kind}
}

// MarkedKind implements traffic.Marker.
func (RolloutRenderer) MarkedKind() schema.GroupVersionKind { return rolloutKind("VirtualNode") }

func configuration(t traffic.Target) argov1.AppMeshTrafficRouting {
	if mesh := t.Routing().AppMesh; mesh != nil {
		return *mesh
	}
	return argov1.AppMeshTrafficRouting{}
}

// nodes are the names of the VirtualNodes; empty if the spec has none.
func nodes(t traffic.Target) (canary, stable string) {
	group := configuration(t).VirtualNodeGroup
	if group == nil {
		return "", ""
	}
	if group.CanaryVirtualNodeRef != nil {
		canary = group.CanaryVirtualNodeRef.Name
	}
	if group.StableVirtualNodeRef != nil {
		stable = group.StableVirtualNodeRef.Name
	}
	return canary, stable
}

// Refs are the nodes, which must select the pods before these receive traffic; the VirtualService, which is only read; and
// its router.
func (RolloutRenderer) Refs(t traffic.Target, _ release.Route, existing traffic.Objects) []traffic.Ref {
	var refs []traffic.Ref
	canary, stable := nodes(t)
	for _, name := range traffic.UniqueNames(canary, []string{stable}) {
		refs = append(refs, traffic.Ref{
			GVK: rolloutKind(virtualNode), Namespace: t.Namespace, Name: name, Shared: true, SelectsPods: true,
			Events: traffic.EventReasons{Missing: "VirtualNodeNotFound"},
		})
	}
	service := configuration(t).VirtualService
	if service == nil {
		return refs
	}
	refs = append(refs, traffic.Ref{
		GVK: rolloutKind(virtualService), Namespace: t.Namespace, Name: service.Name,
		Events: traffic.EventReasons{Missing: "VirtualServiceNotFound"},
	})
	users := existing.Get(virtualService, t.Namespace, service.Name)
	if users == nil {
		return refs
	}
	provider := []string{"spec", "provider", "virtualRouter", "virtualRouterRef"}
	name, _, _ := unstructured.NestedString(users.Object, append(slices.Clone(provider), "name")...)
	namespace, _, _ := unstructured.NestedString(users.Object, append(slices.Clone(provider), "namespace")...)
	if name == "" {
		return refs
	}
	return append(refs, traffic.Ref{
		GVK: rolloutKind(virtualRouter), Namespace: cmp.Or(namespace, t.Namespace), Name: name, Shared: true,
		Events: traffic.EventReasons{Missing: "VirtualRouterNotFound"},
	})
}

// Render writes revisions and weights.
func (rd RolloutRenderer) Render(t traffic.Target, r release.Route, existing traffic.Objects) ([]*unstructured.Unstructured, error) {
	if err := rd.Features(t).Check(t, r); err != nil {
		return nil, err
	}
	if faults := rd.Validate(t, existing); len(faults) > 0 {
		return nil, traffic.Refuse(traffic.ErrInvalid, "%s", faults[0].Detail)
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
		if x.Ref.SelectsPods {
			err = setRevision(t, x.Ref, obj)
		} else {
			err = setWeights(t, r, obj)
		}
		if err != nil {
			return nil, err
		}
		out[i] = obj
	}
	return out, nil
}

// setRevision sets the selector of a node to the pods of its side.
func setRevision(t traffic.Target, ref traffic.Ref, obj *unstructured.Unstructured) error {
	if err := t.MarkManaged(ref, obj); err != nil {
		return err
	}
	stableHash, canaryHash := cmp.Or(t.StableHash, noStableHash), t.CanaryHash
	if canaryHash == "" || canaryHash == t.StableHash {
		canaryHash = noCanaryHash
	}
	hash := stableHash
	if canary, _ := nodes(t); ref.Name == canary {
		hash = canaryHash
	}
	if err := unstructured.SetNestedField(obj.Object, hash, "spec", "podSelector", "matchLabels", argov1.PodTemplateHashLabel); err != nil {
		return traffic.Refuse(traffic.ErrInvalid, "%s has a podSelector without labels: %v", ref, err)
	}
	return nil
}

func setWeights(t traffic.Target, r release.Route, router *unstructured.Unstructured) error {
	for _, route := range routesOf(t, router) {
		for _, action := range actions(route) {
			canary, stable := targets(t, router, action)
			if canary == nil || stable == nil {
				return traffic.Refuse(traffic.ErrInvalid, textTargets, route["name"], len(traffic.Maps(action["weightedTargets"])))
			}
			canary["weight"], stable["weight"] = int64(r.Canary), int64(r.Stable())
		}
	}
	return nil
}

// routesOf returns the routes of a router that the spec selects. They are not copies.
func routesOf(t traffic.Target, router *unstructured.Unstructured) []map[string]any {
	list, _, _ := unstructured.NestedFieldNoCopy(router.Object, "spec", "routes")
	routes := traffic.Maps(list)
	if service := configuration(t).VirtualService; service != nil && len(service.Routes) > 0 {
		routes = slices.DeleteFunc(routes, func(route map[string]any) bool {
			name, _ := route["name"].(string)
			return !slices.Contains(service.Routes, name)
		})
	}
	return routes
}

func actions(route map[string]any) []map[string]any {
	var out []map[string]any
	for _, kind := range routeKinds {
		rule, _ := route[kind].(map[string]any)
		if action, ok := rule["action"].(map[string]any); ok {
			out = append(out, action)
		}
	}
	return out
}

// targets returns the targets of the two nodes. Nodes of other namespaces are not compared by name.
func targets(t traffic.Target, router *unstructured.Unstructured, action map[string]any) (canary, stable map[string]any) {
	canaryNode, stableNode := nodes(t)
	for _, target := range traffic.Maps(action["weightedTargets"]) {
		name, _, _ := unstructured.NestedString(target, "virtualNodeRef", "name")
		namespace, _, _ := unstructured.NestedString(target, "virtualNodeRef", "namespace")
		if cmp.Or(namespace, router.GetNamespace()) != t.Namespace {
			continue
		}
		switch name {
		case canaryNode:
			canary = target
		case stableNode:
			stable = target
		}
	}
	return canary, stable
}

// Read reads the weights from the router. App Mesh does not report which weights its proxies serve.
func (RolloutRenderer) Read(t traffic.Target, existing traffic.Objects) (traffic.Observed, error) {
	out := traffic.Observed{Confirmed: traffic.CannotTell}
	for _, x := range existing {
		if x.Object == nil || x.Ref.GVK.Kind != virtualRouter {
			continue
		}
		for _, route := range routesOf(t, x.Object) {
			for _, action := range actions(route) {
				canary, _ := targets(t, x.Object, action)
				if canary == nil {
					continue
				}
				weight, err := traffic.Number(canary["weight"])
				if err != nil || weight < 0 {
					return traffic.Observed{Confirmed: traffic.CannotTell},
						fmt.Errorf("read %s: a weight of route %v is %v, which is not a non-negative number", x.Ref, route["name"], canary["weight"])
				}
				out.Found, out.Route.Canary = true, max(out.Route.Canary, int(weight))
			}
		}
	}
	return out, nil
}

// Validate finds objects that are missing, and routes without a target for each side.
func (RolloutRenderer) Validate(t traffic.Target, existing traffic.Objects) field.ErrorList {
	path := traffic.RoutingPath().Child("appMesh")
	service := configuration(t).VirtualService
	if service == nil {
		return field.ErrorList{field.Invalid(path.Child("virtualService"), "", textNoService)}
	}
	if canary, stable := nodes(t); canary == "" || stable == "" || canary == stable {
		return field.ErrorList{field.Invalid(path.Child("virtualNodeGroup"), "", "must name a VirtualNode for the canary and another for the stable side")}
	}
	at := path.Child("virtualService", "name")
	var all field.ErrorList
	routed := false
	for _, x := range existing {
		switch {
		case x.Object == nil:
			where := at
			if x.Ref.SelectsPods {
				where = path.Child("virtualNodeGroup")
			}
			all = append(all, field.Invalid(where, x.Ref.Name, x.Ref.String()+" not found"))
		case x.Ref.GVK.Kind == virtualRouter:
			routed = true
			all = append(all, validateRouter(t, x, at)...)
		}
	}
	if len(all) == 0 && !routed {
		all = append(all, field.Invalid(at, service.Name, "VirtualService "+service.Name+" has no VirtualRouter"))
	}
	return all
}

func validateRouter(t traffic.Target, x traffic.Lookup, at *field.Path) field.ErrorList {
	routes := routesOf(t, x.Object)
	if len(routes) == 0 {
		return field.ErrorList{field.Invalid(at, x.Ref.Name, fmt.Sprintf(textNoRoutes, x.Ref.Name))}
	}
	var all field.ErrorList
	for _, route := range routes {
		found := actions(route)
		if len(found) == 0 {
			all = append(all, field.Invalid(at, x.Ref.Name, fmt.Sprintf(textTargets, route["name"], 0)))
		}
		for _, action := range found {
			canary, stable := targets(t, x.Object, action)
			if count := len(traffic.Maps(action["weightedTargets"])); count != 2 || canary == nil || stable == nil {
				all = append(all, field.Invalid(at, x.Ref.Name, fmt.Sprintf(textTargets, route["name"], count)))
			}
		}
	}
	return all
}

// Restore removes the mark, and makes the node of the stable side select the pods of all revisions. The other node selects none:
// App Mesh refuses a pod that two nodes select, and one that none selects has no proxy. A node that selects by nothing but the hash
// keeps it, because without labels it would select all pods of the namespace. Weights remain.
func (RolloutRenderer) Restore(t traffic.Target, existing traffic.Objects) ([]*unstructured.Unstructured, error) {
	out := existing.Unchanged()
	canary, _ := nodes(t)
	for i, x := range existing {
		if x.Object == nil || !x.Ref.SelectsPods {
			continue
		}
		obj := x.Object.DeepCopy()
		if !t.UnmarkManaged(obj) {
			continue // another Rollout's, or no longer managed
		}
		out[i] = obj
		value, _, _ := unstructured.NestedFieldNoCopy(obj.Object, "spec", "podSelector", "matchLabels")
		selected, _ := value.(map[string]any)
		switch {
		case len(selected) < 2:
		case x.Ref.Name == canary:
			selected[argov1.PodTemplateHashLabel] = noCanaryHash
		default:
			delete(selected, argov1.PodTemplateHashLabel)
		}
	}
	return out, nil
}
