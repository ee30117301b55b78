package rollout

import (
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/serin-dev/serin/test/sim/actors"
	"github.com/serin-dev/serin/test/sim/oracle"
	"github.com/serin-dev/serin/test/sim/store"
)

// Invariants are the invariants of Rollouts. The engine checks I9 and I9q; a separate test checks I30.
var Invariants = []oracle.Invariant{
	{Number: "I1", Text: "no request goes to a revision without a pod that answers while another one has some, unless the spec requests no pods"},
	{Number: "I2", Text: "weights are integers, add up to 100, and rise only to the weight of a step or to 100"},
	{Number: "I3", Text: "a revision becomes stable, or gets the users of a blue-green release, only after every step and every analysis, or when a user promotes it"},
	// Not shared: Canaries count failed checks of observation windows; Rollouts evaluate measurements of AnalysisRuns.
	{Number: "I4", Text: "each measurement counts once, with the answered result, and an analysis ends exactly when its limits say so"},
	{Number: "I5", Text: "a revision keeps its pods until its users have left and its delay is over"},
	{Number: "I7", Text: "the weight rises only while the canary has enough ready pods for it"},
	{Number: "I8", Text: "of objects that users created, only documented fields change, and none is deleted"},
	{Number: "I10", Text: "no byte of a secret is in a status, an event, a log, or an object other than its Secret"},
	{Number: "I11", Text: "a process requests each measurement once, none whose result was stored before the process started, and the next one no earlier than after its interval"},
	{Number: "I12", Text: "every write names the version that it was decided on"},
	{Number: "I13", Text: "the status is consistent: steps in order, only the newest revision becomes stable, ping-pong Services switch with it, no deadline passes during a delay, no generation is reported that was not observed"},
	{Number: "I14", Text: "a clock change makes at most one pause and one interval due, and shortens none that begins afterwards"},
	// Not shared: a Rollout has no finalizer, so its objects are restored after its removal; a Canary's before.
	{Number: "I16", Text: "when a Rollout is deleted, its Services select all pods again, its route has nothing of its steps, no annotation names it as the manager, and a Deployment that no Rollout references has its replicas"},
	{Number: "I17", Text: "nothing decided or measured for an earlier revision counts for the next one"},
	{Number: "I18", Text: "no more pods are requested than the plan allows, and none while the release is idle, and a referenced workload is only scaled down, after other pods are ready"},
	{Number: "I19", Text: "while a release is idle, an object is written at most once for each change by another actor, and once more after a crash"},
	{Number: "I21", Text: "no object is reconciled repeatedly without a change"},
	{Number: "I22", Text: "at most one AnalysisRun, Experiment and ReplicaSet for each purpose, and one Job for each measurement"},
	{Number: "I23", Text: "an abort restores the revision that was stable when the release began"},
	{Number: "I24", Text: "an aborted release is never promoted, and continues only on request"},
	{Number: "I25", Text: "a paused Rollout is not scaled, and completes no step"},
	{Number: "I26", Text: "a release that waits reports what it waits for, and who or what can end the wait"},
	{Number: "I27", Text: "each object that Serin creates has an owner, and nothing of a release remains after its end, including its users and the Jobs of its analyses"},
	{Number: "I31", Text: "a Rollout whose Services another one manages has no effects and reports the conflict, and the other one keeps managing them"},
	{Number: "I34", Text: "the share of an aborted release falls whenever stable capacity rises, whatever spec.replicas is (unless its spec is invalid), and its pending pods are removed in favor of stable ones"},
	{Number: "I36", Text: "no series and no state in memory outlives its Rollout, AnalysisRun or Experiment"},
	{Number: "I37", Text: "a revision gets traffic through a Service only after the Service publishes its pods, unless no other revision answers"},
	{Number: "I38", Text: "a process writes nothing, and sends no query, after another one has taken over, however long it was suspended"},
	{Number: "I43", Text: "a step plugin is called once at a time, with its stored state: to run during its step, no earlier than it requested, and after an abort to end each executed step, the last one first"},
	{Number: "I44", Text: "a measurement by a plugin has the phase that the plugin returned, an error without a valid one, and is resumed no earlier than the plugin requested"},
	{Number: "I45", Text: "the last pods of a revision are removed only while the router plugin sends no requests to it"},
	{Number: "I46", Text: "a router plugin is called for the route in the status, never for an earlier one after a later one, and the number of a route identifies it"},
	{Number: "I47", Text: "a release does not advance until the router of a Gateway reports that it has applied the route, and continues once it has"},
	{Number: "I49", Text: "a weight of a step with a background analysis is analysed, also if its AnalysisTemplate cannot be read for a while"},
}

