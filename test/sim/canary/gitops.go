package canary

import (
	"reflect"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/serin-dev/serin/test/sim"
	"github.com/serin-dev/serin/test/sim/actors"
)

// quickest is how soon, at the earliest, a tool that watches writes its copy back.
const quickest = 10 * time.Second

// tool writes its own copies of some objects of a release back, as tools do that keep a cluster like a repository.
type tool struct {
	*Canaries
	of *Release
	s  *sim.Stream
	// replicas, template, selector, weights say what is in its copies.
	replicas, template, selector, weights bool
	// every is how often it looks; zero: at each change.
	every time.Duration
	due   bool
	apply func()
}

// tools begins the tools of a run.
func (k *Canaries) tools() {
	if !k.world.Faults.Has(actors.GitOps) {
		return
	}
	for _, r := range k.releases {
		s := k.world.Draws.Stream("gitops/" + r.Key.Name)
		t := &tool{
			Canaries: k, of: r, s: s,
			replicas: s.Chance(0.5), template: s.Chance(0.6), selector: s.Chance(0.4), weights: s.Chance(0.4),
			every: sim.Pick(s, 0, time.Minute, 3*time.Minute, 8*time.Minute),
		}
		t.apply = actors.WritesBack(t.world, r.Key.Name, t.writeBack)
		if t.every > 0 {
			actors.Every(t.world, t.every, func() bool { return t.over }, t.apply)
			continue
		}
		k.world.Subscribe(t.saw)
	}
}

// saw lets the tool look a while after each change that someone else made to one of its objects.
func (t *tool) saw(event any) {
	wrote, ok := event.(sim.ObjectWritten)
	if !ok || t.due || t.over || wrote.Actor == "gitops" || wrote.Subresource == "status" || !t.has(wrote.Kind, wrote.Key.Name) {
		return
	}
	t.due = true
	t.world.After(t.s.Between(quickest, time.Minute), func() {
		t.due = false
		if !t.over {
			t.apply()
		}
	})
}

// has is true of objects that the tool has a copy of.
func (t *tool) has(kind schema.GroupKind, name string) bool {
	route, routed := actors.RouteKind(t.of.Provider)
	switch kind {
	case actors.DeploymentKind:
		return name == t.of.Target
	case actors.ServiceKind:
		return name == t.of.Apex && t.selector
	default:
		return routed && kind == route && name == t.of.Apex && t.weights
	}
}

// writeBack writes everything back that is not as in the tool's copies.
func (t *tool) writeBack() {
	t.back(t.of.Target, actors.DeploymentKind, "spec", func(spec map[string]any) {
		if t.replicas {
			spec["replicas"] = int64(t.of.replicas)
		}
		if t.template {
			spec["template"] = t.of.template(t.of.Current())
		}
	})
	if t.selector {
		t.back(t.of.Apex, actors.ServiceKind, "spec", func(spec map[string]any) { spec["selector"] = map[string]any{"app": t.of.Target} })
	}
	if kind, ok := actors.RouteKind(t.of.Provider); ok && t.weights {
		t.back(t.of.Apex, kind, "spec", func(spec map[string]any) { actors.Reweigh(map[string]any{"spec": spec}, t.of.isCanary, 0) })
	}
}

// back puts one part of an object right, where it is not.
func (t *tool) back(name string, kind schema.GroupKind, part string, set func(map[string]any)) {
	changed := t.userClient.Write("gitops", name, kind, func(o map[string]any) bool {
		content, ok := o[part].(map[string]any)
		if !ok {
			return false
		}
		before := (&unstructured.Unstructured{Object: content}).DeepCopy().Object
		set(content)
		return !reflect.DeepEqual(before, content)
	})
	if changed {
		t.world.Trace("%s: gitops writes %s %s back", t.of.Key.Name, kind.Kind, name)
	}
}
