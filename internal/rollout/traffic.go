package rollout

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/internal/rollout/pods"
)

// routerRetryInterval is the time before a router that has not applied its weights is queried again.
const routerRetryInterval = 10 * time.Second

// trafficPlan is the result of planTraffic: how a canary release splits the traffic.
type trafficPlan struct {
	outcome
	// weights are the weights to set; nil: the router is unchanged.
	weights *argov1.TrafficWeights
	// recordedWeights are the weights to record in the status; nil: the recorded weights are unchanged.
	recordedWeights *argov1.TrafficWeights
	// shortfall is the reason why the weight of the step is not set; empty: it is set.
	shortfall string
	// canaryEndpointsGate is the gate about missing endpoints for the traffic of the step; nil: none are missing.
	canaryEndpointsGate *release.Gate
	// routerGate is the gate of a router that has not applied its weights yet; nil: it has, or cannot report it.
	routerGate *release.Gate
	// plugins is the state of the router plugins for this route.
	plugins routerPluginPlan
}

// planTraffic decides about the weights in the router and in the status. Pods are removed only after their traffic.
func planTraffic(f facts) trafficPlan {
	var t trafficPlan
	recordedWeights := f.Status.Canary.Weights
	restored := RouteRestored{RemoveCreated: isPromoted(f.Status)}
	if !f.usesRouter() && (f.Route.HasStaleRouters || recordedWeights != nil) {
		t.trafficEffects = append(t.trafficEffects, restored)
	}
	if !f.usesRouter() || !f.stable.exists() {
		return t
	}
	desired := desiredSplit(f)
	if canary, stable := currentRouteServices(f); f.Spec.Strategy.Canary.PingPong != nil && servesStableTraffic(f, canary) {
		gate := stableEndpointsPublished(f, stable)
		t.gates = append(t.gates, gate)
		if gate.Verdict != release.Pass {
			return t
		}
		desired = trafficSplit{canary: f.new.Hash}
	}
	if desired.weightRequirement != "" {
		t.gates = append(t.gates, release.NewWaitingGate("canary-capacity", release.ByCluster, desired.weightRequirement))
	}
	desired, gates, unpublished := limitToEndpoints(f, desired)
	t.gates, t.canaryEndpointsGate = append(t.gates, gates...), unpublished
	weights := weightsForSplit(f, desired)
	returned := recordedWeights != nil && recordedWeights.Canary.Weight == 0 && desired.weight == 0 && (f.Status.Abort || isPromoted(f.Status))
	if shortfall := stableShortfall(f, desired.weight); shortfall != "" && !returned {
		t.shortfall = shortfall
		t.gates = append(t.gates, release.NewWaitingGate("stable-capacity", release.ByCluster, shortfall))
		if recordedWeights == nil || recordedWeights.Canary.Weight > 0 && !f.findReplicaSet(recordedWeights.Canary.PodTemplateHash).exists() {
			return t // the recorded weight belongs to a revision that no longer exists: the route is unchanged
		}
		weights = reduceRecordedWeight(f, *recordedWeights.DeepCopy(), desired)
	}
	if gate := stableEndpointsGate(f, desired); gate != nil {
		t.gates = append(t.gates, *gate)
		if gate.Verdict != release.Pass {
			weights = *recordedWeights.DeepCopy()
		}
	}
	if weights.Canary.PodTemplateHash != desired.canary {
		desired.onlyExistingRoutes = true // a managed route would lead to the revision that still has the weight
	}
	if first := weightsBeforeSwitch(f, weights); first != nil {
		t.trafficEffects = append(t.trafficEffects, newTrafficRouted(f, *first, trafficSplit{}))
	}
	routed := newTrafficRouted(f, weights, desired)
	t.trafficEffects = append(t.trafficEffects, routed)
	if f.Route.HasStaleRouters { // only then, because the route replaces those of former configurations
		t.trafficEffects = append(t.trafficEffects, restored)
	}
	t.weights, t.plugins = &weights, planRouterPlugins(f, routed)
	return confirmWeights(f, t)
}

