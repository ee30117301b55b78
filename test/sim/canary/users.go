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
	"github.com/serin-dev/serin/test/sim/actors"
	"github.com/serin-dev/serin/test/sim/cluster"
	"github.com/serin-dev/serin/test/sim/store"
)

// The classes of what users and tools do, beside those that all kinds have.
const (
	EditConfig      sim.FaultClass = "edit-config"
	RecreateRelease sim.FaultClass = "recreate-release"
	DeleteTarget    sim.FaultClass = "delete-target"
	DeletePrimary   sim.FaultClass = "delete-primary"
	Suspend         sim.FaultClass = "suspend"
	Skip            sim.FaultClass = "skip"
	OtherController sim.FaultClass = "other-controller" // the status is as another controller leaves it
	SameTarget      sim.FaultClass = "same-target"
	Strangers       sim.FaultClass = "strangers"
	ManyPods        sim.FaultClass = "many-pods" // so many that a primary takes longer than the deadline to be replaced
)

// users are the users of the workloads: they ship versions, change their minds, and do by hand what they should not.
type users struct {
	*Canaries
	*actors.Script
	// back are the Canaries that are created again after their deletion.
	back map[types.NamespacedName]func()
}

// actions in a fixed order.
var actions = []actors.Action[*users, *Release]{
	{Class: actors.EditTemplate, Do: (*users).editTemplate},
	{Class: actors.EditSpec, Do: (*users).editSpec},
	{Class: EditConfig, Do: (*users).editConfig},
	{Class: actors.Scale, Do: (*users).scale},
	{Class: actors.DeleteRelease, Do: (*users).deleteRelease},
	{Class: RecreateRelease, Do: (*users).recreateRelease},
	{Class: DeleteTarget, Do: (*users).deleteTarget},
	{Class: DeletePrimary, Do: (*users).deletePrimary},
	{Class: actors.DeleteService, Do: (*users).deleteService},
	{Class: actors.DeleteRoute, Do: (*users).deleteRoute},
	{Class: actors.EditRouteWeights, Do: func(p *users, r *Release, s *sim.Stream) {
		p.userClient.EditRouteWeights(r.Key, r.Apex, r.Provider, r.isCanary, s)
	}},
	{Class: Suspend, Do: (*users).suspend},
	{Class: Skip, Do: (*users).skip},
	{Class: actors.Command, Do: (*users).command},
	{Class: actors.NonsenseStatus, Do: (*users).nonsense},
	{Class: OtherController, Do: (*users).otherController},
	{Class: actors.SwapStrategy, Do: (*users).swapStrategy},
	{Class: SameTarget, Do: (*users).sameTarget},
}

// Classes are the faults that this kind of release adds to those of the world.
var Classes = slices.Concat(hookFaults, actors.MetricFaults, []sim.FaultClass{Strangers, ManyPods, Neighbours, actors.GitOps}, actors.ActionClasses(actions), cluster.Classes())

// schedule plans what users do in this run.
func (p *users) schedule() {
	for _, r := range p.releases {
		actors.Shipping{
			World: p.world, Name: r.Key.Name, Most: 3, Soonest: 2 * time.Minute, Latest: 12 * time.Minute,
			Draw: func(s *sim.Stream) func() {
				v := actors.DrawVersion(s, 0.6, 0.4)
				return func() { p.ship(r, r.Add(v)) }
			},
			Over: func() bool { return p.over },
		}.Begin()
	}
	actors.ScheduleActions(p.world, p, actions, func() []*Release { return p.releases })
}

// observe receives every event.
func (p *users) observe(event any) {
	wrote, ok := event.(sim.ObjectWritten)
	switch {
	case ok && (wrote.Kind == actors.DeploymentKind || wrote.Kind == actors.DaemonSetKind) && wrote.Actor != "user" && wrote.Subresource == "":
		p.noticePrimary(wrote)
		return
	case !ok || wrote.Kind != canaryKind:
		return
	}
	if again := p.back[wrote.Key]; again != nil && wrote.Type == store.Deleted {
		delete(p.back, wrote.Key)
		p.After(2*time.Second, again)
	}
	p.Continue()
}

// noticePrimary remembers which version the primary of a release got last.
func (p *users) noticePrimary(wrote sim.ObjectWritten) {
	for _, r := range p.releases {
		if version := actors.Labels(within(wrote.New.Content(), "spec", "template"))["version"]; wrote.Key.Name == r.Target+"-primary" && r.Known[version] != nil {
			r.promoted = version
		}
	}
}

// change lets a user change one object.
func (p *users) change(name string, kind schema.GroupKind, change func(map[string]any) bool) bool {
	return p.userClient.Write("user", name, kind, change)
}

// stored is a Canary with its state decoded; nil when there is none. It must not be changed.
func (k *Canaries) stored(key types.NamespacedName) *flaggerv1.Canary {
	return decoded(actors.Typed[*flaggerv1.Canary](k.world, k.world.Server.Peek(canaryKind, key)))
}

// respecify changes the spec of a Canary.
func (p *users) respecify(r *Release, change func(*flaggerv1.Canary)) bool {
	c := p.stored(r.Key)
	if c == nil || c.DeletionTimestamp != nil {
		return false
	}
	c = c.DeepCopy()
	change(c)
	if err := p.user.Update(context.Background(), c); err != nil {
		p.world.Trace("the API server refuses a change of Canary %s: %v", r.Key.Name, err)
		return false
	}
	r.Strategy = strategyOf(c.Spec)
	return true
}

// running is the version that the target of a release runs now; empty where there is no target.
func (k *Canaries) running(r *Release) string {
	target := k.world.Server.Peek(r.Kind, types.NamespacedName{Namespace: actors.Namespace, Name: r.Target})
	if target == nil {
		return ""
	}
	template, _, _ := unstructured.NestedFieldNoCopy(target.Content(), "spec", "template")
	content, _ := template.(map[string]any)
	return actors.Labels(content)["version"]
}

// repair is what users do when nothing happens any more: they put right what would hold a release indefinitely, or leave it
// so that the release has to say what it waits for.
func (p *users) repair() {
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
// again automatically.
func (p *users) bringBack(r *Release) {
	gone := p.world.Server.Peek(r.Kind, types.NamespacedName{Namespace: actors.Namespace, Name: r.Target + "-primary"}) == nil
	if c := p.stored(r.Key); gone && c != nil && c.Status.Phase != "" && c.Status.Phase != flaggerv1.CanaryPhaseInitializing && r.promoted != "" {
		p.ship(r, r.Known[r.promoted])
	}
}

// startable ships a version whose pods run where a release would otherwise wait for pods that never come: it has not taken
// its workload over yet, or gives it back, or the primary has that version already.
func (p *users) startable(r *Release) {
	v := r.Known[p.running(r)]
	if v == nil || !v.Pods.Never || !p.needsPods(r.Key) && !p.needsPods(types.NamespacedName{Namespace: actors.Namespace, Name: r.Key.Name + secondCanary}) {
		return
	}
	p.ship(r, r.Add(actors.GoodVersion))
}

// needsPods is true of a Canary that waits for pods without a deadline. A release that is under way has one.
func (p *users) needsPods(key types.NamespacedName) bool {
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
