package canary

import (
	"fmt"
	"slices"
	"strings"

	"github.com/serin-dev/serin/internal/release"
)

// This file contains the facts about the traffic of the canary, and the corrections of traffic that something else changed.

// isRouteObserved reports whether the route could be read.
func (s *Snapshot) isRouteObserved() bool {
	return s.Plan.HasRouter && s.Route.Found && s.Route.Problem == ""
}

// currentWeight is the current weight of the canary: that of the router where there is one.
func (s *Snapshot) currentWeight() int {
	switch {
	case !s.Plan.HasRouter:
		return 0
	case s.isRouteObserved():
		return s.Route.Canary
	default:
		return s.Status.CanaryWeight
	}
}

// canaryHasTraffic reports whether the canary receives, or may still receive, requests of users.
func (s *Snapshot) canaryHasTraffic() bool {
	return s.Plan.HasRouter && (s.currentWeight() > 0 || s.Status.CanaryWeight > 0 || s.Route.Mirrored)
}

// hasUnrecordedTraffic reports whether the canary has traffic that the status does not record, because something else changed the
// route. Traffic that was recorded less than half a drain delay ago counts as recorded.
func (s *Snapshot) hasUnrecordedTraffic() bool {
	last := s.serin().LastTraffic
	recorded := last != nil && s.Now.Before(last.Add(s.Plan.Drain/2))
	return s.currentWeight() > 0 && s.Status.CanaryWeight == 0 && s.Plan.Drain > 0 && !recorded
}

// recordUnrecordedTraffic records that the canary has traffic, before that traffic is removed: a crash afterwards must not skip
// the drain.
func recordUnrecordedTraffic(s Snapshot) Decision {
	return s.editUnchanged().addStamps(release.StampTrafficEnded).decision(nil) // with the condition Blocked, if there is one
}

// drainStarted reports whether the canary lost its traffic and the drain delay began.
func (s *Snapshot) drainStarted() bool { return s.serin().DrainUntil != nil }

// trafficReturned reports whether the canary has traffic again after it lost it: a user changed the route.
func (s *Snapshot) trafficReturned() bool {
	return s.drainStarted() && s.isRouteObserved() && (s.Route.Canary > 0 || s.Route.Mirrored)
}

// clearDrain removes the previous drain from the status before the traffic moves again, so that a crash in between does not
// shorten the next drain.
func clearDrain(s Snapshot, effects []release.Effect) Decision {
	e := s.edit().addEffects(effects...)
	e.serin.DrainUntil = nil
	return e.decision(nil)
}

// sendsTrafficToEmptyTarget reports whether traffic is routed to a target without pods while the primary could serve it. A former
// leader that was suspended may have written such a route after the rollback; see docs/adr/0004.
func (s *Snapshot) sendsTrafficToEmptyTarget() bool {
	target := s.Workload.Target
	return s.isRouteObserved() && s.Route.Canary > 0 && s.Plan.canScaleTarget() && target.Found && target.isScaledToZero() && s.primaryReachable()
}

// withTrafficRescue routes such traffic to the primary, in addition to the decision about an idle release. This is the only
// case in which Serin changes the weight of an idle release.
func withTrafficRescue(s Snapshot, d Decision) Decision {
	if !s.sendsTrafficToEmptyTarget() || slices.ContainsFunc(d.Effects, removesCanaryTraffic) {
		return d
	}
	d.Effects = append(d.Effects, TrafficWeight{})
	d.Events = append(d.Events, release.Event{Type: release.Warning, Message: fmt.Sprintf(
		"Routing all traffic of %s to primary: %d%% was routed to %s, which has no pods", s.Plan.qualifiedName(), s.Route.Canary, s.Plan.targetName(),
	)})
	return d
}

// removesCanaryTraffic reports whether an effect leaves the canary without traffic.
func removesCanaryTraffic(effect release.Effect) bool {
	route, ok := effect.(TrafficWeight)
	return ok && route.Canary == 0
}

// routingProvider is the provider that routes the traffic of the run, if the plan names another one by now; empty: the same.
func (s *Snapshot) routingProvider() string {
	parts := strings.Split(s.serin().Shape, "/")
	if len(parts) < 2 || parts[1] == s.Plan.Provider || parts[1] == ProviderKubernetes {
		return ""
	}
	return parts[1]
}
