package canary

import (
	"context"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/test/sim"
	"github.com/serin-dev/serin/test/sim/cluster"
	"github.com/serin-dev/serin/test/sim/kinds"
	"github.com/serin-dev/serin/test/sim/store"
)

// The classes of what people and tools do, beside those that all kinds have.
const (
	EditTemplate     sim.Class = "edit-template"
	EditSpec         sim.Class = "edit-spec"
	EditConfig       sim.Class = "edit-config"
	Scale            sim.Class = "scale"
	DeleteRelease    sim.Class = "delete-release"
	RecreateRelease  sim.Class = "recreate-release"
	DeleteTarget     sim.Class = "delete-target"
	DeletePrimary    sim.Class = "delete-primary"
	DeleteService    sim.Class = "delete-service"
	DeleteRoute      sim.Class = "delete-route"
	EditRouteWeights sim.Class = "edit-route-weights"
	Suspend          sim.Class = "suspend"
	Skip             sim.Class = "skip"
	Command          sim.Class = "command"
	NonsenseStatus   sim.Class = "nonsense-status"
	OtherController  sim.Class = "other-controller" // the status is as another controller leaves it
	SwapStrategy     sim.Class = "swap-strategy"
	SameTarget       sim.Class = "same-target"
	Strangers        sim.Class = "strangers"
	ManyPods         sim.Class = "many-pods" // so many that a primary takes longer than the deadline to be replaced
)

// people are the users of the workloads: they ship versions, change their minds, and do by hand what they should not.
type people struct {
	*Canaries
	*kinds.Script
	// back are the Canaries that are made again once they are gone.
	back map[types.NamespacedName]func()
}

// deeds in a fixed order.
var deeds = []kinds.Deed[*people, *Release]{
	{Class: EditTemplate, Do: (*people).editTemplate},
	{Class: EditSpec, Do: (*people).editSpec},
	{Class: EditConfig, Do: (*people).editConfig},
	{Class: Scale, Do: (*people).scale},
	{Class: DeleteRelease, Do: (*people).deleteRelease},
	{Class: RecreateRelease, Do: (*people).recreateRelease},
	{Class: DeleteTarget, Do: (*people).deleteTarget},
	{Class: DeletePrimary, Do: (*people).deletePrimary},
	{Class: DeleteService, Do: (*people).deleteService},
	{Class: DeleteRoute, Do: (*people).deleteRoute},
	{Class: EditRouteWeights, Do: (*people).editRouteWeights},
	{Class: Suspend, Do: (*people).suspend},
	{Class: Skip, Do: (*people).skip},
	{Class: Command, Do: (*people).command},
	{Class: NonsenseStatus, Do: (*people).nonsense},
	{Class: OtherController, Do: (*people).otherController},
	{Class: SwapStrategy, Do: (*people).swapStrategy},
	{Class: SameTarget, Do: (*people).sameTarget},
}

// Classes are the troubles that this kind of release adds to those of the world.
var Classes = slices.Concat(hookTroubles, kinds.MetricTroubles, []sim.Class{Strangers, ManyPods, Neighbours, kinds.GitOps}, kinds.Classes(deeds), cluster.Classes())

// live plans what people do in this history.
func (p *people) live() {
	for _, r := range p.releases {
		kinds.Shipping{
			World: p.world, Name: r.Key.Name, Most: 3, Soonest: 2 * time.Minute, Latest: 12 * time.Minute,
			Draw: func(s *sim.Stream) func() {
				v := kinds.DrawVersion(s, 0.6, 0.4)
				return func() { p.ship(r, r.Add(v)) }
			},
			Over: func() bool { return p.over },
		}.Begin()
	}
	kinds.Often(p.world, p, deeds, func() []*Release { return p.releases })
}

// tell begins a story about a release.
func (p *people) tell(story Story, r *Release) {
	kinds.Tell(p.Script, p, r, story.Acts, func() (flaggerv1.CanaryStatus, bool) {
		if c := p.stored(r.Key); c != nil {
			return c.Status, true
		}
		return flaggerv1.CanaryStatus{}, false
	})
}

