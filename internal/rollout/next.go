package rollout

import (
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/release"
)

// Next is what follows from a snapshot: what shall be true of the cluster, what is to be remembered, what people are told,
// why it does not move, and when to look again.
//
// Effects come before the status. Each says what shall be, and so the process may be killed between any two of them: the
// next decision sees a cluster that is ahead of the status, and asks for the same again.
func Next(s Snapshot) Decision {
	p := newPass(s)
	p.readable()
	switch {
	case s.Problem != "":
		return p.invalid()
	case s.Spec.Strategy.Canary == nil && s.Spec.Strategy.BlueGreen == nil:
		return p.still(release.Fails("spec", release.ByPerson, textNoStrategy))
	case p.waits():
		return p.inLine()
	}
	p.Status.Serin = withQueue(p.Status.Serin, nil)
	if !p.new.exists() {
		return p.create()
	}
	if status, news := NotePause(s.Now, s.Generation, s.Spec, p.Status); news {
		return p.done(status)
	}
	if s.Spec.Strategy.Canary != nil {
		return p.canary()
	}
	return p.blueGreen()
}

// pass is one look at a Rollout, and the decision that comes of it.
type pass struct {
	// Snapshot with the status as far as it makes sense; stored is the one that there is.
	Snapshot
	stored argov1.RolloutStatus
	// new is the ReplicaSet of the template, stable the one that serves; both may be one, or not there. others are neither.
	new, stable ReplicaSet
	others      []ReplicaSet
	// inWindow is true when the template went back within the rollback window.
	inWindow bool
	// step is what is known of the current step; its gates decide whether it is complete.
	step StepView
	// background, pre and post are analyses beside the steps, before the switch and after it; nil while there is none.
	background, pre, post *Judgement

	// weighed is what the router is told in this pass; nil until then.
	weighed *argov1.TrafficWeights

	// The effects: those that hold always, those that bring pods, those that move traffic and ask for judgements, and
	// those that take away what was left by then.
	state, up, move, down []release.Effect
	events                []release.Event
	gates                 release.Gates
}

func newPass(s Snapshot) *pass {
	p := &pass{Snapshot: s, stored: s.Status}
	p.Status = *s.Status.DeepCopy()
	present(&p.Status, s.Now)
	ofStrategy(s.Spec.Strategy, &p.Status)
	if promoted(p.Status) && p.Status.CurrentPodHash == s.Hash {
		p.Status.Abort, p.Status.PromoteFull = false, false // there is nothing to go back to, or to promote
	}
	if s.Spec.Strategy.Canary != nil {
		p.Status.CurrentStepIndex = inSteps(s.Spec.Strategy.Canary.Steps, p.Status.CurrentStepIndex)
	}
	for _, rs := range s.Sets {
		switch {
		case rs.Hash != "" && rs.Hash == s.Hash:
			p.new = rs
		case rs.Hash != "" && rs.Hash == p.Status.StableRS:
			p.stable = rs
		default:
			p.others = append(p.others, rs)
		}
	}
	if p.new.exists() && p.new.Hash == p.Status.StableRS {
		p.stable = p.new
	}
	made := make([]time.Time, 0, len(s.Sets))
	for _, rs := range s.Sets {
		made = append(made, rs.Created)
	}
	p.inWindow = p.distinct() && p.new.exists() && InRollbackWindow(s.Spec.RollbackWindow, p.new.Created, p.stable.Created, made)
	return p
}

// present takes what the status says of the future for the present: a clock was set back since it was written, and what
// counts from there would otherwise wait for as long as that.
func present(status *argov1.RolloutStatus, now time.Time) {
	for i := range status.PauseConditions {
		if c := &status.PauseConditions[i]; c.StartTime.After(now) {
			c.StartTime = metav1.NewTime(now)
		}
	}
	for i := range status.Conditions {
		if c := &status.Conditions[i]; c.LastUpdateTime.After(now) {
			c.LastUpdateTime = metav1.NewTime(now)
		}
	}
}

// ofStrategy takes away the pauses that only the other strategy begins and ends: nobody would end them after a change of
// strategy. It is nobody's promotion that they are gone.
func ofStrategy(strategy argov1.RolloutStrategy, status *argov1.RolloutStatus) {
	var others []argov1.PauseReason
	switch {
	case strategy.BlueGreen != nil:
		others = []argov1.PauseReason{argov1.PauseReasonCanaryPauseStep, argov1.PauseReasonInconclusiveExperiment}
	case strategy.Canary != nil:
		others = []argov1.PauseReason{argov1.PauseReasonBlueGreenPause}
	}
	had := len(status.PauseConditions) > 0
	status.PauseConditions = slices.DeleteFunc(status.PauseConditions, func(c argov1.PauseCondition) bool { return slices.Contains(others, c.Reason) })
	if had && len(status.PauseConditions) == 0 {
		status.PauseConditions, status.ControllerPause = nil, false
	}
}

// inSteps is an index of a step, or behind the last; people patch it. Nil without steps, and where a release has not begun.
func inSteps(steps []argov1.CanaryStep, index *int32) *int32 {
	if index == nil || len(steps) == 0 {
		return nil
	}
	return new(min(max(*index, 0), int32(len(steps)))) //nolint:gosec // a list in one object
}

func (rs ReplicaSet) exists() bool { return rs.Name != "" }

