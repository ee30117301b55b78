package rollout

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/release"
)

// decideBlueGreenStrategy decides about a Rollout with the blue-green strategy: the preview, pods, analyses, the switch of the
// active Service, and then the status.
func decideBlueGreenStrategy(f facts, unreadable outcome) Decision {
	active := f.selectedHash(f.Spec.Strategy.BlueGreen.ActiveService)
	preview := selectPreview(f)
	upkeep := joinOutcomes(unreadable, planUpkeep(f), restoreServices(f), restoreRouters(f), preview.outcome)
	status := countPods(f)
	switch {
	case f.templateOrStepsChanged():
		return fillInDecision(f, startRelease(f, recordSelectors(f, status, preview.hash, active)), stepInputs{}, upkeep, abandonPrevious(f))
	case f.replicasChanged():
		return fillInDecision(f, scaleOnly(recordSelectors(f, status, preview.hash, active)), stepInputs{}, upkeep, scaleForBlueGreenStrategy(f))
	}
	restart := planRestart(f)
	status.RestartedAt = restart.restartedAt
	deletion, deleted := deleteOldReplicaSets(f)
	runs := planAnalyses(f, deleted)
	activation := planSwitch(f, runs)
	status = recordSelectors(f, pauseBeforeSwitch(f, runs, status), preview.hash, activation.hash)
	decided := joinOutcomes(scaleForBlueGreenStrategy(f), awaitTargets(f), deletion, runs.outcome, activation.outcome, setEphemeralMetadata(f))
	return fillInDecision(f, advanceBlueGreenStrategy(f, runs, status), stepInputs{runs: runs}, upkeep, restart.after(decided), decided)
}

// restoreRouters restores the objects of routers: a blue-green strategy names none.
func restoreRouters(f facts) outcome {
	if !f.Route.HasStaleRouters {
		return outcome{}
	}
	return outcome{trafficEffects: []release.Effect{RouteRestored{RemoveCreated: isPromoted(f.Status)}}}
}

// serviceSelection contains the hash that a Service selects after this reconciliation.
type serviceSelection struct {
	outcome
	hash string
}

// selectPreview makes the preview Service select the new revision.
func selectPreview(f facts) serviceSelection {
	service := f.Spec.Strategy.BlueGreen.PreviewService
	switch {
	case service == "":
		return serviceSelection{}
	case f.freezeReason() != "":
		return serviceSelection{hash: f.selectedHash(service)}
	default:
		return serviceSelection{planServiceSelection(f, service, f.new, false), f.Hash}
	}
}

// hasAllPods reports whether a ReplicaSet has all desired pods of the Rollout.
func hasAllPods(f facts, rs ReplicaSet) bool {
	return rs.exists() && rs.SpecReplicas == f.replicas() && rs.Available == f.replicas() && valueOr(rs.RolloutReplicas, -1) == f.replicas()
}

// shouldSkipPauses reports whether the release switches without a pause.
func shouldSkipPauses(f facts) bool {
	active := f.selectedHash(f.Spec.Strategy.BlueGreen.ActiveService)
	return isFastRollback(f) || isPromoted(f.Status) || f.Status.PromoteFull || f.inRollbackWindow || active == "" || active == f.Hash
}

// previewReady reports whether the new revision has the pods that the switch requires.
func previewReady(f facts) bool {
	count := f.Spec.Strategy.BlueGreen.PreviewReplicaCount
	return hasAllPods(f, f.new) && f.new.SpecReplicas >= desiredPreviewPods(f) || count != nil && f.new.SpecReplicas == *count && f.new.Available == *count
}

// awaitTargets returns the gate that waits until load balancers have registered the pods of the active Service.
func awaitTargets(f facts) outcome {
	if !f.routerUnconfirmed() {
		return outcome{}
	}
	gate := release.NewWaitingGate(GateTargets, release.ByCluster, "load balancers have not registered the pods of the active Service yet")
	return gateOutcome(awaitRouter(f, gate, f.Route.UnconfirmedReason))
}

// findSwitchPause returns the pause before the switch in a status; nil: none.
func findSwitchPause(status argov1.RolloutStatus) *argov1.PauseCondition {
	for i := range status.PauseConditions {
		if status.PauseConditions[i].Reason == argov1.PauseReasonBlueGreenPause {
			return &status.PauseConditions[i]
		}
	}
	return nil
}

