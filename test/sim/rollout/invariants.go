package rollout

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/serin-dev/serin/test/sim/actors"
	"github.com/serin-dev/serin/test/sim/oracle"
	"github.com/serin-dev/serin/test/sim/store"
)

// Invariants are the table of Rollouts.
func Invariants() []oracle.Invariant { return (&ledger{}).invariants() }

// invariants are the table for one run. I9 and I9q are the engine's; a test of its own checks I30.
func (l *ledger) invariants() []oracle.Invariant {
	return slices.Concat(l.revisionInvariants(), l.protocolInvariants())
}

// revisionInvariants are those of weights, pods and revisions.
func (l *ledger) revisionInvariants() []oracle.Invariant {
	core, weights, drained := l.Ledger, &putWeights{l, map[oracle.ObjectKey][]share{}}, &drains{l, map[string]time.Time{}}
	return []oracle.Invariant{
		oracle.Holds("I1", "no request goes to a revision without a pod that answers while another one has some, unless the spec requests no pods",
			oracle.ReadyBackends(core, weights.moves)),
		oracle.Holds("I2", "weights are integers, add up to 100, and rise only to the weight of a step or to 100",
			oracle.PlannedWeights(core, l.plannedWeights)),
		oracle.Holds("I3", "a revision becomes stable, or gets the users of a blue-green release, only after every step and every analysis, or when a user promotes it",
			oracle.GatedPromotion(core, l.advances)),
		// Not shared: Canaries count failed checks of observation windows; Rollouts evaluate measurements of AnalysisRuns.
		oracle.Holds("I4", "each measurement counts once, with the answered result, and an analysis ends exactly when its limits say so",
			&measurementsCountedOnce{ledger: l}),
		oracle.Holds("I5", "a revision keeps its pods until its users have left and its delay is over",
			oracle.DrainBeforeScaleDown(core, drained.scaleDowns)),
		oracle.Holds("I7", "the weight rises only while the canary has enough ready pods for it",
			oracle.ReadyBeforeWeight(core, l.readyWeights)),
	}
}

// protocolInvariants are those of writes, queries, statuses and waits.
func (l *ledger) protocolInvariants() []oracle.Invariant {
	core, conflicts := l.Ledger, &exclusiveServices{ledger: l, managers: map[string]manager{}}
	measured, paused, suspended := newMeasurementTimes(l), &pauses{l, map[types.UID]time.Time{}}, &knownPauses{l, map[types.UID]bool{}}
	aborts := &gradualAborts{l, map[types.UID]abort{}}
	return []oracle.Invariant{
		oracle.Holds("I8", "of objects that users created, only documented fields change, and none is deleted",
			&oracle.UserObjects{Ledger: core, Exempt: ofSerin, OtherOwner: func(*store.Version) string { return "" }, MayChange: l.mayChange}),
		oracle.Holds("I10", "no byte of a secret is in a status, an event, a log, or an object other than its Secret",
			&oracle.Secrecy{Ledger: core, Planted: actors.Planted, Public: (*store.Version).Content}),
		oracle.Holds("I11", "a process requests each measurement once, and the next one no earlier than after its interval",
			oracle.SingleQueries(core, measured.queries)),
		oracle.Holds("I12", "every write names the version that it was decided on",
			&oracle.Preconditions{Ledger: core}),
		oracle.Holds("I13", "the status is consistent: steps in order, only the newest revision becomes stable, ping-pong Services switch with it, no generation is reported that was not observed",
			oracle.ConsistentStatus(core, l.statusChanges), oracle.OnEvent(l.statusHistory)),
		oracle.Holds("I14", "a clock change makes at most one pause and one interval due, and shortens none that begins afterwards",
			oracle.FullPeriods(core, paused.ended), oracle.FullPeriods(core, measured.intervals)),
		// Not shared: a Rollout has no finalizer, so its objects are restored after its removal; a Canary's before.
		oracle.Holds("I16", "when a Rollout is deleted, its Services select all pods again, its route has nothing of its steps, no annotation names it as the manager, and a Deployment that no Rollout references has its replicas",
			&removal{ledger: l}, &workloadRestoration{ledger: l}),
		oracle.Holds("I17", "nothing decided or measured for an earlier revision counts for the next one",
			oracle.FreshStart(core, l.starts)),
		oracle.Holds("I18", "no more pods are requested than the plan allows, and none at rest, and a referenced workload is only scaled down, after other pods are ready",
			oracle.NoScalingAtRest(core, l.scalings), oracle.OnEvent(l.surge), oracle.OnEvent(l.lent)),
		oracle.Holds("I19", "at rest an object is written at most once for each change by someone else, and once more after a crash",
			&oracle.NoConflict[*record]{Ledger: core, AtRest: l.atRest, Excused: l.mayWriteAgain, Name: (*record).Name}),
		oracle.Holds("I21", "no object is reconciled repeatedly without a change",
			oracle.NewBoundedWork(core)),
		oracle.Holds("I22", "at most one AnalysisRun, Experiment and ReplicaSet for each purpose, and one Job for each measurement",
			&uniqueObjects{ledger: l}),
		oracle.Holds("I23", "an abort restores the revision that was stable when the release began",
			oracle.StableAfterRollback(core, l.stableOutcomes), oracle.AtEnd(l.abortedUsers)),
		oracle.Holds("I24", "an aborted release is never promoted, and continues only on request",
			oracle.AbortedUnpromoted(core, l.stableOutcomes), oracle.OnEvent(l.abortRevoked)),
		oracle.Holds("I25", "a paused Rollout is not scaled, and completes no step",
			oracle.Suspension(core, suspended.effects)),
		oracle.Holds("I26", "a release that waits reports what it waits for, and who or what can end the wait",
			oracle.ExplainedWaits(core, l.waiting), oracle.AtEnd(l.observedGenerations)),
		oracle.Holds("I27", "each object that Serin creates has an owner, and nothing of a release remains after its end, including its users and the Jobs of its analyses",
			&oracle.CreatedOwned{Ledger: core, Owned: controlled}, oracle.CleanEnd(core, l.remainders), &jobsOfRuns{l, map[types.UID]time.Time{}}),
		oracle.Holds("I31", "a Rollout whose Services another one manages has no effects and reports the conflict, and the other one keeps managing them",
			conflicts, oracle.Exclusive(core, conflicts.claims)),
		oracle.Holds("I34", "the share of an aborted release falls whenever stable capacity rises, whatever spec.replicas is, and its pending pods are removed in favor of stable ones",
			oracle.OnEvent(aborts.note), oracle.GradualReturn(core, aborts.returns), oracle.OnEvent(aborts.pending)),
		oracle.Holds("I36", "no series and no state in memory outlives its Rollout, AnalysisRun or Experiment",
			&oracle.Forgotten{Ledger: core}),
		oracle.Holds("I37", "a revision gets traffic through a Service only after the Service publishes its pods, unless no other revision answers",
			&endpointsBeforeWeight{ledger: l}),
		oracle.Holds("I38", "a process writes nothing after another one has taken over, however long it was suspended",
			&oracle.Fenced{Ledger: core}),
	}
}