func (rs ReplicaSet) scaled() Scaled { return Scaled{Spec: rs.Spec, Available: rs.Available} }

// distinct is true when there is a stable revision that is not the new one.
func (p *pass) distinct() bool { return p.stable.exists() && p.stable.Hash != p.Hash }

func (p *pass) replicas() int32 { return value(p.Spec.Replicas, 1) }

func (p *pass) set(hash string) ReplicaSet {
	for _, rs := range p.Sets {
		if hash != "" && rs.Hash == hash {
			return rs
		}
	}
	return ReplicaSet{}
}

// revision is that of the new ReplicaSet: above all others, whatever it was before.
func (p *pass) revision() int64 {
	revision := p.new.Revision
	for _, rs := range p.Sets {
		if rs.Hash != p.Hash {
			revision = max(revision, rs.Revision+1)
		}
	}
	return max(revision, 1)
}

// halted says why nothing is scaled and no Service is switched; empty where nothing keeps from it.
func (p *pass) halted() string {
	switch {
	case p.Spec.Paused:
		return "spec.paused is true"
	case heldBy(p.Status, argov1.PauseReasonInconclusiveAnalysis):
		return "an analysis is inconclusive"
	default:
		return ""
	}
}

func heldBy(status argov1.RolloutStatus, reason argov1.PauseReason) bool {
	return slices.ContainsFunc(status.PauseConditions, func(c argov1.PauseCondition) bool { return c.Reason == reason })
}

// rescaled is true when the number of pods that is asked for has changed since they were scaled last. Then nothing but
// numbers moves.
func (p *pass) rescaled() bool {
	other := func(rs ReplicaSet) bool { return rs.Spec > 0 && rs.Desired != nil && *rs.Desired != p.replicas() }
	return p.halted() == "" && (other(p.new) || other(p.stable))
}

// invalid says what is wrong, and moves nothing.
func (p *pass) invalid() Decision {
	status := p.stored.DeepCopy()
	set, all := invalid(p.Name, p.Problem), conditions(status.Conditions)
	if old := all.of(set.Type); old != nil && old.Message != set.Message {
		all = all.without(set.Type)
	}
	status.Conditions = all.with(set, p.Now)
	status.ObservedGeneration = fmt.Sprint(p.Generation)
	status.Phase, status.Message = PhaseOf(p.Spec, *status)
	p.gate(release.Fails("spec", release.ByPerson, p.Problem))
	return p.done(*status)
}

// still moves nothing, for one reason.
func (p *pass) still(why release.Gate) Decision {
	p.gate(why)
	return p.done(p.stored)
}

// create makes the ReplicaSet of the template.
func (p *pass) create() Decision {
	if p.Hash == "" {
		return p.still(release.Fails("spec", release.ByPerson, "the template has no name: correct spec.template"))
	}
	revision, name := p.revision(), p.Name+"-"+p.Hash
	p.hold()
	p.state = append(p.state, Revised{Revision: revision}, ReplicaSetExists{
		Name: name, Hash: p.Hash, Revision: revision, Avoids: p.avoids(), Metadata: p.metadataAtFirst(),
	})
	p.gate(release.WaitsFor("pods", release.ByCluster, name+" is being made"))
	status := p.stored.DeepCopy()
	status.Serin = p.Status.Serin
	created := progressing(truth(true), reasonCreated, fmt.Sprintf("Created new replica set %q", name))
	status.Conditions = conditions(status.Conditions).with(created, p.Now)
	return p.done(*status)
}

// keep holds what is true of a Rollout and of its new ReplicaSet in every pass.
func (p *pass) keep() {
	p.hold()
	p.releaseWorkloads()
	revision := p.revision()
	p.state = append(p.state, ReplicaSetKept{Name: p.new.Name, Revision: revision, Avoids: p.avoids()})
	if p.Revision != fmt.Sprint(revision) {
		p.state = append(p.state, Revised{Revision: revision})
	}
	p.new.Revision = revision
	for i := range p.Sets {
		if p.Sets[i].Name == p.new.Name && p.Sets[i].Revision != revision {
			p.Sets = slices.Clone(p.Sets)
			p.Sets[i].Revision = revision
		}
	}
}

// hold is what of keep needs no ReplicaSet.
func (p *pass) hold() {
	if p.Spec.Replicas == nil {
		p.state = append(p.state, ReplicasSaid{})
	}
	if seen := p.workloadGeneration(); seen != p.WorkloadGeneration {
		p.state = append(p.state, WorkloadNoted{Generation: seen})
	}
}

// workloadGeneration is that of the workload that holds the template; empty where the Rollout has it.
func (p *pass) workloadGeneration() string {
	switch {
	case p.Spec.WorkloadRef == nil:
		return ""
	case p.Workload == nil:
		return p.WorkloadGeneration
	default:
		return p.Workload.Generation
	}
}

func (p *pass) gate(g release.Gate) { p.gates = append(p.gates, g) }

// done is the decision. One that changes the status is followed by a look at the new one at once.
func (p *pass) done(status argov1.RolloutStatus) Decision {
	d := Decision{
		Status: status, Effects: slices.Concat(p.state, p.up, p.move, p.down),
		Gates: p.gates, Events: p.events, Wake: p.gates.Wake(),
	}
	if !remembers(p.stored, status) {
		d.Wake = p.Now
	}
	return d
}
