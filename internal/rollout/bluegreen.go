package rollout

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/release"
)

// decideBlueGreen decides about a Rollout with the blue-green strategy: the preview, pods, analyses, the switch of the
// active Service, and then the status.
func decideBlueGreen(f facts, unreadable outcome) Decision {
	active := f.selected(f.Spec.Strategy.BlueGreen.ActiveService)
	preview := selectPreview(f)
	upkeep := join(unreadable, maintain(f), releaseServices(f), releaseRouters(f), preview.outcome)
	status := countedStatus(f)
	switch {
	case f.changed():
		return conclude(f, startRelease(f, recordSelectors(f, status, preview.hash, active)), traffic{}, analyses{}, upkeep)
	case f.rescaled():
		return conclude(f, transition{status: recordSelectors(f, status, preview.hash, active)}, traffic{}, analyses{}, upkeep, scaleBlueGreen(f))
	}
	restart := planRestart(f)
	status.RestartedAt = restart.at
	if restart.evicts {
		return conclude(f, transition{status: recordSelectors(f, status, preview.hash, active)}, traffic{}, analyses{}, upkeep, restart.outcome)
	}
	deletion, deleted := deleteOldReplicaSets(f)
	runs := planAnalyses(f, deleted)
	activation := planSwitch(f, runs)
	status = recordSelectors(f, pauseBeforeSwitch(f, runs, status), preview.hash, activation.hash)
	return conclude(f, advanceBlueGreen(f, runs, status), traffic{}, runs,
		upkeep, restart.outcome, scaleBlueGreen(f), awaitTargets(f), deletion, runs.outcome, activation.outcome, labelRoles(f))
}

// releaseRouters restores the objects of routers: a blue-green strategy names none.
func releaseRouters(f facts) outcome {
	if !f.Router.HasStaleRouters {
		return outcome{}
	}
	return outcome{route: []release.Effect{RouteReleased{Whole: promoted(f.Status)}}}
}

// selection is the hash that a Service selects after this reconciliation.
type selection struct {
	outcome
	hash string
}

// selectPreview makes the preview Service select the new revision.
func selectPreview(f facts) selection {
	service := f.Spec.Strategy.BlueGreen.PreviewService
	switch {
	case service == "":
		return selection{}
	case f.frozen() != "":
		return selection{hash: f.selected(service)}
	default:
		return selection{selectPods(f, service, f.new, false), f.Hash}
	}
}

// complete reports whether a ReplicaSet has all the pods that the Rollout asks for.
func complete(f facts, rs ReplicaSet) bool {
	return rs.exists() && rs.Spec == f.replicas() && rs.Available == f.replicas() && value(rs.Desired, -1) == f.replicas()
}

// skipsPauses reports whether a release does not pause before the switch.
func skipsPauses(f facts) bool {
	active := f.selected(f.Spec.Strategy.BlueGreen.ActiveService)
	return fastRollback(f) || promoted(f.Status) || f.Status.PromoteFull || f.inWindow || active == "" || active == f.Hash
}

// previewReady reports whether the new revision has the pods that it needs before the switch.
func previewReady(f facts) bool {
	count := f.Spec.Strategy.BlueGreen.PreviewReplicaCount
	return complete(f, f.new) && f.new.Spec >= previewCount(f) || count != nil && f.new.Spec == *count && f.new.Available == *count
}

// awaitTargets is the gate of load balancers that do not reach the pods of the active Service yet.
func awaitTargets(f facts) outcome {
	if !f.routerLags() {
		return outcome{}
	}
	gate := release.WaitsFor("targets", release.ByCluster, "load balancers do not reach the pods of the active Service yet")
	return gated(awaitRouter(f, gate, f.Router.Reason))
}

// switchPauseIn returns the pause before the switch that a status has; nil: none.
func switchPauseIn(status argov1.RolloutStatus) *argov1.PauseCondition {
	for i := range status.PauseConditions {
		if status.PauseConditions[i].Reason == argov1.PauseReasonBlueGreenPause {
			return &status.PauseConditions[i]
		}
	}
	return nil
}

