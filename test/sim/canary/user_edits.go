package canary

import (
	"time"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/test/sim"
	"github.com/serin-dev/serin/test/sim/actors"
)

// moments are the parts of a release in which users edit its spec.
var moments = []func(*flaggerv1.CanaryStatus) bool{
	func(s *flaggerv1.CanaryStatus) bool { return isAnalysing(s.Phase) && s.CanaryWeight > 0 },
	func(s *flaggerv1.CanaryStatus) bool { return s.Phase == flaggerv1.CanaryPhasePromoting },
	func(s *flaggerv1.CanaryStatus) bool { return s.Phase == flaggerv1.CanaryPhaseFinalising },
	func(s *flaggerv1.CanaryStatus) bool { return s.Serin != nil && s.Serin.Intent == "rollback" },
}

// awaitedEdit is an edit that users make at the next moment of a release.
type awaitedEdit struct {
	moment func(*flaggerv1.CanaryStatus) bool
	do     func()
}

// editDuringRelease changes how the traffic of a release is routed, at a moment at which that matters.
func (u *users) editDuringRelease(r *Release, s *sim.Stream) {
	moment, what := sim.Pick(s, moments...), s.Int(0, 2)
	delay := sim.Pick(s, 0, time.Second, 5*time.Second, 20*time.Second)
	iterations, steps := s.Int(1, 4), sim.Pick(s, []int{10, 40}, []int{25, 50, 75}, []int{60})
	provider := sim.Pick(s, actors.NoRouter, actors.Istio, actors.GatewayAPI)
	r.awaited = &awaitedEdit{moment, func() {
		u.After(delay, func() {
			switch what {
			case 0:
				u.changeMatch(r, iterations)
			case 1:
				u.changeSteps(r, steps)
			default:
				u.changeProvider(r, provider)
			}
		})
	}}
}

// changeMatch removes the match of an A/B test, so that blue/green remains, or makes a release an A/B test.
func (u *users) changeMatch(r *Release, iterations int) {
	what := "remove the match"
	if u.updateSpec(r, func(c *flaggerv1.Canary) {
		a := c.Spec.Analysis
		if len(a.Match) > 0 {
			a.Match = nil
			return
		}
		what = "match a header"
		a.Iterations = iterations
		a.Match = []flaggerv1.AnalysisMatch{{Headers: map[string]flaggerv1.HeaderMatch{"x-canary": {Exact: "always"}}}}
	}) {
		u.UserClient.TraceAction(r.Key, "%s", what)
	}
}

// changeSteps gives a release these weights.
func (u *users) changeSteps(r *Release, steps []int) {
	if u.updateSpec(r, func(c *flaggerv1.Canary) {
		a := c.Spec.Analysis
		a.Iterations, a.Match, a.StepWeight, a.StepWeights = 0, nil, 0, steps
	}) {
		u.UserClient.TraceAction(r.Key, "set the steps %v", steps)
	}
}

// changeProvider names another provider. The clients of the release still follow the route of the first one. Users do not change it
// while another controller's status hides which provider routes now: nothing else records that.
func (u *users) changeProvider(r *Release, provider string) {
	if c := u.storedCanary(r.Key); c == nil || c.Status.Phase != "" && (c.Status.Serin == nil || c.Status.Serin.Shape == "") {
		return
	}
	if u.updateSpec(r, func(c *flaggerv1.Canary) {
		c.Spec.Provider = provider
		if provider == actors.GatewayAPI {
			c.Spec.Service.GatewayRefs = []flaggerv1.GatewayReference{{Name: "public", Namespace: new("gateways")}}
		}
	}) {
		u.UserClient.TraceAction(r.Key, "use the provider %s", provider)
	}
}

// editAtMoment makes an edit for which users have waited.
func (u *users) editAtMoment(written sim.ObjectWritten) {
	for _, r := range u.Releases {
		if r.awaited == nil || r.Key != written.Key || u.Stopped {
			continue
		}
		if c := u.storedCanary(r.Key); c != nil && r.awaited.moment(&c.Status) {
			edit := r.awaited
			r.awaited = nil
			edit.do()
		}
	}
}
