package rollout

import (
	"time"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/rollout/pods"
)

// decideCanary decides about a Rollout with the canary strategy: services, traffic, analyses, pods, and then the
// status.
func decideCanary(f facts, unreadable outcome) Decision {
	upkeep := join(unreadable, maintain(f))
	status := countedStatus(f)
	switch {
	case f.changed():
		return conclude(f, startRelease(f, status), traffic{}, analyses{}, upkeep)
	case f.rescaled():
		return conclude(f, transition{status: status}, traffic{}, analyses{}, upkeep, scaleCanary(f, traffic{}))
	}
	restart := planRestart(f)
	status.RestartedAt = restart.at
	if restart.evicts {
		return conclude(f, transition{status: status}, traffic{}, analyses{}, upkeep, restart.outcome)
	}
	deletion, deleted := deleteOldReplicaSets(f)
	route := planTraffic(f)
	runs := planAnalyses(f, deleted)
	return conclude(f, advanceCanary(f, route, runs, route.record(f, status)), route, runs,
		upkeep, restart.outcome, labelRoles(f), deletion, selectCanaryPods(f), route.outcome, runs.outcome, scaleCanary(f, route))
}

// replicaCounts returns the numbers of pods that both sides are to have in the end, and those of now. routed are the
// weights that this reconciliation gives the router; nil: none yet.
func replicaCounts(f facts, routed *argov1.TrafficWeights) (desired, next pods.Counts) {
	if f.usesRouter() {
		desired = routedPods(f, routed).Desired()
		return desired, desired
	}
	l, current := f.limits(), pods.Current{New: f.new.scaled(), Distinct: f.distinct()}
	if current.Distinct {
		current.Stable = f.stable.scaled()
	}
	for _, rs := range f.others {
		current.Others += rs.Spec
	}
	desired = l.Desired(f.progress().Weight(f.maxWeight()), f.maxWeight(), current.Distinct)
	if _, returns := returningRevision(f); !returns {
		return desired, l.Next(current, desired)
	}
	next = returnLimits(f).Next(current, desired)
	next.Canary = min(next.Canary, retainedPods(f, traffic{}))
	return desired, next
}

func routedPods(f facts, routed *argov1.TrafficWeights) pods.Routed {
	c := f.Spec.Strategy.Canary
	r := pods.Routed{
		Progress: f.progress(), Replicas: f.replicas(), MaxWeight: f.maxWeight(), MinPods: value(c.MinPodsPerReplicaSet, 0),
		Dynamic: c.DynamicStableScale, AbortDelay: c.AbortScaleDownDelaySeconds,
		NewAvailable: f.new.Available, StableAvailable: f.stable.Available, Full: fullStrength(f),
	}
	recorded := func(hash string) int32 { return recordedWeight(f, routed, hash) }
	if back, previous := returnsToStable(f); back {
		r.NewAvailable = f.replicaSet(previous).Available
		r.Recorded = &pods.Weights{Canary: recorded(previous), Stable: recorded(f.Hash)}
	} else if w := f.Status.Canary.Weights; w != nil && (w.Canary.PodTemplateHash == f.stable.Hash || w.Stable.PodTemplateHash == f.stable.Hash) {
		r.Recorded = &pods.Weights{Canary: recorded(f.Hash), Stable: recorded(f.stable.Hash)}
	}
	return r
}

// recordedWeight returns the weight of a revision in the status, as canary or as stable revision. If routed contains a
// higher weight, it returns that, so that pods exist before their traffic.
func recordedWeight(f facts, routed *argov1.TrafficWeights, hash string) int32 {
	return max(weightOf(f.Status.Canary.Weights, hash), weightOf(routed, hash))
}

func weightOf(w *argov1.TrafficWeights, hash string) int32 {
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

// stepView returns what is known of the current step, after the router and the analyses were planned.
func stepView(f facts, t traffic, a analyses) StepView {
	step, _ := pods.StepAt(f.steps(), f.Status.CurrentStepIndex)
	v := StepView{
		Now: f.Now, Index: value(f.Status.CurrentStepIndex, 0), Total: int32(len(f.steps())), //nolint:gosec // a list in one object
		Step: step, Status: f.Status, Pods: stepPods(f), DisabledPlugins: f.DisabledPlugins,
		Run: a.step, Experiment: a.experiment, Routed: t.weights != nil, Unweighted: t.shortfall, Unpublished: t.unpublished, Unserved: t.unserved,
	}
	if t.recorded != nil {
		v.Status.Canary.Weights = t.recorded
	}
	return v
}

func stepPods(f facts) StepPods {
	c := f.Spec.Strategy.Canary
	if c == nil {
		return StepPods{}
	}
	desired, _ := replicaCounts(f, nil)
	p := StepPods{
		Threshold: c.ReplicaProgressThreshold, New: f.new.scaled(), WantNew: desired.Canary, Basic: c.TrafficRouting == nil,
		StableFixed: f.distinct() && (!f.usesRouter() || !c.DynamicStableScale),
		StableSpec:  f.stable.Spec, StableThere: f.stable.Replicas, WantStable: desired.Stable,
	}
	for _, rs := range f.others {
		p.OthersAvailable += rs.Available
	}
	return p
}

// defaultDelaySeconds is the scale-down delay that applies where the user does not set one.
const defaultDelaySeconds int32 = 30

func delay(seconds *int32) time.Duration {
	return time.Duration(value(seconds, defaultDelaySeconds)) * time.Second
}
