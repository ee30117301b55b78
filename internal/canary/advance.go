package canary

import (
	"fmt"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/release"
)

// advanceOrPromote advances to the next step of the plan and opens its window, or starts the promotion after the last one.
func advanceOrPromote(e *statusEdit, gates release.Gates) Decision {
	s := e.snapshot
	if s.hasCommand(CommandPromote) && s.approvedByCommand() {
		e.addEvents(release.Event{Type: release.Normal, Message: fmt.Sprintf("Approved the next step of %s by command", s.Plan.targetName())})
	}
	e.recordApproval()
	e.serin.Unreachable = nil
	switch s.Plan.Strategy {
	case ABTesting:
		if s.Status.Iterations >= s.Plan.Iterations {
			return startPromotion(e, gates)
		}
		e.addEffects(TrafficWeight{Canary: release.Total})
		e.status.CanaryWeight = release.Total
		return nextIteration(e, gates)
	case BlueGreen:
		switch {
		case s.Status.Iterations < s.Plan.Iterations:
			e.status.CanaryWeight = s.currentWeight()
			if (s.Plan.Mirror || s.currentWeight() > 0) && (s.currentWeight() == 0 || s.primaryReachable()) {
				e.addEffects(TrafficWeight{Mirror: s.Plan.Mirror})
				if s.currentWeight() > 0 {
					e.addStamps(release.StampTrafficEnded)
				}
				e.status.CanaryWeight = 0
			}
			return nextIteration(e, gates)
		case s.currentWeight() >= release.Total, !s.Plan.HasRouter && s.Status.Iterations > s.Plan.Iterations:
			return startPromotion(e, gates)
		}
		return routeAllToCanary(e, gates)
	default:
		return advanceWeight(e, gates)
	}
}

func nextIteration(e *statusEdit, gates release.Gates) Decision {
	e.status.Iterations++
	e.enterPhase(flaggerv1.CanaryPhaseProgressing)
	return e.startWindow().addEvents(release.Event{
		Type: release.Normal, Message: fmt.Sprintf("Advance %s canary iteration %d/%d", e.snapshot.Plan.qualifiedName(), e.status.Iterations, e.snapshot.Plan.Iterations),
	}).decision(gates)
}

// routeAllToCanary opens the last window of blue/green, in which the new revision has all traffic.
func routeAllToCanary(e *statusEdit, gates release.Gates) Decision {
	s := e.snapshot
	e.status.Iterations = max(s.Status.Iterations, s.Plan.Iterations) + 1
	if s.Plan.HasRouter {
		message := "Routing all traffic to canary"
		if s.Plan.Mirror {
			message = "Stop traffic mirroring and route all traffic to canary"
		}
		e.addEvents(release.Event{Type: release.Normal, Message: message}).addEffects(TrafficWeight{Canary: release.Total})
		e.status.CanaryWeight = release.Total
	}
	e.startWindow()
	e.serin.Window.Unobserved = !s.Plan.HasRouter
	return e.decision(gates)
}

func advanceWeight(e *statusEdit, gates release.Gates) Decision {
	s := e.snapshot
	live := s.currentWeight()
	open := s.currentWindow().open
	switch {
	case live == 0 && s.Plan.Mirror && (!s.Route.Mirrored || !open):
		e.enterPhase(flaggerv1.CanaryPhaseProgressing)
		return e.addEffects(TrafficWeight{Mirror: true}).startWindow().addEvents(weightAdvancedEvent(s, 0)).decision(gates)
	case live > 0 && !open:
		// The canary had this weight before the run, after a failed promotion or a crash: it is observed first.
		e.status.CanaryWeight = live
		return e.setCookies().startWindow().addEvents(weightAdvancedEvent(s, live)).decision(gates)
	case live >= s.Plan.MaxWeight:
		return startPromotion(e, gates)
	}
	weight := s.Plan.nextWeight(live)
	e.enterPhase(flaggerv1.CanaryPhaseProgressing)
	e.addEffects(TrafficWeight{Canary: weight})
	e.status.CanaryWeight = weight
	return e.setCookies().startWindow().addEvents(weightAdvancedEvent(s, weight)).decision(gates)
}

func weightAdvancedEvent(s Snapshot, weight int) release.Event {
	return release.Event{Type: release.Normal, Message: fmt.Sprintf("Advance %s canary weight %d", s.Plan.qualifiedName(), weight)}
}
