package canary

import (
	"context"
	"fmt"
	"hash/fnv"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/canary"
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
	case ok && wrote.Kind == deploymentKind && wrote.Actor != "user" && wrote.Subresource == "":
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
	target := k.world.Server.Peek(deploymentKind, types.NamespacedName{Namespace: namespace, Name: r.Target})
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
	target := k.world.Server.Peek(deploymentKind, types.NamespacedName{Namespace: namespace, Name: r.Target})
	if target == nil {
		return ""
	}
	template, _, _ := unstructured.NestedFieldNoCopy(target.Content(), "spec", "template")
	content, _ := template.(map[string]any)
	return labelsOf(content)["version"]
}

// ship gives the target the template of a version.
func (p *people) ship(r *Release, v *version) {
	r.shipped = append(r.shipped, v.name)
	shipped := p.change(r.Target, deploymentKind, func(o map[string]any) bool {
		return unstructured.SetNestedMap(o, r.template(v), "spec", "template") == nil
	})
	if shipped {
		p.did(r, Ship, "ship %s", v)
	}
}

// configure changes the configuration of the target.
func (p *people) configure(r *Release, level string) {
	changed := p.change(r.config, configMapKind, func(o map[string]any) bool {
		return unstructured.SetNestedField(o, level, "data", "level") == nil
	})
	if changed {
		p.did(r, EditConfig, "set the configuration to level %s", level)
	}
}

func (p *people) editTemplate(r *Release, s *sim.Stream) {
	v := drawVersion(s)
	switch s.Int(0, 3) {
	case 0: // back to what was there before
		v := r.versions[r.shipped[max(0, len(r.shipped)-2)]]
		p.ship(r, v)
	case 1:
		stamp := fmt.Sprint(s.Int(1, 1000))
		if p.change(r.Target, deploymentKind, func(o map[string]any) bool {
			return unstructured.SetNestedField(o, stamp, "spec", "template", "metadata", "annotations", "example.com/restarted") == nil
		}) {
			p.did(r, EditTemplate, "restart the pods")
		}
	default:
		p.ship(r, r.add(v))
	}
}

func (p *people) editConfig(r *Release, s *sim.Stream) {
	level := fmt.Sprint(s.Int(1, 4))
	if r.config != "" {
		p.configure(r, level)
	}
}

func (p *people) editSpec(r *Release, s *sim.Stream) {
	interval, threshold, steps := sim.Pick(s, "5s", "15s", "45s"), s.Int(1, 5), sim.Pick(s, []int{10, 40}, []int{25, 50, 75}, []int{60})
	metric, which, back := drawMetric(s, r.Key.Name), s.Int(0, 5), s.Between(30*time.Second, 4*time.Minute)
	what := ""
	changed := p.respecify(r, func(c *flaggerv1.Canary) {
		a := c.Spec.Analysis
		switch {
		case which == 0:
			a.Interval, what = interval, "observe for "+interval
		case which == 1:
			a.Threshold, what = threshold, fmt.Sprintf("allow %d failed checks", threshold)
		case which == 2 && len(a.StepWeights) > 0:
			a.StepWeights, what = steps, fmt.Sprintf("want the steps %v", steps)
		case which == 3 && len(a.Metrics) > 0:
			a.Metrics, what = a.Metrics[1:], "no longer measure "+a.Metrics[0].Name
		case which == 4 || r.invalid:
			a.Metrics, what = append(a.Metrics, metric), "measure "+metric.Name
		default:
			r.valid = *c.Spec.DeepCopy()
			invalidate(s, &c.Spec)
			r.invalid, what = true, "make the spec invalid"
		}
	})
	if !changed {
		return
	}
	p.did(r, EditSpec, "%s", what)
	if r.invalid {
		p.later(back, func() { p.mendSpec(r) })
	}
}

// mendSpec makes a spec valid again.
func (p *people) mendSpec(r *Release) {
	if !r.invalid {
		return
	}
	if p.respecify(r, func(c *flaggerv1.Canary) { c.Spec = *r.valid.DeepCopy() }) {
		r.invalid = false
		p.did(r, EditSpec, "make the spec valid again")
	}
}

func (p *people) scale(r *Release, s *sim.Stream) {
	replicas := sim.Pick(s, 0, 1, 2, 3, 4)
	name := sim.Pick(s, r.Target, r.Target, r.Target+"-primary")
	if name != r.Target {
		replicas = max(replicas, 1)
	}
	if p.change(name, deploymentKind, func(o map[string]any) bool {
		return unstructured.SetNestedField(o, int64(replicas), "spec", "replicas") == nil
	}) {
		p.did(r, Scale, "scale %s to %d", name, replicas)
	}
}

