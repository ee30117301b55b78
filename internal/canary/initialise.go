package canary

import (
	"fmt"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/release"
)

// initialise makes the primary and hands the traffic over. Until the primary can serve nothing that serves is touched.
func initialise(s Snapshot) Decision {
	var effects []release.Effect
	if s.Plan.Revert != s.Finalizer {
		effects = append(effects, HasFinalizer{Held: s.Plan.Revert})
	}
	effects = append(effects, ServicesExist{})
	if s.Plan.Joins {
		effects = append(effects, RoutePrepared{})
	}
	effects = append(effects, PrimaryExists{ID: s.id("initialise", s.Workload.Target.Revision), Follow: true})
	if s.Workload.Primary.Found && !s.Workload.Same {
		effects = append(effects, ConfigsCollected{}) // what was kept for going back from a promotion before is out of date
	}
	gates := release.Look(s, sourcesKnown, primaryTaken, primaryEndpoints)
	if s.Workload.Primary.Exceeded {
		message := s.primaryMessage()
		gates[1].Events = append(gates[1].Events, release.Event{
			Type: release.Warning, Message: message, Standing: true,
			Alert: &release.Alert{Severity: release.Error, Message: message},
		})
	}
	if gates.Verdict() != release.Pass {
		return keepStatus(s, gates, effects...)
	}
	if s.trafficReturned() {
		return forgetDrain(s, effects)
	}
	effects = append(effects, ScalerExists{}, ServicesExist{Apex: true})
	switch {
	case s.canaryHasTraffic():
		// A route that is older than this Canary, or that a user wrote, routes traffic to the target, whose pods will be removed.
		effects = append(effects, RouteIs{})
	case s.Plan.Routed:
		effects = append(effects, RouteStands{})
	}
	if s.Plan.scales() && !s.Workload.Target.gone() {
		if !s.drainStarted() {
			return s.edit().effect(effects...).stamp(release.StampDrain).tell(gates.Events()...).done(gates)
		}
		gates = append(gates, release.Look(s, drained)...)
		if gates.Verdict() != release.Pass {
			return keepStatus(s, gates, effects...)
		}
		effects = append(effects, ScalerPaused{Paused: true}, DownToZero{})
	}
	e := s.edit().effect(effects...).phase(flaggerv1.CanaryPhaseInitialized)
	e.zero()
	e.applied()
	e.settle()
	e.status.LastPromotedSpec, e.serin.Promoted = e.status.LastAppliedSpec, e.serin.Revision
	return e.tell(gates.Events()...).tell(release.Event{
		Type: release.Normal, Message: "Initialization done! " + s.Plan.full(), Phase: string(flaggerv1.CanaryPhaseInitialized),
		Alert: &release.Alert{Severity: release.Info, Message: fmt.Sprintf("New %s detected, initialization completed.", s.Plan.Kind), Metadata: true},
	}).done(gates)
}

// primaryTaken is primary-ready for the first time, when the primary must also have the target's own template.
func primaryTaken(s Snapshot) release.Gate {
	primary := s.Workload.Primary
	switch {
	case !primary.Found:
		return release.WaitsFor("primary-ready", release.ByCluster, s.Plan.primary()+" is being made")
	case !s.Workload.Same:
		return release.WaitsFor("primary-ready", release.ByCluster, s.Plan.primary()+" takes over the template of "+s.Plan.workload())
	case !primary.Ready:
		return release.WaitsFor("primary-ready", release.ByCluster, s.primaryMessage())
	default:
		return release.Passes("primary-ready", pods(primary))
	}
}

// sourcesKnown asks once whether the metrics can be had. It only informs: a release that cannot be measured does not
// advance later, but taking a workload over needs no metrics.
func sourcesKnown(s Snapshot) release.Gate {
	if s.Plan.Skip {
		return release.Passes(sourcesGate, "analysis is skipped")
	}
	p := release.Probe{ID: "sources/" + s.UID, Question: SourcesQuestion{Checks: s.Plan.Checks}}
	answer, ok := s.Answers.To(p)
	switch {
	case !ok:
		return release.Asks(sourcesGate, p, "asking whether the metrics can be had")
	case answer.Outcome == release.Yes:
		g := release.Passes(sourcesGate, "all sources answer")
		g.Events = []release.Event{{Type: release.Normal, Message: "all the metrics providers are available!", Standing: true}}
		return g
	default:
		g := release.Passes(sourcesGate, "not available, which does not hold the initialisation: "+answer.Text)
		g.Events = []release.Event{{Type: release.Warning, Message: "Error checking metric providers: " + answer.Text, Standing: true, Internal: true}}
		return g
	}
}

// zero clears the counters of a run.
func (e *edit) zero() {
	e.status.CanaryWeight, e.status.FailedChecks, e.status.Iterations = 0, 0, 0
}

// applied records the target's revision as the one that was taken up, in our form and in the API's.
func (e *edit) applied() {
	w := e.s.Workload
	e.status.LastAppliedSpec, e.status.TrackedConfigs = w.Target.PeerHash, w.PeerConfigs
	e.serin.Revision, e.serin.Configs = w.Target.Revision, w.Configs
	e.leaveLine()
}
