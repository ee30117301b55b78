package rollout

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/test/sim"
	"github.com/serin-dev/serin/test/sim/actors"
)

// gitOpsTool reapplies its own copies of some objects of a release, as GitOps tools do.
type gitOpsTool struct {
	*Rollouts
	release *Release
	// replicas, template, selectors and weights report which fields its copies contain.
	replicas, template, selectors, weights bool
	interval                               time.Duration
}

// scheduleTools starts the GitOps tools of a run.
func (k *Rollouts) scheduleTools() {
	for _, r := range k.releases {
		s := k.world.Draws.Stream("scaler/" + r.Key.Name)
		if scaled := s.Chance(0.7); scaled && k.world.Faults.Has(Scaler) && k.world.Faults.Admit(fmt.Sprintf("%s#%s", Scaler, r.Key.Name)) {
			k.userClient.Create(r.newAutoscaler())
		}
		if !k.world.Faults.Has(actors.GitOps) {
			continue
		}
		s = k.world.Draws.Stream("gitops/" + r.Key.Name)
		t := &gitOpsTool{
			Rollouts: k, release: r, replicas: s.Chance(0.5), template: s.Chance(0.6), selectors: s.Chance(0.4), weights: s.Chance(0.4),
			interval: sim.Pick(s, 30*time.Second, time.Minute, 3*time.Minute, 8*time.Minute),
		}
		actors.Repeat(t.world, t.interval, func() bool { return t.stopped }, actors.ReapplyFunc(t.world, r.Key.Name, t.writeCopies))
	}
}

// writeCopies writes all fields that differ from the tool's copies.
func (t *gitOpsTool) writeCopies() {
	wrote := t.updateRollout("gitops", t.release.Key, func(o *argov1.Rollout) {
		if t.replicas {
			o.Spec.Replicas = t.release.Spec.Replicas
		}
	})
	if t.template {
		wrote = t.updateTemplate("gitops", t.release, func(template *corev1.PodTemplateSpec) { *template = t.release.podTemplate(t.release.Current()) }) || wrote
	}
	if t.selectors {
		for _, name := range t.release.serviceNames() {
			wrote = t.userClient.Write("gitops", name, actors.ServiceKind, func(o map[string]any) bool {
				selector, _, _ := unstructured.NestedStringMap(o, "spec", "selector")
				return len(selector) > 1 && unstructured.SetNestedField(o, map[string]any{"app": t.release.Key.Name}, "spec", "selector") == nil
			}) || wrote
		}
	}
	if kind, ok := actors.RouteKind(t.release.Router); ok && t.weights {
		sides, _ := sidesOf(&t.release.Spec)
		canary := func(destination map[string]any) bool { return sides.isCanary(destinationOf(destination), "") } // as it was when the copy was made
		wrote = t.userClient.Write("gitops", t.release.apex(), kind, func(o map[string]any) bool { return actors.SetCanaryWeight(o, canary, 0) }) || wrote
	}
	if wrote {
		t.world.Trace("%s: gitops reapplies its copies", t.release.Key.Name)
	}
}