// reduceRecordedWeight reduces the recorded weight to the point at which the stable revision can carry the rest.
func reduceRecordedWeight(f facts, weights argov1.TrafficWeights, desired trafficSplit) argov1.TrafficWeights {
	weights.Canary.Weight = min(weights.Canary.Weight, max(desired.weight, f.maxWeight()-weightCarriedByStable(f)))
	if weights.Canary.Weight == 0 && f.new.Available > 0 { // requests that match a route of the steps are for this revision
		weights.Canary.PodTemplateHash = desired.canary
	}
	if f.findReplicaSet(weights.Stable.PodTemplateHash).Available == 0 { // it was stable before, and the stable revision carries the rest
		weights.Stable.PodTemplateHash = stableDestination(f)
	}
	weights.Stable.Weight = stableWeight(f, weights)
	return weights
}

// trafficSplit is the desired traffic split of one release.
type trafficSplit struct {
	weight int32
	// canary is the hash of the revision that receives the weight.
	canary string
	// managedRoutes is true if the managed routes of the steps apply, experiments if Experiments receive their weights.
	managedRoutes, experiments bool
	// onlyExistingRoutes is true if the revision must not receive additional traffic: no managed route is added.
	onlyExistingRoutes bool
	// weightRequirement is the condition under which the revision regains the weight that it lost with its pods; empty:
	// it lost none.
	weightRequirement string
}

// desiredSplit returns the split of the first case that applies.
func desiredSplit(f facts) trafficSplit {
	c, s, t := f.Spec.Strategy.Canary, f.Status, trafficSplit{canary: f.new.Hash}
	_, stepping := pods.StepAt(c.Steps, s.CurrentStepIndex)
	switch returns, previous := returnsToStable(f); {
	case returns:
		t.weight, t.canary = retainedWeight(f, f.findReplicaSet(previous)), previous
	case isPromoted(s):
	case s.Abort:
		t.weight = retainedWeight(f, f.new)
	case f.new.Available == 0:
		t.experiments = true
	case s.PromoteFull && c.DynamicStableScale:
		t.weight = release.CarriedWeight(f.maxWeight(), f.new.Available, f.replicas())
	case s.PromoteFull:
		t.weight = highestKnownWeight(f, nil, f.Hash)
	case lacksBackgroundAnalysis(f):
		return splitBeforeAnalysis(f, t)
	case countStepPods(f).missingPods() != "":
		return splitBeforePods(f, t, countStepPods(f).missingPods())
	case stepping:
		t.weight, t.managedRoutes, t.experiments = pods.WeightAt(c.Steps, *s.CurrentStepIndex), true, true
	default:
		t.weight, t.managedRoutes = f.maxWeight(), true
	}
	return t
}

// splitBeforePods returns the split while pods of the current step are missing. It is the weight of the previous step,
// or of this step if that is lower, because pods are removed only after their traffic. It is never more than the
// recorded weight, because pods must exist before their traffic.
func splitBeforePods(f facts, t trafficSplit, missing string) trafficSplit {
	steps, index := f.steps(), f.Status.CurrentStepIndex
	t.weight, t.managedRoutes, t.experiments = pods.WeightBefore(steps, valueOr(index, 0)), true, true
	if _, stepping := pods.StepAt(steps, index); stepping {
		t.weight = min(t.weight, pods.WeightAt(steps, *index))
	}
	if f.Status.Canary.Weights == nil && f.Route.HasCanaryWeight {
		return t // the revision has a weight that was not recorded
	}
	if recordedWeight := highestKnownWeight(f, nil, f.Hash); recordedWeight < t.weight {
		t.weightRequirement = fmt.Sprintf("weight %d waits for pods: %s", t.weight, missing)
		t.weight = recordedWeight
	}
	return t
}

