package canary

import (
	"reflect"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/serin-dev/serin/test/sim"
	"github.com/serin-dev/serin/test/sim/actors"
)

// minReaction is the minimum time after which a tool that watches reapplies its copy.
const minReaction = 10 * time.Second

// gitOpsTool reapplies its own copies of some objects of a release, as GitOps tools do.
type gitOpsTool struct {
	*Canaries
	release *Release
	stream  *sim.Stream
	// replicas, template, selector and weights report which fields its copies contain.
	replicas, template, selector, weights bool
	// interval is how often it compares the objects; zero: after each change.
	interval  time.Duration
	scheduled bool
	reapply   func()
}

// scheduleTools starts the GitOps tools of a run.
func (k *Canaries) scheduleTools() {
	if !k.world.Faults.Has(actors.GitOps) {
		return
	}
	for _, r := range k.releases {
		s := k.world.Draws.Stream("gitops/" + r.Key.Name)
		t := &gitOpsTool{
			Canaries: k, release: r, stream: s,
			replicas: s.Chance(0.5), template: s.Chance(0.6), selector: s.Chance(0.4), weights: s.Chance(0.4),
			interval: sim.Pick(s, 0, time.Minute, 3*time.Minute, 8*time.Minute),
		}
		t.reapply = actors.ReapplyFunc(t.world, r.Key.Name, t.writeCopies)
		if t.interval > 0 {
			actors.Repeat(t.world, t.interval, func() bool { return t.stopped }, t.reapply)
			continue
		}
		k.world.Subscribe(t.observe)
	}
}

// observe schedules a comparison some time after another actor changed an object of which the tool has a copy.
func (t *gitOpsTool) observe(event any) {
	written, ok := event.(sim.ObjectWritten)
	if !ok || t.scheduled || t.stopped || written.Actor == "gitops" || written.Subresource == "status" || !t.manages(written.Kind, written.Key.Name) {
		return
	}
	t.scheduled = true
	t.world.After(t.stream.Between(minReaction, time.Minute), func() {
		t.scheduled = false
		if !t.stopped {
			t.reapply()
		}
	})
}

// manages reports whether the tool has a copy of an object.
func (t *gitOpsTool) manages(kind schema.GroupKind, name string) bool {
	route, hasRoute := actors.RouteKind(t.release.Provider)
	switch kind {
	case actors.DeploymentKind:
		return name == t.release.Target
	case actors.ServiceKind:
		return name == t.release.Apex && t.selector
	default:
		return hasRoute && kind == route && name == t.release.Apex && t.weights
	}
}

// writeCopies writes all fields that differ from the tool's copies.
func (t *gitOpsTool) writeCopies() {
	t.writeField(t.release.Target, actors.DeploymentKind, "spec", func(spec map[string]any) {
		if t.replicas {
			spec["replicas"] = int64(t.release.replicas)
		}
		if t.template {
			spec["template"] = t.release.podTemplate(t.release.Current())
		}
	})
	if t.selector {
		t.writeField(t.release.Apex, actors.ServiceKind, "spec", func(spec map[string]any) { spec["selector"] = map[string]any{"app": t.release.Target} })
	}
	if kind, ok := actors.RouteKind(t.release.Provider); ok && t.weights {
		t.writeField(t.release.Apex, kind, "spec", func(spec map[string]any) { actors.SetCanaryWeight(map[string]any{"spec": spec}, t.release.isCanary, 0) })
	}
}

// writeField sets one field of an object if it differs.
func (t *gitOpsTool) writeField(name string, kind schema.GroupKind, part string, set func(map[string]any)) {
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
		t.world.Trace("%s: gitops reapplies %s %s", t.release.Key.Name, kind.Kind, name)
	}
}
