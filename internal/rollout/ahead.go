package rollout

import (
	"time"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/rollout/pods"
)

// Move is something that a release does after everything before it is complete.
type Move struct {
	// Text describes it, as events do where it is a step.
	Text string
	// Weight is the share of the new revision afterwards, in percent.
	Weight int32
	// Lasts is its minimum duration.
	Lasts time.Duration
}

// Ahead returns the remaining moves of a release, if nothing fails and nothing has to be waited for; none at rest. What the
// release does now is not among them.
func Ahead(s Snapshot) []Move {
	f := observe(s)
	switch {
	case s.Problem != "", promoted(f.Status) && f.Status.CurrentPodHash == s.Hash:
		return nil
	case f.Status.Abort && f.Status.CurrentPodHash == s.Hash:
		return returnAhead(f)
	case s.Spec.Strategy.BlueGreen != nil:
		return switchAhead(f)
	default:
		return stepsAhead(f)
	}
}

const (
	textPromotion = "the new revision becomes the stable one"
	textWayBack   = "the stable revision serves alone again"
)

// returnAhead is what remains of an abort.
func returnAhead(f facts) []Move {
	weights := f.Status.Canary.Weights
	back := weights == nil || weights.Canary.Weight == 0
	if back && f.stable.Available >= f.replicas() && (f.usesRouter() || f.Spec.Strategy.BlueGreen != nil || f.new.Spec == 0) {
		return nil
	}
	return []Move{{Text: textWayBack}}
}

// stepsAhead are the steps after the current one, and the promotion.
func stepsAhead(f facts) []Move {
	var out []Move
	steps, most := f.steps(), pods.MaxWeight(f.Spec.Strategy.Canary)
	for i := nextStep(f); i < len(steps); i++ {
		move := Move{Text: stepText(steps[i]), Weight: pods.WeightAt(steps, int32(i)) * pods.DefaultMaxWeight / max(most, 1)} //nolint:gosec // a list in one object
		if pause := steps[i].Pause; pause != nil && !indefinite(*pause) {
			if length, err := seconds(*pause.Duration); err == nil {
				move.Lasts = time.Duration(length) * time.Second
			}
		}
		out = append(out, move)
	}
	return append(out, Move{Text: textPromotion, Weight: pods.DefaultMaxWeight})
}

// nextStep is the index of the step after the current one. All steps remain for a revision whose release has not begun, none for
// one that is promoted in full.
func nextStep(f facts) int {
	switch {
	case f.Status.CurrentPodHash != f.Hash:
		return 0
	case f.Status.PromoteFull, f.inWindow, f.Status.CurrentStepIndex == nil:
		return len(f.steps())
	default:
		return int(*f.Status.CurrentStepIndex) + 1
	}
}

// switchAhead is what remains of a blue-green release.
func switchAhead(f facts) []Move {
	var out []Move
	b := f.Spec.Strategy.BlueGreen
	if f.selected(b.ActiveService) != f.Hash {
		out = append(out, Move{Text: "Service " + b.ActiveService + " switches to the new revision", Weight: pods.DefaultMaxWeight})
	}
	judged := f.Status.BlueGreen.PostPromotionAnalysisRunStatus
	if b.PostPromotionAnalysis != nil && (judged == nil || f.Status.CurrentPodHash != f.Hash) {
		out = append(out, Move{Text: "analysis behind the switch", Weight: pods.DefaultMaxWeight})
	}
	return append(out, Move{Text: textPromotion, Weight: pods.DefaultMaxWeight})
}

// Share is the share of the requests that the new revision receives, in percent: by the weight of the router, by what the active
// Service selects, or else by the available pods. It is 0 without another revision.
func Share(s Snapshot) int32 {
	f := observe(s)
	weights := f.Status.Canary.Weights
	switch {
	case promoted(f.Status) && f.Status.CurrentPodHash == s.Hash, f.Status.StableRS == "", f.Status.CurrentPodHash != s.Hash:
		return 0
	case s.Spec.Strategy.BlueGreen != nil && f.Status.BlueGreen.ActiveSelector == f.Hash:
		return pods.DefaultMaxWeight
	case s.Spec.Strategy.BlueGreen != nil:
		return 0
	case f.usesRouter() && weights != nil:
		return weights.Canary.Weight * pods.DefaultMaxWeight / max(pods.MaxWeight(s.Spec.Strategy.Canary), 1)
	case f.usesRouter():
		return 0
	}
	all := int32(0)
	for _, rs := range f.Sets {
		all += rs.Available
	}
	return f.new.Available * pods.DefaultMaxWeight / max(all, 1)
}

// Released reports whether the newest revision is the stable one and has all its pods. spec.paused does not matter then.
func Released(s Snapshot) bool {
	spec := s.Spec
	spec.Paused = false
	phase, _ := PhaseOf(spec, s.Status)
	return s.Problem == "" && promoted(s.Status) && s.Status.CurrentPodHash == s.Hash && phase == argov1.RolloutPhaseHealthy
}

// Aborted reports whether the release of the current template was aborted.
func Aborted(s Snapshot) bool {
	return s.Status.Abort && s.Status.CurrentPodHash == s.Hash && !promoted(s.Status)
}

// StepsOf returns the number of steps of a release and the current one, counted from 0; nil: none.
func StepsOf(spec argov1.RolloutSpec, status argov1.RolloutStatus) (index *int32, total int) {
	if spec.Strategy.Canary == nil {
		return nil, 0
	}
	return withinSteps(spec.Strategy.Canary.Steps, status.CurrentStepIndex), len(spec.Strategy.Canary.Steps)
}