// splitBeforeAnalysis returns the split while the background analysis cannot be created: that of the step, but no more than the
// recorded weight, and no further managed route.
func splitBeforeAnalysis(f facts, t trafficSplit) trafficSplit {
	t.weight, t.managedRoutes, t.onlyExistingRoutes = f.maxWeight(), true, true
	if _, stepping := pods.StepAt(f.steps(), f.Status.CurrentStepIndex); stepping {
		t.weight, t.experiments = pods.WeightAt(f.steps(), *f.Status.CurrentStepIndex), true
	}
	t.weight = min(t.weight, highestKnownWeight(f, nil, f.Hash))
	return t
}

// retainedWeight returns the weight of a revision whose traffic returns to the stable one as pods of the latter become
// available. A revision without a weight receives none.
func retainedWeight(f facts, from ReplicaSet) int32 {
	if from.Available == 0 || recordedCanaryWeight(f.Status) == 0 {
		return 0
	}
	return routedPodsInput(f, nil).RetainedWeight()
}

func recordedCanaryWeight(s argov1.RolloutStatus) int32 {
	if s.Canary.Weights == nil {
		return 0
	}
	return s.Canary.Weights.Canary.Weight
}

// returnsToStable reports whether the template returned to a stable revision that first has to regain its pods. Until
// then, the previous revision, whose hash is returned, retains its traffic.
func returnsToStable(f facts) (returns bool, previous string) {
	c, w := f.Spec.Strategy.Canary, f.Status.Canary.Weights
	if !f.usesRouter() || !c.DynamicStableScale || w == nil || !isPromoted(f.Status) {
		return false, ""
	}
	previous = w.Canary.PodTemplateHash
	return w.Canary.Weight > 0 && previous != "" && previous != f.new.Hash && f.new.Available < f.replicas(), previous
}

// weightCarriedByStable returns the weight that the available pods of the stable revision can carry.
func weightCarriedByStable(f facts) int32 {
	return release.CarriedWeight(f.maxWeight(), f.stable.Available, podsForAllTraffic(f))
}

// stableShortfall returns the reason why the stable revision cannot carry the rest of a weight; empty: it can, or no
// other revision could.
func stableShortfall(f facts, weight int32) string {
	maxWeight, recordedWeight := f.maxWeight(), recordedCanaryWeight(f.Status)
	if maxWeight <= 0 {
		return ""
	}
	needed := int32(int64(maxWeight-weight) * int64(podsForAllTraffic(f)) / int64(maxWeight)) //nolint:gosec // at most the replicas
	if weight < maxWeight && podsForAllTraffic(f) > 0 {
		needed = max(needed, 1) // even the smallest share requires a pod
	}
	threshold, stable := f.Spec.Strategy.Canary.ReplicaProgressThreshold, f.stable
	decreases := weight < recordedWeight
	switch {
	case stable.Available >= needed:
		return ""
	case threshold != nil && threshold.Value >= 0 && stable.Available > 0 && pods.IsReached(threshold, stable.podNumbers(), f.replicas()):
		return ""
	case decreases && stable.Available > 0 && f.findReplicaSet(f.Status.Canary.Weights.Canary.PodTemplateHash).Available == 0:
		// The revision that has the weight has no pod. If neither revision has a pod, the one that gets the first pod
		// retains or receives the traffic.
		return ""
	case weight > 0 && !decreases && stable.Available == 0 && f.new.Available > 0:
		return "" // the share of the stable revision fails in any case: a fix must be deployable
	case decreases && (f.Status.Canary.Weights.Canary.PodTemplateHash == stable.Hash || canaryServiceSelectsStable(f)):
		return "" // the stable revision receives the weight, too, through the canary Service
	default:
		return fmt.Sprintf("weight %d waits for pods: %d of %d stable pods available", weight, stable.Available, needed)
	}
}

