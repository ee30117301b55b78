package canary

import (
	"slices"
	"time"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/test/sim/actors"
	"github.com/serin-dev/serin/test/sim/oracle"
)

// Invariants returns the invariants of Canaries.
func Invariants() []oracle.Invariant { return (&ledger{}).invariants() }

// invariants returns the invariants for one run. The engine checks I9 and I9q; I22 and I29 concern resources that Canaries do
// not have. Separate tests check I20 for releases that hang, and I30.
func (l *ledger) invariants() []oracle.Invariant {
	return slices.Concat(l.revisionInvariants(), l.protocolInvariants())
}

// revisionInvariants returns the invariants about weights, pods and revisions.
func (l *ledger) revisionInvariants() []oracle.Invariant {
	core := l.Ledger
	return []oracle.Invariant{
		oracle.NewInvariant("I1", "no request goes to a version without a ready pod while the other one has some",
			oracle.ReadyBackends(core, l.trafficShifts), &readyBackends{ledger: l}),
		oracle.NewInvariant("I2", "weights are integers, add up to 100, are planned or set by someone else, and fall only to 0 or during a promotion or rollback",
			oracle.PlannedWeights(core, l.plannedWeights)),
		oracle.NewInvariant("I3", "the primary gets a revision only after every gate and every check passed for it, or a user skipped them",
			oracle.GatedPromotion(core, l.advances)),
		// Not shared: Canaries count failed checks of observation windows; Rollouts evaluate measurements of AnalysisRuns.
		oracle.NewInvariant("I4", "each window is evaluated once, after its full length, and failed checks are the failed windows",
			&windowsCountedOnce{ledger: l}),
		oracle.NewInvariant("I5", "the canary keeps its pods until its traffic has left and drained, and a rollback raises neither weight nor pods",
			oracle.DrainBeforeScaleDown(core, l.scaleDowns), oracle.OnEvent(l.noRaiseInRollback)),
		oracle.NewInvariant("I6", "the primary's template changes only at creation, promotion and rollback, to the analysed or the previous template",
			&analysedTemplate{ledger: l}),
		oracle.NewInvariant("I7", "the weight rises only while the canary has enough ready pods",
			oracle.ReadyBeforeWeight(core, l.readyWeights)),
	}
}

