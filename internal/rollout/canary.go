package rollout

import (
	"time"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
)

// canary is a pass over a Rollout with the canary strategy.
func (p *pass) canary() Decision {
	p.keep()
	p.lookAtStep()
	e := p.count()
	switch {
	case p.changed():
		e.reset()
		return p.finish(e)
	case p.rescaled():
		p.scaleCanary()
		return p.finish(e)
	case p.restart(e):
		return p.finish(e)
	}
	p.label()
	p.clean()
	p.canaryServices()
	p.route(e)
	p.judges(e)
	p.scaleCanary()
	e.move()
	return p.finish(e)
}

// changed is true when the template or the steps are others than those of the release that the status is about.
func (p *pass) changed() bool {
	retemplated := p.Status.CurrentPodHash != "" && p.Status.CurrentPodHash != p.Hash
	return retemplated || p.Spec.Strategy.Canary != nil && p.Status.CurrentStepHash != p.StepHash
}

// finish ends a pass over a release.
func (p *pass) finish(e *edit) Decision {
	e.persist()
	p.events = append(p.events, e.events...)
	p.lookAround(e)
	return p.done(e.status)
}

// routes is true where a router shares the traffic.
func (p *pass) routes() bool {
	c := p.Spec.Strategy.Canary
	return c != nil && c.TrafficRouting != nil
}

func (p *pass) steps() []argov1.CanaryStep {
	if p.Spec.Strategy.Canary == nil {
		return nil
	}
	return p.Spec.Strategy.Canary.Steps
}

func (p *pass) most() int32 { return mostWeight(p.Spec.Strategy.Canary) }

func (p *pass) progress() Progress {
	return Progress{
		Steps: p.steps(), Index: p.Status.CurrentStepIndex, Aborted: p.Status.Abort,
		All: p.Status.PromoteFull || !p.distinct(),
	}
}

func (p *pass) limits() Limits {
	if b := p.Spec.Strategy.BlueGreen; b != nil {
		return NewLimits(p.replicas(), nil, b.MaxUnavailable)
	}
	c := p.Spec.Strategy.Canary
	return NewLimits(p.replicas(), c.MaxSurge, c.MaxUnavailable)
}

// numbers are how many pods both sides shall have in the end, and how many now.
func (p *pass) numbers() (want, next Split) {
	if p.routes() {
		want = p.routed().Want()
		return want, want
	}
	l, pods := p.limits(), Pods{New: p.new.scaled(), Distinct: p.distinct()}
	if pods.Distinct {
		pods.Stable = p.stable.scaled()
	}
	for _, rs := range p.others {
		pods.Others += rs.Spec
	}
	want = l.Want(p.progress().Weight(p.most()), p.most(), pods.Distinct)
	if _, departs := p.departing(); !departs {
		return want, l.Toward(pods, want)
	}
	next = p.returnLimits().Toward(pods, want)
	next.Canary = min(next.Canary, p.keptPods())
	return want, next
}

func (p *pass) routed() Routed {
	c := p.Spec.Strategy.Canary
	r := Routed{
		Progress: p.progress(), Replicas: p.replicas(), Most: p.most(), MinPods: value(c.MinPodsPerReplicaSet, 0),
		Dynamic: c.DynamicStableScale, AbortDelay: c.AbortScaleDownDelaySeconds,
		NewAvailable: p.new.Available, StableAvailable: p.stable.Available, Enough: p.enough(),
	}
	if back, previous := p.goingBack(); back {
		r.NewAvailable = p.set(previous).Available
		r.Recorded = &Shares{Canary: p.recorded(previous), Stable: p.recorded(p.Hash)}
	} else if w := p.Status.Canary.Weights; w != nil && (w.Canary.PodTemplateHash == p.stable.Hash || w.Stable.PodTemplateHash == p.stable.Hash) {
		r.Recorded = &Shares{Canary: p.recorded(p.Hash), Stable: p.recorded(p.stable.Hash)}
	}
	return r
}

// recorded is the share that a revision was given last, in whatever role it was then. Where this pass gives it more, its
// pods follow that.
func (p *pass) recorded(hash string) int32 {
	share := shareOf(p.Status.Canary.Weights, hash)
	return max(share, shareOf(p.weighed, hash))
}

func shareOf(w *argov1.TrafficWeights, hash string) int32 {
	if w == nil {
		return 0
	}
	var share int32
	for _, d := range []argov1.WeightDestination{w.Canary, w.Stable} {
		if d.PodTemplateHash == hash {
			share += d.Weight
		}
	}
	return share
}

// lookAtStep notes down what is known of the current step before anything is done about it.
func (p *pass) lookAtStep() {
	step, _ := stepAt(p.steps(), p.Status.CurrentStepIndex)
	p.step = StepView{
		Now: p.Now, Index: value(p.Status.CurrentStepIndex, 0), Total: int32(len(p.steps())), //nolint:gosec // a list in one object
		Step: step, Status: p.Status, Pods: p.stepPods(), DisabledPlugins: p.DisabledPlugins,
	}
}

func (p *pass) stepPods() StepPods {
	c := p.Spec.Strategy.Canary
	if c == nil {
		return StepPods{}
	}
	want, _ := p.numbers()
	pods := StepPods{
		Threshold: c.ReplicaProgressThreshold, New: p.new.scaled(), WantNew: want.Canary, Basic: c.TrafficRouting == nil,
		StableFixed: p.distinct() && (!p.routes() || !c.DynamicStableScale),
		StableSpec:  p.stable.Spec, StableThere: p.stable.Replicas, WantStable: want.Stable,
	}
	for _, rs := range p.others {
		pods.OthersAvailable += rs.Available
	}
	return pods
}

// defaultDelaySeconds is how long pods stay that have lost their traffic, where the user does not say.
const defaultDelaySeconds int32 = 30

// delay is how long pods stay that have lost their traffic.
func delay(seconds *int32) time.Duration {
	return time.Duration(value(seconds, defaultDelaySeconds)) * time.Second
}