// canaryServiceSelectsStable reports whether the requests of the canary weight reach the stable revision, whichever revision the
// recorded weight is for.
func canaryServiceSelectsStable(f facts) bool {
	canary, _ := currentRouteServices(f)
	return f.stable.exists() && f.selectedHash(canary) == f.stable.Hash
}

// weightsForSplit returns the weights of a split, with their Services and revisions.
func weightsForSplit(f facts, t trafficSplit) argov1.TrafficWeights {
	canary, stable := currentRouteServices(f)
	weights := argov1.TrafficWeights{
		Canary: argov1.WeightDestination{Weight: min(max(t.weight, 0), f.maxWeight()), ServiceName: canary, PodTemplateHash: canaryDestination(f, t)},
		Stable: argov1.WeightDestination{ServiceName: stable, PodTemplateHash: stableDestination(f)},
	}
	if experiment := findRecordedExperiment(f); t.experiments && experiment != nil && experiment.Phase == argov1.AnalysisPhaseRunning {
		for _, d := range experiment.Destinations {
			weights.Additional = append(weights.Additional, argov1.WeightDestination{Weight: d.Weight, ServiceName: d.Service, PodTemplateHash: d.Hash})
		}
	}
	weights.Stable.Weight = stableWeight(f, weights)
	return weights
}

// currentRouteServices returns the Services that a router currently uses for both sides.
func currentRouteServices(f facts) (canary, stable string) {
	c := f.Spec.Strategy.Canary
	return routeServices(*c, f.Status.Canary.StablePingPong, c.TrafficRouting.ALB != nil)
}

// canaryDestination returns the revision that receives the canary weight. A subset that selects the stable revision
// selects it until the other one has pods: a proxy may still have an earlier weight for it.
func canaryDestination(f facts, t trafficSplit) string {
	selected := f.findReplicaSet(f.Route.CanaryHash)
	if t.weight == 0 && f.findReplicaSet(t.canary).Available == 0 && selected.Available > 0 && selected.Hash == f.stable.Hash {
		return selected.Hash
	}
	return t.canary
}

// stableDestination returns the revision that receives the stable weight. While the stable revision has no pods, the
// previous destination retains its users if it has pods.
func stableDestination(f facts) string {
	previous := routedStableHash(f)
	if f.replicas() <= 0 || f.stable.Available > 0 || f.findReplicaSet(previous).Available == 0 {
		return f.stable.Hash
	}
	return previous
}

// routedStableHash returns the revision that receives the stable weight now: the recorded one, or the one that the route
// names if the status was lost, because the Rollout was deleted without its ReplicaSets and created again.
func routedStableHash(f facts) string {
	if recordedWeights := f.Status.Canary.Weights; recordedWeights != nil {
		return recordedWeights.Stable.PodTemplateHash
	}
	return f.Route.StableHash
}

// stableWeight returns the weight of the stable revision: all that no other destination has.
func stableWeight(f facts, weights argov1.TrafficWeights) int32 {
	remaining := f.maxWeight() - weights.Canary.Weight
	for _, d := range weights.Additional {
		remaining -= d.Weight
	}
	return max(remaining, 0)
}

// routeServices returns the Services of both sides as a router names them: those of pingPongServices for ALB, and for
// other routers if the strategy names no fixed ones. stableService is status.canary.stablePingPong.
func routeServices(c argov1.CanaryStrategy, stableService argov1.PingPongType, alb bool) (canary, stable string) {
	if c.PingPong != nil && (alb || c.CanaryService == "" && c.StableService == "") {
		return pingPongServices(*c.PingPong, stableService)
	}
	return c.CanaryService, c.StableService
}

