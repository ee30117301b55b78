package canary

import (
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/test/sim/cluster"
	"github.com/serin-dev/serin/test/sim/oracle"
)

// Invariants are the invariants of Canaries. The engine checks I9 and I9q; I22 and I29 concern resources that Canaries do not
// have. Separate tests check I20 for releases that hang, and I30.
var Invariants = []oracle.Invariant{
	{Number: "I1", Text: "no request goes to a version without a ready pod while the other one has some"},
	{Number: "I2", Text: "weights are integers, add up to 100, are planned or set by someone else, and fall only to 0 or during a promotion or rollback"},
	{Number: "I3", Text: "the primary gets a revision only after every gate and every check passed for it, or a user skipped them"},
	// Not shared: Canaries count failed checks of observation windows; Rollouts evaluate measurements of AnalysisRuns.
	{Number: "I4", Text: "each window is evaluated once, after its full length, and failed checks are the failed windows"},
	{Number: "I5", Text: "the canary keeps its pods until its traffic has left and drained, and a rollback raises neither weight nor pods"},
	{Number: "I6", Text: "the primary's template changes only at creation, promotion and rollback, to the analysed or the previous template"},
	{Number: "I7", Text: "the weight rises only while the canary has enough ready pods"},
	{Number: "I8", Text: "of objects that users created, only documented fields change, and none is deleted"},
	{Number: "I10", Text: "no byte of a secret is in a status, an event or an object other than the copy of that Secret"},
	{Number: "I11", Text: "a query is sent once, and once more for each crash or lost answer, with the same key; gates are polled once an interval; a process repeats no `post-rollout` call whose result was stored before it started"},
	{Number: "I12", Text: "every write names the version that it was decided on"},
	{Number: "I13", Text: "the status is consistent: phases follow their graph, generations never decrease, counters are reset only with a new run"},
	{Number: "I14", Text: "a clock change makes at most one window due, and shortens none that opens afterwards"},
	{Number: "I15", Text: "at initialization the apex Service moves to a primary that is ready, and the target is scaled down when no user reaches it any more"},
	// Not shared: a finalizer restores a Canary's objects before it is removed; a Rollout's are restored after its removal.
	{Number: "I16", Text: "at the deletion of an initialized Canary, the target serves before Services and route are restored, the primary keeps its pods while users reach them through the restored Service, and the finalizer is removed last"},
	{Number: "I17", Text: "nothing counted, approved or measured for an earlier revision counts for the next one"},
	{Number: "I18", Text: "the target's replicas are written at documented transitions only, within the limit of its autoscaler, the primary's with its template"},
	{Number: "I19", Text: "while a release is idle, an object is written at most once for each change by another actor"},
	{Number: "I20", Text: "each release has at most one query in flight, and each process no more than its limit"},
	{Number: "I21", Text: "no release is reconciled repeatedly without a change"},
	{Number: "I23", Text: "a rollback restores the revision that was stable when the run began, and a failed revision is not released again without a request"},
	{Number: "I24", Text: "a command is carried out once, and an aborted run is never promoted"},
	{Number: "I25", Text: "a suspended release has no effects"},
	{Number: "I26", Text: "a release that waits reports what it waits for, and who or what can end the wait"},
	{Number: "I27", Text: "each object that Serin creates has an owner, and nothing of a run remains after its end"},
	{Number: "I28", Text: "copies of configuration change only at creation, promotion and rollback"},
	{Number: "I31", Text: "of two Canaries with one target, the one that controls its objects, or else the older one, releases it; the other one writes only its status, which reports the conflict"},
	{Number: "I32", Text: "a rollback because a workload is not ready follows its last progress by at least the deadline"},
	{Number: "I33", Text: "after a failed promotion, users return to a primary that is ready: the promotion completes or is recorded, and no other revision has more than its first step"},
	{Number: "I34", Text: "a rollback gives the primary at once exactly the share that its pods carry, whatever replicas are requested later"},
	{Number: "I35", Text: "receivers that do not answer, however many, delay no query of another namespace"},
	{Number: "I36", Text: "no series and no state in memory outlives its Canary"},
	{Number: "I38", Text: "a process writes nothing, and sends no query, after another one has taken over, however long it was suspended"},
	{Number: "I41", Text: "the status records each release that ended, once, with its result and the cause of a failure, and no record changes"},
	{Number: "I42", Text: "the status reports an alert provider that does not exist, until it does"},
	{Number: "I47", Text: "a release does not advance until the router of a Gateway reports that it has applied the route, and continues once it has; an abort does not wait for that"},
	{Number: "I48", Text: "the status reports a Gateway that no controller reports on, until one does"},
}

