package rollout

import (
	"k8s.io/apimachinery/pkg/api/equality"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/internal/rollout/pods"
)

// The traffic of an aborted or superseded revision returns to the stable revision.
//
// spec.replicas does not decide how much the stable revision can carry. An autoscaler may ask for four times the pods
// while the cluster has no capacity, and the users would remain on the broken version until it has. What decides is the
// number of pods that carried the traffic when the return began, as for the switch of a blue-green release (see
// activeService). It is recorded in the status, because the pods of the canary are removed on the way, and no longer
// show it.

// findReturningRevision is the revision that loses its traffic, or its pods where nothing else divides the traffic; false:
// none does.
func findReturningRevision(f facts) (ReplicaSet, bool) {
	if f.Spec.Strategy.Canary == nil || !f.stable.exists() {
		return ReplicaSet{}, false
	}
	if !f.usesRouter() {
		return f.new, f.Status.Abort && f.hasDistinctStable() && f.new.Spec > 0
	}
	if recordedCanaryWeight(f.Status) == 0 {
		return ReplicaSet{}, false
	}
	rs := f.findReplicaSet(f.Status.Canary.Weights.Canary.PodTemplateHash)
	return rs, rs.exists() && rs.Hash != f.stable.Hash && (f.Status.Abort || rs.Hash != f.Hash)
}

// podsForAllTraffic is the number of pods of the stable revision that carry all the traffic.
func podsForAllTraffic(f facts) int32 {
	rs, returns := findReturningRevision(f)
	if !returns {
		return f.replicas()
	}
	return release.PodsForAllTraffic(f.replicas(), podsBeforeReturn(f, rs))
}

// limitsDuringReturn are the limits of the return where no router divides the traffic. maxUnavailable counts from the pods
// that carried it. If the spec requires an available pod, the last one remains, because no other pod would serve
// requests.
func limitsDuringReturn(f facts) pods.RollingLimits {
	l, c := f.rollingLimits(), f.Spec.Strategy.Canary
	least := max(pods.NewRollingLimits(podsForAllTraffic(f), c.MaxSurge, c.MaxUnavailable).MinAvailable(), min(l.MinAvailable(), 1))
	l.MaxUnavailable = max(l.MaxUnavailable, l.Replicas-least)
	return l
}

// podsBeforeReturn is the number of pods that carried the traffic when the return began. A stable revision that retained
// its pods takes over from as many as the other one has. One that gave pods up shared the traffic with it.
func podsBeforeReturn(f facts, returning ReplicaSet) int32 {
	if own := f.Status.Serin; own != nil && own.CarriedBy != nil {
		return *own.CarriedBy
	}
	if !f.usesRouter() || f.Spec.Strategy.Canary.DynamicStableScale {
		return returning.Available + f.stable.Available
	}
	return returning.Available
}

// recordPodsBeforeReturn records what the return is measured by, until it ends.
func recordPodsBeforeReturn(f facts, status argov1.RolloutStatus) argov1.RolloutStatus {
	own := argov1.SerinStatus{}
	if status.Serin != nil {
		own = *status.Serin
	}
	own.CarriedBy, status.Serin = nil, nil
	if rs, returns := findReturningRevision(f); returns && (!f.usesRouter() || recordedCanaryWeight(status) > 0) {
		own.CarriedBy = new(podsBeforeReturn(f, rs))
	}
	if !equality.Semantic.DeepEqual(own, argov1.SerinStatus{}) {
		status.Serin = &own
	}
	return status
}

// mayServeAfterAbort reports whether the new revision may receive requests after this reconciliation, although it is aborted.
func mayServeAfterAbort(f facts, t traffic) bool {
	if b := f.Spec.Strategy.BlueGreen; b != nil {
		return f.selectedHash(b.ActiveService) == f.Hash && !stableCanServeUsers(f)
	}
	return f.usesRouter() && (trafficOutOfSync(f, t) || nextRevisionWeight(f, t) > 0)
}

// stableCanServeUsers reports whether the users of an aborted blue-green release can return to the stable revision: it
// has as many pods as those that serve them now.
func stableCanServeUsers(f facts) bool {
	return f.stable.Available >= min(f.replicas(), max(f.new.Available, 1))
}

// nextRevisionWeight is the weight of the new revision after this reconciliation.
func nextRevisionWeight(f facts, t traffic) int32 {
	if t.weights != nil {
		return revisionWeight(t.weights, f.Hash)
	}
	return revisionWeight(f.Status.Canary.Weights, f.Hash)
}

// podsRetainedAfterAbort is the number of pods that an aborted revision retains. While stable pods are missing, its own must not
// compete with them for the capacity of the cluster: it retains those that are available, and where the user asked for
// no delay, only those that its remaining weight needs.
func podsRetainedAfterAbort(f facts, t traffic) int32 {
	rs := f.new
	if !f.Status.Abort || f.stable.Available >= f.replicas() {
		return rs.Spec
	}
	count := min(rs.Spec, rs.Available)
	if mayServeAfterAbort(f, t) {
		count = max(count, min(rs.Spec, 1))
	}
	c, own := f.Spec.Strategy.Canary, f.Status.Serin
	if c == nil {
		return count // the weights in the status, if any, are from before the strategy was changed
	}
	if weight := recordedWeight(f, t.weights, rs.Hash); weight > 0 && c.AbortScaleDownDelaySeconds == nil && own != nil && own.CarriedBy != nil {
		// Before the number is recorded, the pods show it.
		count = min(count, routedPods(f, t.weights).ApplyMinPods(pods.CountForWeight(weight, podsForAllTraffic(f), f.maxWeight())))
	}
	return count
}
