package rollout

import (
	"context"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/test/sim"
	"github.com/serin-dev/serin/test/sim/kinds"
	"github.com/serin-dev/serin/test/sim/store"
)

// Workloads are Deployments whose template a Rollout takes, in some releases.
const Workloads sim.Class = "workload"

var deploymentKind = schema.GroupKind{Group: "apps", Kind: "Deployment"}

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
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: r.workload(), Annotations: map[string]string{"example.com/owner": "checkout"}},
			Spec: appsv1.DeploymentSpec{
				Replicas: r.Spec.Replicas, Selector: r.Spec.Selector.DeepCopy(), Template: r.template(r.current()),
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
	deployment := kinds.Typed[*appsv1.Deployment](k.world, k.world.Server.Peek(deploymentKind, keyNamed(r.workload())))
	if deployment == nil {
		return false
	}
	after := deployment.DeepCopy()
	change(&after.Spec.Template)
	if err := k.world.Server.Client(actor).Update(context.Background(), after); err != nil {
		k.world.Say("the API server refuses a change of Deployment %s: %v", after.Name, err)
		return false
	}
	return after.ResourceVersion != deployment.ResourceVersion
}

// lent is I18 of the pods that a Deployment has of its own: they are only taken away, as scaleDown says, and once the
// Rollout has some in their place.
func (c *oneScaler) lent(h wrote) {
	if !h.ours || h.Kind != deploymentKind || h.Type != store.Modified {
		return
	}
	was, is := replicasOf(kinds.Typed[*appsv1.Deployment](c.world, h.Old)), replicasOf(kinds.Typed[*appsv1.Deployment](c.world, h.New))
	if is > was && slices.ContainsFunc(c.all, func(r *record) bool {
		return !r.deleted && r.object.Spec.WorkloadRef != nil && r.object.Spec.WorkloadRef.Name == h.Key.Name && len(c.wishes(r)) == 1
	}) {
		c.violate("I18", h.Key.Name, "Serin gave it pods, although a Rollout refers to it: %d, not %d", is, was)
	}
	for _, r := range c.all {
		ref := r.object.Spec.WorkloadRef
		if r.deleted || ref == nil || ref.Name != h.Key.Name || is >= was {
			continue
		}
		if ref.ScaleDown != argov1.ScaleDownOnSuccess && ref.ScaleDown != argov1.ScaleDownProgressively {
			c.violate("I18", r.key.Name, "Deployment %s went from %d to %d pods, and the Rollout is not to scale it down", h.Key.Name, was, is)
		}
		if status := r.object.Status; c.takenAway(r, status.StableRS) || c.takenAway(r, status.CurrentPodHash) {
			continue
		}
		ready := 0
		for _, set := range c.setsOf(r) {
			ready = max(ready, c.sets[keyOf(set)].mostReady(c.then()))
		}
		if needed := min(int(was), c.leastWished(r)) - int(is); ready < needed {
			c.violate("I18", r.key.Name, "Deployment %s went from %d to %d pods, and the Rollout had at most %d that are ready within %s", h.Key.Name, was, is, ready, c.delta)
		}
	}
}

// leastWished is the smallest number of pods that the Rollout may ask for now.
func (c *oneScaler) leastWished(r *record) int {
	least := 1 << 30
	for _, spec := range c.wishes(r) {
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
