package rollout

import (
	"context"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/test/sim"
	"github.com/serin-dev/serin/test/sim/actors"
	"github.com/serin-dev/serin/test/sim/oracle"
	"github.com/serin-dev/serin/test/sim/store"
)

// Workloads are Deployments whose template a Rollout takes, in some releases.
const Workloads sim.FaultClass = "workload"

// workload is the name of the Deployment that has the template; empty: the Rollout has it.
func (r *Release) workload() string {
	if r.Spec.WorkloadRef == nil {
		return ""
	}
	return r.Spec.WorkloadRef.Name
}

// referring lets a Rollout take the template of a Deployment, whose own pods go as scaleDown says.
func referring(scaleDown argov1.ScaleDown) func(*Release) {
	return func(r *Release) {
		r.Spec.WorkloadRef = &argov1.ObjectRef{APIVersion: "apps/v1", Kind: "Deployment", Name: r.Key.Name + "-app", ScaleDown: scaleDown}
		r.objects = append(r.objects, &appsv1.Deployment{
			ObjectMeta: metav1.ObjectMeta{Namespace: actors.Namespace, Name: r.workload(), Annotations: map[string]string{"example.com/owner": "checkout"}},
			Spec: appsv1.DeploymentSpec{
				Replicas: r.Spec.Replicas, Selector: r.Spec.Selector.DeepCopy(), Template: r.template(r.Current()),
			},
		})
		r.Spec.Selector = nil
	}
}

// retemplate changes the template of a release, wherever that is.
func (k *Rollouts) retemplate(actor string, r *Release, change func(*corev1.PodTemplateSpec)) bool {
	if r.workload() == "" {
		return k.respecify(actor, r.Key, func(o *argov1.Rollout) { change(&o.Spec.Template) })
	}
	deployment := actors.Typed[*appsv1.Deployment](k.world, k.world.Server.Peek(actors.DeploymentKind, keyNamed(r.workload())))
	if deployment == nil {
		return false
	}
	after := deployment.DeepCopy()
	change(&after.Spec.Template)
	if err := k.world.Server.Client(actor).Update(context.Background(), after); err != nil {
		k.world.Trace("the API server refuses a change of Deployment %s: %v", after.Name, err)
		return false
	}
	return after.ResourceVersion != deployment.ResourceVersion
}

// EditReference is how users change what becomes of the pods of a Deployment, or take its template no longer.
const EditReference sim.FaultClass = "edit-reference"

// editReference switches scaleDown, or removes the reference.
func (p *users) editReference(r *Release, s *sim.Stream) {
	scaleDown, removes := sim.Pick(s, argov1.ScaleDownNever, argov1.ScaleDownNever, argov1.ScaleDownOnSuccess, argov1.ScaleDownProgressively), s.Chance(0.3)
	switch {
	case r.workload() == "":
	case removes:
		p.removeReference(r)
	default:
		p.switchScaleDown(r, scaleDown)
	}
}

func (p *users) switchScaleDown(r *Release, to argov1.ScaleDown) {
	changed := p.respecify("user", r.Key, func(o *argov1.Rollout) {
		if o.Spec.WorkloadRef != nil {
			o.Spec.WorkloadRef.ScaleDown = to
		}
	})
	if changed {
		p.userClient.TraceAction(r.Key, "switch scaleDown to %s", to)
	}
}

// removeReference gives the Rollout the template that the Deployment has, in place of the reference.
func (p *users) removeReference(r *Release) {
	deployment := actors.Typed[*appsv1.Deployment](p.world, p.world.Server.Peek(actors.DeploymentKind, keyNamed(r.workload())))
	if deployment == nil {
		return
	}
	changed := p.respecify("user", r.Key, func(o *argov1.Rollout) {
		o.Spec.WorkloadRef, o.Spec.Template, o.Spec.Selector = nil, *deployment.Spec.Template.DeepCopy(), deployment.Spec.Selector.DeepCopy()
	})
	if changed {
		r.Spec.WorkloadRef, r.Spec.Selector = nil, deployment.Spec.Selector.DeepCopy()
		p.userClient.TraceAction(r.Key, "remove the reference to Deployment %s", deployment.Name)
	}
}

// returns are stories of a Deployment that has to get its replicas back, each with the way in which it stops being referred to.
func returns() []Story {
	taken := func(name string, acts ...Act) Story {
		return Story{Name: "template of a Deployment, " + name, Router: actors.NoRouter, Extra: referring(argov1.ScaleDownOnSuccess), Acts: append([]Act{shipping(actors.GoodVersion)}, acts...)}
	}
	healthy := func(do func(*users, *Release)) Act { return Act{When: healthyNow, After: 5 * time.Second, Do: do} }
	deletion := healthy(func(p *users, r *Release) { p.userClient.DeleteOf(r.Key, r.Key.Name, rolloutKind) })
	removed := taken("reference removed", healthy((*users).removeReference))
	removed.End, removed.Version = argov1.RolloutPhaseHealthy, "v2"
	return []Story{
		taken("Rollout deleted", deletion),
		taken("scaleDown never, Rollout deleted", healthy(func(p *users, r *Release) { p.switchScaleDown(r, argov1.ScaleDownNever) }), deletion),
		removed,
	}
}