// pausesBeforeSwitch reports whether the strategy has a pause before the switch, with or without a duration.
func pausesBeforeSwitch(b argov1.BlueGreenStrategy) bool {
	return !valueOr(b.AutoPromotionEnabled, true) || b.AutoPromotionSeconds > 0
}

// switchPauseEnded is the gate of the pause before the switch.
func switchPauseEnded(f facts) release.Gate {
	b, s := f.Spec.Strategy.BlueGreen, f.Status
	pause := findSwitchPause(s)
	switch {
	case shouldSkipPauses(f):
		return release.NewPassingGate("pause", "no pause applies to this release")
	case s.BlueGreen.ScaleUpPreviewCheckPoint:
		return release.NewPassingGate("pause", "elapsed")
	case !pausesBeforeSwitch(*b):
		return release.NewPassingGate("pause", "no pause is specified")
	case pause == nil && s.ControllerPause && len(s.PauseConditions) == 0:
		return release.NewPassingGate("pause", "ended by the user")
	case pause == nil:
		return release.NewWaitingGate("pause", release.ByCluster, "starts when the new pods are available and the pre-promotion analysis is successful")
	case !valueOr(b.AutoPromotionEnabled, true):
		return release.NewWaitingGate("pause", release.ByUser, "until the user promotes the rollout")
	}
	end := pausedSince(s, *pause).Add(time.Duration(b.AutoPromotionSeconds) * time.Second)
	if f.Now.After(end) {
		return release.NewPassingGate("pause", "elapsed")
	}
	return release.NewTimedGate("pause", release.LaterOf(end, f.Now).Add(time.Nanosecond), "until "+end.UTC().Format(time.TimeOnly))
}

// prePromotionSuccessful is the gate of the analysis before the switch.
func prePromotionSuccessful(f facts, a analyses) release.Gate {
	if pre := f.Spec.Strategy.BlueGreen.PrePromotionAnalysis; pre == nil || shouldSkipPauses(f) {
		return release.NewPassingGate("pre-promotion", "no analysis is specified")
	}
	return a.pre.evaluateGate(release.NewPassingGate("pre-promotion", ""))
}

// switchAllowed reports whether the gates before the switch pass.
func switchAllowed(f facts, a analyses) bool {
	return f.UnreadableTemplate == "" && prePromotionSuccessful(f, a).Verdict == release.Pass && switchPauseEnded(f).Verdict == release.Pass
}

// planSwitch switches the active Service when its gates pass.
func planSwitch(f facts, a analyses) serviceSelection {
	service := f.Spec.Strategy.BlueGreen.ActiveService
	active := f.selectedHash(service)
	unchanged := serviceSelection{hash: active}
	switch {
	case f.freezeReason() != "":
		return unchanged
	case active == "" && f.hasDistinctStable() && (hasAllPods(f, f.stable) || f.Status.BlueGreen.ActiveSelector != "" && f.stable.Available > 0):
		// A Service that was recreated selects the same revision again. One that was not managed before may select other pods, which
		// serve users: it waits for as many of this revision as there should be.
		return serviceSelection{planServiceSelection(f, service, f.stable, false), f.stable.Hash}
	case f.Status.Abort && f.stable.exists():
		if active == f.stable.Hash || !stableCanServeUsers(f) {
			return unchanged
		}
		return serviceSelection{planServiceSelection(f, service, f.stable, false), f.stable.Hash}
	case !hasAllPods(f, f.new):
		if active != f.Hash && f.new.Available < desiredPreviewPods(f) {
			unchanged.outcome = gateOutcome(release.NewWaitingGate("pods", release.ByCluster, fmt.Sprintf("%d of %d new pods available", f.new.Available, desiredPreviewPods(f))))
		}
		return unchanged
	case shouldSkipPauses(f) || previewEndpointsPublished(f).Verdict == release.Pass && switchAllowed(f, a):
		return serviceSelection{planServiceSelection(f, service, f.new, false), f.Hash}
	default:
		return unchanged
	}
}

