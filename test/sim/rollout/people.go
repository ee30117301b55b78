package rollout

import (
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/test/sim"
	"github.com/serin-dev/serin/test/sim/cluster"
	"github.com/serin-dev/serin/test/sim/store"
)

// The classes of what people and tools do. Ship is no trouble: it is what releases are for.
const (
	Ship             sim.Class = "ship"
	EditTemplate     sim.Class = "edit-template"
	EditSpec         sim.Class = "edit-spec"
	Scale            sim.Class = "scale"
	Command          sim.Class = "command"
	DeleteRelease    sim.Class = "delete-release"
	DeleteSet        sim.Class = "delete-replicaset"
	DeleteService    sim.Class = "delete-service"
	EditService      sim.Class = "edit-service"
	DeleteRoute      sim.Class = "delete-route"
	EditRouteWeights sim.Class = "edit-route-weights"
	DeleteJudge      sim.Class = "delete-judge" // an AnalysisRun or an Experiment
	NonsenseStatus   sim.Class = "nonsense-status"
	SwapStrategy     sim.Class = "swap-strategy"
	GitOps           sim.Class = "gitops"
	Scaler           sim.Class = "autoscaler"
)

// people are the users of the workloads: they ship versions, change their minds, and do by hand what they should not.
type people struct {
	*Rollouts
	// pending is how much they have begun and not finished.
	pending int
	// acts are what is left of a story.
	acts []Act
	// asked are the pauses that somebody has already been asked to end.
	asked map[string]bool
	// replaced counts how often a release that was stuck was helped at the end.
	replaced map[types.NamespacedName]int
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
	{Scale, (*people).scale},
	{Command, (*people).command},
	{DeleteRelease, (*people).deleteRelease},
	{DeleteSet, (*people).deleteSet},
	{DeleteService, (*people).deleteService},
	{EditService, (*people).editService},
	{DeleteRoute, (*people).deleteRoute},
	{EditRouteWeights, (*people).editRouteWeights},
	{DeleteJudge, (*people).deleteJudge},
	{NonsenseStatus, (*people).nonsense},
	{SwapStrategy, (*people).swapStrategy},
}

// Classes are the troubles that this kind of release adds to those of the world.
var Classes = slices.Concat(metricTroubles, []sim.Class{GitOps, Scaler}, classesOf(deeds), cluster.Classes())

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
		p.shipAgain(r, s, s.Between(40*time.Second, 4*time.Minute), s.Int(1, 4))
	}
	p.twins()
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
	next := s.Between(time.Minute, 10*time.Minute)
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
	v := version{good: s.Chance(0.65), pods: drawPods(s)}
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
		if c == nil || !act.When(r, c.Status) {
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
	if !ok || wrote.Kind != rolloutKind {
		return
	}
	if p.story == nil && wrote.Type != store.Deleted {
		object := typed[*argov1.Rollout](p.world, wrote.New)
		p.endPauses(object)
		p.replaceStuck(object)
	}
	p.goOn()
}

// endPauses: somebody looks at each pause that begins, and promotes or aborts after a while, or leaves it, which nobody
// does once troubles are over and a judgement beside the steps would go on for ever.
func (p *people) endPauses(object *argov1.Rollout) {
	for _, pause := range object.Status.PauseConditions {
		id := fmt.Sprintf("%s/%s/%s/%d", object.UID, object.Status.CurrentPodHash, pause.Reason, pause.StartTime.Unix())
		if p.asked[id] {
			continue
		}
		if p.asked == nil {
			p.asked = map[string]bool{}
		}
		p.asked[id] = true
		s := p.world.Draws.Stream(fmt.Sprintf("pause/%s/%d", object.Name, len(p.asked)))
		after, aborts, forgets := s.Between(20*time.Second, 4*time.Minute), s.Chance(0.2), s.Chance(0.15)
		p.later(after, func() {
			if forgets && !p.judgedBeside(keyOf(object)) {
				return
			}
			p.decide(keyOf(object), pause, aborts)
		})
	}
}

// replaceStuck: once troubles are over, somebody ships what works where pods never come and a judgement beside them would
// go on for ever, and then lets it serve at once, because the revision before may have no pods either.
func (p *people) replaceStuck(object *argov1.Rollout) {
	key := keyOf(object)
	for _, r := range p.releases {
		if r.Key != key || !p.over || p.replaced[key] > 1 || !p.judgedBeside(key) || object.Status.Phase != argov1.RolloutPhaseDegraded {
			continue
		}
		if p.replaced == nil {
			p.replaced = map[types.NamespacedName]int{}
		}
		p.replaced[key]++
		if p.replaced[key] == 1 {
			p.later(30*time.Second, func() { p.ship(r, r.add(goodVersion)) })
		} else {
			p.later(30*time.Second, func() { p.promoteFull(key) })
		}
	}
}