// protocolInvariants returns the invariants about writes, queries, statuses and waits.
func (l *ledger) protocolInvariants() []oracle.Invariant {
	core, commands := l.Ledger, &executedCommands{ledger: l, executed: map[string]time.Time{}, aborted: map[string]bool{}}
	return []oracle.Invariant{
		oracle.NewInvariant("I8", "of objects that users created, only documented fields change, and none is deleted",
			&oracle.UserObjects{Ledger: core, Exempt: isSerinObject, OtherOwner: controllerOf, MayChange: mayChange}),
		oracle.NewInvariant("I10", "no byte of a secret is in a status, an event or an object other than the copy of that Secret",
			&oracle.Secrecy{Ledger: core, Planted: actors.PlantedSecret, Public: publicPart}),
		oracle.NewInvariant("I11", "a query is sent once, and once more for each crash or lost answer, with the same key; gates are polled once an interval",
			oracle.SingleQueries(core, l.queries), l.stableKeys()),
		oracle.NewInvariant("I12", "every write names the version that it was decided on",
			&oracle.Preconditions{Ledger: core, DeletesNameVersion: true}),
		oracle.NewInvariant("I13", "the status is consistent: phases follow their graph, generations never decrease, counters are reset only with a new run",
			oracle.ConsistentStatus(core, l.statusChanges), oracle.OnEvent(l.statusHistory)),
		oracle.NewInvariant("I14", "a clock change makes at most one window due, and shortens none that opens afterwards",
			oracle.FullPeriods(core, l.windows)),
		oracle.NewInvariant("I15", "at initialization the apex Service moves to a primary that is ready, and the target is scaled down only afterwards",
			&initialization{ledger: l}),
		// Not shared: a finalizer restores a Canary's objects before it is removed; a Rollout's are restored after its removal.
		oracle.NewInvariant("I16", "at deletion the target serves before Services and route are restored, and the finalizer is removed last",
			&restoration{ledger: l}),
		oracle.NewInvariant("I17", "nothing counted, approved or measured for an earlier revision counts for the next one",
			oracle.FreshStart(core, l.starts), oracle.OnEvent(l.freshSamples)),
		oracle.NewInvariant("I18", "the target's replicas are written at documented transitions only, the primary's with its template",
			oracle.NoScalingWhileIdle(core, l.scalings), oracle.OnEvent(l.documentedScaling)),
		oracle.NewInvariant("I19", "while a release is idle, an object is written at most once for each change by another actor",
			&oracle.NoConflict[*record]{Ledger: core, Idle: l.idleReleases, Excused: l.mayWriteAgain, Name: (*record).Name}),
		oracle.NewInvariant("I20", "each release has at most one query in flight, and each process no more than its limit",
			&boundedQueries{ledger: l}),
		oracle.NewInvariant("I21", "no release is reconciled repeatedly without a change",
			oracle.NewBoundedWork(core)),
		oracle.NewInvariant("I23", "a rollback restores the revision that was stable when the run began, and a failed revision is not released again without a request",
			oracle.StableAfterRollback(core, l.stableOutcomes), oracle.OnEvent(l.failedRevisions)),
		oracle.NewInvariant("I24", "a command is carried out once, and an aborted run is never promoted",
			oracle.OnEvent(commands.observe), oracle.AbortedUnpromoted(core, commands.promotions)),
		oracle.NewInvariant("I25", "a suspended release has no effects",
			oracle.Suspension(core, l.effects)),
		oracle.NewInvariant("I26", "a release that waits reports what it waits for, and who or what can end the wait",
			oracle.OnEvent(l.explainedNoRequeue), oracle.ExplainedWaits(core, l.waiting)),
		oracle.NewInvariant("I27", "each object that Serin creates has an owner, and nothing of a run remains after its end",
			&oracle.CreatedOwned{Ledger: core, Owned: isControlledByCanary}, oracle.CleanEnd(core, l.remnants)),
		oracle.NewInvariant("I28", "copies of configuration change only at creation, promotion and rollback",
			&promotedConfig{ledger: l}),
		oracle.NewInvariant("I31", "of two Canaries with one target, the newer one writes only its status, which reports the conflict",
			oracle.Exclusive(core, l.claims), oracle.AtEnd(l.explainedConflicts)),
		oracle.NewInvariant("I32", "a rollback because a workload is not ready follows its last progress by at least the deadline",
			&progressDeadline{ledger: l}),
		oracle.NewInvariant("I33", "after a failed promotion, users return to a primary that is ready: the promotion completes or is recorded, and no other revision has more than its first step",
			&failedPromotionRecovery{ledger: l}),
		oracle.NewInvariant("I34", "a rollback gives the primary at once exactly the share that its pods carry, whatever replicas are requested later",
			oracle.OnEvent(l.returnsByCapacity), oracle.RespectsCapacity(core, l.gradualRollbacks)),
		oracle.NewInvariant("I35", "receivers that do not answer, however many, delay no query of another namespace",
			&fairQueries{ledger: l}),
		oracle.NewInvariant("I36", "no series and no state in memory outlives its Canary",
			&oracle.Forgotten{Ledger: core}),
		oracle.NewInvariant("I38", "a process writes nothing after another one has taken over, however long it was suspended",
			&oracle.Fenced{Ledger: core}),
	}
}

// phase returns the phase that the API server stores.
func (r *record) phase() flaggerv1.CanaryPhase {
	if r.status == nil {
		return ""
	}
	return r.status.Phase
}

// isBlocked reports whether a user has to repair the release.
func (r *record) isBlocked() bool {
	return slices.ContainsFunc(r.canary.Status.Conditions, func(c flaggerv1.CanaryCondition) bool { return c.Type == flaggerv1.ConditionBlocked })
}

// statusBySerin reports whether the status contains no values that another actor wrote.
func (r *record) statusBySerin() bool {
	return r.statusOverwritten.IsZero() || r.run != nil && r.statusOverwritten.Before(r.run.began)
}