// saw is told everything that happens.
func (p *people) saw(happening any) {
	wrote, ok := happening.(sim.Wrote)
	switch {
	case ok && (wrote.Kind == kinds.DeploymentKind || wrote.Kind == kinds.DaemonSetKind) && wrote.Actor != "user" && wrote.Subresource == "":
		p.noticePrimary(wrote)
		return
	case !ok || wrote.Kind != canaryKind:
		return
	}
	if again := p.back[wrote.Key]; again != nil && wrote.Type == store.Deleted {
		delete(p.back, wrote.Key)
		p.Later(2*time.Second, again)
	}
	p.GoOn()
}

// noticePrimary remembers which version the primary of a release got last.
func (p *people) noticePrimary(wrote sim.Wrote) {
	for _, r := range p.releases {
		if version := kinds.Labels(within(wrote.New.Content(), "spec", "template"))["version"]; wrote.Key.Name == r.Target+"-primary" && r.Known[version] != nil {
			r.promoted = version
		}
	}
}

// change lets a user change one object.
func (p *people) change(name string, kind schema.GroupKind, change func(map[string]any) bool) bool {
	return p.hands.Write("user", name, kind, change)
}

// stored is a Canary as the API server has it; nil when there is none. It must not be changed.
func (k *Canaries) stored(key types.NamespacedName) *flaggerv1.Canary {
	return kinds.Typed[*flaggerv1.Canary](k.world, k.world.Server.Peek(canaryKind, key))
}

// respecify changes the spec of a Canary.
func (p *people) respecify(r *Release, change func(*flaggerv1.Canary)) bool {
	c := p.stored(r.Key)
	if c == nil || c.DeletionTimestamp != nil {
		return false
	}
	c = c.DeepCopy()
	change(c)
	if err := p.user.Update(context.Background(), c); err != nil {
		p.world.Say("the API server refuses a change of Canary %s: %v", r.Key.Name, err)
		return false
	}
	r.Strategy = strategyOf(c.Spec)
	return true
}

// running is the version that the target of a release runs now; empty where there is no target.
func (k *Canaries) running(r *Release) string {
	target := k.world.Server.Peek(r.Kind, types.NamespacedName{Namespace: namespace, Name: r.Target})
	if target == nil {
		return ""
	}
	template, _, _ := unstructured.NestedFieldNoCopy(target.Content(), "spec", "template")
	content, _ := template.(map[string]any)
	return kinds.Labels(content)["version"]
}

// mend is what people do when nothing happens any more: they put right what would hold a release for ever, or leave it
// so that the release has to say what it waits for.
func (p *people) mend() {
	for _, r := range p.releases {
		s := p.world.Draws.Stream("mend/" + r.Key.Name)
		resume, valid, retarget := s.Chance(0.7), s.Chance(0.75), s.Chance(0.8)
		if resume {
			p.resume(r)
		}
		if valid {
			p.mendSpec(r)
		}
		if retarget {
			p.retarget(r)
			p.bringBack(r)
		}
		p.startable(r)
	}
}

// bringBack ships the promoted version again where the primary is gone, as the release asks for when it cannot make it
// again by itself.
func (p *people) bringBack(r *Release) {
	gone := p.world.Server.Peek(r.Kind, types.NamespacedName{Namespace: namespace, Name: r.Target + "-primary"}) == nil
	if c := p.stored(r.Key); gone && c != nil && c.Status.Phase != "" && c.Status.Phase != flaggerv1.CanaryPhaseInitializing && r.promoted != "" {
		p.ship(r, r.Known[r.promoted])
	}
}

// startable ships a version whose pods run where a release would otherwise wait for pods that never come: it has not taken
// its workload over yet, or gives it back, or the primary has that version already.
func (p *people) startable(r *Release) {
	v := r.Known[p.running(r)]
	if v == nil || !v.Pods.Never || !p.needsPods(r.Key) && !p.needsPods(types.NamespacedName{Namespace: namespace, Name: r.Key.Name + twin}) {
		return
	}
	p.ship(r, r.Add(goodVersion))
}

// needsPods is true of a Canary that waits for pods without a deadline. A release that is under way has one.
func (p *people) needsPods(key types.NamespacedName) bool {
	c := p.stored(key)
	if c == nil {
		return false
	}
	if c.DeletionTimestamp != nil {
		return true
	}
	switch c.Status.Phase {
	case "", flaggerv1.CanaryPhaseInitializing, flaggerv1.CanaryPhaseTerminating, flaggerv1.CanaryPhasePromoting, flaggerv1.CanaryPhaseFinalising:
		return true
	default:
		return false
	}
}
