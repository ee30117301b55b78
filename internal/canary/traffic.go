package canary

import (
	"time"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
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
	return s.previousProviderRoutes() || s.Plan.HasRouter && (s.currentWeight() > 0 || s.Status.CanaryWeight > 0 || s.Route.Mirrored)
}

// routeHasOtherMatches reports whether the weight of the route applies to other requests than the plan intends, because
// spec.analysis.match was added or removed. Such a route must not be written with its weight: if the weight of an A/B test applied
// to all requests, all users would be routed to the canary. The status may not record whose weight it is: a process that acted on
// an outdated route may have restarted the run. It matters only for a route that cannot be read.
func (s *Snapshot) routeHasOtherMatches() bool {
	if s.isRouteObserved() && s.Route.Canary > 0 {
		return s.Route.OtherMatches
	}
	recorded, known := s.recordedShape()
	return known && (recorded.Strategy == ABTesting) != (s.Plan.Strategy == ABTesting) && s.canaryHasTraffic()
}

// hasUnrecordedTraffic reports whether the canary has traffic that the status does not record, because something else changed the
// route or the Service that clients call. Traffic that was recorded less than half a drain delay ago counts as recorded.
func hasUnrecordedTraffic(s Snapshot) bool {
	last := s.serin().LastTraffic
	recorded := last != nil && s.Now.Before(last.Add(s.Plan.Drain/2))
	routed := s.currentWeight() > 0 && s.Status.CanaryWeight == 0
	return (routed || targetReceivesApexTraffic(s)) && s.Plan.Drain > 0 && !recorded
}

// targetReceivesApexTraffic reports whether the Service that clients call sends requests to the target, although the Canary is
// initialised.
func targetReceivesApexTraffic(s Snapshot) bool {
	initialised := s.Status.Phase != "" && s.Status.Phase != flaggerv1.CanaryPhaseInitializing
	return initialised && s.Workload.ApexSelectsTarget && s.Workload.Target.canServe()
}

// mayHaveRequestsInFlight reports whether the canary may have received requests a moment ago, although neither the route nor the
// status shows it: the weight in the status was overwritten while the weight of the route was removed. An open window shows that
// the canary had a weight.
func mayHaveRequestsInFlight(s Snapshot) bool {
	return s.Plan.HasRouter && s.Plan.Strategy == Weighted && s.serin().Window != nil && !s.canaryHasTraffic()
}

// drainStarted reports whether the canary lost its traffic and the drain delay began.
func (s *Snapshot) drainStarted() bool { return s.serin().DrainUntil != nil }

// routeReachesCanary reports whether the observed route sends requests to the canary, or copies of them.
func (s *Snapshot) routeReachesCanary() bool {
	return s.isRouteObserved() && (s.Route.Canary > 0 || s.Route.Mirrored)
}

// canaryRegainedTraffic reports whether the route reaches the canary again after the drain began: a user changed the route.
func (s *Snapshot) canaryRegainedTraffic() bool { return s.drainStarted() && s.routeReachesCanary() }

// previousProviderRoutes reports whether the route of another provider than that of the plan may still send traffic to the canary:
// the provider was changed during the run. That route is not observed.
func (s *Snapshot) previousProviderRoutes() bool {
	return (IsActivePhase(s.Status.Phase) || s.Status.CanaryWeight > 0) && !s.drainStarted() && s.routingProvider() != ""
}

// trafficEnded are the effects with which the canary loses its traffic: at the provider that routes the traffic of the run, if the
// plan names another one by now, and at that of the plan. A plan that became invalid with its new provider never had a route, so one
// that exists is another's; it matters only if it sends requests to the canary.
func trafficEnded(s Snapshot) []release.Effect {
	var effects []release.Effect
	if previous := s.routingProvider(); previous != "" {
		effects = append(effects, TrafficWeight{Provider: previous})
	}
	if s.Plan.HasRouter && (len(effects) == 0 || len(s.Plan.ValidationErrors) == 0 || s.routeReachesCanary()) {
		effects = append(effects, TrafficWeight{})
	}
	return effects
}

// routingProvider is the provider that routes the traffic of the run, or of a run whose promotion failed, if the plan names another one
// by now; empty: the same.
func (s *Snapshot) routingProvider() string {
	var former []string
	if recorded, known := s.recordedShape(); known {
		former = append(former, recorded.Provider)
	}
	if unfinished := s.serin().Unfinished; unfinished != nil {
		former = append(former, unfinished.Provider)
	}
	for _, provider := range former {
		if provider != "" && provider != s.Plan.Provider && provider != ProviderKubernetes {
			return provider
		}
	}
	return ""
}

// UnreportedAfter is how long a controller may take to report on a Gateway of a route before the user has to act.
const UnreportedAfter = 30 * time.Second

// isReportOverdue reports whether a controller has had enough time to report on a Gateway of the route, and when it has had it; zero:
// there is no Gateway without a report.
func (s *Snapshot) isReportOverdue() (overdue bool, due time.Time) {
	if !s.Plan.HasRouter || s.Route.Unreported.Message == "" {
		return false, time.Time{}
	}
	due = s.clampToNow(s.Route.Unreported.Since).Add(UnreportedAfter)
	return !s.Now.Before(due), due
}
