package rollout

import (
	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/release"
)

// Without permission to read a template, no AnalysisRun can be created. Until the permission exists, no release starts, and
// one in progress does not advance: its traffic would increase without the analysis. Its pods are still scaled, and it can be
// aborted, rolled back, retried and promoted without analyses. After a retry, its weight waits for the background analysis; without
// a router, its pods do.

// templateGates returns the gate about an unreadable template.
func templateGates(f facts) release.Gates {
	if f.UnreadableTemplate == "" {
		return nil
	}
	gate := release.NewFailedGate("refused", release.ByUser, f.UnreadableTemplate)
	gate.Events = []release.Event{{
		Type: release.Warning, Reason: reasonReconciliation, Message: "Reconciliation failed with error: " + f.UnreadableTemplate, Persistent: true,
	}}
	return release.Gates{gate}
}

// mustAwaitTemplates reports whether the release must not start yet, because a template of its analyses cannot be read. The first
// revision, a return to an earlier one, and a fix for a stable revision that is down need no analyses.
func mustAwaitTemplates(f facts) bool {
	needsNone := !f.hasDistinctStable() || f.inRollbackWindow || isFastRollback(f) || isStableDown(f)
	return f.UnreadableTemplate != "" && f.templateOrStepsChanged() && !needsNone
}

// awaitTemplates decides about a Rollout whose release must not start yet: the decision for the previous revision. A full promotion
// is discarded, as by the start of the release, because the user meant the new revision.
func awaitTemplates(f facts) Decision {
	before := beforeRelease(f)
	before.Status.PromoteFull = false
	d := Next(before)
	status := *d.Status.DeepCopy()
	status.Phase, status.Message = argov1.RolloutPhaseDegraded, f.UnreadableTemplate
	status.Serin = withQueue(status.Serin, queuePlace(yieldInQueue(f.storedStatus)))
	d.Status, d.Wake = status, d.Gates.Wake()
	if !equalExceptExplanations(f.storedStatus, status) {
		d.Wake = f.Now
	}
	return d
}

// lacksBackgroundAnalysis reports whether the background analysis that the release needs now does not exist, and cannot be created.
func lacksBackgroundAnalysis(f facts) bool {
	if f.UnreadableTemplate == "" || shouldSkipAnalyses(f) {
		return false
	}
	background, _ := planBackgroundAnalysis(f)
	return background != nil && findAnalysisRun(f, background.Name) == nil
}
