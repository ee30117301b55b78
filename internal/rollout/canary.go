package rollout

import (
	"time"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/rollout/pods"
)

// decideCanaryStrategy decides about a Rollout with the canary strategy: services, traffic, analyses, pods, and then the
// status.
func decideCanaryStrategy(f facts, unreadable outcome) Decision {
	upkeep := joinOutcomes(unreadable, planUpkeep(f))
	status := countPods(f)
	switch {
	case f.templateOrStepsChanged():
		return fillInDecision(f, startRelease(f, status), stepInputs{}, upkeep)
	case f.replicasChanged():
		return fillInDecision(f, transition{status: status}, stepInputs{}, upkeep, scaleForCanaryStrategy(f, trafficPlan{}))
	}
	restart := planRestart(f)
	status.RestartedAt = restart.restartedAt
	if restart.evictsPods {
		return fillInDecision(f, transition{status: status}, stepInputs{}, upkeep, restart.outcome)
	}
	deletion, deleted := deleteOldReplicaSets(f)
	route := planTraffic(f)
	f = f.withRouterPlugins(route.plugins)
	runs := planAnalyses(f, deleted)
	in := stepInputs{route, runs, planStepPlugins(f)}
	return fillInDecision(f, advanceCanaryStrategy(f, in, route.recordWeights(f, status)), in,
		upkeep, restart.outcome, setEphemeralMetadata(f), deletion, planCanaryServices(f), route.outcome, runs.outcome, scaleForCanaryStrategy(f, route))
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
		current.Others += rs.Spec
	}
	desired = l.CountsForWeight(f.stepProgress().WeightForPods(f.maxWeight()), f.maxWeight(), current.HasDistinctStable)
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

// stepInputs are the results of the stages that decide about the current step.
type stepInputs struct {
	route   trafficPlan
	runs    analyses
	plugins pluginPlan
}

// newStepState returns the state of the current step.
func newStepState(f facts, in stepInputs) StepState {
	step, _ := pods.StepAt(f.steps(), f.Status.CurrentStepIndex)
	t := in.route
	v := StepState{
		Now: f.Now, Index: valueOr(f.Status.CurrentStepIndex, 0), Total: int32(len(f.steps())), //nolint:gosec // a list in one object
		Step: step, Status: f.Status, Pods: stepPods(f), PluginGate: in.plugins.gate,
		Run: in.runs.step, Experiment: in.runs.experiment, ManagedRouteSet: t.weights != nil, WeightShortfall: t.shortfall, CanaryEndpointsGate: t.canaryEndpointsGate, RouterGate: t.routerGate,
		RouterPluginGate: t.plugins.pendingGate(),
	}
	if in.plugins.statuses != nil {
		v.Status.Canary.StepPluginStatuses = in.plugins.statuses
	}
	if t.recordedWeights != nil {
		v.Status.Canary.Weights = t.recordedWeights
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
		Threshold: c.ReplicaProgressThreshold, New: f.new.podNumbers(), DesiredNew: desired.Canary, WithoutRouter: c.TrafficRouting == nil,
		StableCountFixed: f.hasDistinctStable() && (!f.usesRouter() || !c.DynamicStableScale),
		StableSpec:       f.stable.Spec, StableReplicas: f.stable.Replicas, DesiredStable: desired.Stable,
	}
	for _, rs := range f.others {
		p.OthersAvailable += rs.Available
	}
	return p
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
