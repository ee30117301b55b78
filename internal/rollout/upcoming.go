package rollout

import (
	"time"

	"github.com/serin-dev/serin/internal/rollout/pods"
)

// upcomingAction is a future action of a release.
type upcomingAction struct {
	// text describes the action, for a step as in events.
	text string
	// weight is the share of requests that the new revision receives afterwards, in percent.
	weight int32
	// duration is the minimum duration of the action.
	duration time.Duration
}

// remainingSteps returns the actions that follow if nothing fails and nothing delays the release; none while it is
// idle. The current action is not included.
func remainingSteps(s Snapshot) []upcomingAction {
	f := observeFacts(s)
	switch {
	case s.ValidationError != "", isPromoted(f.Status) && f.Status.CurrentPodHash == s.Hash:
		return nil
	case f.Status.Abort && f.Status.CurrentPodHash == s.Hash:
		return stepsOfAbort(f)
	case s.Spec.Strategy.BlueGreen != nil:
		return stepsOfSwitch(f)
	default:
		return stepsOfCanary(f)
	}
}

const (
	textPromotion = "promotion: the new revision becomes stable"
	textReturn    = "rollback: all traffic returns to the stable revision"
)

// stepsOfAbort returns the remaining actions of an abort.
func stepsOfAbort(f facts) []upcomingAction {
	weights := f.Status.Canary.Weights
	returned := weights == nil || weights.Canary.Weight == 0
	if returned && f.stable.Available >= f.replicas() && (f.usesRouter() || f.Spec.Strategy.BlueGreen != nil || f.new.SpecReplicas == 0) {
		return nil
	}
	return []upcomingAction{{text: textReturn}}
}

// stepsOfCanary returns the steps after the current one, and the promotion.
func stepsOfCanary(f facts) []upcomingAction {
	var out []upcomingAction
	steps, maxWeight := f.steps(), pods.MaxWeight(f.Spec.Strategy.Canary)
	for i := nextStepIndex(f); i < len(steps); i++ {
		step := upcomingAction{text: DescribeStep(steps[i]), weight: pods.WeightAt(steps, int32(i)) * pods.DefaultMaxWeight / max(maxWeight, 1)} //nolint:gosec // a list in one object
		if pause := steps[i].Pause; pause != nil && !isIndefinite(*pause) {
			if length, err := parsePauseSeconds(*pause.Duration); err == nil {
				step.duration = time.Duration(length) * time.Second
			}
		}
		out = append(out, step)
	}
	return append(out, upcomingAction{text: textPromotion, weight: pods.DefaultMaxWeight})
}

// nextStepIndex returns the index of the step after the current one. Before a release has started, all steps remain;
// after a full promotion, none.
func nextStepIndex(f facts) int {
	switch {
	case f.Status.CurrentPodHash != f.Hash:
		return 0
	case f.Status.PromoteFull, f.inRollbackWindow, f.Status.CurrentStepIndex == nil:
		return len(f.steps())
	default:
		return int(*f.Status.CurrentStepIndex) + 1
	}
}

// stepsOfSwitch returns the remaining actions of a blue-green release.
func stepsOfSwitch(f facts) []upcomingAction {
	var out []upcomingAction
	b := f.Spec.Strategy.BlueGreen
	if f.selectedHash(b.ActiveService) != f.Hash {
		out = append(out, upcomingAction{text: "Service " + b.ActiveService + " switches to the new revision", weight: pods.DefaultMaxWeight})
	}
	recordedRun := f.Status.BlueGreen.PostPromotionAnalysisRunStatus
	if b.PostPromotionAnalysis != nil && (recordedRun == nil || f.Status.CurrentPodHash != f.Hash) {
		out = append(out, upcomingAction{text: "post-promotion analysis", weight: pods.DefaultMaxWeight})
	}
	return append(out, upcomingAction{text: textPromotion, weight: pods.DefaultMaxWeight})
}
