package canary

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/release"
)

// In a rollback to a primary with missing pods, traffic returns in parts: the primary immediately receives the share that it
// can carry, and more with each pod, and the canary retains the rest. All traffic would overload the remaining pods of the
// primary, and no traffic would leave all users on the revision that failed. The arithmetic is that of Rollouts, see
// release.CarriedWeight.

// returnsTrafficInParts reports whether the traffic of a rollback, or of a cancelled release, returns in parts. A/B tests and
// blue/green return it all at once. So does a primary whose earlier template is restored, because some of its pods still run the
// template that is rolled back, and a route whose weight applies to other requests than the plan intends. Only the revision that
// was analyzed retains traffic: a target that has another one gets none.
func returnsTrafficInParts(s Snapshot) bool {
	weighted := s.Plan.Strategy == Weighted && !s.Plan.SkipAnalysis && s.isRouteObserved() && s.routingProvider() == "" && !s.routeHasOtherMatches()
	return weighted && !s.drainStarted() && !s.primaryHasRolledBackTemplate() && !primaryCarriesAll(s) && s.Workload.Target.isReachable() &&
		s.Workload.Target.Revision == s.pinnedRevision()
}

// primaryCarriesAll reports whether the primary is ready, and its Service publishes the pods that carry all the traffic. The status of a
// Deployment may be older than its endpoints.
func primaryCarriesAll(s Snapshot) bool {
	return s.Workload.Primary.Ready && s.Workload.Primary.servingPods() >= primaryPodsNeeded(s)
}

// primaryPodsNeeded is the number of pods of the primary that carry all the traffic. It is recorded with the first step of the
// rollback, so that autoscalers do not change it afterwards.
func primaryPodsNeeded(s Snapshot) int32 {
	carriedBy := s.Workload.Target.Available
	if recorded := s.serin().CarriedBy; recorded != nil {
		carriedBy = *recorded
	}
	return release.PodsForAllTraffic(s.Workload.Primary.Replicas, carriedBy)
}

// retainedWeight is the weight that the canary keeps in a rollback because the primary cannot carry it yet. It never increases: a
// primary that loses a pod keeps its share.
func retainedWeight(s Snapshot) int {
	if !returnsTrafficInParts(s) {
		return 0
	}
	weight := release.Total - int(release.CarriedWeight(release.Total, s.Workload.Primary.servingPods(), primaryPodsNeeded(s)))
	if recorded := s.Status.CanaryWeight; recorded > 0 && s.Workload.Primary.servingPods() > 0 {
		weight = min(weight, recorded) // a user may have raised it since
	}
	return min(weight, s.currentWeight())
}

// retainedWeightMessage explains why the canary retains a part of the traffic.
func retainedWeightMessage(s Snapshot) string {
	return fmt.Sprintf("%s has %d of the %d reachable pods that are required for all traffic: the canary keeps %d%% of the traffic until more pods are ready",
		s.Plan.primaryName(), s.Workload.Primary.servingPods(), primaryPodsNeeded(s), retainedWeight(s))
}

// rollBackInPart routes to the primary what it can carry, and the rest to the canary, which keeps all its pods.
func rollBackInPart(s Snapshot, gates release.Gates, effects []release.Effect) Decision {
	weight := retainedWeight(s)
	if s.serin().CarriedBy != nil && weight == s.currentWeight() && weight == s.Status.CanaryWeight {
		return keepStatus(s, gates, effects...)
	}
	e := s.edit().addEffects(effects...)
	recordThreshold(e)
	if weight < s.currentWeight() {
		e.addEffects(TrafficWeight{Canary: weight}).addEvents(release.Event{
			Type: release.Warning, Message: fmt.Sprintf("Routing %d%% of the traffic of %s to primary: %s", release.Total-weight, s.Plan.qualifiedName(), retainedWeightMessage(s)),
		})
	}
	e.status.CanaryWeight = weight
	e.expireCookie() // otherwise clients with the cookie would remain on the canary, whatever its weight is
	e.serin.CarriedBy = new(primaryPodsNeeded(s))
	e.setCondition(flaggerv1.CanaryCondition{
		Type: flaggerv1.ConditionPromoted, Status: corev1.ConditionUnknown, Reason: string(s.Status.Phase),
		Message: fmt.Sprintf("Returning traffic to primary, primary not ready: %s keeps %d%% of the traffic.", s.Plan.Kind, weight),
	})
	return e.decision(gates)
}

// recordThreshold records that failed checks started the rollback, so that a later change of the threshold does not stop it.
func recordThreshold(e *statusEdit) {
	if events := thresholdEvents(e.snapshot); len(events) > 0 {
		e.addEvents(events...).recordIntent(intentRollback, reasonChecks)
	}
}
