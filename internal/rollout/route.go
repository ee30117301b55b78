package rollout

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/release"
)

// confirmRetry is how long after a look a router is asked again whether it serves what it was told.
const confirmRetry = 10 * time.Second

// wish is how the traffic shall be shared, as far as a release is.
type wish struct {
	weight int32
	// canary is the hash of the revision that has the weight.
	canary string
	// managed is true while the routes of steps hold, experiments while those get their shares.
	managed, experiments bool
	// held is true while the revision gets nothing that it has not: of the routes of steps those stay that there are.
	held bool
	// lacks is what is missing until the revision gets back the weight that it lost with its pods; empty: nothing.
	lacks string
}

// route shares the traffic. What it says is recorded with the status, so that pods go after their traffic only.
func (p *pass) route(e *edit) {
	recorded := p.Status.Canary.Weights
	if p.Router.Left || !p.routes() && recorded != nil {
		p.move = append(p.move, RouteReleased{Whole: promoted(p.Status)})
	}
	if !p.routes() || !p.stable.exists() {
		return
	}
	w := p.wish()
	if w.lacks != "" {
		p.gate(release.WaitsFor("weight", release.ByCluster, w.lacks))
	}
	w = p.reachable(w)
	weights := p.weights(w)
	home := recorded != nil && recorded.Canary.Weight == 0 && w.weight == 0 && (p.Status.Abort || promoted(p.Status))
	if held := p.uncarried(w.weight); held != "" && !home {
		p.step.Unweighted = held
		p.gate(release.WaitsFor("weight", release.ByCluster, held))
		if recorded == nil || recorded.Canary.Weight > 0 && !p.set(recorded.Canary.PodTemplateHash).exists() {
			return // what is recorded leads to nobody any more: the route stays as it is found
		}
		weights = *recorded.DeepCopy()
		weights.Canary.Weight = min(weights.Canary.Weight, max(w.weight, p.most()-p.carried()))
		if weights.Canary.Weight == 0 && p.new.Available > 0 { // who comes by a route of the steps is for this revision
			weights.Canary.PodTemplateHash = w.canary
		}
		weights.Stable.Weight = p.rest(weights)
	}
	if p.unreturned(w) {
		weights = *recorded.DeepCopy()
	}
	if last := p.last(weights); last != nil {
		p.move = append(p.move, p.routeIs(*last, wish{}))
	}
	p.move = append(p.move, p.routeIs(weights, w))
	p.step.Routed, p.weighed = true, &weights
	p.recordWeights(e, weights)
}

// wish is the first of these that is true.
func (p *pass) wish() wish {
	c, s, w := p.Spec.Strategy.Canary, p.Status, wish{canary: p.new.Hash}
	_, stepping := stepAt(c.Steps, s.CurrentStepIndex)
	back, previous := p.goingBack()
	switch {
	case back:
		w.weight, w.canary = p.wayBack(p.set(previous)), previous
	case promoted(s):
	case s.Abort:
		w.weight = p.wayBack(p.new)
	case p.new.Available == 0:
		w.experiments = true
	case s.PromoteFull && c.DynamicStableScale:
		w.weight = min(p.most(), clamp(float64(p.most())*float64(p.new.Available)/float64(max(p.replicas(), 1))))
	case s.PromoteFull:
		w.weight = p.recorded(p.Hash)
	case p.step.Pods.reached() != "":
		w.weight, w.managed, w.experiments = weightBefore(c.Steps, value(s.CurrentStepIndex, 0)), true, true
		if stepping { // pods go after their traffic only
			w.weight = min(w.weight, weightAt(c.Steps, *s.CurrentStepIndex))
		}
		if s.Canary.Weights != nil && p.recorded(p.Hash) < w.weight { // and come before it
			w.weight, w.lacks = p.recorded(p.Hash), fmt.Sprintf("%s that weight %d needs", p.step.Pods.reached(), w.weight)
		}
	case stepping:
		w.weight, w.managed, w.experiments = weightAt(c.Steps, *s.CurrentStepIndex), true, true
	default:
		w.weight, w.managed = p.most(), true
	}
	return w
}

