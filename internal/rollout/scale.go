package rollout

import (
	"fmt"
	"slices"
	"time"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/internal/rollout/pods"
)

// scaleForCanaryStrategy changes the number of pods of one revision: the stable one, otherwise the new one, otherwise the others. An
// aborted revision that is retained for a delay does not hold up the others.
// The next reconciliation continues from the observed result.
func scaleForCanaryStrategy(f facts, t trafficPlan) outcome {
	if f.freezeReason() != "" {
		return outcome{}
	}
	next := nextReplicaCounts(f, t)
	o := clearScaleDownDeadlines(f)
	if f.hasDistinctStable() {
		scaled, changes := scaleReplicaSet(f, f.stable, next.Stable)
		if o = joinOutcomes(o, scaled); changes {
			return o
		}
	}
	if delayed, applies := applyAbortScaleDownDelay(f, t); applies {
		o = joinOutcomes(o, delayed)
	} else {
		scaled, changes := scaleReplicaSet(f, f.new, next.Canary)
		if o = joinOutcomes(o, scaled); changes {
			return o
		}
	}
	o = joinOutcomes(o, scaleWorkload(f))
	if f.routerUnconfirmed() || awaitsFirstWeight(f, t) {
		return o
	}
	return joinOutcomes(o, scaleDownOldCanaryPods(f))
}

// nextReplicaCounts returns the numbers of pods of both sides after this reconciliation: those of replicaCounts, and at least the
// current ones while their traffic has not moved, except for pods of an aborted revision that are not available.
func nextReplicaCounts(f facts, t trafficPlan) pods.ReplicaCounts {
	_, next := replicaCounts(f, t.weights)
	if trafficOutOfSync(f, t) {
		next = pods.ReplicaCounts{
			Canary: max(next.Canary, podsRetainedAfterAbort(f, t), podsForRoutedWeight(f)), Stable: max(next.Stable, f.stable.SpecReplicas),
		}
	}
	next.Stable = retainUntilServiceMoves(f, t, next.Stable)
	return next
}

// podsForRoutedWeight returns the number of pods that the weight in the router requires of the new revision, whatever the step
// requires: its ReplicaSet may have been deleted, and recreated without pods, while the step waits for stable pods. It is 0 if a step
// sets the scale, and after an abort, which retains available pods only.
func podsForRoutedWeight(f facts) int32 {
	if f.Status.Abort || pods.CanaryScaleAt(f.Spec.Strategy.Canary.Steps, f.Status.CurrentStepIndex) != nil {
		return 0
	}
	weight := revisionWeight(f.Status.Canary.Weights, f.Hash)
	return routedPodsInput(f, nil).ApplyMinPods(pods.CountForWeight(weight, f.replicas(), f.maxWeight()))
}

// replicaCounts returns the final desired numbers of pods of both sides, and the next ones. routed are the weights that
// this reconciliation sets in the router; nil: none yet.
func replicaCounts(f facts, routed *argov1.TrafficWeights) (desired, next pods.ReplicaCounts) {
	if f.usesRouter() {
		desired = routedPodsInput(f, routed).CountsBehindRouter()
		return desired, desired
	}
	l, current := f.rollingLimits(), pods.CurrentPods{New: f.new.podNumbers(), HasDistinctStable: f.hasDistinctStable()}
	if current.HasDistinctStable {
		current.Stable = f.stable.podNumbers()
	}
	for _, rs := range f.others {
		current.Others += rs.SpecReplicas
	}
	desired = l.CountsForWeight(f.stepProgress().WeightForPods(f.maxWeight()), f.maxWeight(), current.HasDistinctStable)
	if desired.Canary > f.new.SpecReplicas && lacksBackgroundAnalysis(f) { // without a router, further pods are a further weight
		desired = pods.ReplicaCounts{Canary: f.new.SpecReplicas, Stable: f.replicas() - min(f.new.SpecReplicas, f.replicas())}
	}
	if _, returns := findReturningRevision(f); !returns {
		return desired, l.NextCounts(current, desired)
	}
	next = limitsDuringReturn(f).NextCounts(current, desired)
	next.Canary = min(next.Canary, podsRetainedAfterAbort(f, trafficPlan{}))
	return desired, next
}

