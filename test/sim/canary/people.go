package canary

import (
	"context"
	"fmt"
	"hash/fnv"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/test/sim"
	"github.com/serin-dev/serin/test/sim/cluster"
	"github.com/serin-dev/serin/test/sim/store"
)

// The classes of what people and tools do. Ship is no trouble: it is what releases are for.
const (
	Ship             sim.Class = "ship"
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
	GitOps           sim.Class = "gitops"
)

// people are the users of the workloads: they ship versions, change their minds, and do by hand what they should not.
type people struct {
	*Canaries
	// pending is how much they have begun and not finished.
	pending int
	// acts are what is left of a story.
	acts []Act
	// back are the Canaries that are made again once they are gone.
	back map[types.NamespacedName]func()
}

// deed is one thing that somebody does by himself, again and again.
type deed struct {
	class sim.Class
	do    func(*people, *Release, *sim.Stream)
}

// deeds in a fixed order.
var deeds = []deed{
	{EditTemplate, (*people).editTemplate},
	{EditSpec, (*people).editSpec},
	{EditConfig, (*people).editConfig},
	{Scale, (*people).scale},
	{DeleteRelease, (*people).deleteRelease},
	{RecreateRelease, (*people).recreateRelease},
	{DeleteTarget, (*people).deleteTarget},
	{DeletePrimary, (*people).deletePrimary},
	{DeleteService, (*people).deleteService},
	{DeleteRoute, (*people).deleteRoute},
	{EditRouteWeights, (*people).editRouteWeights},
	{Suspend, (*people).suspend},
	{Skip, (*people).skip},
	{Command, (*people).command},
	{NonsenseStatus, (*people).nonsense},
	{OtherController, (*people).otherController},
	{SwapStrategy, (*people).swapStrategy},
	{SameTarget, (*people).sameTarget},
}

// Classes are the troubles that this kind of release adds to those of the world.
var Classes = slices.Concat(hookTroubles, metricTroubles, []sim.Class{Strangers, GitOps}, classesOf(deeds), cluster.Classes())

func classesOf(deeds []deed) []sim.Class {
	classes := make([]sim.Class, 0, len(deeds))
	for _, d := range deeds {
		classes = append(classes, d.class)
	}
	return classes
}

// live plans what people do in this history.
func (p *people) live() {
	for _, r := range p.releases {
		s := p.world.Draws.Stream("ship/" + r.Key.Name)
		p.shipAgain(r, s, s.Between(40*time.Second, 4*time.Minute), s.Int(1, 3))
	}
	for _, d := range deeds {
		every := sim.Pick(p.world.Draws.Stream("often/"+string(d.class)), 4*time.Minute, 8*time.Minute, 20*time.Minute)
		p.world.Again(d.class, every, func(s *sim.Stream) {
			if len(p.releases) > 0 {
				d.do(p, sim.Pick(s, p.releases...), s)
			}
		})
	}
}

// shipAgain ships a version after a while, and the next ones later.
func (p *people) shipAgain(r *Release, s *sim.Stream, after time.Duration, left int) {
	if left == 0 {
		return
	}
	v := drawVersion(s)
	next := s.Between(2*time.Minute, 12*time.Minute)
	p.world.After(after, func() {
		if p.over {
			return
		}
		if p.world.Trouble.Happens(fmt.Sprintf("%s#%s-%d", Ship, r.Key.Name, left)) {
			p.ship(r, r.add(v))
		}
		p.shipAgain(r, s, next, left-1)
	})
}

// drawVersion draws a version with what is true about it.
func drawVersion(s *sim.Stream) version {
	v := version{good: s.Chance(0.6), tested: s.Chance(0.4), pods: drawPods(s)}
	from, noise := sim.Pick(s, 0, 0, 10, 40), s.Chance(0.15)
	if !v.good {
		v.from = from
	}
	if noise {
		v.noise = 0.2
	}
	return v
}

// tell begins a story.
func (p *people) tell(story Story) {
	p.acts = slices.Clone(story.Acts)
	p.goOn()
}

// goOn lets the next act of a story follow when its moment has come.
func (p *people) goOn() {
	if len(p.acts) == 0 || p.pending > 0 || len(p.releases) == 0 {
		return
	}
	act, r := p.acts[0], p.releases[0]
	if act.When != nil {
		c := p.stored(r.Key)
		if c == nil || !act.When(c.Status) {
			return
		}
	}
	p.later(act.After, func() {
		p.acts = p.acts[1:]
		act.Do(p, r)
	})
}

// later does something that follows from what was done before, also when troubles are over by then.
func (p *people) later(after time.Duration, do func()) {
	p.pending++
	p.world.After(after, func() {
		p.pending--
		do()
		p.goOn()
	})
}