// wayBack is the weight of a revision whose traffic returns to the stable one as that gets its pods. One that was given
// none gets none now.
func (p *pass) wayBack(from ReplicaSet) int32 {
	if from.Available == 0 || p.Status.Canary.Weights == nil {
		return 0
	}
	return p.routed().DynamicWeight()
}

func recordedWeight(s argov1.RolloutStatus) int32 {
	if s.Canary.Weights == nil {
		return 0
	}
	return s.Canary.Weights.Canary.Weight
}

// goingBack is true when the template went back to a stable revision that has to get its pods again first. Until then the
// revision that was on its way keeps the traffic that it has.
func (p *pass) goingBack() (is bool, previous string) {
	c, w := p.Spec.Strategy.Canary, p.Status.Canary.Weights
	if !p.routes() || !c.DynamicStableScale || w == nil || !promoted(p.Status) {
		return false, ""
	}
	previous = w.Canary.PodTemplateHash
	return w.Canary.Weight > 0 && previous != "" && previous != p.new.Hash && p.new.Available < p.replicas(), previous
}

// carried is the share that the available pods of the stable revision carry.
func (p *pass) carried() int32 {
	if p.enough() <= 0 {
		return p.most()
	}
	return min(p.most(), clamp(float64(int64(p.most())*int64(p.stable.Available)/int64(p.enough()))))
}

// uncarried says why the stable revision cannot have the rest of a weight; empty: it can, or nobody else could.
func (p *pass) uncarried(weight int32) string {
	if p.most() <= 0 {
		return ""
	}
	needed := int32(int64(p.most()-weight) * int64(p.enough()) / int64(p.most())) //nolint:gosec // at most the replicas
	if weight < p.most() && p.enough() > 0 {
		needed = max(needed, 1) // nobody's share is small enough for no pod
	}
	threshold := p.Spec.Strategy.Canary.ReplicaProgressThreshold
	switch {
	case p.stable.Available >= needed:
		return ""
	case threshold != nil && threshold.Value >= 0 && p.stable.Available > 0 && enough(threshold, p.stable.scaled(), p.replicas()):
		return ""
	case weight < recordedWeight(p.Status) && p.stable.Available > 0 && p.set(p.Status.Canary.Weights.Canary.PodTemplateHash).Available == 0:
		return "" // the weight is nobody's; where neither side has a pod, the one that gets the first keeps or takes it
	case weight > 0 && weight >= recordedWeight(p.Status) && p.stable.Available == 0 && p.new.Available > 0:
		return "" // what stays with the stable revision is lost either way: a fix must get through
	case weight < recordedWeight(p.Status) && p.Status.Canary.Weights.Canary.PodTemplateHash == p.stable.Hash:
		return "" // the weight is its own: it was promoted, and has not got it back through its own Service yet
	default:
		return fmt.Sprintf("%d of %d stable pods available that weight %d needs", p.stable.Available, needed, weight)
	}
}

// weights are those of a wish.
func (p *pass) weights(w wish) argov1.TrafficWeights {
	canary, stable := p.routeServices()
	weights := argov1.TrafficWeights{
		Canary: argov1.WeightDestination{Weight: min(max(w.weight, 0), p.most()), ServiceName: canary, PodTemplateHash: w.canary},
		Stable: argov1.WeightDestination{ServiceName: stable, PodTemplateHash: p.stableSide()},
	}
	if experiment := p.experimentNow(); w.experiments && experiment != nil && experiment.Phase == argov1.AnalysisPhaseRunning {
		for _, d := range experiment.Destinations {
			weights.Additional = append(weights.Additional, argov1.WeightDestination{Weight: d.Weight, ServiceName: d.Service, PodTemplateHash: d.Hash})
		}
	}
	weights.Stable.Weight = p.rest(weights)
	return weights
}

// routeServices are the Services of both sides as a router names them now.
func (p *pass) routeServices() (canary, stable string) {
	c := *p.Spec.Strategy.Canary
	return RouteServices(c, p.Status.Canary.StablePingPong, c.TrafficRouting.ALB != nil)
}