// weightsBeforeSwitch returns weights that the router must have before the hashes are switched, because the recorded
// weight would otherwise lead to a revision without pods; nil: none.
func weightsBeforeSwitch(f facts, weights argov1.TrafficWeights) *argov1.TrafficWeights {
	recordedWeights := f.Status.Canary.Weights
	if recordedCanaryWeight(f.Status) == 0 && f.Route.HasCanaryWeight {
		// The revision that has the weight was not recorded: it is the stable one until the router is given other weights.
		recordedWeights = weights.DeepCopy()
		recordedWeights.Canary.PodTemplateHash = f.stable.Hash
	}
	if recordedWeights == nil || f.new.Available > 0 || recordedWeights.Canary.Weight <= weights.Canary.Weight && !f.Route.HasCanaryWeight ||
		recordedWeights.Canary.PodTemplateHash == weights.Canary.PodTemplateHash {
		return nil
	}
	first := recordedWeights.DeepCopy()
	first.Canary.Weight, first.Additional, first.Verified = weights.Canary.Weight, nil, nil
	first.Stable = weights.Stable // the previous stable revision may not exist anymore
	first.Stable.Weight = stableWeight(f, *first)
	return first
}

func newTrafficRouted(f facts, weights argov1.TrafficWeights, t trafficSplit) TrafficRouted {
	route := TrafficRouted{
		Weights: *weights.DeepCopy(), MaxWeight: f.maxWeight(), StablePingPong: f.Status.Canary.StablePingPong,
		Drained: weights.Canary.Weight == 0 && isCanaryDrained(f),
	}
	route.Weights.Verified = nil
	route.Headers, route.Mirrors = routesForSplit(f, t)
	return route
}

// routesForSplit returns the managed routes of a split.
func routesForSplit(f facts, t trafficSplit) (headers []argov1.SetHeaderRoute, mirrors []argov1.SetMirrorRoute) {
	if t.managedRoutes {
		headers, mirrors = managedRoutes(f.steps(), f.Status.CurrentStepIndex)
	}
	if t.onlyExistingRoutes {
		headers = slices.DeleteFunc(headers, func(h argov1.SetHeaderRoute) bool { return !slices.Contains(f.Route.ManagedRoutes, h.Name) })
		mirrors = slices.DeleteFunc(mirrors, func(m argov1.SetMirrorRoute) bool { return !slices.Contains(f.Route.ManagedRoutes, m.Name) })
	}
	return headers, mirrors
}

// isCanaryDrained reports whether the new revision had no traffic before, and only the stable revision has pods that
// could be busy.
func isCanaryDrained(f facts) bool {
	recordedWeights := f.Status.Canary.Weights
	return recordedWeights != nil && recordedWeights.Canary.Weight == 0 && !slices.ContainsFunc(f.ReplicaSets, func(rs ReplicaSet) bool {
		return rs.Hash != f.Status.StableRS && (rs.SpecReplicas > 0 || rs.Replicas > 0)
	})
}

// managedRoutes returns the routes that the steps up to an index have set and not removed.
func managedRoutes(steps []argov1.CanaryStep, index *int32) (headers []argov1.SetHeaderRoute, mirrors []argov1.SetMirrorRoute) {
	if index == nil {
		return nil, nil
	}
	for _, step := range steps[:min(max(int(*index)+1, 0), len(steps))] {
		var name string
		switch {
		case step.SetHeaderRoute != nil:
			name = step.SetHeaderRoute.Name
		case step.SetMirrorRoute != nil:
			name = step.SetMirrorRoute.Name
		default:
			continue
		}
		headers = slices.DeleteFunc(headers, func(h argov1.SetHeaderRoute) bool { return h.Name == name })
		mirrors = slices.DeleteFunc(mirrors, func(m argov1.SetMirrorRoute) bool { return m.Name == name })
		if h := step.SetHeaderRoute; h != nil && len(h.Match) > 0 {
			headers = append(headers, *h)
		}
		if m := step.SetMirrorRoute; m != nil && len(m.Match) > 0 {
			mirrors = append(mirrors, *m)
		}
	}
	return headers, mirrors
}