// saw is told everything that happens.
func (p *people) saw(happening any) {
	wrote, ok := happening.(sim.Wrote)
	switch {
	case ok && (wrote.Kind == deploymentKind || wrote.Kind == daemonSetKind) && wrote.Actor != "user" && wrote.Subresource == "":
		p.noticePrimary(wrote)
		return
	case !ok || wrote.Kind != canaryKind:
		return
	}
	if again := p.back[wrote.Key]; again != nil && wrote.Type == store.Deleted {
		delete(p.back, wrote.Key)
		p.later(2*time.Second, again)
	}
	p.goOn()
}

// noticePrimary remembers which version the primary of a release got last.
func (p *people) noticePrimary(wrote sim.Wrote) {
	for _, r := range p.releases {
		if version := labelsOf(within(wrote.New.Content(), "spec", "template"))["version"]; wrote.Key.Name == r.Target+"-primary" && r.versions[version] != nil {
			r.promoted = version
		}
	}
}

// did tells the world what somebody did.
func (p *people) did(r *Release, what sim.Class, format string, args ...any) {
	p.world.Say("%s: people "+format, append([]any{r.Key.Name}, args...)...)
	p.world.Tell(Did{Release: r.Key, What: string(what), Revision: p.revision(r)})
}

// create makes an object, and says so where the server refuses it.
func (k *Canaries) create(o client.Object) {
	copied, ok := o.DeepCopyObject().(client.Object)
	if !ok {
		return
	}
	if err := k.user.Create(context.Background(), copied); err != nil {
		k.world.Say("the API server refuses %s: %v", o.GetName(), err)
	}
}

// remove deletes one object of a release.
func (p *people) remove(name string, kind schema.GroupKind, what sim.Class, r *Release) bool {
	seen := p.world.Server.Peek(kind, types.NamespacedName{Namespace: namespace, Name: name})
	if seen == nil {
		return false
	}
	if err := p.user.Delete(context.Background(), seen.Unstructured()); err != nil {
		p.world.Say("the API server refuses to delete %s: %v", name, err)
		return false
	}
	p.did(r, what, "delete %s %s", kind.Kind, name)
	return true
}

// change lets a user change one object.
func (p *people) change(name string, kind schema.GroupKind, change func(map[string]any) bool) bool {
	return p.write("user", name, kind, change)
}

// write lets somebody change one object in place; change may say that there is nothing to do.
func (k *Canaries) write(actor, name string, kind schema.GroupKind, change func(map[string]any) bool) bool {
	seen := k.world.Server.Peek(kind, types.NamespacedName{Namespace: namespace, Name: name})
	if seen == nil {
		return false
	}
	o := seen.Unstructured()
	if !change(o.Object) {
		return false
	}
	if err := k.world.Server.Client(actor).Update(context.Background(), o); err != nil {
		k.world.Say("the API server refuses a change of %s: %v", name, err)
		return false
	}
	return true
}

// stored is a Canary as the API server has it; nil when there is none. It must not be changed.
func (k *Canaries) stored(key types.NamespacedName) *flaggerv1.Canary {
	seen := k.world.Server.Peek(canaryKind, key)
	if seen == nil {
		return nil
	}
	typed, err := seen.Typed(k.world.Scheme)
	if err != nil {
		return nil
	}
	c, _ := typed.(*flaggerv1.Canary)
	return c
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

// revision names what the target of a release runs: the template and the configuration that it reads. Empty where there
// is no target.
func (k *Canaries) revision(r *Release) string {
	target := k.world.Server.Peek(r.Kind, types.NamespacedName{Namespace: namespace, Name: r.Target})
	if target == nil {
		return ""
	}
	template, _, _ := unstructured.NestedFieldNoCopy(target.Content(), "spec", "template")
	sum := fnv.New64a()
	_, _ = fmt.Fprint(sum, template) // maps are printed in the order of their keys
	if r.config != "" {
		if config := k.world.Server.Peek(configMapKind, types.NamespacedName{Namespace: namespace, Name: r.config}); config != nil {
			_, _ = fmt.Fprint(sum, config.Content()["data"])
		}
	}
	return fmt.Sprintf("%s-%x", k.running(r), sum.Sum64())
}

// running is the version that the target of a release runs now; empty where there is no target.
func (k *Canaries) running(r *Release) string {
	target := k.world.Server.Peek(r.Kind, types.NamespacedName{Namespace: namespace, Name: r.Target})
	if target == nil {
		return ""
	}
	template, _, _ := unstructured.NestedFieldNoCopy(target.Content(), "spec", "template")
	content, _ := template.(map[string]any)
	return labelsOf(content)["version"]
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
		p.ship(r, r.versions[r.promoted])
	}
}

// startable ships a version whose pods run where a release would otherwise wait for pods that never come: it has not taken
// its workload over yet, or gives it back, or the primary has that version already.
func (p *people) startable(r *Release) {
	v := r.versions[p.running(r)]
	if v == nil || starts(v.pods) || !p.needsPods(r.Key) && !p.needsPods(types.NamespacedName{Namespace: namespace, Name: r.Key.Name + twin}) {
		return
	}
	p.ship(r, r.add(goodVersion))
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
