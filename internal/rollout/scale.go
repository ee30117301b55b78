package rollout

import (
	"fmt"
	"slices"
	"time"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/release"
)

// scaleCanary changes the numbers of pods of one revision: of the stable one, or else of the new one, or else of the
// others. The next pass counts from what has come of it.
func (p *pass) scaleCanary() {
	if p.halted() != "" {
		return
	}
	_, next := p.numbers()
	if p.misrouted() {
		next = Split{Canary: max(next.Canary, p.new.Spec), Stable: max(next.Stable, p.stable.Spec)}
	}
	p.stay()
	if p.distinct() && p.scale(p.stable, p.keepServing(next.Stable)) {
		return
	}
	if !p.linger() && p.scale(p.new, next.Canary) {
		return
	}
	p.scaleWorkload()
	if !p.lags() && !p.untold() {
		p.drain()
	}
}

// untold is true until a router is told its first weight: whoever it leads to keeps its pods.
func (p *pass) untold() bool { return p.routes() && p.Status.Canary.Weights == nil && !p.step.Routed }

// misrouted is true while the traffic is not where the numbers of pods want it to be: then none are taken away.
func (p *pass) misrouted() bool {
	return p.routes() && p.distinct() && (!p.step.Routed || p.step.Unweighted != "" || p.step.Unpublished != nil || p.lags())
}

// lags is true while a router says that it does not serve yet what it was told, or that it does not reach the pods of the
// active Service.
func (p *pass) lags() bool {
	return (p.routes() || p.Spec.Strategy.BlueGreen != nil) && !value(p.Router.Confirmed, true)
}

// keepServing is the number of pods of a stable revision whose last pods are about to go: while its Service selects them,
// they stay until the release is promoted, and the Service has moved.
func (p *pass) keepServing(pods int32) int32 {
	service := p.Spec.Strategy.Canary.StableService
	selected := service != "" && p.Services[service].Selector[argov1.PodTemplateHashLabel] == p.stable.Hash
	if pods == 0 && selected && p.promotion(p.Status) != "" {
		return p.stable.Spec
	}
	return pods
}

// scale gives a ReplicaSet a number of pods, and notes down what that number followed from. It says whether the number
// changes.
func (p *pass) scale(rs ReplicaSet, pods int32) bool {
	pods = max(pods, 0)
	if rs.Spec == pods && rs.Desired != nil && *rs.Desired == p.replicas() {
		return false
	}
	effect := ReplicaSetScaled{Name: rs.Name, Revision: rs.Revision, From: rs.Spec, Pods: pods, Desired: p.replicas()}
	if pods > rs.Spec {
		p.up = append(p.up, effect)
		return true
	}
	p.down = append(p.down, effect)
	return pods < rs.Spec
}

// stay takes away the deadline of what is in use again.
func (p *pass) stay() {
	_, lingers := p.abortDelay()
	if p.new.Delayed() && !lingers && !p.returning() {
		p.state = append(p.state, ReplicaSetDelayed{Name: p.new.Name})
	}
	if p.distinct() && p.stable.Delayed() {
		p.state = append(p.state, ReplicaSetDelayed{Name: p.stable.Name})
	}
}

// abortDelay is how long the pods of an aborted revision stay; 0: for good. False where there is no delay, because they
// go as any other.
func (p *pass) abortDelay() (time.Duration, bool) {
	if !p.Status.Abort || !p.distinct() {
		return 0, false
	}
	if b := p.Spec.Strategy.BlueGreen; b != nil {
		return delay(b.AbortScaleDownDelaySeconds), true
	}
	c := p.Spec.Strategy.Canary
	if c.TrafficRouting == nil || c.DynamicStableScale && c.AbortScaleDownDelaySeconds == nil {
		return 0, false
	}
	return delay(c.AbortScaleDownDelaySeconds), true
}

