package canary

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
)

// This file contains what docs/gates.md documents about releases that are blocked until a user corrects something.

// isBlocked reports whether a user has to repair the release.
func (r *record) isBlocked() bool { return blockedReason(r.canary) != "" }

// isStopped reports whether a release is blocked, and nothing happens until a user repairs it.
func (r *record) isStopped() bool {
	return r.isBlocked() && (r.target.version == nil || r.primary.version == nil || r.primary.content == r.target.content || !r.continuesBlocked())
}

// blockedReason returns the reason of the condition Blocked, or "" if a Canary is not blocked.
func blockedReason(c *flaggerv1.Canary) string {
	i := slices.IndexFunc(c.Status.Conditions, func(condition flaggerv1.CanaryCondition) bool {
		return condition.Type == flaggerv1.ConditionBlocked && condition.Status == corev1.ConditionTrue
	})
	if i < 0 {
		return ""
	}
	return c.Status.Conditions[i].Reason
}

// continuesBlocked reports whether a blocked release whose workloads exist must still be observed or rolled back. A rollback that
// has begun continues. During the analysis, a canary with traffic is rolled back if it is not ready, or if its checks fail, unless
// the plan is invalid. The traffic of a revision that is not that of the release returns.
func (r *record) continuesBlocked() bool {
	c := r.canary
	reason, own := blockedReason(c), c.Status.Serin != nil && c.Status.Serin.Revision != ""
	if !own || c.DeletionTimestamp != nil || !slices.Contains([]string{"Plan", "Target", "Autoscaler"}, reason) {
		return false
	}
	intent := c.Status.Serin.Intent
	switch {
	case isAnalysing(c.Status.Phase) && intent == "":
		return min(c.Status.CanaryWeight, r.route.canary) > 0 && (!r.target.ready.True || reason != "Plan" && !c.Spec.SkipAnalysis)
	case isAnalysing(c.Status.Phase):
		return intent == "rollback" || intent == "cancel"
	default:
		return c.Status.Phase == flaggerv1.CanaryPhasePromoting && intent == "rollback"
	}
}
