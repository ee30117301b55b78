package canary

import (
	"fmt"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/release"
)

// leave gives a workload back to its user: pods first, then Services and route, the finalizer last. The primary serves
// until everything that was sent to it has been answered; it is collected with the Canary.
func leave(s Snapshot) Decision {
	if s.Status.Phase != flaggerv1.CanaryPhaseTerminating {
		return s.edit().phase(flaggerv1.CanaryPhaseTerminating).tell(release.Event{
			Type: release.Normal, Message: "Terminating canary " + s.Plan.full(),
		}).done(nil)
	}
	goodbye := release.Event{Type: release.Normal, Message: "Terminated canary " + s.Plan.full()}
	if !s.Workload.Target.Found {
		// Nothing is left to give back to; what we made goes with the Canary.
		d := hold(s, nil, HasFinalizer{})
		d.Events = append(d.Events, goodbye)
		return d
	}
	effects := []release.Effect{ScalerPaused{Paused: false}, UpFromZero{Like: true}}
	gates := release.Look(s, targetServes)
	if gates.Verdict() != release.Pass {
		return hold(s, gates, effects...)
	}
	effects = append(effects, GivenBack{})
	if s.serin().DrainUntil == nil && !s.Pruned {
		return s.edit().effect(effects...).stamp(release.StampDrain).done(gates)
	}
	gates = append(gates, release.Look(s, drained)...)
	if gates.Verdict() != release.Pass {
		return hold(s, gates, effects...)
	}
	d := hold(s, gates, append(effects, HasFinalizer{})...)
	d.Events = append(d.Events, goodbye)
	return d
}

// targetServes is passed when the target can carry what the primary carries now.
func targetServes(s Snapshot) release.Gate {
	target := s.Workload.Target
	if target.Ready && target.Replicas > 0 {
		return release.Passes("target-ready", fmt.Sprintf("%d pods available", target.Available))
	}
	message := target.Message
	if message == "" {
		message = "waiting for rollout to finish: it has no pods yet"
	}
	return release.WaitsFor("target-ready", release.ByCluster, fmt.Sprintf("%s not ready: %s", s.Plan.workload(), message))
}
