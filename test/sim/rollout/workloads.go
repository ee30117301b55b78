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

// Workloads is the class of releases whose Rollout references the template of a Deployment.
const Workloads sim.FaultClass = "workload"

// workload returns the name of the Deployment with the template, or "" if the Rollout contains the template.
func (r *Release) workload() string {
	if r.Spec.WorkloadRef == nil {
		return ""
	}
	return r.Spec.WorkloadRef.Name
}

// referenceDeployment makes a Rollout reference the template of a Deployment, whose own pods are scaled down as scaleDown
// specifies.
func referenceDeployment(scaleDown argov1.ScaleDown) func(*Release) {
	return func(r *Release) {
		r.Spec.WorkloadRef = &argov1.ObjectRef{APIVersion: "apps/v1", Kind: "Deployment", Name: r.Key.Name + "-app", ScaleDown: scaleDown}
		r.objects = append(r.objects, &appsv1.Deployment{
			ObjectMeta: metav1.ObjectMeta{Namespace: actors.Namespace, Name: r.workload(), Annotations: map[string]string{"example.com/owner": "checkout"}},
			Spec: appsv1.DeploymentSpec{
				Replicas: r.Spec.Replicas, Selector: r.Spec.Selector.DeepCopy(), Template: r.podTemplate(r.Current()),
			},
		})
		r.Spec.Selector = nil
	}
}

// updateTemplate changes the template of a release, in the Rollout or the Deployment.
func (k *Rollouts) updateTemplate(actor string, r *Release, change func(*corev1.PodTemplateSpec)) bool {
	if r.workload() == "" {
		return k.updateRollout(actor, r.Key, func(o *argov1.Rollout) { change(&o.Spec.Template) })
	}
	deployment := actors.Typed[*appsv1.Deployment](k.World, k.World.Server.Peek(actors.DeploymentKind, keyNamed(r.workload())))
	if deployment == nil {
		return false
	}
	after := deployment.DeepCopy()
	change(&after.Spec.Template)
	if err := k.World.Server.Client(actor).Update(context.Background(), after); err != nil {
		k.World.Trace("the API server rejects a change of Deployment %s: %v", after.Name, err)
		return false
	}
	return after.ResourceVersion != deployment.ResourceVersion
}

// EditReference is the class of user actions on the reference to a Deployment.
const EditReference sim.FaultClass = "edit-reference"

// editReference switches scaleDown, or removes the reference.
func (u *users) editReference(r *Release, s *sim.Stream) {
	scaleDown, removes := sim.Pick(s, argov1.ScaleDownNever, argov1.ScaleDownNever, argov1.ScaleDownOnSuccess, argov1.ScaleDownProgressively), s.Chance(0.3)
	switch {
	case r.workload() == "":
	case removes:
		u.removeReference(r)
	default:
		u.switchScaleDown(r, scaleDown)
	}
}

func (u *users) switchScaleDown(r *Release, to argov1.ScaleDown) {
	changed := u.updateRollout("user", r.Key, func(o *argov1.Rollout) {
		if o.Spec.WorkloadRef != nil {
			o.Spec.WorkloadRef.ScaleDown = to
		}
	})
	if changed {
		u.UserClient.TraceAction(r.Key, "switch scaleDown to %s", to)
	}
}

// removeReference replaces the reference by the template of the Deployment.
func (u *users) removeReference(r *Release) {
	deployment := actors.Typed[*appsv1.Deployment](u.World, u.World.Server.Peek(actors.DeploymentKind, keyNamed(r.workload())))
	if deployment == nil {
		return
	}
	changed := u.updateRollout("user", r.Key, func(o *argov1.Rollout) {
		o.Spec.WorkloadRef, o.Spec.Template, o.Spec.Selector = nil, *deployment.Spec.Template.DeepCopy(), deployment.Spec.Selector.DeepCopy()
	})
	if changed {
		r.Spec.WorkloadRef, r.Spec.Selector = nil, deployment.Spec.Selector.DeepCopy()
		u.UserClient.TraceAction(r.Key, "remove the reference to Deployment %s", deployment.Name)
	}
}

// workloadStories returns stories of a Deployment whose replicas have to be restored, one for each way in which the reference
// can end.
func workloadStories() []Story {
	story := func(name string, acts ...Act) Story {
		return Story{Name: "template of a Deployment, " + name, Router: actors.NoRouter, Extra: referenceDeployment(argov1.ScaleDownOnSuccess), Acts: append([]Act{shipWhenHealthy(actors.GoodVersion)}, acts...)}
	}
	healthy := func(do func(*users, *Release)) Act { return Act{When: isHealthy, After: 5 * time.Second, Do: do} }
	deletion := healthy(func(p *users, r *Release) { p.UserClient.DeleteOf(r.Key, r.Key.Name, rolloutKind) })
	removed := story("reference removed", healthy((*users).removeReference))
	removed.End, removed.Version = argov1.RolloutPhaseHealthy, "v2"
	return []Story{
		story("Rollout deleted", deletion),
		story("scaleDown never, Rollout deleted", healthy(func(p *users, r *Release) { p.switchScaleDown(r, argov1.ScaleDownNever) }), deletion),
		removed,
	}
}

