package store

import (
	"fmt"
	"reflect"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// kind describes how objects of one kind are treated.
type kind struct {
	schema.GroupKind
	versions   []string // the stored one first
	plural     string
	namespaced bool
	// status is true if the status is a subresource: other writes do not change it, and its writes do not change anything else.
	status bool
	// scale is true if replicas can be written as a Scale.
	scale bool
	// generations are the fields, in addition to the spec, whose change increments the generation; nil: there are no generations.
	generations []string
	// unconditional is true if an update need not name a version; createdByUpdate if an update creates a missing object.
	unconditional, createdByUpdate bool
	name                           apivalidation.ValidateNameFunc

	custom *custom      // nil for built-in kinds
	goType reflect.Type // nil for custom kinds
	rules  rules
}

// rules are the functions of a built-in kind in addition to its type. All of them may be nil.
type rules struct {
	// initial sets defaults, in a content that is not shared.
	initial func(content map[string]any)
	// prepare sets what depends on the server or on the previous object; old is nil for a creation.
	prepare func(s *Server, content, old map[string]any)
	// faults returns the validation errors; old is nil for a creation.
	faults func(content, old map[string]any) field.ErrorList
	// inherit restores, in a write of the status, the fields that such a write may not change.
	inherit func(content, old map[string]any)
}

func (k *kind) resource() schema.GroupResource {
	return schema.GroupResource{Group: k.Group, Resource: k.plural}
}

func (k *kind) apiVersion(version string) string {
	return schema.GroupVersion{Group: k.Group, Version: version}.String()
}

func (k *kind) serves(version string) bool { return slices.Contains(k.versions, version) }

func builtin[T any](group, version, name, plural string, more ...func(*kind)) *kind {
	t := reflect.TypeFor[T]()
	_, status := t.FieldByName("Status")
	k := &kind{
		GroupKind: schema.GroupKind{Group: group, Kind: name}, versions: []string{version}, plural: plural,
		namespaced: true, status: status, unconditional: true, goType: t,
	}
	for _, change := range more {
		change(k)
	}
	return k
}

func generations(fields ...string) func(*kind) {
	return func(k *kind) { k.generations = append([]string{"spec"}, fields...) }
}
func withRules(r rules) func(*kind)                      { return func(k *kind) { k.rules = r } }
func scalable(k *kind)                                   { k.scale = true }
func creatableByUpdate(k *kind)                          { k.createdByUpdate = true }
func clusterScoped(k *kind)                              { k.namespaced = false }
func named(f apivalidation.ValidateNameFunc) func(*kind) { return func(k *kind) { k.name = f } }

// builtins returns the built-in kinds, as far as simulations need them.
func builtins() []*kind {
	return []*kind{
		builtin[corev1.Namespace]("", "v1", "Namespace", "namespaces", clusterScoped),
		builtin[corev1.ConfigMap]("", "v1", "ConfigMap", "configmaps", withRules(configMaps)),
		builtin[corev1.Secret]("", "v1", "Secret", "secrets", withRules(secrets)),
		builtin[corev1.Service]("", "v1", "Service", "services", withRules(services), creatableByUpdate, named(apivalidation.NameIsDNS1035Label)),
		builtin[corev1.Pod]("", "v1", "Pod", "pods", generations(), withRules(pods)),
		builtin[corev1.Event]("", "v1", "Event", "events", creatableByUpdate),
		builtin[appsv1.Deployment]("apps", "v1", "Deployment", "deployments", generations("annotations"), scalable, withRules(deployments)),
		builtin[appsv1.ReplicaSet]("apps", "v1", "ReplicaSet", "replicasets", generations(), scalable, withRules(replicaSets)),
		builtin[appsv1.DaemonSet]("apps", "v1", "DaemonSet", "daemonsets", generations(), withRules(daemonSets)),
		builtin[appsv1.ControllerRevision]("apps", "v1", "ControllerRevision", "controllerrevisions"),
		builtin[autoscalingv2.HorizontalPodAutoscaler]("autoscaling", "v2", "HorizontalPodAutoscaler", "horizontalpodautoscalers", generations(), withRules(autoscalers)),
		builtin[discoveryv1.EndpointSlice]("discovery.k8s.io", "v1", "EndpointSlice", "endpointslices", func(k *kind) {
			k.generations = []string{"addressType", "endpoints", "ports"}
		}),
		builtin[coordinationv1.Lease]("coordination.k8s.io", "v1", "Lease", "leases", creatableByUpdate, func(k *kind) { k.unconditional = false }),
		builtin[batchv1.Job]("batch", "v1", "Job", "jobs", generations()),
		builtin[networkingv1.Ingress]("networking.k8s.io", "v1", "Ingress", "ingresses", generations()),
	}
}

// kind returns the custom kind of a definition.
func (d *definition) kind() (*kind, error) {
	c, err := d.compile()
	if err != nil {
		return nil, err
	}
	spec := d.resource.Spec
	k := &kind{
		GroupKind: schema.GroupKind{Group: spec.Group, Kind: spec.Names.Kind}, plural: spec.Names.Plural,
		namespaced: spec.Scope == "Namespaced", status: c.status, custom: c,
		generations: []string{},
	}
	for _, version := range spec.Versions {
		switch {
		case version.Storage:
			k.versions = slices.Insert(k.versions, 0, version.Name)
		case version.Served:
			k.versions = append(k.versions, version.Name)
		}
	}
	if spec.Conversion != nil && spec.Conversion.Strategy == "Webhook" {
		return nil, fmt.Errorf("definition %s converts by a webhook, which is not simulated", d.resource.Name)
	}
	return k, nil
}

// nextGeneration returns the generation of an object after a change.
func (k *kind) nextGeneration(w writer, content, old map[string]any, generation int64) int64 {
	if k.generations == nil || w.subresource == statusOf {
		return generation
	}
	changed := false
	if k.custom != nil { // everything except metadata, and the status if it is a subresource
		changed = !equalExcept(content, old, "metadata", k.apart())
	}
	for _, field := range k.generations {
		if field == "annotations" {
			changed = changed || !identical(object(content, "metadata")[field], object(old, "metadata")[field])
			continue
		}
		changed = changed || !identical(content[field], old[field])
	}
	if changed {
		return generation + 1
	}
	return generation
}

func (k *kind) apart() string {
	if k.status {
		return "status"
	}
	return "metadata"
}

// equalExcept compares the fields of two contents, one of which was grafted onto the other.
func equalExcept(a, b map[string]any, but ...string) bool {
	for name, value := range a {
		if !slices.Contains(but, name) && !identical(value, b[name]) {
			return false
		}
	}
	for name := range b {
		if _, found := a[name]; !found && !slices.Contains(but, name) {
			return false
		}
	}
	return true
}
