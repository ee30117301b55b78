package canary

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/test/sim"
	"github.com/serin-dev/serin/test/sim/actors"
	"github.com/serin-dev/serin/test/sim/store"
)

// missingAutoscaler is the name of an autoscaler that does not exist.
const missingAutoscaler = "missing"

// removeReference removes something that the release requires: its configuration, or the autoscaler that its spec names.
func (u *users) removeReference(r *Release, s *sim.Stream) {
	kind, config, permanent := sim.Pick(s, actors.ConfigMapKind, actors.SecretKind), s.Chance(0.5), s.Chance(0.4)
	delay := s.Between(20*time.Second, 8*time.Minute)
	if config && r.config != "" {
		u.UserClient.DeleteOf(r.Key, r.config, kind)
	} else if u.updateSpec(r, func(c *flaggerv1.Canary) {
		c.Spec.AutoscalerRef = &flaggerv1.AutoscalerReference{APIVersion: "autoscaling/v2", Kind: "HorizontalPodAutoscaler", Name: missingAutoscaler}
	}) {
		u.UserClient.TraceAction(r.Key, "refer to an autoscaler that does not exist")
	}
	if !permanent {
		u.After(delay, func() { u.restoreReferences(r) })
	}
}

// restoreReferences restores what removeReference has removed.
func (u *users) restoreReferences(r *Release) {
	r.unrepaired = false
	for _, o := range r.objects {
		kind := o.GroupVersionKind().GroupKind()
		if o.GetName() == r.config && r.config != "" && u.World.Server.Peek(kind, types.NamespacedName{Namespace: actors.Namespace, Name: r.config}) == nil {
			u.UserClient.Create(o)
			u.UserClient.TraceAction(r.Key, "create %s %s", kind.Kind, r.config)
		}
	}
	if ref := r.validSpec.AutoscalerRef; ref != nil && ref.Name == missingAutoscaler {
		r.validSpec.AutoscalerRef = r.Spec.AutoscalerRef
	}
	if c := u.storedCanary(r.Key); c == nil || c.Spec.AutoscalerRef == nil || c.Spec.AutoscalerRef.Name != missingAutoscaler {
		return
	}
	if u.updateSpec(r, func(c *flaggerv1.Canary) { c.Spec.AutoscalerRef = r.Spec.AutoscalerRef.DeepCopy() }) {
		u.UserClient.TraceAction(r.Key, "refer to the previous autoscaler")
	}
}

// replaceTarget makes another Deployment or DaemonSet the target of a release, and perhaps the former one again. The Services remain.
// Users do not do that where another controller or a user overwrites the status: only the status records the former target, whose
// traffic and pods would then remain, and be attributed to the new one.
func (u *users) replaceTarget(r *Release, s *sim.Stream) {
	back, delay := s.Chance(0.5), sim.Pick(s, time.Second, 20*time.Second, 2*time.Minute, 6*time.Minute)
	former := r.Target
	faults := u.World.Faults
	if faults.Has(OtherController) || faults.Has(actors.NonsenseStatus) {
		return
	}
	next := "next-" + r.Key.Name
	if former == next {
		next = r.Key.Name
	}
	if !u.useTarget(r, next) || !back {
		return
	}
	u.After(delay, func() {
		if r.Target == next {
			u.useTarget(r, former)
		}
	})
}

// useTarget makes another workload the target of a release. It is created with its autoscaler if it does not exist.
func (u *users) useTarget(r *Release, name string) bool {
	former, other := r.Target, *r
	other.Target = name
	if u.World.Server.Peek(r.Kind, types.NamespacedName{Namespace: actors.Namespace, Name: name}) == nil {
		u.UserClient.Create(other.newTarget())
	}
	if r.Spec.AutoscalerRef != nil && u.World.Server.Peek(actors.AutoscalerKind, types.NamespacedName{Namespace: actors.Namespace, Name: name}) == nil {
		u.UserClient.Create(newAutoscaler(name))
	}
	refer := func(spec *flaggerv1.CanarySpec) {
		spec.TargetRef.Name, spec.Service.Name = name, r.Apex
		if ref := spec.AutoscalerRef; ref != nil && ref.Name == former {
			spec.AutoscalerRef = ref.DeepCopy()
			spec.AutoscalerRef.Name = name
		}
	}
	if !u.updateSpec(r, func(c *flaggerv1.Canary) { refer(&c.Spec) }) {
		return false
	}
	refer(&r.Spec)
	refer(&r.validSpec)
	r.Target, r.promoted = name, ""
	u.UserClient.TraceAction(r.Key, "make %s %s the target", r.Kind.Kind, name)
	if u.Stopped {
		u.replaceStuckVersion(r)
	}
	return true
}

// repairObserved restores what a release requires once the release was observed for a whole window without it. Otherwise it
// would be observed indefinitely.
func (u *users) repairObserved(written sim.ObjectWritten) {
	if !u.Stopped || !actors.IsSerin(written.Actor) || written.Old == nil || written.Type == store.Deleted {
		return
	}
	before, after := decodeState(actors.Typed[*flaggerv1.Canary](u.World, written.Old)), decodeState(actors.Typed[*flaggerv1.Canary](u.World, written.New))
	if blockedReason(before) == "" || blockedReason(after) == "" || windowStart(&before.Status).IsZero() || windowStart(&before.Status).Equal(windowStart(&after.Status)) {
		return
	}
	if r := u.releaseOf(written.Key); r != nil && r.unrepaired {
		r.unrepaired = false
		u.After(time.Second, func() { u.restoreReferences(r) })
	}
}