// routedPodsInput is the input of the arithmetic for pods behind a router. routed are as in replicaCounts.
func routedPodsInput(f facts, routed *argov1.TrafficWeights) pods.TrafficRoutedPods {
	c := f.Spec.Strategy.Canary
	r := pods.TrafficRoutedPods{
		StepProgress: f.stepProgress(), Replicas: f.replicas(), MaxWeight: f.maxWeight(), MinPodsPerReplicaSet: valueOr(c.MinPodsPerReplicaSet, 0),
		DynamicStableScale: c.DynamicStableScale, AbortScaleDownDelaySeconds: c.AbortScaleDownDelaySeconds,
		NewAvailable: f.new.Available, StableAvailable: f.stable.Available, PodsForAllTraffic: podsForAllTraffic(f),
	}
	knownWeightOf := func(hash string) int32 { return highestKnownWeight(f, routed, hash) }
	if returns, previous := returnsToStable(f); returns {
		r.NewAvailable = f.findReplicaSet(previous).Available
		r.RecordedWeights = &pods.Weights{Canary: knownWeightOf(previous), Stable: knownWeightOf(f.Hash)}
	} else if w := f.Status.Canary.Weights; w != nil && (w.Canary.PodTemplateHash == f.stable.Hash || w.Stable.PodTemplateHash == f.stable.Hash) {
		r.RecordedWeights = &pods.Weights{Canary: knownWeightOf(f.Hash), Stable: knownWeightOf(f.stable.Hash)}
	}
	return r
}

// highestKnownWeight returns the weight of a revision in the status, as canary or as stable revision, or the weight in
// routed if that is higher: pods must exist before their traffic.
func highestKnownWeight(f facts, routed *argov1.TrafficWeights, hash string) int32 {
	return max(revisionWeight(f.Status.Canary.Weights, hash), revisionWeight(routed, hash))
}

func revisionWeight(w *argov1.TrafficWeights, hash string) int32 {
	if w == nil {
		return 0
	}
	var sum int32
	for _, d := range []argov1.WeightDestination{w.Canary, w.Stable} {
		if d.PodTemplateHash == hash {
			sum += d.Weight
		}
	}
	return sum
}

// awaitsFirstWeight reports whether the router has no weights yet. Until then, all revisions that it may route to keep
// their pods.
func awaitsFirstWeight(f facts, t trafficPlan) bool {
	return f.usesRouter() && f.Status.Canary.Weights == nil && t.weights == nil
}

// trafficOutOfSync reports whether the traffic split does not yet correspond to the desired numbers of pods. Until it
// does, no pods are removed.
func trafficOutOfSync(f facts, t trafficPlan) bool {
	return f.usesRouter() && f.hasDistinctStable() && (t.weights == nil || t.shortfall != "" || t.canaryEndpointsGate != nil || f.routerUnconfirmed())
}

// retainUntilServiceMoves returns the number of pods of a stable revision whose last pods are about to be removed: they
// remain until the release is promoted and the stable Service no longer selects them.
func retainUntilServiceMoves(f facts, t trafficPlan, desired int32) int32 {
	service := f.Spec.Strategy.Canary.StableService
	selected := service != "" && f.selectedHash(service) == f.stable.Hash
	if desired == 0 && selected && canaryPromotionReason(f, t, f.Status) != "" {
		return f.stable.SpecReplicas
	}
	return desired
}

// scaleReplicaSet sets the number of pods of a ReplicaSet, and records the current spec.replicas. changes is true if
// the next calculation has to wait for the result.
func scaleReplicaSet(f facts, rs ReplicaSet, desired int32) (o outcome, changes bool) {
	desired = max(desired, 0)
	if rs.SpecReplicas == desired && rs.RolloutReplicas != nil && *rs.RolloutReplicas == f.replicas() {
		return outcome{}, false
	}
	effect := ReplicaSetScaled{Name: rs.Name, Revision: rs.Revision, From: rs.SpecReplicas, Pods: desired, RolloutReplicas: f.replicas()}
	if desired > rs.SpecReplicas {
		return outcome{scaleUpEffects: []release.Effect{effect}}, true
	}
	return outcome{removalEffects: []release.Effect{effect}}, desired < rs.SpecReplicas
}

// clearScaleDownDeadlines removes the scale-down deadlines of revisions that are in use again.
func clearScaleDownDeadlines(f facts) outcome {
	var o outcome
	if _, delayed := abortScaleDownDelay(f); f.new.HasScaleDownDeadline() && !delayed && !isFastRollback(f) {
		o.upkeepEffects = append(o.upkeepEffects, ScaleDownDeadlineSet{Name: f.new.Name})
	}
	if f.hasDistinctStable() && f.stable.HasScaleDownDeadline() {
		o.upkeepEffects = append(o.upkeepEffects, ScaleDownDeadlineSet{Name: f.stable.Name})
	}
	return o
}

// defaultScaleDownDelaySeconds is the default of the scale-down delay.
const defaultScaleDownDelaySeconds int32 = 30

func scaleDownDelay(seconds *int32) time.Duration {
	return time.Duration(valueOr(seconds, defaultScaleDownDelaySeconds)) * time.Second
}

