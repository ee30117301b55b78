package rollout

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/serin-dev/serin/test/sim/actors"
	"github.com/serin-dev/serin/test/sim/oracle"
	"github.com/serin-dev/serin/test/sim/store"
)

// Invariants returns the invariants of Rollouts.
func Invariants() []oracle.Invariant { return (&ledger{}).invariants() }

// invariants returns the invariants for one run. The engine checks I9 and I9q; a separate test checks I30.
func (l *ledger) invariants() []oracle.Invariant {
	return slices.Concat(l.revisionInvariants(), l.protocolInvariants())
}

// revisionInvariants returns the invariants about weights, pods and revisions.
func (l *ledger) revisionInvariants() []oracle.Invariant {
	core, weights, drained := l.Ledger, &writtenWeights{l, map[oracle.ObjectKey][]weightedDestination{}}, &drains{l, map[string]time.Time{}}
	return []oracle.Invariant{
		oracle.NewInvariant("I1", "no request goes to a revision without a pod that answers while another one has some, unless the spec requests no pods",
			oracle.ReadyBackends(core, weights.trafficShiftsOf)),
		oracle.NewInvariant("I2", "weights are integers, add up to 100, and rise only to the weight of a step or to 100",
			oracle.PlannedWeights(core, l.plannedWeights)),
		oracle.NewInvariant("I3", "a revision becomes stable, or gets the users of a blue-green release, only after every step and every analysis, or when a user promotes it",
			oracle.GatedPromotion(core, l.advances)),
		// Not shared: Canaries count failed checks of observation windows; Rollouts evaluate measurements of AnalysisRuns.
		oracle.NewInvariant("I4", "each measurement counts once, with the answered result, and an analysis ends exactly when its limits say so",
			&measurementsCountedOnce{ledger: l}),
		oracle.NewInvariant("I5", "a revision keeps its pods until its users have left and its delay is over",
			oracle.DrainBeforeScaleDown(core, drained.scaleDowns)),
		oracle.NewInvariant("I7", "the weight rises only while the canary has enough ready pods for it",
			oracle.ReadyBeforeWeight(core, l.readyWeights)),
	}
}

// protocolInvariants returns the invariants about writes, queries, statuses and waits.
func (l *ledger) protocolInvariants() []oracle.Invariant {
	core, conflicts := l.Ledger, &exclusiveServices{ledger: l, managers: map[string]manager{}}
	measured, paused, suspended := newMeasurementTimes(l), &pauses{l, map[types.UID]time.Time{}}, &knownPauses{l, map[types.UID]bool{}}
	aborts := &gradualAborts{l, map[types.UID]abort{}}
	return []oracle.Invariant{
		oracle.NewInvariant("I8", "of objects that users created, only documented fields change, and none is deleted",
			&oracle.UserObjects{Ledger: core, Exempt: isSerinObject, OtherOwner: func(*store.Version) string { return "" }, MayChange: l.mayChange}),
		oracle.NewInvariant("I10", "no byte of a secret is in a status, an event, a log, or an object other than its Secret",
			&oracle.Secrecy{Ledger: core, Planted: actors.PlantedSecret, Public: (*store.Version).Content}),
		oracle.NewInvariant("I11", "a process requests each measurement once, and the next one no earlier than after its interval",
			oracle.SingleQueries(core, measured.queries)),
		oracle.NewInvariant("I12", "every write names the version that it was decided on",
			&oracle.Preconditions{Ledger: core}),
		oracle.NewInvariant("I13", "the status is consistent: steps in order, only the newest revision becomes stable, ping-pong Services switch with it, no generation is reported that was not observed",
			oracle.ConsistentStatus(core, l.statusChanges), oracle.OnEvent(l.statusHistory)),
		oracle.NewInvariant("I14", "a clock change makes at most one pause and one interval due, and shortens none that begins afterwards",
			oracle.FullPeriods(core, paused.endedPauses), oracle.FullPeriods(core, measured.intervals)),
		// Not shared: a Rollout has no finalizer, so its objects are restored after its removal; a Canary's before.
		oracle.NewInvariant("I16", "when a Rollout is deleted, its Services select all pods again, its route has nothing of its steps, no annotation names it as the manager, and a Deployment that no Rollout references has its replicas",
			&networkRestoration{ledger: l}, &workloadRestoration{ledger: l}),
		oracle.NewInvariant("I17", "nothing decided or measured for an earlier revision counts for the next one",
			oracle.FreshStart(core, l.starts)),
		oracle.NewInvariant("I18", "no more pods are requested than the plan allows, and none while the release is idle, and a referenced workload is only scaled down, after other pods are ready",
			oracle.NoScalingWhileIdle(core, l.scalings), oracle.OnEvent(l.limitedSurge), oracle.OnEvent(l.workloadScaling)),
		oracle.NewInvariant("I19", "while a release is idle, an object is written at most once for each change by another actor, and once more after a crash",
			&oracle.NoConflict[*record]{Ledger: core, Idle: l.idleReleases, Excused: l.mayWriteAgain, Name: (*record).Name}),
		oracle.NewInvariant("I21", "no object is reconciled repeatedly without a change",
			oracle.NewBoundedWork(core)),
		oracle.NewInvariant("I22", "at most one AnalysisRun, Experiment and ReplicaSet for each purpose, and one Job for each measurement",
			&uniqueObjects{ledger: l}),
		oracle.NewInvariant("I23", "an abort restores the revision that was stable when the release began",
			oracle.StableAfterRollback(core, l.stableOutcomes), oracle.AtEnd(l.abortedUsers)),
		oracle.NewInvariant("I24", "an aborted release is never promoted, and continues only on request",
			oracle.AbortedUnpromoted(core, l.stableOutcomes), oracle.OnEvent(l.abortRevoked)),
		oracle.NewInvariant("I25", "a paused Rollout is not scaled, and completes no step",
			oracle.Suspension(core, suspended.effects)),
		oracle.NewInvariant("I26", "a release that waits reports what it waits for, and who or what can end the wait",
			oracle.ExplainedWaits(core, l.waiting), oracle.AtEnd(l.observedGenerations)),
		oracle.NewInvariant("I27", "each object that Serin creates has an owner, and nothing of a release remains after its end, including its users and the Jobs of its analyses",
			&oracle.CreatedOwned{Ledger: core, Owned: hasController}, oracle.CleanEnd(core, l.remnants), &jobsOfRuns{l, map[types.UID]time.Time{}}),
		oracle.NewInvariant("I31", "a Rollout whose Services another one manages has no effects and reports the conflict, and the other one keeps managing them",
			conflicts, oracle.Exclusive(core, conflicts.claims)),
		oracle.NewInvariant("I34", "the share of an aborted release falls whenever stable capacity rises, whatever spec.replicas is (unless its spec is invalid), and its pending pods are removed in favor of stable ones",
			oracle.OnEvent(aborts.record), oracle.RespectsCapacity(core, aborts.gradualRollbacks), oracle.OnEvent(aborts.checkPendingPods)),
		oracle.NewInvariant("I36", "no series and no state in memory outlives its Rollout, AnalysisRun or Experiment",
			&oracle.Forgotten{Ledger: core}),
		oracle.NewInvariant("I37", "a revision gets traffic through a Service only after the Service publishes its pods, unless no other revision answers",
			&endpointsBeforeWeight{ledger: l}),
		oracle.NewInvariant("I38", "a process writes nothing after another one has taken over, however long it was suspended",
			&oracle.Fenced{Ledger: core}),
	}
}