// confirmWeights adds the recorded weights, the gate of a router that has not applied them yet, and the event about new
// weights.
func confirmWeights(f facts, t trafficPlan) trafficPlan {
	previous, recordedWeights := f.Status.Canary.Weights, *t.weights
	recordedWeights.Verified = nil
	unchanged := previous != nil
	if unchanged {
		before := *previous
		before.Verified = nil
		unchanged = equality.Semantic.DeepEqual(before, recordedWeights)
	}
	recordedWeights.Verified = f.Route.Confirmed
	if !unchanged && f.Route.Confirmed != nil {
		recordedWeights.Verified = new(false)
	}
	t.recordedWeights = &recordedWeights
	if recordedWeights.Verified != nil && !*recordedWeights.Verified {
		reason := f.Route.UnconfirmedReason
		if !unchanged {
			reason = "" // the reason concerns the previous weights
		}
		gate := awaitRouter(f, release.NewWaitingGate(GateRouteConfirmed, release.ByCluster, textWeightNotApplied), reason)
		t.gates, t.routerGate = append(t.gates, gate), &gate
	} else if f.Route.Unreported != "" && f.hasDistinctStable() && !f.Status.Abort {
		gate := release.NewWaitingGate(GateRouteConfirmed, release.ByUser, f.Route.Unreported)
		t.gates, t.routerGate = append(t.gates, gate), &gate
	}
	recordedWeights.Verified = t.plugins.verified(recordedWeights.Verified, previous, unchanged)
	t = t.withRouterPlugins()
	if text := weightsUpdatedText(previous, *t.weights); text != "" {
		t.events = append(t.events, StatusEvent("TrafficWeightUpdated", text))
	}
	return t
}

// awaitRouter adds the reason that the router reports to a gate that waits for it, and the time at which the router is
// queried again.
func awaitRouter(f facts, gate release.Gate, reason string) release.Gate {
	if reason != "" {
		gate.Message += ": " + reason
	}
	gate.Until = f.Now.Add(routerRetryInterval)
	if end := f.confirmationDeadline().Add(time.Nanosecond); f.Route.ExternalLoadBalancer && isPromoted(f.Status) && f.Now.Before(end) && end.Before(gate.Until) {
		gate.Until = end
	}
	return gate
}

// recordWeights returns the status with the weights and the load balancers that were found. If no search took place,
// the recorded load balancers remain.
func (t trafficPlan) recordWeights(f facts, status argov1.RolloutStatus) argov1.RolloutStatus {
	if t.recordedWeights == nil {
		return status
	}
	status.Canary.Weights = t.recordedWeights
	if t.plugins.planned {
		status.Serin = withRouterPlugins(status.Serin, t.plugins.route)
	}
	switch found, routing := f.Route.LoadBalancers, f.Spec.Strategy.Canary.TrafficRouting; {
	case len(found) == 0 || routing.ALB == nil:
	case len(routing.ALB.Ingresses) > 0:
		status.ALBs = found
	default:
		status.ALB = &found[0]
	}
	return status
}

// isFinalWeightUnverified reports whether a router has not applied the full weight of the new revision yet.
func isFinalWeightUnverified(weights *argov1.TrafficWeights, maxWeight int32) bool {
	return weights != nil && weights.Canary.Weight >= maxWeight && weights.Verified != nil && !*weights.Verified
}

func weightsUpdatedText(previous *argov1.TrafficWeights, weights argov1.TrafficWeights) string {
	var parts []string
	switch {
	case previous == nil:
		parts = append(parts, fmt.Sprintf("to %d", weights.Canary.Weight))
	case previous.Canary.Weight != weights.Canary.Weight:
		parts = append(parts, fmt.Sprintf("from %d to %d", previous.Canary.Weight, weights.Canary.Weight))
	}
	if previous != nil && !equality.Semantic.DeepEqual(previous.Additional, weights.Additional) || previous == nil && len(weights.Additional) > 0 {
		parts = append(parts, fmt.Sprintf("additional: %v", weights.Additional))
	}
	if len(parts) == 0 {
		return ""
	}
	return "Traffic weight updated " + strings.Join(parts, ", ")
}
