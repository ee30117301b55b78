package canary

import (
	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/release"
)

// noRevision is the recorded revision of a primary whose promotion failed: no revision equals it, so any change is a release.
const noRevision = "none"

// This file contains the facts about the primary.

// primaryUnpromoted reports whether the primary runs a revision that was never promoted, because a promotion failed: the target
// serves until the next revision repairs the primary.
func (s *Snapshot) primaryUnpromoted() bool {
	return s.serin().Promoted == noRevision
}

// primaryCanServe reports whether the primary can serve the traffic. After a failed promotion one pod is not enough: the primary
// must be ready, or have at least as many available pods as the canary, which has the traffic.
func (s *Snapshot) primaryCanServe() bool {
	primary := s.Workload.Primary
	return primary.canServe() && (primary.Ready || !s.primaryUnpromoted() || primary.Available >= s.Workload.Target.Available)
}

// primaryReachable reports whether the primary can serve and requests would reach it.
func (s *Snapshot) primaryReachable() bool {
	return s.primaryCanServe() && s.Workload.Primary.Endpoints.AtLeast(1)
}

// primaryLost reports whether waiting for the primary protects no users, so that a fix must be able to ship.
func primaryLost(s Snapshot) bool {
	primary := s.Workload.Primary
	return primary.Found && !primary.Ready && (primary.DeadlineExceeded || primary.Replicas > 0 && primary.Available == 0 || s.primaryUnpromoted())
}

// primaryHasNewTemplate reports whether the primary has the template of this run: the promotion was decided and has begun.
func (s *Snapshot) primaryHasNewTemplate() bool {
	return s.Workload.Primary.Found && s.Workload.Primary.ID == s.promotionCopyID()
}

// primaryHasRolledBackTemplate reports whether the primary has, or had, the template that is being rolled back.
func (s *Snapshot) primaryHasRolledBackTemplate() bool {
	return s.Status.Phase == flaggerv1.CanaryPhasePromoting || s.primaryHasNewTemplate() || s.Workload.Primary.ID == s.restoreID()
}

// scaleUpPrimary scales up a primary without pods to which the traffic of the canary is about to return: something else scaled it
// to zero, for example an autoscaler while the canary had all traffic, and only Serin would scale it up again.
func scaleUpPrimary(s Snapshot) []release.Effect {
	if primary := s.Workload.Primary; primary.Found && primary.Replicas == 0 && s.canaryHasTraffic() && s.Workload.Target.canServe() {
		return []release.Effect{PrimaryScaledUpFromZero{}}
	}
	return nil
}

// primaryMessage explains why the primary is not ready.
func primaryMessage(s Snapshot) string {
	primary, name := s.Workload.Primary, s.Plan.primaryName()
	if !s.Plan.hasReplicaCount() {
		name = "primary daemonset " + name
	}
	if !primary.Found {
		return name + " not ready: it does not exist"
	}
	message := primary.Message
	if message == "" {
		message = "it has no pods"
	}
	if primary.PodProblem != "" {
		message += " (" + primary.PodProblem + ")"
	}
	return name + " not ready: " + message
}