// workloadRestoration is the part of I16 about Deployments: once no Rollout references a Deployment that Serin has scaled down,
// its replicas are restored.
type workloadRestoration struct {
	*ledger

	// before contains the replicas of Deployments before Serin first scaled them down.
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
	switch before, scaledDown := c.before[h.Key]; {
	case is > was && (!h.BySerin || is >= before), is < was && !h.BySerin:
		delete(c.before, h.Key) // they are restored, or changed by a user
	case is < was && !scaledDown:
		if c.before == nil {
			c.before = map[types.NamespacedName]int32{}
		}
		c.before[h.Key] = was
	}
}

func (c *workloadRestoration) Finish() {
	for _, v := range c.World.Server.All(actors.DeploymentKind) {
		before, scaledDown := c.before[v.Key()]
		referenced := slices.ContainsFunc(c.All, func(r *record) bool {
			return c.ByName[r.Key] == r && r.object.Spec.WorkloadRef != nil && r.object.Spec.WorkloadRef.Name == v.Key().Name
		})
		if is := replicasOf(actors.Typed[*appsv1.Deployment](c.World, v)); scaledDown && !referenced && is < before {
			c.Violate("I16", v.Key().Name, "no Rollout references it, and it has %d replicas of the previous %d", is, before)
		}
		if by := v.Meta().Annotations[argov1.ManagedByAnnotation]; by != "" && !referenced {
			c.Violate("I16", v.Key().Name, "no Rollout references it, and its annotation still names %s as the manager", by)
		}
	}
}

// workloadScaling is the part of I18 about the own pods of a referenced Deployment: they are only removed, as scaleDown
// specifies, and once the Rollout has pods that replace them.
func (c *requestedPods) workloadScaling(event any) {
	h, ok := event.(oracle.Write)
	if !ok || !h.BySerin || h.Kind != actors.DeploymentKind || h.Type != store.Modified {
		return
	}
	was, is := replicasOf(actors.Typed[*appsv1.Deployment](c.World, h.Old)), replicasOf(actors.Typed[*appsv1.Deployment](c.World, h.New))
	if is > was && slices.ContainsFunc(c.All, func(r *record) bool { // one that was created after it was read does not count
		return !r.Gone() && r.object.Spec.WorkloadRef != nil && r.object.Spec.WorkloadRef.Name == h.Key.Name && len(c.expectedSpecs(r)) == 1 &&
			r.object.CreationTimestamp.Time.Before(c.OldestView())
	}) {
		c.Violate("I18", h.Key.Name, "Serin scaled it up, although a Rollout references it: %d, not %d", is, was)
	}
	for _, r := range c.All {
		ref := r.object.Spec.WorkloadRef
		if r.Gone() || ref == nil || ref.Name != h.Key.Name || is >= was {
			continue
		}
		if !slices.ContainsFunc(c.expectedSpecs(r), scalesDown) {
			c.Violate("I18", r.Name(), "Deployment %s went from %d to %d pods, although the Rollout must not scale it down", h.Key.Name, was, is)
		}
		if status := r.object.Status; c.replicaSetDeleted(r, status.StableRS) || c.replicaSetDeleted(r, status.CurrentPodHash) {
			continue
		}
		ready := 0
		for _, set := range c.replicaSetsOf(r) {
			ready = max(ready, c.pods[keyOf(set)].MaxServing(c.OldestView()))
		}
		if needed := min(int(was), c.minDesired(r)) - int(is); ready < needed {
			c.Violate("I18", r.Name(), "Deployment %s went from %d to %d pods, but the Rollout has had at most %d ready pods for %s", h.Key.Name, was, is, ready, c.Lag)
		}
	}
}

// scalesDown reports whether a spec requires Serin to scale down the referenced Deployment.
func scalesDown(s *argov1.RolloutSpec) bool {
	return s.WorkloadRef != nil && (s.WorkloadRef.ScaleDown == argov1.ScaleDownOnSuccess || s.WorkloadRef.ScaleDown == argov1.ScaleDownProgressively)
}

// minDesired returns the smallest number of pods that the Rollout may request.
func (c *requestedPods) minDesired(r *record) int {
	least := 1 << 30
	for _, spec := range c.expectedSpecs(r) {
		desired := 1
		if spec.Replicas != nil {
			desired = int(*spec.Replicas)
		}
		least = min(least, desired)
	}
	return least
}

func replicasOf(d *appsv1.Deployment) int32 {
	if d.Spec.Replicas == nil {
		return 1
	}
	return *d.Spec.Replicas
}
