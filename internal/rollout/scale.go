package rollout

import (
	"fmt"
	"slices"
	"time"

	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/internal/rollout/pods"
)

// scaleCanary changes the number of pods of one revision: of the stable one, or else of the new one, or else of the
// others. The next reconciliation continues from the observed result.
func scaleCanary(f facts, t traffic) outcome {
	if f.frozen() != "" {
		return outcome{}
	}
	_, next := replicaCounts(f, t.weights)
	if trafficElsewhere(f, t) {
		next = pods.Counts{Canary: max(next.Canary, f.new.Spec), Stable: max(next.Stable, f.stable.Spec)}
	}
	o := clearDeadlines(f)
	if f.distinct() {
		scaled, changes := scaleReplicaSet(f, f.stable, untilServiceMoves(f, t, next.Stable))
		if o = join(o, scaled); changes {
			return o
		}
	}
	if delayed, applies := delayAfterAbort(f, t); applies {
		o = join(o, delayed)
	} else {
		scaled, changes := scaleReplicaSet(f, f.new, next.Canary)
		if o = join(o, scaled); changes {
			return o
		}
	}
	o = join(o, scaleWorkload(f))
	if f.routerLags() || awaitsFirstWeight(f, t) {
		return o
	}
	return join(o, scaleDownOthers(f))
}

// awaitsFirstWeight reports whether the router has no weights yet. Until then, all revisions that it may route to
// retain their pods.
func awaitsFirstWeight(f facts, t traffic) bool {
	return f.usesRouter() && f.Status.Canary.Weights == nil && t.weights == nil
}

// trafficElsewhere reports whether the router does not yet divide the traffic as the desired numbers of pods require.
// Until it does, no pods are removed.
func trafficElsewhere(f facts, t traffic) bool {
	return f.usesRouter() && f.distinct() && (t.weights == nil || t.shortfall != "" || t.unpublished != nil || f.routerLags())
}

// untilServiceMoves is the number of pods of a stable revision whose last pods are about to be removed: while its
// Service selects them, they remain until the release is promoted and the Service has moved.
func untilServiceMoves(f facts, t traffic, desired int32) int32 {
	service := f.Spec.Strategy.Canary.StableService
	selected := service != "" && f.selected(service) == f.stable.Hash
	if desired == 0 && selected && canaryPromotion(f, t, f.Status) != "" {
		return f.stable.Spec
	}
	return desired
}

// scaleReplicaSet sets the number of pods of a ReplicaSet, and records spec.replicas of that time. changes is true if
// the next calculation has to wait for the result.
func scaleReplicaSet(f facts, rs ReplicaSet, desired int32) (o outcome, changes bool) {
	desired = max(desired, 0)
	if rs.Spec == desired && rs.Desired != nil && *rs.Desired == f.replicas() {
		return outcome{}, false
	}
	effect := ReplicaSetScaled{Name: rs.Name, Revision: rs.Revision, From: rs.Spec, Pods: desired, Desired: f.replicas()}
	if desired > rs.Spec {
		return outcome{scaleUp: []release.Effect{effect}}, true
	}
	return outcome{remove: []release.Effect{effect}}, desired < rs.Spec
}

// clearDeadlines removes the scale-down deadline of revisions that are in use again.
func clearDeadlines(f facts) outcome {
	var o outcome
	if _, delayed := abortDelay(f); f.new.Delayed() && !delayed && !fastRollback(f) {
		o.always = append(o.always, ReplicaSetDelayed{Name: f.new.Name})
	}
	if f.distinct() && f.stable.Delayed() {
		o.always = append(o.always, ReplicaSetDelayed{Name: f.stable.Name})
	}
	return o
}

// abortDelay returns for how long the pods of an aborted revision remain; 0: indefinitely. False where there is no
// delay, and they are removed as any others.
func abortDelay(f facts) (time.Duration, bool) {
	if !f.Status.Abort || !f.distinct() {
		return 0, false
	}
	if b := f.Spec.Strategy.BlueGreen; b != nil {
		return delay(b.AbortScaleDownDelaySeconds), true
	}
	c := f.Spec.Strategy.Canary
	if c.TrafficRouting == nil || c.DynamicStableScale && c.AbortScaleDownDelaySeconds == nil {
		return 0, false
	}
	return delay(c.AbortScaleDownDelaySeconds), true
}

