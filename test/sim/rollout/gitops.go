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

// tool writes its own copies of some objects of a release back, as tools do that keep a cluster like a repository.
type tool struct {
	*Rollouts
	of *Release
	// replicas, template, selectors, weights say what is in its copies.
	replicas, template, selectors, weights bool
	every                                  time.Duration
}

// tools begins the tools of a run.
func (k *Rollouts) tools() {
	for _, r := range k.releases {
		s := k.world.Draws.Stream("scaler/" + r.Key.Name)
		if scaled := s.Chance(0.7); scaled && k.world.Faults.Has(Scaler) && k.world.Faults.TakesPlace(fmt.Sprintf("%s#%s", Scaler, r.Key.Name)) {
			k.userClient.Create(r.scaler())
		}
		if !k.world.Faults.Has(actors.GitOps) {
			continue
		}
		s = k.world.Draws.Stream("gitops/" + r.Key.Name)
		t := &tool{
			Rollouts: k, of: r, replicas: s.Chance(0.5), template: s.Chance(0.6), selectors: s.Chance(0.4), weights: s.Chance(0.4),
			every: sim.Pick(s, 30*time.Second, time.Minute, 3*time.Minute, 8*time.Minute),
		}
		actors.Every(t.world, t.every, func() bool { return t.over }, actors.WritesBack(t.world, r.Key.Name, t.writeBack))
	}
}

// writeBack writes everything back that is not as in the tool's copies.
func (t *tool) writeBack() {
	wrote := t.respecify("gitops", t.of.Key, func(o *argov1.Rollout) {
		if t.replicas {
			o.Spec.Replicas = t.of.Spec.Replicas
		}
	})
	if t.template {
		wrote = t.retemplate("gitops", t.of, func(template *corev1.PodTemplateSpec) { *template = t.of.template(t.of.Current()) }) || wrote
	}
	if t.selectors {
		for _, name := range t.of.around() {
			wrote = t.userClient.Write("gitops", name, actors.ServiceKind, func(o map[string]any) bool {
				selector, _, _ := unstructured.NestedStringMap(o, "spec", "selector")
				return len(selector) > 1 && unstructured.SetNestedField(o, map[string]any{"app": t.of.Key.Name}, "spec", "selector") == nil
			}) || wrote
		}
	}
	if kind, ok := actors.RouteKind(t.of.Router); ok && t.weights {
		of, _ := sidesOf(&t.of.Spec)
		first := func(destination map[string]any) bool { return of.onTheWay(placeOf(destination), "") } // of the two sides, as they were when the copy was made
		wrote = t.userClient.Write("gitops", t.of.apex(), kind, func(o map[string]any) bool { return actors.Reweigh(o, first, 0) }) || wrote
	}
	if wrote {
		t.world.Trace("%s: gitops writes its copies back", t.of.Key.Name)
	}
}