// pausesBeforeSwitch reports whether the strategy asks for a pause, with a duration or without.
func pausesBeforeSwitch(b argov1.BlueGreenStrategy) bool {
	return !value(b.AutoPromotionEnabled, true) || b.AutoPromotionSeconds > 0
}

// switchPauseOver is the gate of the pause before the switch.
func switchPauseOver(f facts) release.Gate {
	b, s := f.Spec.Strategy.BlueGreen, f.Status
	pause := switchPauseIn(s)
	switch {
	case skipsPauses(f):
		return release.Passes("pause", "nothing holds this release")
	case s.BlueGreen.ScaleUpPreviewCheckPoint:
		return release.Passes("pause", "is over")
	case !pausesBeforeSwitch(*b):
		return release.Passes("pause", "no pause is specified")
	case pause == nil && s.ControllerPause && len(s.PauseConditions) == 0:
		return release.Passes("pause", "ended by the user")
	case pause == nil:
		return release.WaitsFor("pause", release.ByCluster, "begins when the new pods are available and judged")
	case !value(b.AutoPromotionEnabled, true):
		return release.WaitsFor("pause", release.ByPerson, "until the user promotes the rollout")
	}
	end := pausedSince(s, *pause).Add(time.Duration(b.AutoPromotionSeconds) * time.Second)
	if f.Now.After(end) {
		return release.Passes("pause", "is over")
	}
	return release.WaitsUntil("pause", release.Later(end, f.Now).Add(time.Nanosecond), "until "+end.UTC().Format(time.TimeOnly))
}

// prePromotionSuccessful is the gate of the analysis before the switch.
func prePromotionSuccessful(f facts, a analyses) release.Gate {
	if pre := f.Spec.Strategy.BlueGreen.PrePromotionAnalysis; pre == nil || skipsPauses(f) {
		return release.Passes("pre-promotion", "no analysis is specified")
	}
	return a.pre.opens(release.Passes("pre-promotion", ""))
}

// switchAllowed reports whether the gates before the switch pass.
func switchAllowed(f facts, a analyses) bool {
	return prePromotionSuccessful(f, a).Verdict == release.Pass && switchPauseOver(f).Verdict == release.Pass
}

// planSwitch switches the active Service when that is due.
func planSwitch(f facts, a analyses) selection {
	service := f.Spec.Strategy.BlueGreen.ActiveService
	active := f.selected(service)
	remain := selection{hash: active}
	switch {
	case f.frozen() != "":
		return remain
	case active == "" && f.distinct() && f.stable.Available > 0: // the Service was recreated: users remain where they were
		return selection{selectPods(f, service, f.stable, false), f.stable.Hash}
	case f.Status.Abort && f.stable.exists():
		if active == f.stable.Hash || !stableCanTakeOver(f) {
			return remain
		}
		return selection{selectPods(f, service, f.stable, false), f.stable.Hash}
	case !complete(f, f.new):
		if active != f.Hash && f.new.Available < previewCount(f) {
			remain.outcome = gated(release.WaitsFor("pods", release.ByCluster, fmt.Sprintf("%d of %d new pods available", f.new.Available, previewCount(f))))
		}
		return remain
	case skipsPauses(f) || previewEndpoints(f).Verdict == release.Pass && switchAllowed(f, a):
		return selection{selectPods(f, service, f.new, false), f.Hash}
	default:
		return remain
	}
}

// recordSelectors returns the status with what the Services select, and the numbers of the pods that serve users.
func recordSelectors(f facts, status argov1.RolloutStatus, preview, active string) argov1.RolloutStatus {
	status.BlueGreen.PreviewSelector, status.BlueGreen.ActiveSelector = preview, active
	rs := f.replicaSet(active)
	if !rs.exists() {
		return status
	}
	status.HPAReplicas, status.ReadyReplicas, status.AvailableReplicas = rs.Replicas, rs.Ready, rs.Available
	if selector := f.Spec.Selector.DeepCopy(); selector != nil {
		metav1.AddLabelToSelector(selector, argov1.PodTemplateHashLabel, active)
		status.Selector = metav1.FormatLabelSelector(selector)
	}
	return status
}

