package rollout

import (
	"k8s.io/apimachinery/pkg/api/equality"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
)

// The way back of a canary: the traffic of a revision that is aborted or superseded returns to the stable one.
//
// spec.replicas does not decide how much the stable revision can carry. An autoscaler may ask for four times the pods while the
// cluster has no room, and the users would stay on the broken version until it has. What decides is the number of pods that
// carried the traffic when the way back began, as for the switch of a blue-green release (see activate). It is recorded in the
// status, because the pods of the canary leave on the way, and no longer show it.

// departing is the revision that loses its traffic, or its pods where nothing else shares the traffic; false: none does.
func (p *pass) departing() (ReplicaSet, bool) {
	if p.Spec.Strategy.Canary == nil || !p.stable.exists() {
		return ReplicaSet{}, false
	}
	if !p.routes() {
		return p.new, p.Status.Abort && p.distinct() && p.new.Spec > 0
	}
	if recordedWeight(p.Status) == 0 {
		return ReplicaSet{}, false
	}
	rs := p.set(p.Status.Canary.Weights.Canary.PodTemplateHash)
	return rs, rs.exists() && rs.Hash != p.stable.Hash && (p.Status.Abort || rs.Hash != p.Hash)
}

// enough is the number of pods of the stable revision that can carry all the traffic.
func (p *pass) enough() int32 {
	rs, departs := p.departing()
	if !departs {
		return p.replicas()
	}
	pods := p.carriedBy(rs)
	return min(p.replicas(), max(pods, 1))
}

// returnLimits are the limits of the way back where no router shares the traffic. maxUnavailable counts from the pods that
// carried it. Where the spec keeps a pod available, the last one stays: nobody else would answer.
func (p *pass) returnLimits() Limits {
	l, c := p.limits(), p.Spec.Strategy.Canary
	least := max(NewLimits(p.enough(), c.MaxSurge, c.MaxUnavailable).LeastAvailable(), min(l.LeastAvailable(), 1))
	l.Unavailable = max(l.Unavailable, l.Replicas-least)
	return l
}

// carriedBy is the number of pods that were enough for the traffic when the way back began. A stable revision that kept its pods
// takes over from as many as the other one has. One that gave pods up shared the traffic with it.
func (p *pass) carriedBy(departing ReplicaSet) int32 {
	if own := p.Status.Serin; own != nil && own.CarriedBy != nil {
		return *own.CarriedBy
	}
	if !p.routes() || p.Spec.Strategy.Canary.DynamicStableScale {
		return departing.Available + p.stable.Available
	}
	return departing.Available
}

// recordCarriers records what the way back is measured by, until it ends.
func (e *edit) recordCarriers() {
	own := argov1.SerinStatus{}
	if e.status.Serin != nil {
		own = *e.status.Serin
	}
	own.CarriedBy, e.status.Serin = nil, nil
	if rs, departs := e.v.departing(); departs && (!e.v.routes() || recordedWeight(e.status) > 0) {
		own.CarriedBy = new(e.v.carriedBy(rs))
	}
	if !equality.Semantic.DeepEqual(own, argov1.SerinStatus{}) {
		e.status.Serin = &own
	}
}

// serving is true while the new revision may get requests after this pass, although it is aborted.
func (p *pass) serving() bool {
	if b := p.Spec.Strategy.BlueGreen; b != nil {
		return p.selected(b.ActiveService) == p.Hash && !p.takesOver()
	}
	return p.routes() && (p.misrouted() || p.share() > 0)
}

// takesOver is true of a stable revision to which the users of an aborted blue-green release can go back: it has as many pods
// as those that they use now.
func (p *pass) takesOver() bool {
	return p.stable.Available >= min(p.replicas(), max(p.new.Available, 1))
}

// share is the weight of the new revision after this pass.
func (p *pass) share() int32 {
	if p.weighed != nil {
		return shareOf(p.weighed, p.Hash)
	}
	return shareOf(p.Status.Canary.Weights, p.Hash)
}

// keptPods is the number of pods that an aborted revision keeps. While stable pods are missing, its own must not compete with
// them for the room in the cluster: it keeps those that are available, and where nobody has asked for a delay, only those that
// the share needs which it still has.
func (p *pass) keptPods() int32 {
	rs := p.new
	if !p.Status.Abort || p.stable.Available >= p.replicas() {
		return rs.Spec
	}
	pods := min(rs.Spec, rs.Available)
	if p.serving() {
		pods = max(pods, min(rs.Spec, 1))
	}
	c, own := p.Spec.Strategy.Canary, p.Status.Serin
	if c == nil {
		return pods // the weights in the status, if any, are from before the strategy was changed
	}
	if share := p.recorded(rs.Hash); share > 0 && c.AbortScaleDownDelaySeconds == nil && own != nil && own.CarriedBy != nil {
		pods = min(pods, p.routed().least(podsFor(share, p.enough(), p.most()))) // before that is recorded, the pods show it
	}
	return pods
}