// delayAfterAbort retains the pods of an aborted revision for their delay, which begins when they receive no requests
// anymore. It does not wait for missing stable pods, which may be waiting for the capacity of these. False where there
// is no delay.
func delayAfterAbort(f facts, t traffic) (o outcome, applies bool) {
	length, applies := abortDelay(f)
	if !applies {
		return outcome{}, false
	}
	rs := f.new
	if rs.Delayed() && !f.Now.Before(rs.Deadline) && rs.Spec > 0 && length > 0 && !stillServing(f, t) {
		removed := ReplicaSetScaled{Name: rs.Name, Revision: rs.Revision, From: rs.Spec, Desired: f.replicas(), KeepDeadline: true}
		return outcome{remove: []release.Effect{removed}}, true
	}
	o, _ = scaleReplicaSet(f, rs, retainedPods(f, t))
	switch {
	case rs.Spec == 0, length <= 0, stillServing(f, t):
		return o, true
	case rs.Delayed() && !rs.Deadline.After(f.Now.Add(length)): // a later deadline means that a clock was set back since
		return join(o, delayGate(rs, rs.Deadline)), true
	default:
		until := f.Now.Add(length)
		o.remove = append(o.remove, ReplicaSetDelayed{Name: rs.Name, Until: until})
		return join(o, delayGate(rs, until)), true
	}
}

// delayGate explains why unused pods still exist.
func delayGate(rs ReplicaSet, until time.Time) outcome {
	return gated(release.WaitsUntil("scale-down-delay", until, fmt.Sprintf("%d pods of %s until %s", rs.Spec, rs.Name, until.UTC().Format(time.TimeOnly))))
}

// scaleDownOthers removes the pods of revisions without a role.
func scaleDownOthers(f facts) outcome {
	c := f.Spec.Strategy.Canary
	d := pods.ScaleDown{
		Now: f.Now, Limits: f.limits(), Routed: f.usesRouter(), Promoted: promoted(f.Status),
		Delay: delay(c.ScaleDownDelaySeconds), RevisionLimit: c.ScaleDownDelayRevisionLimit,
		NewAvailable: f.new.Available, StableShort: f.stable.exists() && f.stable.Available < f.replicas(),
	}
	if c.DynamicStableScale {
		d.Delay = 0
	}
	if f.distinct() {
		d.StableAvailable = f.stable.Available
	}
	return applyDispositions(f, d.Decide(oldReplicaSets(f)))
}

func applyDispositions(f facts, dispositions []pods.Disposition) outcome {
	var o outcome
	for _, d := range dispositions {
		i := slices.IndexFunc(f.others, func(rs ReplicaSet) bool { return rs.Name == d.Name })
		rs := f.others[i]
		if !d.Deadline.IsZero() {
			o.remove = append(o.remove, ReplicaSetDelayed{Name: rs.Name, Until: d.Deadline})
		}
		if d.Pods != rs.Spec {
			scaled, _ := scaleReplicaSet(f, rs, d.Pods)
			o = join(o, scaled)
		}
		if !d.Until.IsZero() {
			o = join(o, delayGate(rs, d.Until))
		}
	}
	return o
}

// fastRollback reports whether a blue-green release returns to a revision whose pods still exist: it skips analyses and
// pauses. The deadline of those pods shows it until the return is complete; one that was set by an abort does not.
func fastRollback(f facts) bool {
	s := f.Status
	return f.Spec.Strategy.BlueGreen != nil && f.distinct() && f.new.Delayed() && !s.Abort && s.AbortedAt == nil
}

// previewCount is the number of pods that the new revision of a blue-green release is to have now.
func previewCount(f facts) int32 {
	b, s := f.Spec.Strategy.BlueGreen, f.Status
	active := f.selected(b.ActiveService)
	switch paused := len(s.PauseConditions) > 0; {
	case b.PreviewReplicaCount == nil, !f.replicaSet(active).exists(), active == f.Hash, s.PromoteFull:
		return f.replicas()
	case !f.distinct(), f.inWindow, fastRollback(f): // it returns to what has served before
		return f.replicas()
	case !paused && s.BlueGreen.ScaleUpPreviewCheckPoint:
		return f.replicas()
	default:
		return *b.PreviewReplicaCount
	}
}

// scaleBlueGreen sets the number of pods of each revision.
func scaleBlueGreen(f facts) outcome {
	if f.frozen() != "" {
		return outcome{}
	}
	o := clearDeadlines(f)
	if f.distinct() {
		scaled, _ := scaleReplicaSet(f, f.stable, f.replicas())
		o = join(o, scaled)
	}
	delayed, applies := delayAfterAbort(f, traffic{})
	if !applies {
		delayed, _ = scaleReplicaSet(f, f.new, previewCount(f))
	}
	return join(o, delayed, scaleWorkload(f), scaleDownUnused(f))
}

// scaleDownUnused removes the pods of revisions without a role, each after its delay.
func scaleDownUnused(f facts) outcome {
	b := f.Spec.Strategy.BlueGreen
	if f.routerLags() {
		return outcome{} // they may still receive requests
	}
	if b.PostPromotionAnalysis != nil && b.ScaleDownDelaySeconds == nil && f.distinct() && f.selected(b.ActiveService) == f.Hash {
		return outcome{} // they may be needed again
	}
	d := pods.ScaleDown{
		Now: f.Now, Limits: f.limits(), Routed: true, Promoted: true,
		Delay: delay(b.ScaleDownDelaySeconds), RevisionLimit: b.ScaleDownDelayRevisionLimit,
	}
	return applyDispositions(f, d.DecideUnused(oldReplicaSets(f), f.replicas()))
}