// pauseBeforeSwitch begins and ends the pause before the switch.
func pauseBeforeSwitch(f facts, a analyses, status argov1.RolloutStatus) argov1.RolloutStatus {
	if f.Status.Abort || f.frozen() != "" || !previewReachable(f) {
		return status
	}
	if switchPauseOver(f).Verdict == release.Pass {
		return withoutPause(status, argov1.PauseReasonBlueGreenPause)
	}
	if prePromotionSuccessful(f, a).Verdict == release.Pass && pausesBeforeSwitch(*f.Spec.Strategy.BlueGreen) {
		return withPause(f, status, argov1.PauseReasonBlueGreenPause)
	}
	return status
}

// advanceBlueGreen advances a blue-green release: abort, promotion, pauses, and the number of preview pods.
func advanceBlueGreen(f facts, a analyses, status argov1.RolloutStatus) transition {
	switch {
	case status.PromoteFull, fastRollback(f):
		status = withoutPauses(status)
		status.Abort = false
	case f.inWindow:
		status = withoutPauses(status)
	}
	status.BlueGreen.PrePromotionAnalysisRunStatus = a.pre.recorded()
	status.BlueGreen.PostPromotionAnalysisRunStatus = a.post.recorded()
	t := abortFailedBlueGreen(f, a, transition{status: status})
	if reason := blueGreenPromotion(f, a, t.status); reason != "" {
		t = promote(f, t, reason)
		t.status.BlueGreen.ScaleUpPreviewCheckPoint = false
		return t
	}
	if t.status.Abort || promoted(t.status) {
		return t
	}
	for _, j := range []*Judgement{a.pre, a.post} {
		if j != nil && j.Phase == argov1.AnalysisPhaseInconclusive && !skipsAnalyses(f) {
			t.status = withPause(f, t.status, argov1.PauseReasonInconclusiveAnalysis)
		}
	}
	t.status.BlueGreen.ScaleUpPreviewCheckPoint = previewMayGrow(f, a)
	return t
}

// abortFailedBlueGreen aborts a release whose analysis failed.
func abortFailedBlueGreen(f facts, a analyses, t transition) transition {
	if t.status.Abort || skipsAnalyses(f) {
		return t
	}
	for _, analysis := range []struct {
		result *Judgement
		text   string
	}{
		{a.pre, "Blue/green pre-promotion analysis phase error/failed"},
		{a.post, "Blue/green post-promotion analysis phase error/failed"},
	} {
		if cause, failed := analysis.result.failure(analysis.text); failed && !t.status.Abort {
			t.status.Abort, t.abortCause = true, cause
		}
	}
	return t
}

// previewMayGrow reports whether the new revision may grow from previewReplicaCount to all its pods.
func previewMayGrow(f facts, a analyses) bool {
	count := f.Spec.Strategy.BlueGreen.PreviewReplicaCount
	switch {
	case count == nil || !f.distinct():
		return false
	case f.Status.BlueGreen.ScaleUpPreviewCheckPoint:
		return true
	default:
		return switchAllowed(f, a) && f.new.Available == *count
	}
}

// blueGreenPromotion returns why the new revision becomes the stable one now; empty: it does not.
func blueGreenPromotion(f facts, a analyses, s argov1.RolloutStatus) string {
	post := f.Spec.Strategy.BlueGreen.PostPromotionAnalysis
	switch {
	case promoted(s):
		return ""
	case !f.stable.exists(), s.BlueGreen.ActiveSelector == "" && !f.distinct():
		return "Initial deploy"
	case s.BlueGreen.ActiveSelector != s.CurrentPodHash:
		return ""
	case s.PromoteFull:
		return "Full promotion requested"
	case f.inWindow:
		return "Rollback within window"
	case fastRollback(f):
		return "Fast rollback"
	case s.Abort, targetsUnconfirmed(f), post != nil && (a.post == nil || a.post.Phase != argov1.AnalysisPhaseSuccessful):
		return ""
	default:
		return "Completed blue-green update"
	}
}

// targetsUnconfirmed reports whether the pods of the active Service may not receive its requests yet. Load balancers
// confirm them only after the Service has switched.
func targetsUnconfirmed(f facts) bool {
	return f.routerLags() || f.Router.Outside && f.selected(f.Spec.Strategy.BlueGreen.ActiveService) != f.Hash
}