// stableSide is the revision that the stable side leads to: while the stable revision has no pods, the one that it led to
// before keeps its users, if that has some.
func (p *pass) stableSide() string {
	recorded := p.Status.Canary.Weights
	if recorded == nil || p.replicas() <= 0 || p.stable.Available > 0 || p.set(recorded.Stable.PodTemplateHash).Available == 0 {
		return p.stable.Hash
	}
	return recorded.Stable.PodTemplateHash
}

// rest is what the stable revision has of the traffic: all that nobody else has.
func (p *pass) rest(weights argov1.TrafficWeights) int32 {
	rest := p.most() - weights.Canary.Weight
	for _, d := range weights.Additional {
		rest -= d.Weight
	}
	return max(rest, 0)
}

// RouteServices are the Services of both sides as a router names them: those that take turns for ALB, and for others
// where there are no fixed ones. stableIs is status.canary.stablePingPong.
func RouteServices(c argov1.CanaryStrategy, stableIs argov1.PingPongType, alb bool) (canary, stable string) {
	if c.PingPong != nil && (alb || c.CanaryService == "" && c.StableService == "") {
		return pingPong(*c.PingPong, stableIs)
	}
	return c.CanaryService, c.StableService
}

// last is what the router is told first where the weight would go to a revision without pods as soon as the hashes are
// switched; nil: nothing.
func (p *pass) last(weights argov1.TrafficWeights) *argov1.TrafficWeights {
	recorded := p.Status.Canary.Weights
	if recordedWeight(p.Status) == 0 && p.Router.Carries { // whose share it is was not recorded: the stable revision's, until the route is told
		recorded = weights.DeepCopy()
		recorded.Canary.PodTemplateHash = p.stable.Hash
	}
	if recorded == nil || p.new.Available > 0 || recorded.Canary.Weight <= weights.Canary.Weight && !p.Router.Carries ||
		recorded.Canary.PodTemplateHash == weights.Canary.PodTemplateHash {
		return nil
	}
	last := recorded.DeepCopy()
	last.Canary.Weight, last.Additional, last.Verified = weights.Canary.Weight, nil, nil
	last.Stable = weights.Stable // what was stable before may be gone by now
	last.Stable.Weight = p.rest(*last)
	return last
}

func (p *pass) routeIs(weights argov1.TrafficWeights, w wish) RouteIs {
	route := RouteIs{
		Weights: *weights.DeepCopy(), Most: p.most(), StablePingPong: p.Status.Canary.StablePingPong,
		Drained: weights.Canary.Weight == 0 && p.drained(),
	}
	route.Weights.Verified = nil
	route.Headers, route.Mirrors = p.managedRoutes(w)
	return route
}

// managedRoutes are those of a wish.
func (p *pass) managedRoutes(w wish) (headers []argov1.SetHeaderRoute, mirrors []argov1.SetMirrorRoute) {
	if w.managed {
		headers, mirrors = managedRoutes(p.steps(), p.Status.CurrentStepIndex)
	}
	if w.held {
		headers = slices.DeleteFunc(headers, func(h argov1.SetHeaderRoute) bool { return !slices.Contains(p.Router.Managed, h.Name) })
		mirrors = slices.DeleteFunc(mirrors, func(m argov1.SetMirrorRoute) bool { return !slices.Contains(p.Router.Managed, m.Name) })
	}
	return headers, mirrors
}

// drained is true when the new revision had no traffic before, and nobody but the stable one has pods that could be busy.
func (p *pass) drained() bool {
	recorded := p.Status.Canary.Weights
	return recorded != nil && recorded.Canary.Weight == 0 && !slices.ContainsFunc(p.Sets, func(rs ReplicaSet) bool {
		return rs.Hash != p.Status.StableRS && (rs.Spec > 0 || rs.Replicas > 0)
	})
}