// longestScaleDownDelay returns the longest delay after which a strategy removes unused pods.
func longestScaleDownDelay(strategy argov1.RolloutStrategy) time.Duration {
	if b := strategy.BlueGreen; b != nil {
		return max(scaleDownDelay(b.ScaleDownDelaySeconds), scaleDownDelay(b.AbortScaleDownDelaySeconds))
	}
	if c := strategy.Canary; c != nil {
		return max(scaleDownDelay(c.ScaleDownDelaySeconds), scaleDownDelay(c.AbortScaleDownDelaySeconds))
	}
	return 0
}

// abortScaleDownDelay returns the time for which the pods of an aborted revision are retained; 0: indefinitely. False
// without a delay: they are removed like those of any other revision.
func abortScaleDownDelay(f facts) (time.Duration, bool) {
	if !f.Status.Abort || !f.hasDistinctStable() {
		return 0, false
	}
	if b := f.Spec.Strategy.BlueGreen; b != nil {
		return scaleDownDelay(b.AbortScaleDownDelaySeconds), true
	}
	c := f.Spec.Strategy.Canary
	if c.TrafficRouting == nil || c.DynamicStableScale && c.AbortScaleDownDelaySeconds == nil {
		return 0, false
	}
	return scaleDownDelay(c.AbortScaleDownDelaySeconds), true
}

// applyAbortScaleDownDelay retains the pods of an aborted revision for their delay, which starts when they no longer
// receive requests. It does not wait for missing stable pods, which may need the capacity of these pods. False without
// a delay.
func applyAbortScaleDownDelay(f facts, t trafficPlan) (o outcome, applies bool) {
	length, applies := abortScaleDownDelay(f)
	if !applies {
		return outcome{}, false
	}
	rs := f.new
	if rs.HasScaleDownDeadline() && !f.Now.Before(rs.ScaleDownDeadline) && rs.SpecReplicas > 0 && length > 0 && !mayServeAfterAbort(f, t) {
		removed := ReplicaSetScaled{Name: rs.Name, Revision: rs.Revision, From: rs.SpecReplicas, RolloutReplicas: f.replicas(), KeepDeadline: true}
		return outcome{removalEffects: []release.Effect{removed}}, true
	}
	o, _ = scaleReplicaSet(f, rs, podsRetainedAfterAbort(f, t))
	switch {
	case rs.SpecReplicas == 0, length <= 0, mayServeAfterAbort(f, t):
		return o, true
	case rs.HasScaleDownDeadline() && !rs.ScaleDownDeadline.After(f.Now.Add(length)): // a later deadline means that a clock was set back
		return joinOutcomes(o, scaleDownDelayGate(rs, rs.ScaleDownDeadline)), true
	default:
		until := f.Now.Add(length)
		o.removalEffects = append(o.removalEffects, ScaleDownDeadlineSet{Name: rs.Name, Until: until, Abandoned: true})
		return joinOutcomes(o, scaleDownDelayGate(rs, until)), true
	}
}

// scaleDownDelayGate returns the gate that explains why unused pods still exist.
func scaleDownDelayGate(rs ReplicaSet, until time.Time) outcome {
	return gateOutcome(release.NewTimedGate("scale-down-delay", until, fmt.Sprintf("%s of %s retained until %s", release.Count(int(rs.SpecReplicas), "pod"), rs.Name, until.UTC().Format(time.TimeOnly))))
}

// scaleDownOldCanaryPods removes the pods of revisions without a role.
func scaleDownOldCanaryPods(f facts) outcome {
	c := f.Spec.Strategy.Canary
	d := pods.ScaleDownInput{
		Now: f.Now, Limits: f.rollingLimits(), UsesRouter: f.usesRouter(), Promoted: isPromoted(f.Status),
		Delay: scaleDownDelay(c.ScaleDownDelaySeconds), RevisionLimit: c.ScaleDownDelayRevisionLimit,
		NewAvailable: f.new.Available, StablePodsMissing: f.stable.exists() && f.stable.Available < f.replicas(),
	}
	if c.DynamicStableScale {
		d.Delay = 0
	}
	if f.hasDistinctStable() {
		d.StableAvailable = f.stable.Available
	}
	return applyScaleDownDecisions(f, d.DecideCanary(oldReplicaSets(f)))
}

func applyScaleDownDecisions(f facts, decisions []pods.ScaleDownDecision) outcome {
	var o outcome
	for _, d := range decisions {
		i := slices.IndexFunc(f.others, func(rs ReplicaSet) bool { return rs.Name == d.Name })
		rs := f.others[i]
		if !d.ScaleDownDeadline.IsZero() {
			o.removalEffects = append(o.removalEffects, ScaleDownDeadlineSet{Name: rs.Name, Until: d.ScaleDownDeadline, Abandoned: rs.Abandoned})
		}
		if d.Pods != rs.SpecReplicas && !restartsDeadlineFirst(f, rs) {
			scaled, _ := scaleReplicaSet(f, rs, d.Pods)
			o = joinOutcomes(o, scaled)
		}
		if !d.Until.IsZero() {
			o = joinOutcomes(o, scaleDownDelayGate(rs, d.Until))
		}
	}
	return o
}

