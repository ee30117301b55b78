package traffic

import (
	"cmp"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
)

// Target is the release whose traffic is routed, as one renderer sees it. Exactly one of Canary and Rollout is set.
type Target struct {
	// Provider is the name under which the renderer is registered.
	Provider string
	// Namespace of the release and of its route.
	Namespace string
	// NoCrossNamespace refuses objects of the route in other namespaces.
	NoCrossNamespace bool
	// StableService and CanaryService are the names of the Services of the two sides. The stable side of a Canary is its
	// primary. Both are empty for a Rollout whose router identifies the revisions by labels.
	StableService, CanaryService string

	// Canary as stored. Renderers never modify it; service and analysis of its spec define everything about a route that
	// is not a weight.
	Canary *flaggerv1.Canary
	// Apex is the name of the Service that the clients of a Canary call.
	Apex string
	// SelectorLabel is the label that the selectors of a Canary's Services use. Where spec.service.apex is set, the object
	// of the route has this label with the name of the apex, as the apex Service does.
	SelectorLabel string
	// SelectorValue is the value of the label on the target's pods; the primary's pods have it with the suffix -primary.
	// Empty: the target's name.
	SelectorValue string

	// Rollout as stored. Renderers never modify it; its spec names the objects, and its status lists the destinations of
	// experiments that were set last.
	Rollout *argov1.Rollout
	// CanaryHash and StableHash are the revisions of a Rollout that receive the two shares, for routers that select pods by
	// label. Empty: there are no such pods. A caller that must shift the traffic before the revisions applies the route with
	// the previous hashes first.
	CanaryHash, StableHash string
	// PodAnnotations are the annotations in the pod templates of a Rollout's existing revisions, by hash, for routers that
	// identify revisions by annotations.
	PodAnnotations map[string]map[string]string
	// Drained is true when the weight of a Rollout's canary has been 0 for so long that no request is in flight. Objects that
	// exist only during a release may be deleted only then.
	Drained bool
}

// NewCanaryTarget returns the target of a Canary.
func NewCanaryTarget(c *flaggerv1.Canary, provider, selectorLabel string) Target {
	apex := c.Spec.ApexName()
	return Target{
		Provider:      provider,
		Namespace:     c.Namespace,
		StableService: apex + "-primary",
		CanaryService: apex + "-canary",
		Canary:        c,
		Apex:          apex,
		SelectorLabel: selectorLabel,
	}
}

// owner is the release for which objects are created: a Canary or a Rollout.
type owner struct {
	// reference is set on created objects. Objects that cannot have one have the annotation with the value instead.
	reference         metav1.OwnerReference
	annotation, value string
	// name identifies the release in messages, and field is the field of its spec that selects the kinds of objects.
	name, field string
}

func (t Target) owner() owner {
	if t.Rollout != nil {
		return owner{
			reference:  *metav1.NewControllerRef(t.Rollout, argov1.SchemeGroupVersion.WithKind(argov1.RolloutKind)),
			annotation: argov1.ManagedByAnnotation, value: t.Rollout.Name,
			name: "Rollout " + t.Rollout.Name + "." + t.Rollout.Namespace, field: "trafficRouting",
		}
	}
	return owner{
		reference:  *metav1.NewControllerRef(t.Canary, flaggerv1.SchemeGroupVersion.WithKind(flaggerv1.CanaryKind)),
		annotation: CanaryAnnotation, value: t.canaryKey(),
		name: "Canary " + t.canaryKey(), field: "spec.provider",
	}
}

// checkNamespace refuses an object in another namespace if the target does not permit it. It covers what the spec names and
// what objects of the user name, such as the router of a VirtualService of App Mesh. The namespace of a manifest may be unknown.
func (t Target) checkNamespace(ref Ref) error {
	if !t.NoCrossNamespace || t.Namespace == "" || ref.Namespace == "" || ref.Namespace == t.Namespace {
		return nil
	}
	object := ref.String()
	if ref.Name == "" {
		object = fmt.Sprintf("the %ss with labels %s in namespace %s", ref.GVK.Kind, ref.Selector, ref.Namespace)
	}
	return Refuse(ErrCrossNamespace, "can't access %s, cross-namespace references are blocked (-no-cross-namespace-refs): use a %s in namespace %s",
		object, ref.GVK.Kind, t.Namespace)
}

func (t Target) canaryKey() string { return t.Namespace + "/" + t.Canary.Name }

// OwnerReference is the reference that objects created for the release have.
func (t Target) OwnerReference() metav1.OwnerReference { return t.owner().reference }

// Owns reports whether an object was created for the release.
func (t Target) Owns(obj metav1.Object) bool {
	owner := t.owner()
	if controller := metav1.GetControllerOf(obj); controller != nil {
		return controller.UID == owner.reference.UID
	}
	return obj.GetAnnotations()[owner.annotation] == owner.value
}

// RoutingPath is the path of trafficRouting in a Rollout, for field errors.
func RoutingPath() *field.Path {
	return field.NewPath("spec", "strategy", "canary", "trafficRouting")
}

// strategy is the canary strategy of a Rollout; empty if it has none.
func (t Target) strategy() argov1.CanaryStrategy {
	if c := t.Rollout.Spec.Strategy.Canary; c != nil {
		return *c
	}
	return argov1.CanaryStrategy{}
}

// Routing is trafficRouting of a Rollout's spec; empty if there is none.
func (t Target) Routing() argov1.RolloutTrafficRouting {
	if routing := t.strategy().TrafficRouting; routing != nil {
		return *routing
	}
	return argov1.RolloutTrafficRouting{}
}

// ManagedRoutes are the names of the routes that belong to a Rollout whatever they contain, highest precedence first.
func (t Target) ManagedRoutes() []string {
	var names []string
	add := func(name string) {
		if name != "" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	for _, route := range t.Routing().ManagedRoutes {
		add(route.Name)
	}
	for _, step := range t.strategy().Steps { // a route may be removed from the list while it is in force
		if step.SetHeaderRoute != nil {
			add(step.SetHeaderRoute.Name)
		}
		if step.SetMirrorRoute != nil {
			add(step.SetMirrorRoute.Name)
		}
	}
	return names
}

// CompareManagedRoutes orders two managed routes by precedence.
func (t Target) CompareManagedRoutes(a, b string) int {
	names := t.ManagedRoutes()
	return cmp.Compare(slices.Index(names, a), slices.Index(names, b))
}
