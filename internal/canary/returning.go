package canary

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/release"
)

// A rollback to a primary that misses pods: the primary gets at once the share that it can carry, and more with each pod; the
// canary retains the rest. All traffic on the few pods that are left would break what still works, and no traffic at all on
// them would leave every user with the version that failed. The arithmetic is that of Rollouts, see release.CarriedWeight.

// sharesRollback reports whether the traffic of a rollback, or of a cancelled release, can return in parts. A/B tests and blue/green
// switch as a whole, and so does a primary whose earlier template is restored, because some of its pods still run the one that is
// rolled back. Only the revision that was analyzed retains traffic: a target that has another one gets none.
func (s *Snapshot) sharesRollback() bool {
	weighted := s.Plan.Strategy == Weighted && !s.Plan.SkipAnalysis && s.routeReadable() && s.routingProvider() == ""
	return weighted && !s.drainStarted() && !s.primaryHasRolledBackTemplate() && !s.Workload.Primary.Ready && s.canaryReachable() &&
		s.Workload.Target.Revision == s.pinnedRevision()
}

// servingPrimaryPods is the number of pods of the primary that requests reach.
func (s *Snapshot) servingPrimaryPods() int32 {
	primary := s.Workload.Primary
	if primary.Endpoints.Unknown != "" {
		return primary.Available
	}
	return min(primary.Available, primary.Endpoints.Ready)
}

// primaryPodsNeeded is the number of pods of the primary that carry all the traffic. It is recorded with the first step of the
// rollback: what autoscalers ask for afterwards does not change it.
func (s *Snapshot) primaryPodsNeeded() int32 {
	carriedBy := s.Workload.Target.Available
	if recorded := s.serin().CarriedBy; recorded != nil {
		carriedBy = *recorded
	}
	return release.PodsForAllTraffic(s.Workload.Primary.Replicas, carriedBy)
}

// retainedWeight is the weight that the canary keeps in a rollback because the primary cannot carry it yet. It never rises: a primary
// that loses a pod again keeps the share that it got.
func (s *Snapshot) retainedWeight() int {
	if !s.sharesRollback() {
		return 0
	}
	weight := release.Total - int(release.CarriedWeight(release.Total, s.servingPrimaryPods(), s.primaryPodsNeeded()))
	if recorded := s.Status.CanaryWeight; recorded > 0 && s.servingPrimaryPods() > 0 {
		weight = min(weight, recorded) // a user may have raised it since; a primary without a pod gets nothing back
	}
	return min(weight, s.liveWeight())
}

// retainedMessage says what the rest of the traffic waits for.
func (s *Snapshot) retainedMessage() string {
	return fmt.Sprintf("%s has %d of the %d reachable pods that are required for all traffic: the canary keeps %d%% of the traffic until more pods are ready",
		s.Plan.primaryName(), s.servingPrimaryPods(), s.primaryPodsNeeded(), s.retainedWeight())
}

// rollBackInPart gives the primary what it can carry, and leaves the canary the rest with all its pods.
func rollBackInPart(s Snapshot, gates release.Gates, effects []release.Effect) Decision {
	weight := s.retainedWeight()
	if s.serin().CarriedBy != nil && weight == s.liveWeight() && weight == s.Status.CanaryWeight {
		return keepStatus(s, gates, effects...)
	}
	e := s.edit().addEffects(effects...).recordThreshold()
	if weight < s.liveWeight() {
		e.addEffects(TrafficWeight{Canary: weight}).addEvents(release.Event{
			Type: release.Warning, Message: fmt.Sprintf("Routing %d%% of the traffic of %s to primary: %s", release.Total-weight, s.Plan.qualifiedName(), s.retainedMessage()),
		})
	}
	e.status.CanaryWeight = weight
	e.expireCookie() // else those who have it would stay with the canary, whatever its weight is
	e.serin.CarriedBy = new(s.primaryPodsNeeded())
	e.setCondition(flaggerv1.CanaryCondition{
		Type: flaggerv1.ConditionPromoted, Status: corev1.ConditionUnknown, Reason: string(s.Status.Phase),
		Message: fmt.Sprintf("Returning traffic to primary, primary not ready: %s keeps %d%% of the traffic.", s.Plan.Kind, weight),
	})
	return e.decision(gates)
}

// recordThreshold records, where failed checks began the rollback, that it is decided, whatever becomes of the threshold meanwhile.
func (e *statusEdit) recordThreshold() *statusEdit {
	if told := e.snapshot.thresholdEvent(); len(told) > 0 {
		e.addEvents(told...).recordIntent(intentRollback, reasonChecks)
	}
	return e
}