// managedRoutes are the routes that the steps up to that index have made, and not taken away.
func managedRoutes(steps []argov1.CanaryStep, index *int32) (headers []argov1.SetHeaderRoute, mirrors []argov1.SetMirrorRoute) {
	if index == nil {
		return nil, nil
	}
	for _, step := range steps[:min(max(int(*index)+1, 0), len(steps))] {
		var name string
		switch {
		case step.SetHeaderRoute != nil:
			name = step.SetHeaderRoute.Name
		case step.SetMirrorRoute != nil:
			name = step.SetMirrorRoute.Name
		default:
			continue
		}
		headers = slices.DeleteFunc(headers, func(h argov1.SetHeaderRoute) bool { return h.Name == name })
		mirrors = slices.DeleteFunc(mirrors, func(m argov1.SetMirrorRoute) bool { return m.Name == name })
		if h := step.SetHeaderRoute; h != nil && len(h.Match) > 0 {
			headers = append(headers, *h)
		}
		if m := step.SetMirrorRoute; m != nil && len(m.Match) > 0 {
			mirrors = append(mirrors, *m)
		}
	}
	return headers, mirrors
}

// recordWeights notes down what the router is told, and tells people where that is news.
func (p *pass) recordWeights(e *edit, weights argov1.TrafficWeights) {
	recorded := p.Status.Canary.Weights
	told := weights
	told.Verified = nil
	same := recorded != nil
	if same {
		was := *recorded
		was.Verified = nil
		same = equality.Semantic.DeepEqual(was, told)
	}
	told.Verified = p.Router.Confirmed
	if !same && p.Router.Confirmed != nil {
		told.Verified = new(false)
	}
	e.status.Canary.Weights = &told
	p.step.Status.Canary.Weights = &told
	if told.Verified != nil && !*told.Verified {
		if !same {
			p.Router.Reason = "" // it is about what was told before
		}
		gate := p.unconfirmed(release.WaitsFor("weight", release.ByCluster, textUnserved))
		p.gate(gate)
		p.step.Unserved = &gate
	}
	e.balancers()
	if text := updatedWeights(recorded, weights); text != "" {
		e.tell(release.Normal, "TrafficWeightUpdated", text)
	}
}

// unconfirmed is a gate that waits for a router, with what that says. It is asked again after a while.
func (p *pass) unconfirmed(gate release.Gate) release.Gate {
	if p.Router.Reason != "" {
		gate.Message += ": " + p.Router.Reason
	}
	gate.Until = p.Now.Add(confirmRetry)
	if end := p.patience().Add(time.Nanosecond); p.Router.Outside && promoted(p.Status) && p.Now.Before(end) && end.Before(gate.Until) {
		gate.Until = end
	}
	return gate
}

// balancers notes down the load balancers that were found. What was noted stays where nobody looks.
func (e *edit) balancers() {
	switch found, routing := e.v.Router.Balancers, e.v.Spec.Strategy.Canary.TrafficRouting; {
	case len(found) == 0 || routing.ALB == nil:
	case len(routing.ALB.Ingresses) > 0:
		e.status.ALBs = found
	default:
		e.status.ALB = &found[0]
	}
}

// unverified is true while a router says that it does not serve yet what the last weight of all asks for.
func unverified(weights *argov1.TrafficWeights, most int32) bool {
	return weights != nil && weights.Canary.Weight >= most && weights.Verified != nil && !*weights.Verified
}

func updatedWeights(was *argov1.TrafficWeights, is argov1.TrafficWeights) string {
	var parts []string
	switch {
	case was == nil:
		parts = append(parts, fmt.Sprintf("to %d", is.Canary.Weight))
	case was.Canary.Weight != is.Canary.Weight:
		parts = append(parts, fmt.Sprintf("from %d to %d", was.Canary.Weight, is.Canary.Weight))
	}
	if was != nil && !equality.Semantic.DeepEqual(was.Additional, is.Additional) || was == nil && len(is.Additional) > 0 {
		parts = append(parts, fmt.Sprintf("additional: %v", is.Additional))
	}
	if len(parts) == 0 {
		return ""
	}
	return "Traffic weight updated " + strings.Join(parts, ", ")
}
