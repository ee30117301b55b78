package canary

import (
	"fmt"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/release"
)

// finalizeDeletion restores the user's objects: it scales the target up, restores Services and route, then removes the
// finalizer. The primary serves until the requests that were sent to it are completed; it is garbage-collected with the Canary.
func finalizeDeletion(s Snapshot) Decision {
	if !s.Plan.RevertOnDeletion {
		return keepStatus(s, nil, HasFinalizer{Present: false}) // the user cleared revertOnDeletion after the deletion
	}
	terminated := release.Event{Type: release.Normal, Message: "Terminated canary " + s.Plan.qualifiedName()}
	if !hasTakenOver(s) {
		d := keepStatus(s, nil, UserObjectsRestored{}, HasFinalizer{Present: false})
		d.Events = append(d.Events, terminated)
		return d
	}
	switch s.Status.Phase {
	case flaggerv1.CanaryPhaseTerminating, flaggerv1.CanaryPhaseTerminated:
	default:
		return s.edit().enterPhase(flaggerv1.CanaryPhaseTerminating).clearRunState().addEvents(release.Event{
			Type: release.Normal, Message: "Terminating canary " + s.Plan.qualifiedName(),
		}).decision(nil)
	}
	if !s.Workload.Target.Found {
		// There is no target to return the traffic to; the objects that Serin created are deleted with the Canary.
		d := keepStatus(s, nil, HasFinalizer{Present: false})
		d.Events = append(d.Events, terminated)
		return d
	}
	effects := []release.Effect{ScalerPaused{Paused: false}, TargetScaledUp{ToPrimaryCapacity: true}}
	gates := release.EvaluateGates(s, targetCanServe, targetEndpoints)
	if gates.Verdict() != release.Pass {
		return keepStatus(s, gates, effects...)
	}
	effects = append(effects, UserObjectsRestored{})
	if !s.drainStarted() {
		return s.edit().addEffects(effects...).addStamps(release.StampDrain).decision(gates)
	}
	gates = append(gates, release.EvaluateGates(s, drainElapsed, apexEndpointsAfterRestoration)...)
	if gates.Verdict() != release.Pass {
		return keepStatus(s, gates, effects...)
	}
	d := keepStatus(s, gates, append(effects, HasFinalizer{Present: false})...)
	d.Events = append(d.Events, terminated)
	return d
}

// hasTakenOver reports whether the target may have been scaled down, or requests may be routed to the primary. Until the end of the
// initialization neither is the case: the target, which the user may have stopped or which may be broken, must not be scaled, and
// the deletion must not wait for it. The phase alone is not sufficient: a status that was lost begins with it again, the Service that
// clients call is changed before the end of the phase is recorded, and Flagger scales the target down before it changes that Service.
func hasTakenOver(s Snapshot) bool {
	w := s.Workload
	apexChanged := w.ApexSelectsPrimary && !w.ApexSelectsTarget
	scaledDown := w.Target.isScaledToZero() && w.Primary.canServe()
	return s.Status.Phase != flaggerv1.CanaryPhaseInitializing || s.drainStarted() || apexChanged || scaledDown || !s.Plan.canScaleTarget()
}

// removeFinalizerOnly removes the finalizer of a Canary whose target belongs to another Canary. Nothing is restored, because the
// other Canary uses these objects.
func removeFinalizerOnly(s Snapshot) Decision {
	d := keepStatus(s, nil, HasFinalizer{Present: false})
	d.Events = append(d.Events, release.Event{Type: release.Warning, Message: "The original objects of " + s.Plan.qualifiedName() + " are not restored: " + s.TargetConflict})
	return d
}

// targetCanServe is the gate that passes when the target can carry the traffic of the primary, as far as its autoscaler permits.
// Once the user's objects are restored, the user decides about the number of its pods.
func targetCanServe(s Snapshot) release.Gate {
	target := s.Workload.Target
	enough := userObjectsRestored(s) || !s.Plan.hasReplicaCount() || target.Replicas >= s.Workload.returnCapacity()
	if target.Ready && target.Replicas > 0 && enough {
		return release.NewPassingGate("target-ready", formatPods(target))
	}
	message := target.Message
	switch {
	case message != "":
	case target.Replicas == 0:
		message = "waiting for rollout to finish: it has no pods yet"
	default:
		message = fmt.Sprintf("it has %s, but the primary has %d", release.Count(int(target.Replicas), "pod"), s.Workload.Primary.Replicas)
	}
	return release.NewWaitingGate("target-ready", release.ByCluster, fmt.Sprintf("%s not ready: %s", s.Plan.targetName(), message))
}

// targetEndpoints delays the restoration of Services and route until the target is reachable. It passes if the Service whose
// endpoints show that is already deleted, or if one of the Services selects the pods of another target.
func targetEndpoints(s Snapshot) release.Gate {
	endpoints, selectOther := s.Workload.Target.Endpoints, s.Workload.ServicesSelectOther || s.Workload.CanaryServiceSelectsOther
	enough := max(s.Workload.Target.RequiredPods, 1)
	if userObjectsRestored(s) || endpoints.NoService || selectOther || endpoints.AtLeast(enough) {
		return release.NewPassingGate("target-endpoints", endpoints.Message())
	}
	if target := s.Workload.Target; !target.Ready || target.Replicas == 0 {
		return release.NewWaitingGate("target-endpoints", release.ByCluster, awaitingReadyPods)
	}
	return release.NewWaitingGate("target-endpoints", release.ByCluster, missingEndpoints(endpoints, s.Plan.serviceName("canary"), enough))
}

// userObjectsRestored reports whether the user's Services and route have been restored.
func userObjectsRestored(s Snapshot) bool {
	return s.serin().DrainUntil != nil || s.Status.Phase == flaggerv1.CanaryPhaseTerminated
}
