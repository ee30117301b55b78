package canary

import (
	"fmt"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/release"
)

// initialise creates the primary and moves the traffic to it. Until the primary can serve, the target and its route are
// unchanged, as are Services that select another primary: that of a former target, which serves until then.
func initialise(s Snapshot) Decision {
	var effects []release.Effect
	if s.Plan.RevertOnDeletion != s.Finalizer {
		effects = append(effects, HasFinalizer{Present: s.Plan.RevertOnDeletion})
	}
	if !s.Workload.ServicesSelectOther {
		effects = append(effects, ServicesExist{})
	}
	if s.Plan.RouteBeforePods {
		effects = append(effects, RoutePrepared{})
	}
	revision := s.Workload.Target.Revision
	effects = append(effects, PrimaryExists{Revision: revision, ID: s.copyIDFor("initialise", revision), Follow: true})
	if s.Workload.Primary.Found && !s.Workload.SameTemplate {
		effects = append(effects, ConfigsCollected{}) // the copies for the rollback of an earlier promotion are obsolete
	}
	conditions := []gate{metricSourcesReachable, primaryReadyFirstTime, primaryEndpoints}
	if s.Workload.ServicesSelectOther {
		conditions = conditions[:2]
	}
	gates := release.EvaluateGates(s, conditions...)
	if s.Workload.Primary.DeadlineExceeded {
		message := primaryMessage(s)
		gate := gates.Named(primaryReadyGate)
		gate.Events = append(gate.Events, release.Event{
			Type: release.Warning, Message: message, Persistent: true,
			Alert: &release.Alert{Severity: release.Error, Message: message},
		})
	}
	if gates.Verdict() != release.Pass {
		return keepStatus(s, gates, effects...)
	}
	if s.Workload.ServicesSelectOther {
		return takeOverServices(s, gates, effects)
	}
	if s.canaryRegainedTraffic() || s.drainStarted() && s.Workload.ApexSelectsTarget {
		return clearDrain(s, effects) // the drain may be that of another target, which spec.targetRef named before
	}
	effects = append(effects, ScalerExists{}, ServicesExist{Apex: true})
	switch {
	case s.canaryHasTraffic():
		// A route that is older than this Canary, or that a user wrote, sends traffic to the target, which is about to be scaled to
		// zero.
		effects = append(effects, TrafficWeight{})
	case s.Plan.HasRouter:
		effects = append(effects, RouteMaintained{})
	}
	if s.Plan.canScaleTarget() && !s.Workload.Target.isScaledToZero() {
		if !s.drainStarted() {
			return s.edit().addEffects(effects...).addStamps(release.StampDrain).addEvents(gates.Events()...).decision(gates)
		}
		gates = append(gates, release.EvaluateGates(s, drainElapsed, apexEndpoints)...)
		if gates.Verdict() != release.Pass {
			return keepStatus(s, gates, effects...)
		}
		effects = append(effects, ScalerPaused{Paused: true}, TargetScaledToZero{})
	}
	e := s.edit().addEffects(effects...).enterPhase(flaggerv1.CanaryPhaseInitialized)
	e.resetCounters()
	e.recordAppliedRevision()
	e.clearRunState()
	e.serin.Shape = s.Plan.runShape().String() // of the route: a change of the strategy or of the provider is noticed before the first run, too
	e.status.LastPromotedSpec, e.serin.Promoted, e.serin.Unfinished = e.status.LastAppliedSpec, e.serin.Revision, nil
	return e.addEvents(gates.Events()...).addEvents(release.Event{
		Type: release.Normal, Message: "Initialization done! " + s.Plan.qualifiedName(), Phase: string(flaggerv1.CanaryPhaseInitialized),
		Alert: &release.Alert{Severity: release.Info, Message: fmt.Sprintf("New %s detected, initialization completed.", s.Plan.Kind), Metadata: true},
	}).decision(gates)
}

// takeOverServices lets the Services select a primary that can serve, in place of the former one. The initialisation continues when
// they do.
func takeOverServices(s Snapshot, gates release.Gates, effects []release.Effect) Decision {
	gates = append(gates, release.NewWaitingGate("primary-endpoints", release.ByCluster,
		fmt.Sprintf("Service %s begins to select the pods of %s", s.Plan.serviceName("primary"), s.Plan.primaryName())))
	return keepStatus(s, gates, append(effects, ServicesExist{Apex: true})...)
}

// primaryReadyFirstTime is the gate primary-ready during initialisation, when the primary must also have the template of the
// target.
func primaryReadyFirstTime(s Snapshot) release.Gate {
	primary := s.Workload.Primary
	switch {
	case !primary.Found:
		return release.NewWaitingGate(primaryReadyGate, release.ByCluster, s.Plan.primaryName()+" is being created")
	case !s.Workload.SameTemplate:
		return release.NewWaitingGate(primaryReadyGate, release.ByCluster, s.Plan.primaryName()+" is being updated to the template of "+s.Plan.targetName())
	case !primary.Ready:
		return release.NewWaitingGate(primaryReadyGate, release.ByCluster, primaryMessage(s))
	default:
		return release.NewPassingGate(primaryReadyGate, formatPods(primary))
	}
}