func (p *people) deleteRelease(r *Release, s *sim.Stream) {
	back, stays := s.Between(30*time.Second, 5*time.Minute), s.Chance(0.4)
	if p.remove(r.Key.Name, canaryKind, DeleteRelease, r) && !stays {
		p.later(back, func() { p.again(r) })
	}
}

func (p *people) recreateRelease(r *Release, _ *sim.Stream) {
	if p.remove(r.Key.Name, canaryKind, RecreateRelease, r) {
		p.again(r)
	}
}

// again makes a Canary that was deleted once more, as soon as it is gone.
func (p *people) again(r *Release) {
	if p.stored(r.Key) != nil {
		if p.back == nil {
			p.back = map[types.NamespacedName]func(){}
		}
		p.back[r.Key] = func() { p.again(r) }
		return
	}
	p.create(r.canary())
	r.invalid = r.born
	p.did(r, RecreateRelease, "make the Canary again")
	if p.over {
		p.startable(r)
	}
}

func (p *people) deleteTarget(r *Release, s *sim.Stream) {
	back := s.Between(5*time.Second, 4*time.Minute)
	if p.remove(r.Target, deploymentKind, DeleteTarget, r) {
		p.later(back, func() { p.retarget(r) })
	}
}

// retarget makes a target that was deleted again.
func (p *people) retarget(r *Release) {
	if p.running(r) != "" {
		return
	}
	p.create(r.deployment())
	p.did(r, DeleteTarget, "make the Deployment again with %s", r.current())
	if p.over {
		p.startable(r)
	}
}

func (p *people) deletePrimary(r *Release, _ *sim.Stream) {
	p.remove(r.Target+"-primary", deploymentKind, DeletePrimary, r)
}

func (p *people) deleteService(r *Release, s *sim.Stream) {
	p.remove(r.Apex+sim.Pick(s, "", "-primary", "-canary"), serviceKind, DeleteService, r)
}

// routeKind is the kind of the object that has the weights; false where there is none.
func (r *Release) routeKind() (schema.GroupKind, bool) {
	switch r.Provider {
	case istioProvider:
		return virtualService, true
	case gatewayProvider:
		return httpRoute, true
	default:
		return schema.GroupKind{}, false
	}
}

func (p *people) deleteRoute(r *Release, _ *sim.Stream) {
	if kind, ok := r.routeKind(); ok {
		p.remove(r.Apex, kind, DeleteRoute, r)
	}
}

func (p *people) editRouteWeights(r *Release, s *sim.Stream) {
	weight := sim.Pick(s, 0, 0, 5, 33, 77, 100)
	kind, ok := r.routeKind()
	if ok && p.change(r.Apex, kind, func(o map[string]any) bool { return reweigh(o, int64(weight)) }) {
		p.did(r, EditRouteWeights, "give the canary the weight %d by hand", weight)
	}
}

func (p *people) suspend(r *Release, s *sim.Stream) {
	back, stays := s.Between(10*time.Second, 5*time.Minute), s.Chance(0.2)
	if !p.respecify(r, func(c *flaggerv1.Canary) { c.Spec.Suspend = true }) {
		return
	}
	p.did(r, Suspend, "suspend it")
	if !stays {
		p.later(back, func() { p.resume(r) })
	}
}

func (p *people) resume(r *Release) {
	if c := p.stored(r.Key); c != nil && c.Spec.Suspend && p.respecify(r, func(c *flaggerv1.Canary) { c.Spec.Suspend = false }) {
		p.did(r, Suspend, "resume it")
	}
}

func (p *people) skip(r *Release, s *sim.Stream) {
	back := s.Between(time.Minute, 5*time.Minute)
	set := func(skip bool, words string) {
		if p.respecify(r, func(c *flaggerv1.Canary) { c.Spec.SkipAnalysis = skip }) {
			p.did(r, Skip, "%s", words)
		}
	}
	set(true, "skip the analysis")
	p.later(back, func() { set(r.Spec.SkipAnalysis, "analyse as before") })
}

func (p *people) command(r *Release, s *sim.Stream) {
	verb := sim.Pick(s, "abort", "promote", "retry")
	c := p.stored(r.Key)
	if c == nil {
		return
	}
	run := canary.Run(string(c.UID), c.Status)
	if p.respecify(r, func(c *flaggerv1.Canary) { c.Annotations["serin.dev/command"] = verb + "@" + run }) {
		p.did(r, Command, "command %s@%s", verb, run)
	}
}