// checkers returns the checkers of the invariants for one run.
func (l *ledger) checkers() oracle.Checkers {
	core, weights, drained := l.Ledger, &writtenWeights{l, map[oracle.ObjectKey][]weightedDestination{}}, &drains{l, map[string]time.Time{}}
	measured, paused, suspended := newMeasurementTimes(l), &pauses{l, map[types.UID]time.Time{}}, &knownPauses{l, map[types.UID]bool{}}
	conflicts, aborts := &exclusiveServices{ledger: l, managers: map[string]manager{}}, &gradualAborts{l, map[types.UID]abort{}}
	planned, promoted, requested, reported := &canaryWeights{l}, &gatedPromotions{l, map[servedRevision]bool{}}, &requestedPods{l}, &statusReports{l, map[types.UID]delayEnd{}}
	fields, idle, final := &documentedFields{l}, &idleRollouts{l}, &finalStatuses{l}
	facts := oracle.Facts{
		TrafficShifts: weights.trafficShifts, PlannedWeights: planned.plannedWeights, ReadyWeights: planned.readyWeights,
		Advances: promoted.advances, ScaleDowns: drained.scaleDowns, Scalings: requested.scalings,
		Ownership: oracle.Ownership{Kinds: []schema.GroupKind{actors.ReplicaSetKind}, Owned: hasController, MayChange: fields.mayChange},
		Public:    (*store.Version).Content, Queries: measured.queries, StatusChanges: reported.statusChanges,
		Periods: []func(any) []oracle.Period{paused.endedPauses, measured.intervals}, Starts: reported.starts,
		StableOutcomes: reported.stableOutcomes, Promotions: reported.stableOutcomes, Effects: suspended.effects,
		Waiting: final.waiting, Remnants: final.remnants, Claims: conflicts.claims, Rollbacks: aborts.gradualRollbacks,
	}
	return facts.Rules(core).After(oracle.Checkers{
		"I4":  {&measurementsCountedOnce{ledger: l}},
		"I13": {oracle.OnEvent(reported.statusHistory)},
		"I16": {&networkRestoration{ledger: l}, &workloadRestoration{ledger: l}},
		"I18": {oracle.OnEvent(requested.limitedSurge), oracle.OnEvent(requested.workloadScaling)},
		"I19": {&oracle.NoConflict[*record]{Ledger: core, Idle: idle.idleReleases, Excused: idle.mayWriteAgain, Name: (*record).Name}},
		"I22": {&uniqueObjects{ledger: l}},
		"I23": {oracle.AtEnd(final.abortedUsers)},
		"I24": {oracle.OnEvent(reported.abortRevoked)},
		"I26": {oracle.AtEnd(final.observedGenerations)},
		"I27": {&jobsOfRuns{l, map[types.UID]time.Time{}}},
		"I31": {conflicts},
		"I34": {oracle.OnEvent(aborts.record), oracle.OnEvent(aborts.checkPendingPods)},
		"I43": {oracle.OnEvent(newPluginCalls(l).check)},
		"I44": {oracle.OnEvent(newPluginMeasurements(l).check)},
		"I45": {oracle.OnEvent(newRouterPluginRoutes(l).checkPods)},
		"I46": {oracle.OnEvent(newRouterPluginRoutes(l).checkOrder)},
		"I47": {newRouteReports(l)},
		"I49": {oracle.OnEvent((&analysedWeights{l, map[types.UID]time.Time{}}).check)},
		"I37": {&endpointsBeforeWeight{ledger: l, published: map[endpointsKey]*oracle.Timeline[int]{}}},
	})
}
