package rollout

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/test/sim/actors"
	"github.com/serin-dev/serin/test/sim/cluster"
)

// writeCopies writes all fields that differ from the copies of a GitOps tool.
func (k *Rollouts) writeCopies(r *Release, copies actors.Copies) {
	wrote := k.updateRollout("gitops", r.Key, func(o *argov1.Rollout) {
		if copies.Replicas {
			o.Spec.Replicas = r.Spec.Replicas
		}
	})
	if copies.Template {
		wrote = k.updateTemplate("gitops", r, func(template *corev1.PodTemplateSpec) { *template = r.podTemplate(r.Current()) }) || wrote
	}
	if copies.Selectors {
		for _, name := range r.serviceNames() {
			wrote = k.UserClient.Write("gitops", name, actors.ServiceKind, func(o map[string]any) bool {
				selector, _, _ := unstructured.NestedStringMap(o, "spec", "selector")
				return len(selector) > 1 && unstructured.SetNestedField(o, map[string]any{"app": r.Key.Name}, "spec", "selector") == nil
			}) || wrote
		}
	}
	if kind, ok := cluster.RouteKind(r.Provider); ok && copies.Weights {
		sides, _ := sidesOf(&r.Spec)
		canary := func(destination map[string]any) bool { return sides.isCanary(destinationOf(destination), "") } // as it was when the copy was made
		wrote = k.UserClient.Write("gitops", r.apex(), kind, func(o map[string]any) bool { return actors.SetCanaryWeight(o, canary, 0) }) || wrote
	}
	if wrote {
		k.World.Trace("%s: gitops reapplies its copies", r.Key.Name)
	}
}