// isFastRollback reports whether a blue-green release returns to a revision whose pods still exist: it skips analyses
// and pauses. The scale-down deadline of these pods identifies such a release until it is complete. A revision that was never
// promoted may have failed its analysis, and has a deadline as well.
func isFastRollback(f facts) bool {
	s := f.Status
	return f.Spec.Strategy.BlueGreen != nil && f.hasDistinctStable() && f.new.HasScaleDownDeadline() && !f.new.Abandoned && !s.Abort && s.AbortedAt == nil
}

// abandonPrevious marks the pods of a blue-green release that ends because the template changes before its promotion. They are
// retained for the delay, like those of a promoted revision. The pods that the active Service selects serve users: their delay begins
// when it selects others.
func abandonPrevious(f facts) outcome {
	b, previous := f.Spec.Strategy.BlueGreen, f.findReplicaSet(f.Status.CurrentPodHash)
	delay := scaleDownDelay(b.ScaleDownDelaySeconds)
	unused := previous.exists() && previous.SpecReplicas > 0 && previous.Hash != f.Hash && previous.Hash != f.Status.StableRS && previous.Hash != f.selectedHash(b.ActiveService)
	if !unused || previous.HasScaleDownDeadline() || delay <= 0 {
		return outcome{}
	}
	return outcome{removalEffects: []release.Effect{ScaleDownDeadlineSet{Name: previous.Name, Until: f.Now.Add(delay), Abandoned: true}}}
}

// desiredPreviewPods returns the current desired number of pods of the new revision of a blue-green release.
func desiredPreviewPods(f facts) int32 {
	b, s := f.Spec.Strategy.BlueGreen, f.Status
	active := f.selectedHash(b.ActiveService)
	switch paused := len(s.PauseConditions) > 0; {
	case b.PreviewReplicaCount == nil, !f.findReplicaSet(active).exists(), active == f.Hash, s.PromoteFull:
		return f.replicas()
	case !f.hasDistinctStable(), f.inRollbackWindow, isFastRollback(f): // the revision has served users before
		return f.replicas()
	case !paused && s.BlueGreen.ScaleUpPreviewCheckPoint:
		return f.replicas()
	default:
		return *b.PreviewReplicaCount
	}
}

// scaleForBlueGreenStrategy sets the number of pods of each revision.
func scaleForBlueGreenStrategy(f facts) outcome {
	if f.freezeReason() != "" {
		return outcome{}
	}
	o := clearScaleDownDeadlines(f)
	if f.hasDistinctStable() {
		scaled, _ := scaleReplicaSet(f, f.stable, f.replicas())
		o = joinOutcomes(o, scaled)
	}
	active := f.findReplicaSet(f.selectedHash(f.Spec.Strategy.BlueGreen.ActiveService))
	if !isPromoted(f.Status) && active.SpecReplicas > 0 && active.Hash != f.Hash && active.Hash != f.stable.Hash {
		scaled, _ := scaleReplicaSet(f, active, f.replicas()) // it serves users until the new revision does
		o = joinOutcomes(o, scaled)
	}
	delayed, applies := applyAbortScaleDownDelay(f, trafficPlan{})
	if !applies {
		delayed, _ = scaleReplicaSet(f, f.new, desiredPreviewPods(f))
	}
	return joinOutcomes(o, delayed, scaleWorkload(f), scaleDownOldBlueGreenPods(f))
}

// scaleDownOldBlueGreenPods removes the pods of revisions without a role, each after its delay.
func scaleDownOldBlueGreenPods(f facts) outcome {
	b := f.Spec.Strategy.BlueGreen
	if f.routerUnconfirmed() {
		return outcome{} // they may still receive requests
	}
	if b.PostPromotionAnalysis != nil && b.ScaleDownDelaySeconds == nil && f.hasDistinctStable() && f.selectedHash(b.ActiveService) == f.Hash {
		return outcome{} // a failed analysis would switch back to them
	}
	d := pods.ScaleDownInput{
		Now: f.Now, Limits: f.rollingLimits(), UsesRouter: true, Promoted: true,
		Delay: scaleDownDelay(b.ScaleDownDelaySeconds), RevisionLimit: b.ScaleDownDelayRevisionLimit,
	}
	return applyScaleDownDecisions(f, d.DecideBlueGreen(oldReplicaSets(f), f.replicas()))
}