// restatus writes a status as nobody but the controller should.
func (p *people) restatus(r *Release, what sim.Class, words string, change func(*flaggerv1.CanaryStatus)) {
	c := p.stored(r.Key)
	if c == nil {
		return
	}
	c = c.DeepCopy()
	change(&c.Status)
	if err := p.user.Status().Update(context.Background(), c); err != nil {
		if !apierrors.IsInvalid(err) {
			p.world.Say("the API server refuses a status: %v", err)
		}
		return
	}
	p.did(r, what, "%s", words)
}

func (p *people) nonsense(r *Release, s *sim.Stream) {
	which, number := s.Int(0, 6), sim.Pick(s, -3, 0, 1, 17, 99, 1000)
	ahead := s.Between(-time.Hour, time.Hour)
	phase := sim.Pick(s, flaggerv1.CanaryPhaseWaiting, flaggerv1.CanaryPhaseProgressing, flaggerv1.CanaryPhaseWaitingPromotion,
		flaggerv1.CanaryPhasePromoting, flaggerv1.CanaryPhaseFinalising, flaggerv1.CanaryPhaseFailed, flaggerv1.CanaryPhaseTerminating, "")
	p.restatus(r, NonsenseStatus, fmt.Sprintf("write nonsense into the status (%d, %d, %s)", which, number, phase), func(status *flaggerv1.CanaryStatus) {
		switch which {
		case 0:
			status.CanaryWeight = number
		case 1:
			status.FailedChecks = number
		case 2:
			status.Iterations = number
		case 3:
			status.Phase = phase
		case 4:
			status.LastAppliedSpec, status.LastPromotedSpec = "nonsense", "nonsense"
		case 5:
			status.Conditions = nil
			status.TrackedConfigs = map[string]string{"configmap/nonsense": "0"}
		default:
			status.LastTransitionTime.Time = p.world.Now().Add(ahead)
			if status.Serin != nil && status.Serin.Window != nil {
				status.Serin.Window.Start.Time = p.world.Now().Add(ahead)
			}
		}
	})
}

// otherController leaves the status as one that knows nothing of ours would have written it.
func (p *people) otherController(r *Release, _ *sim.Stream) {
	if c := p.stored(r.Key); c != nil && c.Status.Serin != nil {
		p.restatus(r, OtherController, "let another controller write the status", func(status *flaggerv1.CanaryStatus) { status.Serin = nil })
	}
}

func (p *people) swapStrategy(r *Release, s *sim.Stream) {
	var drawn flaggerv1.CanaryAnalysis
	drawStrategy(s, r.Provider, &drawn)
	if p.respecify(r, func(c *flaggerv1.Canary) {
		a := c.Spec.Analysis
		a.Iterations, a.Match, a.Mirror, a.MirrorWeight = drawn.Iterations, drawn.Match, drawn.Mirror, drawn.MirrorWeight
		a.StepWeight, a.StepWeights, a.MaxWeight, a.StepWeightPromotion = drawn.StepWeight, drawn.StepWeights, drawn.MaxWeight, drawn.StepWeightPromotion
		a.SessionAffinity = drawn.SessionAffinity
	}) {
		p.did(r, SwapStrategy, "want %s instead", r.Strategy)
	}
}

// twin is what the name of a second Canary for one target has more.
const twin = "-twin"

// sameTarget makes a second Canary for the target of the first.
func (p *people) sameTarget(r *Release, s *sim.Stream) {
	away := s.Between(time.Minute, 6*time.Minute)
	name := r.Key.Name + twin
	if p.stored(types.NamespacedName{Namespace: namespace, Name: name}) != nil {
		return
	}
	c := r.canary()
	c.Name = name
	p.create(c)
	p.did(r, SameTarget, "make Canary %s for the same target", name)
	p.later(away, func() { p.remove(name, canaryKind, SameTarget, r) })
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
	gone := p.world.Server.Peek(deploymentKind, types.NamespacedName{Namespace: namespace, Name: r.Target + "-primary"}) == nil
	if c := p.stored(r.Key); gone && c != nil && c.Status.Phase != "" && c.Status.Phase != flaggerv1.CanaryPhaseInitializing && r.promoted != "" {
		p.ship(r, r.versions[r.promoted])
	}
}

// startable ships a version whose pods run where a release would otherwise wait for pods that never come: it has not taken
// its workload over yet, or gives it back.
func (p *people) startable(r *Release) {
	c, v := p.stored(r.Key), r.versions[p.running(r)]
	if c == nil || v == nil || starts(v.pods) {
		return
	}
	switch c.Status.Phase {
	case "", flaggerv1.CanaryPhaseInitializing, flaggerv1.CanaryPhaseTerminating:
		p.ship(r, r.add(goodVersion))
	default: // a release that is under way has a deadline
	}
}
