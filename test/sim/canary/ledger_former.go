package canary

import (
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/test/sim/oracle"
)

// formerRoute is the route of a provider that the spec named before, which clients may still follow.
type formerRoute struct {
	weights

	since time.Time // when the spec named another provider
	// byOthers is set once another actor changed the weights.
	byOthers bool
}

// recordProvider records that the spec names another kind of route than before.
func (c *recorder) recordProvider(r *record, before schema.GroupKind) {
	now := r.routeKind()
	if before == now {
		return
	}
	if before.Kind != "" {
		if r.former == nil {
			r.former = map[schema.GroupKind]formerRoute{}
		}
		r.former[before] = formerRoute{r.route.weights, c.Now(), r.run == nil || r.route.changedByOthers.After(r.run.began)}
	}
	delete(r.former, now)
	r.route.weights = weights{}
}

// recordFormerRoute records the weights of the route of a former provider.
func (c *recorder) recordFormerRoute(h oracle.Write) {
	for _, r := range c.All {
		former, isFormer := r.former[h.Kind]
		if !isFormer || r.Gone() || h.Key != namespacedName(r, r.apexName()) {
			continue
		}
		before := former.weights
		former.weights = r.weightsIn(h.Event)
		former.byOthers = former.byOthers || !h.BySerin && former.weights != before
		r.former[h.Kind] = former
	}
}

// recordTarget records which target a release is about. A release ends with the target with which it started.
func (c *recorder) recordTarget(r *record, before *flaggerv1.Canary) {
	was, named := r.targetRef, r.canary.Spec.TargetRef
	if before == nil || !retainsTarget(r.canary) {
		r.targetRef = named
	}
	if recorded := recordedTarget(r.status); recorded != "" && isDeleting(r) {
		// A deletion restores the target that was initialised last. It is of the kind of the workload, whatever the spec names.
		r.targetRef.Kind, r.targetRef.Name = r.kind.Kind, recorded
	}
	if !sameTarget(r.targetRef, named) || before != nil && !sameTarget(named, before.Spec.TargetRef) {
		r.lastReplaced = c.Now()
	}
	if before == nil || r.targetRef.Name == was.Name {
		return
	}
	r.target, r.primary, r.stableContent, r.failedContent, r.promotionFailed = workloadState{}, workloadState{}, "", "", false
	c.indexObjects()
	c.recordExisting(r)
}

// retainsTarget reports whether a release, or the traffic of a failed promotion, has not ended.
func retainsTarget(c *flaggerv1.Canary) bool {
	serin, phase := c.Status.Serin, c.Status.Phase
	if serin == nil || serin.Shape == "" || c.DeletionTimestamp != nil {
		return false
	}
	pending := serin.Intent != "" || serin.Promoted == "none"
	return isActive(phase) && phase != flaggerv1.CanaryPhaseWaiting || (isEnded(phase) || phase == flaggerv1.CanaryPhaseWaiting) && pending
}

// isReplaced reports whether a process may know that the spec names another target than that of the release.
func (l *ledger) isReplaced(r *record) bool {
	return !sameTarget(r.targetRef, r.canary.Spec.TargetRef) || r.lastReplaced.After(l.OldestView())
}

// formerTraffic returns the weight that the route of a former provider has for the canary, if no other actor changed it and the
// spec named that provider until a time.
func (r *record) formerTraffic(until time.Time) int {
	most := 0
	for _, former := range r.former {
		if !former.byOthers && former.since.Before(until) {
			most = max(most, former.canary)
		}
	}
	return most
}