// checkers returns the checkers of the invariants for one run.
func (l *ledger) checkers() oracle.Checkers {
	core, checked, routes, pods, target := l.Ledger, &analyses{l}, &routeChanges{l}, &canaryPods{l}, &targetPods{l}
	sent, started, ended, shared := &sentQueries{l, map[types.UID]time.Time{}}, &newRuns{l}, &endedRuns{l}, &sharedTargets{l}
	graph, waiting, returns, idle := &statusGraph{l}, &waits{l}, &partialReturns{l}, &idleCanaries{l}
	history := &releaseHistory{l}
	commands := &executedCommands{ledger: l, executed: map[string]time.Time{}, aborted: map[string]bool{}}
	facts := oracle.Facts{
		TrafficShifts: routes.trafficShifts, PlannedWeights: routes.plannedWeights, ReadyWeights: routes.readyWeights,
		Advances: checked.advances, ScaleDowns: pods.scaleDowns, Scalings: target.scalings,
		Ownership: oracle.Ownership{Kinds: []schema.GroupKind{canaryKind}, Owned: isControlledByCanary, MayChange: mayChange},
		Public:    publicPart, Queries: sent.queries, StatusChanges: graph.statusChanges, Periods: []func(any) []oracle.Period{checked.windows},
		Starts: started.starts, StableOutcomes: ended.stableOutcomes, Promotions: commands.promotions, Effects: l.effects,
		Waiting: waiting.waiting, Remnants: ended.remnants, Claims: shared.claims, Rollbacks: returns.gradualRollbacks, DeletesNameVersion: true,
	}
	return facts.Rules(core).After(oracle.Checkers{
		"I1":  {&readyBackends{l, map[types.NamespacedName]map[int]cluster.Traffic{}}},
		"I4":  {&windowsCountedOnce{analyses: checked}},
		"I5":  {oracle.OnEvent(pods.noRaiseInRollback)},
		"I6":  {&analysedTemplate{ledger: l}},
		"I11": {sent.stableKeys()},
		"I13": {oracle.OnEvent(graph.statusHistory)},
		"I15": {&initialization{ledger: l}},
		"I16": {&restoration{ledger: l}},
		"I17": {oracle.OnEvent(started.freshSamples)},
		"I18": {oracle.OnEvent(target.documentedScaling)},
		"I19": {&oracle.NoConflict[*record]{Ledger: core, Idle: idle.idleReleases, Excused: idle.mayWriteAgain, Name: (*record).Name}},
		"I20": {&boundedQueries{ledger: l}},
		"I23": {oracle.OnEvent(ended.failedRevisions)},
		"I24": {oracle.OnEvent(commands.observe)},
		"I26": {oracle.OnEvent(waiting.explainedNoRequeue)},
		"I28": {&promotedConfig{ledger: l}},
		"I31": {oracle.AtEnd(shared.explainedConflicts)},
		"I32": {&progressDeadline{ledger: l}},
		"I33": {&failedPromotionRecovery{ledger: l}},
		"I34": {oracle.OnEvent(returns.returnsByCapacity)},
		"I35": {&fairQueries{ledger: l}},
		"I41": {oracle.OnEvent(history.recordsEachRelease)},
		"I42": {oracle.AtEnd(l.missingProviders)},
		"I47": {newRouteReports(l, checked)},
		"I48": {oracle.AtEnd(l.unreportedGateways)},
	})
}

// phase returns the phase that the API server stores.
func (r *record) phase() flaggerv1.CanaryPhase {
	if r.status == nil {
		return ""
	}
	return r.status.Phase
}

// statusBySerin reports whether the status contains no values that another actor wrote.
func (r *record) statusBySerin() bool {
	return r.statusOverwritten.IsZero() || r.run != nil && r.statusOverwritten.Before(r.run.began)
}
