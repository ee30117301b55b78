package canary

import (
	"reflect"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/serin-dev/serin/test/sim/actors"
	"github.com/serin-dev/serin/test/sim/cluster"
)

// isCopied reports whether a GitOps tool has a copy of an object.
func (r *Release) isCopied(copies actors.Copies, kind schema.GroupKind, name string) bool {
	route, hasRoute := cluster.RouteKind(r.Provider)
	switch kind {
	case actors.DeploymentKind:
		return name == r.Target
	case actors.ServiceKind:
		return name == r.Apex && copies.Selectors
	default:
		return hasRoute && kind == route && name == r.Apex && copies.Weights
	}
}

// writeCopies writes all fields that differ from the copies of a GitOps tool.
func (k *Canaries) writeCopies(r *Release, copies actors.Copies) {
	k.writeField(r, r.Target, actors.DeploymentKind, func(spec map[string]any) {
		if copies.Replicas {
			spec["replicas"] = int64(r.replicas)
		}
		if copies.Template {
			spec["template"] = r.podTemplate(r.Current())
		}
	})
	if copies.Selectors {
		k.writeField(r, r.Apex, actors.ServiceKind, func(spec map[string]any) { spec["selector"] = map[string]any{"app": r.Target} })
	}
	if kind, ok := cluster.RouteKind(r.Provider); ok && copies.Weights {
		k.writeField(r, r.Apex, kind, func(spec map[string]any) { actors.SetCanaryWeight(map[string]any{"spec": spec}, r.isCanary, 0) })
	}
}

// writeField sets fields in the spec of an object if they differ.
func (k *Canaries) writeField(r *Release, name string, kind schema.GroupKind, set func(spec map[string]any)) {
	changed := k.UserClient.Write("gitops", name, kind, func(o map[string]any) bool {
		spec, ok := o["spec"].(map[string]any)
		if !ok {
			return false
		}
		before := (&unstructured.Unstructured{Object: spec}).DeepCopy().Object
		set(spec)
		return !reflect.DeepEqual(before, spec)
	})
	if changed {
		k.World.Trace("%s: gitops reapplies %s %s", r.Key.Name, kind.Kind, name)
	}
}
