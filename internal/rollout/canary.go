package rollout

import "github.com/serin-dev/serin/internal/rollout/pods"

// decideCanaryStrategy decides about a Rollout with the canary strategy: services, traffic, analyses, pods, and then the
// status.
func decideCanaryStrategy(f facts, unreadable outcome) Decision {
	upkeep := joinOutcomes(unreadable, planUpkeep(f))
	status := countPods(f)
	switch {
	case f.templateOrStepsChanged():
		return fillInDecision(f, startRelease(f, status), stepInputs{}, upkeep)
	case f.replicasChanged():
		return fillInDecision(f, scaleOnly(status), stepInputs{}, upkeep, scaleForCanaryStrategy(f, trafficPlan{}))
	}
	restart := planRestart(f)
	status.RestartedAt = restart.restartedAt
	deletion, deleted := deleteOldReplicaSets(f)
	route := planTraffic(f)
	f = f.withRouterPlugins(route.plugins)
	runs := planAnalyses(f, deleted)
	in := stepInputs{route, runs, planStepPlugins(f)}
	decided := joinOutcomes(setEphemeralMetadata(f), deletion, planCanaryServices(f), route.outcome, runs.outcome, scaleForCanaryStrategy(f, route))
	return fillInDecision(f, advanceCanaryStrategy(f, in, route.recordWeights(f, status)), in, upkeep, restart.after(decided), decided)
}

// stepInputs are the results of the stages that decide about the current step.
type stepInputs struct {
	route   trafficPlan
	runs    analyses
	plugins pluginPlan
}

// newStepState returns the state of the current step.
func newStepState(f facts, in stepInputs) stepState {
	step, _ := pods.StepAt(f.steps(), f.Status.CurrentStepIndex)
	t := in.route
	v := stepState{
		Now: f.Now, Index: valueOr(f.Status.CurrentStepIndex, 0), Total: int32(len(f.steps())), //nolint:gosec // a list in one object
		Step: step, Status: f.Status, Pods: countStepPods(f), PluginGate: in.plugins.gate,
		Run: in.runs.step, Experiment: in.runs.experiment, RoutePlanned: t.weights != nil, WeightShortfall: t.shortfall, CanaryEndpointsGate: t.canaryEndpointsGate, RouterGate: t.routerGate,
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

func countStepPods(f facts) stepPods {
	c := f.Spec.Strategy.Canary
	if c == nil {
		return stepPods{}
	}
	desired, _ := replicaCounts(f, nil)
	p := stepPods{
		Threshold: c.ReplicaProgressThreshold, New: f.new.podNumbers(), DesiredNew: desired.Canary, WithoutRouter: c.TrafficRouting == nil,
		StableCountFixed:   f.hasDistinctStable() && (!f.usesRouter() || !c.DynamicStableScale),
		StableSpecReplicas: f.stable.SpecReplicas, StableReplicas: f.stable.Replicas, DesiredStable: desired.Stable,
	}
	for _, rs := range f.others {
		p.OthersAvailable += rs.Available
	}
	return p
}