// linger lets the pods of an aborted revision wait out their delay, which begins when nobody is sent to them any more. It does
// not wait for missing stable pods, which may be waiting for the room of these. False where there is no delay.
func (p *pass) linger() bool {
	length, lingers := p.abortDelay()
	rs := p.new
	switch {
	case !lingers:
		return false
	case rs.Spec == 0, length <= 0, p.serving():
		p.scale(rs, p.keptPods())
	case rs.Delayed() && !p.Now.Before(rs.Deadline):
		p.down = append(p.down, ReplicaSetScaled{Name: rs.Name, Revision: rs.Revision, From: rs.Spec, Desired: p.replicas(), KeepDeadline: true})
	case rs.Delayed() && !rs.Deadline.After(p.Now.Add(length)): // else a clock was set back since
		p.scale(rs, p.keptPods())
		p.delayed(rs, rs.Deadline)
	default:
		p.scale(rs, p.keptPods())
		until := p.Now.Add(length)
		p.down = append(p.down, ReplicaSetDelayed{Name: rs.Name, Until: until})
		p.delayed(rs, until)
	}
	return true
}

// delayed is why pods are still there that nothing needs.
func (p *pass) delayed(rs ReplicaSet, until time.Time) {
	p.gate(release.WaitsUntil("scale-down-delay", until, fmt.Sprintf("%d pods of %s until %s", rs.Spec, rs.Name, until.UTC().Format(time.TimeOnly))))
}

// drain takes away the pods of revisions that nobody needs.
func (p *pass) drain() {
	c := p.Spec.Strategy.Canary
	d := Drain{
		Now: p.Now, Limits: p.limits(), Routed: p.routes(), Promoted: promoted(p.Status),
		Delay: delay(c.ScaleDownDelaySeconds), Most: c.ScaleDownDelayRevisionLimit,
		NewAvailable: p.new.Available, Short: p.stable.exists() && p.stable.Available < p.replicas(),
	}
	if c.DynamicStableScale {
		d.Delay = 0
	}
	if p.distinct() {
		d.StableAvailable = p.stable.Available
	}
	p.meet(d.Fates(p.old()))
}

// old are the others as a drain looks at them.
func (p *pass) old() []Old {
	var old []Old
	for _, rs := range p.others {
		if !rs.Deleting {
			old = append(old, Old{Name: rs.Name, Revision: rs.Revision, Scaled: rs.scaled(), Deadline: rs.Deadline, Referenced: p.referenced(rs.Hash)})
		}
	}
	return old
}

// meet makes fates true.
func (p *pass) meet(fates []Fate) {
	for _, fate := range fates {
		i := slices.IndexFunc(p.others, func(rs ReplicaSet) bool { return rs.Name == fate.Name })
		rs := p.others[i]
		if !fate.Deadline.IsZero() {
			p.down = append(p.down, ReplicaSetDelayed{Name: rs.Name, Until: fate.Deadline})
		}
		if fate.Pods != rs.Spec {
			p.scale(rs, fate.Pods)
		}
		if !fate.Until.IsZero() {
			p.delayed(rs, fate.Until)
		}
	}
}

// referenced is true of a revision that a Service, a route or the status names.
func (p *pass) referenced(hash string) bool {
	s := p.Status
	names := []string{s.StableRS, s.CurrentPodHash, s.BlueGreen.ActiveSelector, s.BlueGreen.PreviewSelector}
	if w := s.Canary.Weights; w != nil && p.routes() {
		names = append(names, w.Canary.PodTemplateHash, w.Stable.PodTemplateHash)
	}
	var services []string
	if c := p.Spec.Strategy.Canary; c != nil {
		services = append(services, c.CanaryService, c.StableService)
	}
	if b := p.Spec.Strategy.BlueGreen; b != nil {
		services = append(services, b.ActiveService, b.PreviewService)
	}
	for _, service := range services {
		names = append(names, p.Services[service].Selector[argov1.PodTemplateHashLabel])
	}
	return hash != "" && (slices.Contains(names, hash) || slices.Contains(p.Router.Referenced, hash))
}
