package rollout

import (
	"fmt"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/internal/rollout/pods"
)

// advanceCanaryStrategy advances a canary release: abort, pauses, promotion, or the next step.
func advanceCanaryStrategy(f facts, in stepInputs, status argov1.RolloutStatus) transition {
	step, r, a := newStepState(f, in), in.route, in.runs
	status.Canary.StepPluginStatuses = in.plugins.statuses
	switch {
	case status.PromoteFull:
		status = withAllSteps(f, withoutPauses(status))
		status.Abort = false
	case f.inRollbackWindow:
		status = withAllSteps(f, withoutPauses(status))
	}
	t := abortFailedCanary(f, step, a, transition{status: status, events: in.plugins.events})
	advancing := !t.status.Abort && !isPromoted(t.status) && f.hasDistinctStable()
	if advancing && !t.status.PromoteFull && !f.inRollbackWindow {
		t.status = withStepPauses(f, step, a, recordAnalyses(t.status, a))
	}
	switch reason := canaryPromotionReason(f, r, t.status); {
	case reason != "":
		return promoteNewRevision(f, t, reason)
	case t.status.Abort:
		t.status = withStepIndex(f, t.status, 0)
	case isPromoted(t.status):
		t.status = withAllSteps(f, t.status)
	default:
		return completeStep(f, step, t)
	}
	return t
}

// abortFailedCanary aborts a release whose step or background analysis failed.
func abortFailedCanary(f facts, step stepState, a analyses, t transition) transition {
	s := t.status
	if s.StableRS == "" || isPromoted(s) || s.PromoteFull || f.inRollbackWindow {
		return t
	}
	cause, failed := "", false
	if _, stepping := pods.StepAt(f.steps(), s.CurrentStepIndex); stepping {
		cause, failed = stepAbortCause(step)
	}
	if !failed {
		cause, failed = a.background.failureCause("Background analysis phase error/failed")
	}
	if failed && !s.Abort {
		t.status.Abort, t.abortCause = true, cause
	}
	return t
}

// canaryPromotionReason returns the reason why the new revision becomes the stable one now; empty: it is not promoted.
func canaryPromotionReason(f facts, r trafficPlan, s argov1.RolloutStatus) string {
	steps := len(f.steps())
	switch {
	case !f.new.exists():
		return ""
	case s.StableRS == "", !f.stable.exists() && !isPromoted(s):
		return "Initial deploy"
	case s.Abort || isPromoted(s) || !canServeAllTraffic(f):
		return ""
	case s.PromoteFull: // a fix must be deployable even if a router confirms no weight
		return "Full promotion requested"
	case f.inRollbackWindow:
		return "Rollback within window"
	case awaitsUserDecision(s), f.UnreadableTemplate != "", isFinalWeightUnverified(s.Canary.Weights, f.maxWeight()), r.canaryEndpointsGate != nil:
		return ""
	case steps == 0 || int(valueOr(s.CurrentStepIndex, 0)) >= steps:
		return fmt.Sprintf("Completed all %d canary steps", steps)
	default:
		return ""
	}
}

// canServeAllTraffic reports whether the new revision of a canary has enough pods for all the traffic.
func canServeAllTraffic(f facts) bool {
	threshold := f.Spec.Strategy.Canary.ReplicaProgressThreshold
	return f.new.Available >= f.replicas() ||
		threshold != nil && threshold.Value >= 0 && pods.IsReached(threshold, f.new.podNumbers(), f.replicas())
}

// recordAnalyses returns the status with the analyses and the experiment of the release.
func recordAnalyses(s argov1.RolloutStatus, a analyses) argov1.RolloutStatus {
	s.Canary.CurrentStepAnalysisRunStatus = a.step.toStatus()
	s.Canary.CurrentBackgroundAnalysisRunStatus = a.background.toStatus()
	s.Canary.CurrentExperiment = ""
	if a.experiment != nil {
		s.Canary.CurrentExperiment = a.experiment.Name
	}
	return s
}

func (r *runResult) isPlanned() bool { return r != nil && r.Planned }

func (r *runResult) toStatus() *argov1.RolloutAnalysisRunStatus {
	if r == nil {
		return nil
	}
	return &argov1.RolloutAnalysisRunStatus{Name: r.Name, Status: r.Phase, Message: r.Message}
}

func (r *runResult) isInconclusive() bool {
	return r != nil && r.Phase == argov1.AnalysisPhaseInconclusive
}

// withStepPauses returns the status with the pauses that start now.
func withStepPauses(f facts, state stepState, a analyses, s argov1.RolloutStatus) argov1.RolloutStatus {
	if isPromoted(s) || f.Spec.Paused {
		return s
	}
	step, _ := pods.StepAt(f.steps(), s.CurrentStepIndex)
	// A pause that ends while the user decides about an inconclusive analysis is not started again. A pause starts only
	// when the background analysis exists, so that its whole duration is analyzed.
	if step.Pause != nil && !awaitsUserDecision(s) && !a.background.isPlanned() && f.UnreadableTemplate == "" {
		s = withPause(f, s, argov1.PauseReasonCanaryPauseStep)
	}
	if step.Analysis != nil && state.Run.isInconclusive() || a.background.isInconclusive() {
		s = withPause(f, s, argov1.PauseReasonInconclusiveAnalysis)
	}
	if step.Experiment != nil && state.Experiment.isInconclusive() {
		s = withPause(f, s, argov1.PauseReasonInconclusiveExperiment)
	}
	return s
}

// completeStep continues with the next step when all gates of the current step pass. While spec.paused is true, or a
// template cannot be read, no step is completed.
func completeStep(f facts, state stepState, t transition) transition {
	s := t.status
	step, ok := pods.StepAt(f.steps(), s.CurrentStepIndex)
	evaluated := ok && f.Status.CurrentStepIndex != nil && *f.Status.CurrentStepIndex == *s.CurrentStepIndex
	if !evaluated || f.Spec.Paused || f.UnreadableTemplate != "" || isPromoted(s) || evaluateStepGates(state).Verdict() != release.Pass {
		return t
	}
	if awaitsUserDecision(s) {
		t.status = withoutPause(s, argov1.PauseReasonCanaryPauseStep) // from now on, only the decision of the user is missing
		return t
	}
	next := *s.CurrentStepIndex + 1
	s = withStepIndex(f, s, int(next))
	s.Canary.CurrentStepAnalysisRunStatus, s.Canary.CurrentExperiment = nil, ""
	t.status = withoutPause(s, argov1.PauseReasonCanaryPauseStep)
	return t.withStatusEvent(reasonStepCompleted, stepCompletedText(next, int32(len(f.steps())), step)) //nolint:gosec // a list in one object
}
