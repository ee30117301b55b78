package cluster

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/cli/check"
	"github.com/serin-dev/serin/internal/cli/scaffold"
	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/internal/traffic"
)

// This file contains the reads of serin check that no controller needs: autoscalers of Rollouts, and the Gateways of routes.

// autoscalerKinds are the kinds of autoscalers.
var autoscalerKinds = []string{"HorizontalPodAutoscaler", "ScaledObject"}

// autoscalersIn reads the autoscalers of a namespace.
func (s *Session) autoscalersIn(ctx context.Context, namespace string) check.Autoscalers {
	var out check.Autoscalers
	for _, kind := range scaffold.Kinds() {
		if !slices.Contains(autoscalerKinds, kind.Kind) {
			continue
		}
		objects, err := s.listKind(ctx, namespace, kind)
		if err != nil {
			out.Unread = "the " + plural(kind.Kind) + " cannot be read"
			continue
		}
		for _, object := range objects {
			if owner := metav1.GetControllerOf(object); owner != nil && slices.Contains(autoscalerKinds, owner.Kind) {
				continue // a part of the ScaledObject
			}
			ref, _, _ := unstructured.NestedStringMap(object.Object, "spec", "scaleTargetRef")
			// KEDA scales a Deployment by default.
			gvk := schema.FromAPIVersionAndKind(cmp.Or(ref["apiVersion"], "apps/v1"), cmp.Or(ref["kind"], "Deployment"))
			out.All = append(out.All, check.Autoscaler{Kind: kind.Kind, Name: object.GetName(), TargetGroup: gvk.Group, TargetKind: gvk.Kind, TargetName: ref["name"]})
		}
	}
	return out
}

// rolloutRouteRefs returns references to the objects that route the traffic of a Rollout.
func rolloutRouteRefs(routers traffic.Registry, object *argov1.Rollout) []traffic.Ref {
	c := object.Spec.Strategy.Canary
	if c == nil {
		return nil
	}
	found, err := routers.ForRollout(c.TrafficRouting)
	if err != nil {
		return nil // another check reports it
	}
	var refs []traffic.Ref
	for _, router := range found {
		refs = append(refs, router.Renderer.Refs(router.Target(object, object.Status.CurrentPodHash, object.Status.StableRS), release.Route{}, nil)...)
	}
	return refs
}

// parentsOf reads the Gateways that the routes of the Gateway API among some objects have as their parents. Routes that do not exist are
// reported by another check.
func (s *Session) parentsOf(ctx context.Context, refs []traffic.Ref) []check.RouteParent {
	var out []check.RouteParent
	for _, ref := range refs {
		if ref.GVK.Group != gatewayv1.GroupName {
			continue
		}
		routes, err := s.readRoutes(ctx, ref)
		if isForbidden(err) {
			out = append(out, check.RouteParent{Unread: "no permission to read " + plural(ref.GVK.Kind)})
		}
		for i := range routes {
			out = append(out, s.parentsOfRoute(ctx, &routes[i])...)
		}
	}
	return out
}

// readRoutes reads the routes that a reference names or selects.
func (s *Session) readRoutes(ctx context.Context, ref traffic.Ref) ([]unstructured.Unstructured, error) {
	if ref.Name != "" {
		var route unstructured.Unstructured
		route.SetGroupVersionKind(ref.GVK)
		if err := s.Client.Get(ctx, client.ObjectKey{Namespace: ref.Namespace, Name: ref.Name}, &route); err != nil {
			return nil, err
		}
		return []unstructured.Unstructured{route}, nil
	}
	selector, err := labels.Parse(ref.Selector)
	if err != nil {
		return nil, err
	}
	var list unstructured.UnstructuredList
	list.SetGroupVersionKind(ref.GVK.GroupVersion().WithKind(ref.GVK.Kind + "List"))
	err = s.Client.List(ctx, &list, client.InNamespace(ref.Namespace), client.MatchingLabelsSelector{Selector: selector})
	return list.Items, err
}

// parentsOfRoute reads the Gateways of one route. Other kinds of parents, such as the Services of meshes, have no listeners.
func (s *Session) parentsOfRoute(ctx context.Context, route *unstructured.Unstructured) []check.RouteParent {
	var spec struct {
		gatewayv1.CommonRouteSpec `json:",inline"`
		Hostnames                 []gatewayv1.Hostname `json:"hostnames"`
	}
	fields, _, _ := unstructured.NestedMap(route.Object, "spec")
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(fields, &spec); err != nil {
		return []check.RouteParent{{Unread: fmt.Sprintf("the parents of %s %s cannot be read: %v", route.GetKind(), route.GetName(), err)}}
	}
	var out []check.RouteParent
	for _, ref := range spec.ParentRefs {
		if ref.Kind != nil && *ref.Kind != "Gateway" || ref.Group != nil && *ref.Group != gatewayv1.GroupName {
			continue
		}
		parent := check.RouteParent{
			RouteKind: route.GetKind(), RouteNamespace: route.GetNamespace(), RouteName: route.GetName(), Hostnames: spec.Hostnames,
			Namespace: route.GetNamespace(), Name: string(ref.Name),
		}
		if ref.Namespace != nil {
			parent.Namespace = string(*ref.Namespace)
		}
		if ref.SectionName != nil {
			parent.Section = *ref.SectionName
		}
		if ref.Port != nil {
			parent.Port = *ref.Port
		}
		s.readGateway(ctx, &parent)
		out = append(out, parent)
	}
	return out
}

// readGateway reads the Gateway of a parent, and the labels of the namespace of its route, which a listener may select.
func (s *Session) readGateway(ctx context.Context, parent *check.RouteParent) {
	object := &unstructured.Unstructured{}
	err := error(nil)
	for _, version := range []string{"v1", "v1beta1"} {
		object.SetGroupVersionKind(schema.GroupVersionKind{Group: gatewayv1.GroupName, Version: version, Kind: "Gateway"})
		if err = s.Client.Get(ctx, client.ObjectKey{Namespace: parent.Namespace, Name: parent.Name}, object); !isUnknownKind(err) {
			break
		}
	}
	var gateway gatewayv1.Gateway
	switch {
	case apierrors.IsNotFound(err):
		return
	case isForbidden(err):
		parent.Unread = "no permission to read Gateway " + parent.Name + inNamespace(parent.Namespace)
		return
	case err == nil:
		err = runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &gateway)
	}
	if err != nil {
		parent.Unread = fmt.Sprintf("Gateway %s%s cannot be read: %v", parent.Name, inNamespace(parent.Namespace), err)
		return
	}
	parent.Found, parent.Listeners = true, gateway.Spec.Listeners
	if !slices.ContainsFunc(parent.Listeners, check.SelectsNamespaces) {
		return // most users have no permission to read namespaces
	}
	var namespace corev1.Namespace
	if err := s.Client.Get(ctx, client.ObjectKey{Name: parent.RouteNamespace}, &namespace); err == nil {
		parent.NamespaceLabels = labels.Merge(labels.Set{}, namespace.Labels)
	}
}