// workloadRestoration is the part of I16 that is about Deployments: once no Rollout refers to one that Serin has scaled down, it has its replicas again.
type workloadRestoration struct {
	*ledger

	// before are the replicas that Deployments had when Serin scaled them down first.
	before map[types.NamespacedName]int32
}

func (c *workloadRestoration) Observe(event any) {
	h, ok := event.(oracle.Write)
	if !ok || h.Kind != actors.DeploymentKind || h.Type == store.Added {
		return
	}
	if h.Type == store.Deleted {
		delete(c.before, h.Key)
		return
	}
	was, is := replicasOf(actors.Typed[*appsv1.Deployment](c.World, h.Old)), replicasOf(actors.Typed[*appsv1.Deployment](c.World, h.New))
	switch before, taken := c.before[h.Key]; {
	case is > was && (!h.BySerin || is >= before), is < was && !h.BySerin:
		delete(c.before, h.Key) // it has them again, or what its user wants
	case is < was && !taken:
		if c.before == nil {
			c.before = map[types.NamespacedName]int32{}
		}
		c.before[h.Key] = was
	}
}

func (c *workloadRestoration) Finish() {
	for _, v := range c.World.Server.All(actors.DeploymentKind) {
		before, taken := c.before[v.Key()]
		refers := slices.ContainsFunc(c.All, func(r *record) bool {
			return c.ByName[r.Key] == r && r.object.Spec.WorkloadRef != nil && r.object.Spec.WorkloadRef.Name == v.Key().Name
		})
		if is := replicasOf(actors.Typed[*appsv1.Deployment](c.World, v)); taken && !refers && is < before {
			c.Violate("I16", v.Key().Name, "no Rollout references it, and it has %d replicas of the previous %d", is, before)
		}
		if by := v.Meta().Annotations[argov1.ManagedByAnnotation]; by != "" && !refers {
			c.Violate("I16", v.Key().Name, "no Rollout references it, and its annotation still names %s as the manager", by)
		}
	}
}

// lent is I18 of the pods that a Deployment has of its own: they are only taken away, as scaleDown says, and once the
// Rollout has some in their place.
func (l *ledger) lent(event any) {
	h, ok := event.(oracle.Write)
	if !ok || !h.BySerin || h.Kind != actors.DeploymentKind || h.Type != store.Modified {
		return
	}
	was, is := replicasOf(actors.Typed[*appsv1.Deployment](l.World, h.Old)), replicasOf(actors.Typed[*appsv1.Deployment](l.World, h.New))
	if is > was && slices.ContainsFunc(l.All, func(r *record) bool {
		return !r.Gone() && r.object.Spec.WorkloadRef != nil && r.object.Spec.WorkloadRef.Name == h.Key.Name && len(l.expectedSpecs(r)) == 1
	}) {
		l.Violate("I18", h.Key.Name, "Serin scaled it up, although a Rollout references it: %d, not %d", is, was)
	}
	for _, r := range l.All {
		ref := r.object.Spec.WorkloadRef
		if r.Gone() || ref == nil || ref.Name != h.Key.Name || is >= was {
			continue
		}
		if !slices.ContainsFunc(l.expectedSpecs(r), scalesDown) {
			l.Violate("I18", r.Name(), "Deployment %s went from %d to %d pods, and the Rollout is not to scale it down", h.Key.Name, was, is)
		}
		if status := r.object.Status; l.takenAway(r, status.StableRS) || l.takenAway(r, status.CurrentPodHash) {
			continue
		}
		ready := 0
		for _, set := range l.setsOf(r) {
			ready = max(ready, l.sets[keyOf(set)].Most(l.OldestView()))
		}
		if needed := min(int(was), l.leastWished(r)) - int(is); ready < needed {
			l.Violate("I18", r.Name(), "Deployment %s went from %d to %d pods, and the Rollout had at most %d that are ready within %s", h.Key.Name, was, is, ready, l.Lag)
		}
	}
}

// scalesDown is true of a spec that has Serin scale down the Deployment whose template it takes.
func scalesDown(s *argov1.RolloutSpec) bool {
	return s.WorkloadRef != nil && (s.WorkloadRef.ScaleDown == argov1.ScaleDownOnSuccess || s.WorkloadRef.ScaleDown == argov1.ScaleDownProgressively)
}

// leastWished is the smallest number of pods that the Rollout may ask for now.
func (l *ledger) leastWished(r *record) int {
	least := 1 << 30
	for _, spec := range l.expectedSpecs(r) {
		wished := 1
		if spec.Replicas != nil {
			wished = int(*spec.Replicas)
		}
		least = min(least, wished)
	}
	return least
}

func replicasOf(d *appsv1.Deployment) int32 {
	if d.Spec.Replicas == nil {
		return 1
	}
	return *d.Spec.Replicas
}
