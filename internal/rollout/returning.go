package rollout

import (
	"k8s.io/apimachinery/pkg/api/equality"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/internal/rollout/pods"
)

// The traffic of an aborted or superseded revision returns to the stable revision.
//
// spec.replicas is not a measure of the traffic that the stable revision can carry. An autoscaler may request four
// times the pods while the cluster has no capacity, and the users would remain on the broken version until it has. The
// measure is the number of pods that carried the traffic when the return began, as for the switch of a blue-green
// release (see stableCanServeUsers). It is recorded in the status, because the pods of the canary are removed during
// the return.

// findReturningRevision returns the revision that loses its traffic, or its pods if no router divides the traffic;
// false: there is none.
func findReturningRevision(f facts) (ReplicaSet, bool) {
	if f.Spec.Strategy.Canary == nil || !f.stable.exists() {
		return ReplicaSet{}, false
	}
	if !f.usesRouter() {
		return f.new, f.Status.Abort && f.hasDistinctStable() && f.new.SpecReplicas > 0
	}
	if recordedCanaryWeight(f.Status) == 0 {
		return ReplicaSet{}, false
	}
	rs := f.findReplicaSet(f.Status.Canary.Weights.Canary.PodTemplateHash)
	return rs, rs.exists() && rs.Hash != f.stable.Hash && (f.Status.Abort || rs.Hash != f.Hash)
}

// podsForAllTraffic returns the number of pods of the stable revision that carry all traffic.
func podsForAllTraffic(f facts) int32 {
	rs, returns := findReturningRevision(f)
	if !returns {
		return f.replicas()
	}
	return release.PodsForAllTraffic(f.replicas(), podsBeforeReturn(f, rs))
}

// limitsDuringReturn returns the limits of the return if no router divides the traffic. maxUnavailable is relative to
// the number of pods that carried the traffic. If the spec requires an available pod, the last one remains, because no
// other pod would serve requests.
func limitsDuringReturn(f facts) pods.RollingLimits {
	limits, c := f.rollingLimits(), f.Spec.Strategy.Canary
	minAvailable := max(pods.NewRollingLimits(podsForAllTraffic(f), c.MaxSurge, c.MaxUnavailable).MinAvailable(), min(limits.MinAvailable(), 1))
	limits.MaxUnavailable = max(limits.MaxUnavailable, limits.Replicas-minAvailable)
	return limits
}

// podsBeforeReturn returns the number of pods that carried the traffic when the return began. A stable revision that
// kept its pods takes over from the pods of the other revision. One that was scaled down shared the traffic with it.
func podsBeforeReturn(f facts, returning ReplicaSet) int32 {
	if serin := f.Status.Serin; serin != nil && serin.CarriedBy != nil {
		return *serin.CarriedBy
	}
	if !f.usesRouter() || f.Spec.Strategy.Canary.DynamicStableScale {
		return returning.Available + f.stable.Available
	}
	return returning.Available
}

// recordPodsBeforeReturn records the number of pods that carried the traffic, until the return ends.
func recordPodsBeforeReturn(f facts, status argov1.RolloutStatus) argov1.RolloutStatus {
	serin := argov1.SerinStatus{}
	if status.Serin != nil {
		serin = *status.Serin
	}
	serin.CarriedBy, status.Serin = nil, nil
	if rs, returns := findReturningRevision(f); returns && (!f.usesRouter() || recordedCanaryWeight(status) > 0) {
		serin.CarriedBy = new(podsBeforeReturn(f, rs))
	}
	if !equality.Semantic.DeepEqual(serin, argov1.SerinStatus{}) {
		status.Serin = &serin
	}
	return status
}

// mayServeAfterAbort reports whether the new revision may receive requests after this reconciliation although it is
// aborted.
func mayServeAfterAbort(f facts, t trafficPlan) bool {
	if b := f.Spec.Strategy.BlueGreen; b != nil {
		return f.selectedHash(b.ActiveService) == f.Hash && !stableCanServeUsers(f)
	}
	return f.usesRouter() && (trafficOutOfSync(f, t) || nextRevisionWeight(f, t) > 0)
}

// stableCanServeUsers reports whether the users of an aborted blue-green release can return to the stable revision: it
// has at least as many pods as those that serve them now.
func stableCanServeUsers(f facts) bool {
	return f.stable.Available >= min(f.replicas(), max(f.new.Available, 1))
}

// nextRevisionWeight returns the weight of the new revision after this reconciliation.
func nextRevisionWeight(f facts, t trafficPlan) int32 {
	if t.weights != nil {
		return revisionWeight(t.weights, f.Hash)
	}
	return revisionWeight(f.Status.Canary.Weights, f.Hash)
}

// podsRetainedAfterAbort returns the number of pods that an aborted revision retains. While stable pods are missing,
// its pods must not compete with them for capacity: it retains only available pods and, without a configured delay,
// only those that its remaining weight requires.
func podsRetainedAfterAbort(f facts, t trafficPlan) int32 {
	rs := f.new
	if !f.Status.Abort || f.stable.Available >= f.replicas() {
		return rs.SpecReplicas
	}
	count := min(rs.SpecReplicas, rs.Available)
	if mayServeAfterAbort(f, t) {
		count = max(count, min(rs.SpecReplicas, 1))
	}
	c, serin := f.Spec.Strategy.Canary, f.Status.Serin
	if c == nil {
		return count // weights in the status are from before a change of strategy
	}
	if weight := highestKnownWeight(f, t.weights, rs.Hash); weight > 0 && c.AbortScaleDownDelaySeconds == nil && serin != nil && serin.CarriedBy != nil {
		// Until the number is recorded, the existing pods show it.
		count = min(count, routedPodsInput(f, t.weights).ApplyMinPods(pods.CountForWeight(weight, podsForAllTraffic(f), f.maxWeight())))
	}
	return count
}
