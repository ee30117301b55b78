package canary

import (
	"fmt"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/release"
)

// advance takes the next step of the plan, and opens its window.
func advance(e *edit, gates release.Gates) Decision {
	s := e.s
	e.serin.Held, e.serin.Unreachable = "", nil
	switch s.Plan.Strategy {
	case ABTesting:
		if s.Status.Iterations >= s.Plan.Iterations {
			return promote(e, gates)
		}
		e.effect(RouteIs{Canary: release.Total})
		e.status.CanaryWeight = release.Total
		return e.iterate(gates)
	case BlueGreen:
		switch {
		case s.Status.Iterations < s.Plan.Iterations:
			e.status.CanaryWeight = s.live()
			if (s.Plan.Mirror || s.live() > 0) && (s.live() == 0 || s.primaryReachable()) {
				e.effect(RouteIs{Mirror: s.Plan.Mirror})
				if s.live() > 0 {
					e.stamp(release.StampLeft)
				}
				e.status.CanaryWeight = 0
			}
			return e.iterate(gates)
		case s.live() >= release.Total, !s.Plan.Routed && s.Status.Iterations > s.Plan.Iterations:
			return promote(e, gates)
		}
		return e.routeAll(gates)
	default:
		return advanceWeight(e, gates)
	}
}

func (e *edit) iterate(gates release.Gates) Decision {
	e.status.Iterations++
	e.phase(flaggerv1.CanaryPhaseProgressing)
	return e.window().tell(release.Event{
		Type: release.Normal, Message: fmt.Sprintf("Advance %s canary iteration %d/%d", e.s.Plan.full(), e.status.Iterations, e.s.Plan.Iterations),
	}).done(gates)
}

// routeAll opens the last window of blue/green, in which the new revision has all users.
func (e *edit) routeAll(gates release.Gates) Decision {
	s := e.s
	e.status.Iterations = max(s.Status.Iterations, s.Plan.Iterations) + 1
	if s.Plan.Routed {
		message := "Routing all traffic to canary"
		if s.Plan.Mirror {
			message = "Stop traffic mirroring and route all traffic to canary"
		}
		e.tell(release.Event{Type: release.Normal, Message: message}).effect(RouteIs{Canary: release.Total})
		e.status.CanaryWeight = release.Total
	}
	e.window()
	e.serin.Window.Unobserved = !s.Plan.Routed
	return e.done(gates)
}

func advanceWeight(e *edit, gates release.Gates) Decision {
	s := e.s
	live := s.live()
	_, open := s.start()
	switch {
	case live == 0 && s.Plan.Mirror && (!s.Route.Mirrored || !open):
		e.phase(flaggerv1.CanaryPhaseProgressing)
		return e.effect(RouteIs{Mirror: true}).window().tell(advanced(s, 0)).done(gates)
	case live > 0 && !open:
		// A weight that was there before the run, after a promotion that failed or a crash: it is observed before anything else.
		e.status.CanaryWeight = live
		return e.cookies().window().tell(advanced(s, live)).done(gates)
	case live >= s.Plan.Max:
		return promote(e, gates)
	}
	weight := s.Plan.next(live)
	e.phase(flaggerv1.CanaryPhaseProgressing)
	e.effect(RouteIs{Canary: weight})
	e.status.CanaryWeight = weight
	return e.cookies().window().tell(advanced(s, weight)).done(gates)
}

// cookies names the session cookies of the run, once traffic is split.
func (e *edit) cookies() *edit {
	s := e.s
	if s.Plan.Cookie != "" && e.status.SessionAffinityCookie == "" {
		e.status.SessionAffinityCookie = s.Plan.Cookie + "=" + letters(s.UID, s.run(), "canary-cookie")
	}
	if s.Plan.PrimaryCookie != "" && e.status.PrimarySessionAffinityCookie == "" {
		e.status.PrimarySessionAffinityCookie = s.Plan.PrimaryCookie + "=" + letters(s.UID, s.run(), "primary-cookie")
	}
	return e
}

// forgetCookie lets the router take the run's cookie back from clients.
func (e *edit) forgetCookie() {
	if e.status.SessionAffinityCookie != "" {
		e.status.PreviousSessionAffinityCookie, e.status.SessionAffinityCookie = e.status.SessionAffinityCookie, ""
	}
}
