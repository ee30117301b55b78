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

// returningRevision is the revision that loses its traffic, or its pods where nothing else divides the traffic; false:
// none does.
func returningRevision(f facts) (ReplicaSet, bool) {
	if f.Spec.Strategy.Canary == nil || !f.stable.exists() {
		return ReplicaSet{}, false
	}
	if !f.usesRouter() {
		return f.new, f.Status.Abort && f.distinct() && f.new.Spec > 0
	}
	if recordedCanaryWeight(f.Status) == 0 {
		return ReplicaSet{}, false
	}
	rs := f.replicaSet(f.Status.Canary.Weights.Canary.PodTemplateHash)
	return rs, rs.exists() && rs.Hash != f.stable.Hash && (f.Status.Abort || rs.Hash != f.Hash)
}

// fullStrength is the number of pods of the stable revision that carry all the traffic.
func fullStrength(f facts) int32 {
	rs, returns := returningRevision(f)
	if !returns {
		return f.replicas()
	}
	return release.Carriers(f.replicas(), carrierCount(f, rs))
}

// returnLimits are the limits of the return where no router divides the traffic. maxUnavailable counts from the pods
// that carried it. If the spec requires an available pod, the last one remains, because no other pod would serve
// requests.
func returnLimits(f facts) pods.Limits {
	l, c := f.limits(), f.Spec.Strategy.Canary
	least := max(pods.NewLimits(fullStrength(f), c.MaxSurge, c.MaxUnavailable).MinAvailable(), min(l.MinAvailable(), 1))
	l.Unavailable = max(l.Unavailable, l.Replicas-least)
	return l
}

// carrierCount is the number of pods that carried the traffic when the return began. A stable revision that retained
// its pods takes over from as many as the other one has. One that gave pods up shared the traffic with it.
func carrierCount(f facts, returning ReplicaSet) int32 {
	if own := f.Status.Serin; own != nil && own.CarriedBy != nil {
		return *own.CarriedBy
	}
	if !f.usesRouter() || f.Spec.Strategy.Canary.DynamicStableScale {
		return returning.Available + f.stable.Available
	}
	return returning.Available
}

// recordCarriers records what the return is measured by, until it ends.
func recordCarriers(f facts, status argov1.RolloutStatus) argov1.RolloutStatus {
	own := argov1.SerinStatus{}
	if status.Serin != nil {
		own = *status.Serin
	}
	own.CarriedBy, status.Serin = nil, nil
	if rs, returns := returningRevision(f); returns && (!f.usesRouter() || recordedCanaryWeight(status) > 0) {
		own.CarriedBy = new(carrierCount(f, rs))
	}
	if !equality.Semantic.DeepEqual(own, argov1.SerinStatus{}) {
		status.Serin = &own
	}
	return status
}

// stillServing reports whether the new revision may receive requests after this reconciliation, although it is aborted.
func stillServing(f facts, t traffic) bool {
	if b := f.Spec.Strategy.BlueGreen; b != nil {
		return f.selected(b.ActiveService) == f.Hash && !stableCanTakeOver(f)
	}
	return f.usesRouter() && (trafficElsewhere(f, t) || weightAfter(f, t) > 0)
}

// stableCanTakeOver reports whether the users of an aborted blue-green release can return to the stable revision: it
// has as many pods as those that serve them now.
func stableCanTakeOver(f facts) bool {
	return f.stable.Available >= min(f.replicas(), max(f.new.Available, 1))
}

// weightAfter is the weight of the new revision after this reconciliation.
func weightAfter(f facts, t traffic) int32 {
	if t.weights != nil {
		return weightOf(t.weights, f.Hash)
	}
	return weightOf(f.Status.Canary.Weights, f.Hash)
}

// retainedPods is the number of pods that an aborted revision retains. While stable pods are missing, its own must not
// compete with them for the capacity of the cluster: it retains those that are available, and where the user asked for
// no delay, only those that its remaining weight needs.
func retainedPods(f facts, t traffic) int32 {
	rs := f.new
	if !f.Status.Abort || f.stable.Available >= f.replicas() {
		return rs.Spec
	}
	count := min(rs.Spec, rs.Available)
	if stillServing(f, t) {
		count = max(count, min(rs.Spec, 1))
	}
	c, own := f.Spec.Strategy.Canary, f.Status.Serin
	if c == nil {
		return count // the weights in the status, if any, are from before the strategy was changed
	}
	if weight := recordedWeight(f, t.weights, rs.Hash); weight > 0 && c.AbortScaleDownDelaySeconds == nil && own != nil && own.CarriedBy != nil {
		// Before the number is recorded, the pods show it.
		count = min(count, routedPods(f, t.weights).AtLeastMinPods(pods.ForWeight(weight, fullStrength(f), f.maxWeight())))
	}
	return count
}
