package rollout

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/release"
)

// lookAround is every reason for which a release stays where it is, beside those that were met on the way.
func (p *pass) lookAround(e *edit) {
	met := p.gates
	p.gates = nil
	p.people(e.status)
	p.imbalance(e.status)
	switch {
	case p.Spec.Strategy.BlueGreen != nil:
		p.switchGates(e.status)
	default:
		p.stepGates(e.status)
	}
	for _, gate := range met {
		if !slices.ContainsFunc(p.gates, func(g release.Gate) bool { return g.Name == gate.Name && g.Message == gate.Message }) {
			p.gate(gate)
		}
	}
	p.lateness(e)
	p.events = append(p.events, p.gates.Events()...)
}

// people are the gates that a person opens.
func (p *pass) people(s argov1.RolloutStatus) {
	if s.Abort {
		p.gate(release.Fails("aborted", release.ByPerson, "retry the rollout, or change spec.template"))
	}
	if p.Spec.Paused {
		p.gate(release.WaitsFor("paused", release.ByPerson, "spec.paused is true"))
	}
	for _, c := range s.PauseConditions {
		if promoted(s) { // somebody wrote it: a release that is over is not paused otherwise
			p.gate(release.WaitsFor("paused", release.ByPerson, "promote the rollout: "+string(c.Reason)))
			continue
		}
		if c.Reason == argov1.PauseReasonInconclusiveAnalysis || c.Reason == argov1.PauseReasonInconclusiveExperiment {
			p.gate(release.WaitsFor("inconclusive", release.ByPerson, "promote or abort the rollout: "+string(c.Reason)))
		}
	}
}

// stepGates are those of the current step of a canary, and of its pods where there is none.
func (p *pass) stepGates(s argov1.RolloutStatus) {
	_, stepping := stepAt(p.steps(), p.Status.CurrentStepIndex)
	switch {
	case s.Abort, promoted(s), p.Status.PromoteFull, !stepping:
		p.podsGate(s)
	default:
		p.gates = append(p.gates, LookAtStep(p.step)...)
	}
	if b := p.background; b != nil && !s.Abort {
		gate := b.opens(release.Passes("background", ""))
		if gate.Verdict == release.Wait && gate.Opener == release.ByCluster {
			gate = release.Passes("background", gate.Message) // it runs beside
		}
		p.gate(gate)
	}
}

// podsGate waits for the pods of the revision that shall serve.
func (p *pass) podsGate(s argov1.RolloutStatus) {
	rs, side := p.new, "new"
	if s.Abort && p.distinct() {
		rs, side = p.stable, "stable"
	}
	said := fmt.Sprintf("%d of %d %s pods available", rs.Available, p.replicas(), side)
	if rs.Available < p.replicas() {
		p.gate(release.WaitsFor("pods", release.ByCluster, said))
		return
	}
	var others int32
	for _, other := range p.others {
		others += other.Spec
	}
	if others > 0 && !p.routes() && p.Spec.Strategy.BlueGreen == nil {
		p.gate(release.WaitsFor("pods", release.ByCluster, fmt.Sprintf("%d pods of other revisions to go", others)))
		return
	}
	p.gate(release.Passes("pods", said))
}

// switchGates are those of a blue-green release.
func (p *pass) switchGates(s argov1.RolloutStatus) {
	active := s.BlueGreen.ActiveSelector
	switch {
	case s.Abort, promoted(s):
		p.podsGate(s)
	case active != p.Hash:
		if !p.previewReady() {
			p.gate(release.WaitsFor("pods", release.ByCluster, fmt.Sprintf("%d of %d new pods available", p.new.Available, p.previewPods())))
		}
		if p.previewReady() && p.Spec.Strategy.BlueGreen.PreviewService != "" {
			p.gate(p.previewEndpoints())
		}
		p.gates = append(p.gates, p.prePromotion(), p.switchPause())
	default:
		p.podsGate(s)
		if p.Spec.Strategy.BlueGreen.PostPromotionAnalysis != nil {
			p.gate(p.post.opens(release.Passes("post-promotion", "")))
		}
	}
}

// lateness says when a release without progress counts as timed out.
func (p *pass) lateness(e *edit) {
	s := e.status
	progress := conditions(s.Conditions).of(argov1.RolloutProgressing)
	switch at := e.limit().At(); {
	case progress != nil && progress.Reason == reasonDeadlineExceeded && progress.Status == corev1.ConditionFalse:
		p.gate(release.Fails("deadline", release.ByCluster, progress.Message))
	case at.IsZero() || whole(p.Spec, s, fmt.Sprint(p.Generation)):
	case p.Now.Before(at) || p.Now.Equal(at):
		p.gate(release.WaitsUntil("deadline", at.Add(time.Nanosecond), "progress is due by "+at.UTC().Format(time.TimeOnly)))
	}
}
