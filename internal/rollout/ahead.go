package rollout

import (
	"time"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
)

// Move is something that a release does when everything before it is done.
type Move struct {
	// Text says it, in the words of events where it is a step.
	Text string
	// Weight is the share of the new revision afterwards, in per cent.
	Weight int32
	// Lasts is how long it takes at least.
	Lasts time.Duration
}

// Ahead are the moves of a release that are left, if nothing fails and nobody has to be waited for; none at rest. What the
// release does now is not among them.
func Ahead(s Snapshot) []Move {
	p := newPass(s)
	switch {
	case s.Problem != "", promoted(p.Status) && p.Status.CurrentPodHash == s.Hash:
		return nil
	case p.Status.Abort && p.Status.CurrentPodHash == s.Hash:
		return p.returnAhead()
	case s.Spec.Strategy.BlueGreen != nil:
		return p.switchAhead()
	default:
		return p.stepsAhead()
	}
}

const (
	textPromotion = "the new revision becomes the stable one"
	textWayBack   = "the stable revision serves alone again"
)

// returnAhead is what is left of an abort.
func (p *pass) returnAhead() []Move {
	weights := p.Status.Canary.Weights
	back := weights == nil || weights.Canary.Weight == 0
	if back && p.stable.Available >= p.replicas() && (p.routes() || p.Spec.Strategy.BlueGreen != nil || p.new.Spec == 0) {
		return nil
	}
	return []Move{{Text: textWayBack}}
}

// stepsAhead are the steps behind the current one, and the promotion.
func (p *pass) stepsAhead() []Move {
	var out []Move
	steps, most := p.steps(), mostWeight(p.Spec.Strategy.Canary)
	for i := p.nextStep(); i < len(steps); i++ {
		move := Move{Text: stepText(steps[i]), Weight: weightAt(steps, int32(i)) * Total / max(most, 1)} //nolint:gosec // a list in one object
		if pause := steps[i].Pause; pause != nil && !indefinite(*pause) {
			if length, err := seconds(*pause.Duration); err == nil {
				move.Lasts = time.Duration(length) * time.Second
			}
		}
		out = append(out, move)
	}
	return append(out, Move{Text: textPromotion, Weight: Total})
}

// nextStep is the index of the step behind the current one. All are ahead of a revision that was not taken up yet, none of
// a release that is promoted in full.
func (p *pass) nextStep() int {
	switch {
	case p.Status.CurrentPodHash != p.Hash:
		return 0
	case p.Status.PromoteFull, p.inWindow, p.Status.CurrentStepIndex == nil:
		return len(p.steps())
	default:
		return int(*p.Status.CurrentStepIndex) + 1
	}
}

// switchAhead is what is left of a blue-green release.
func (p *pass) switchAhead() []Move {
	var out []Move
	b := p.Spec.Strategy.BlueGreen
	if p.selected(b.ActiveService) != p.Hash {
		out = append(out, Move{Text: "Service " + b.ActiveService + " switches to the new revision", Weight: Total})
	}
	judged := p.Status.BlueGreen.PostPromotionAnalysisRunStatus
	if b.PostPromotionAnalysis != nil && (judged == nil || p.Status.CurrentPodHash != p.Hash) {
		out = append(out, Move{Text: "analysis behind the switch", Weight: Total})
	}
	return append(out, Move{Text: textPromotion, Weight: Total})
}

// Share is the part of the requests that the new revision has, in per cent: what the router was told, where the active
// Service points, or else its part of the available pods. It is 0 where there is no other revision.
func Share(s Snapshot) int32 {
	p := newPass(s)
	weights := p.Status.Canary.Weights
	switch {
	case promoted(p.Status) && p.Status.CurrentPodHash == s.Hash, p.Status.StableRS == "", p.Status.CurrentPodHash != s.Hash:
		return 0
	case s.Spec.Strategy.BlueGreen != nil && p.Status.BlueGreen.ActiveSelector == p.Hash:
		return Total
	case s.Spec.Strategy.BlueGreen != nil:
		return 0
	case p.routes() && weights != nil:
		return weights.Canary.Weight * Total / max(mostWeight(s.Spec.Strategy.Canary), 1)
	case p.routes():
		return 0
	}
	all := int32(0)
	for _, rs := range p.Sets {
		all += rs.Available
	}
	return p.new.Available * Total / max(all, 1)
}

// Released is true where the newest revision is the stable one and has all its pods. A pause that a person set holds nothing
// there.
func Released(s Snapshot) bool {
	spec := s.Spec
	spec.Paused = false
	phase, _ := PhaseOf(spec, s.Status)
	return s.Problem == "" && promoted(s.Status) && s.Status.CurrentPodHash == s.Hash && phase == argov1.RolloutPhaseHealthy
}

// Aborted is true of a release that was taken back, of the revision that the template has.
func Aborted(s Snapshot) bool {
	return s.Status.Abort && s.Status.CurrentPodHash == s.Hash && !promoted(s.Status)
}

// StepsOf is how many steps a release has, and the current one, counted from 0; nil where there is none.
func StepsOf(spec argov1.RolloutSpec, status argov1.RolloutStatus) (index *int32, total int) {
	if spec.Strategy.Canary == nil {
		return nil, 0
	}
	return inSteps(spec.Strategy.Canary.Steps, status.CurrentStepIndex), len(spec.Strategy.Canary.Steps)
}