// recordSelectors returns the status with the hashes that the Services select, and the numbers of pods that serve
// users.
func recordSelectors(f facts, status argov1.RolloutStatus, preview, active string) argov1.RolloutStatus {
	status.BlueGreen.PreviewSelector, status.BlueGreen.ActiveSelector = preview, active
	rs := f.findReplicaSet(active)
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

// pauseBeforeSwitch starts and ends the pause before the switch.
func pauseBeforeSwitch(f facts, a analyses, status argov1.RolloutStatus) argov1.RolloutStatus {
	if f.Status.Abort || f.freezeReason() != "" || !previewReachable(f) {
		return status
	}
	if switchPauseEnded(f).Verdict == release.Pass {
		return withoutPause(status, argov1.PauseReasonBlueGreenPause)
	}
	if prePromotionSuccessful(f, a).Verdict == release.Pass && pausesBeforeSwitch(*f.Spec.Strategy.BlueGreen) {
		return withPause(f, status, argov1.PauseReasonBlueGreenPause)
	}
	return status
}

// advanceBlueGreenStrategy advances a blue-green release: abort, promotion, pauses, and the number of preview pods.
func advanceBlueGreenStrategy(f facts, a analyses, status argov1.RolloutStatus) transition {
	switch {
	case status.PromoteFull, isFastRollback(f):
		status = withoutPauses(status)
		status.Abort = false
	case f.inRollbackWindow:
		status = withoutPauses(status)
	}
	status.BlueGreen.PrePromotionAnalysisRunStatus = a.pre.toStatus()
	status.BlueGreen.PostPromotionAnalysisRunStatus = a.post.toStatus()
	t := abortFailedBlueGreen(f, a, transition{status: status})
	if reason := blueGreenPromotionReason(f, a, t.status); reason != "" {
		t = promoteNewRevision(f, t, reason)
		t.status.BlueGreen.ScaleUpPreviewCheckPoint = false
		return t
	}
	if t.status.Abort || isPromoted(t.status) {
		return t
	}
	for _, result := range []*runResult{a.pre, a.post} {
		if result != nil && result.Phase == argov1.AnalysisPhaseInconclusive && !shouldSkipAnalyses(f) {
			t.status = withPause(f, t.status, argov1.PauseReasonInconclusiveAnalysis)
		}
	}
	t.status.BlueGreen.ScaleUpPreviewCheckPoint = previewMayScaleUp(f, a)
	return t
}

// abortFailedBlueGreen aborts a release whose analysis failed.
func abortFailedBlueGreen(f facts, a analyses, t transition) transition {
	if t.status.Abort || shouldSkipAnalyses(f) {
		return t
	}
	for _, analysis := range []struct {
		result *runResult
		text   string
	}{
		{a.pre, "Blue/green pre-promotion analysis phase error/failed"},
		{a.post, "Blue/green post-promotion analysis phase error/failed"},
	} {
		if cause, failed := analysis.result.failureCause(analysis.text); failed && !t.status.Abort {
			t.status.Abort, t.abortCause = true, cause
		}
	}
	return t
}

// previewMayScaleUp reports whether the new revision may grow from previewReplicaCount to all its pods.
func previewMayScaleUp(f facts, a analyses) bool {
	count := f.Spec.Strategy.BlueGreen.PreviewReplicaCount
	switch {
	case count == nil || !f.hasDistinctStable():
		return false
	case f.Status.BlueGreen.ScaleUpPreviewCheckPoint:
		return true
	default:
		return switchAllowed(f, a) && f.new.Available == *count
	}
}

// blueGreenPromotionReason returns the reason why the new revision becomes the stable one now; empty: it is not
// promoted.
func blueGreenPromotionReason(f facts, a analyses, s argov1.RolloutStatus) string {
	post := f.Spec.Strategy.BlueGreen.PostPromotionAnalysis
	switch {
	case isPromoted(s):
		return ""
	case !f.stable.exists(), s.BlueGreen.ActiveSelector == "" && !f.hasDistinctStable():
		return "Initial deploy"
	case s.BlueGreen.ActiveSelector != s.CurrentPodHash:
		return ""
	case s.PromoteFull:
		return "Full promotion requested"
	case f.inRollbackWindow:
		return "Rollback within window"
	case isFastRollback(f):
		return "Fast rollback"
	case s.Abort, targetsUnconfirmed(f), post != nil && (a.post == nil || a.post.Phase != argov1.AnalysisPhaseSuccessful):
		return ""
	default:
		return "Completed blue-green update"
	}
}

// targetsUnconfirmed reports whether load balancers may not send requests to the pods of the active Service yet. They
// confirm this only after the Service has switched.
func targetsUnconfirmed(f facts) bool {
	return f.routerUnconfirmed() || f.Route.ExternalLoadBalancer && f.selectedHash(f.Spec.Strategy.BlueGreen.ActiveService) != f.Hash
}