func keyOf(object client.Object) types.NamespacedName { return client.ObjectKeyFromObject(object) }

// judgedBeside is true of a Rollout with a run that goes on while it is paused.
func (p *people) judgedBeside(key types.NamespacedName) bool {
	object := p.stored(key)
	return object != nil && object.Spec.Strategy.Canary != nil && object.Spec.Strategy.Canary.Analysis != nil
}

// decide ends a pause, if it is still on.
func (p *people) decide(key types.NamespacedName, pause argov1.PauseCondition, aborts bool) {
	object := p.stored(key)
	if object == nil || !slices.ContainsFunc(object.Status.PauseConditions, func(c argov1.PauseCondition) bool {
		return c.Reason == pause.Reason && c.StartTime.Equal(&pause.StartTime)
	}) {
		return
	}
	if aborts {
		p.abort(key)
		return
	}
	p.promote(key)
}

// did tells the world what somebody did.
func (p *people) did(key types.NamespacedName, what sim.Class, format string, args ...any) {
	p.world.Say("%s: people "+format, append([]any{key.Name}, args...)...)
	p.world.Tell(Did{Release: key, What: string(what)})
}

// remove deletes one object.
func (p *people) remove(name string, kind schema.GroupKind, what sim.Class, r *Release) bool {
	seen := p.world.Server.Peek(kind, types.NamespacedName{Namespace: namespace, Name: name})
	if seen == nil {
		return false
	}
	if err := p.user.Delete(context.Background(), seen.Unstructured()); err != nil {
		p.world.Say("the API server refuses to delete %s: %v", name, err)
		return false
	}
	p.did(r.Key, what, "delete %s %s", kind.Kind, name)
	return true
}

// write lets somebody change one object in place; change may say that there is nothing to do.
func (k *Rollouts) write(actor, name string, kind schema.GroupKind, change func(map[string]any) bool) bool {
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

// respecify changes a Rollout but for its status.
func (k *Rollouts) respecify(actor string, key types.NamespacedName, change func(*argov1.Rollout)) bool {
	object := k.stored(key)
	if object == nil || object.DeletionTimestamp != nil {
		return false
	}
	after := object.DeepCopy()
	change(after)
	if err := k.world.Server.Client(actor).Update(context.Background(), after); err != nil {
		k.world.Say("the API server refuses a change of Rollout %s: %v", key.Name, err)
		return false
	}
	return after.ResourceVersion != object.ResourceVersion
}

// patchStatus changes the status of a Rollout, as those do who give it commands.
func (k *Rollouts) patchStatus(key types.NamespacedName, patch string) bool {
	object := k.stored(key)
	if object == nil || object.DeletionTimestamp != nil {
		return false
	}
	into := &argov1.Rollout{}
	into.Namespace, into.Name = key.Namespace, key.Name
	if err := k.user.Status().Patch(context.Background(), into, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
		k.world.Say("the API server refuses a change of Rollout %s: %v", key.Name, err)
		return false
	}
	return into.ResourceVersion != object.ResourceVersion
}

// mend is what people do when nothing happens any more: they put right what would hold a release for ever, or leave it
// so that the release has to say what it waits for.
func (p *people) mend() {
	for _, r := range p.releases {
		s := p.world.Draws.Stream("mend/" + r.Key.Name)
		resume, valid := s.Chance(0.8), s.Chance(0.8)
		object := p.stored(r.Key)
		if object == nil {
			continue
		}
		judged := p.judgedBeside(r.Key) // for as long as its Rollout stands still, and nobody would come to rest
		if resume || judged {
			p.resume(r.Key)
			for _, pause := range object.Status.PauseConditions {
				p.decide(r.Key, pause, false)
			}
		}
		if valid || judged {
			p.mendAround(r)
		}
		p.replaceStuck(object)
	}
}

// mendAround makes again what is missing around a release.
func (p *people) mendAround(r *Release) {
	for _, object := range r.objects {
		gvk, err := p.user.GroupVersionKindFor(object)
		if err == nil && p.world.Server.Peek(gvk.GroupKind(), keyOf(object)) == nil {
			p.create(object)
			p.did(r.Key, DeleteService, "make %s %s again", gvk.Kind, object.GetName())
		}
	}
}
