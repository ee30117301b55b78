package canary

import (
	"slices"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/test/sim/oracle"
)

// Invariants are all that are checked of Canaries. I9 and I9q are the engine's; I22 and I29 are about resources that
// Canaries do not have; I20, for releases that hang, and I30 are checked by tests of their own as well.
func Invariants() []oracle.Invariant[*ledger] { return invariants }

var invariants = []oracle.Invariant[*ledger]{
	{
		Number: "I1", Text: "no request goes to a version without a ready pod while the other one has some",
		New: func(l *ledger) oracle.Checker { return &readyBackends{ledger: l} },
	},
	{
		Number: "I2", Text: "weights are whole, add up to 100, are planned or somebody else's, and fall only to 0 or on the way back",
		New: func(l *ledger) oracle.Checker { return &plannedWeights{ledger: l} },
	},
	{
		Number: "I3", Text: "the primary gets a revision only after every gate and every check passed for it, or a person asked to skip them",
		New: func(l *ledger) oracle.Checker { return &gatedPromotion{ledger: l} },
	},
	{
		Number: "I4", Text: "each window is judged once, after its full length, and failed checks are the failed windows",
		New: func(l *ledger) oracle.Checker { return &windowsJudgedOnce{ledger: l} },
	},
	{
		Number: "I5", Text: "the canary keeps its pods until its traffic has left and drained, and a rollback raises neither weight nor pods",
		New: func(l *ledger) oracle.Checker { return &drainBeforeScaleDown{ledger: l} },
	},
	{
		Number: "I6", Text: "the primary's template changes only at creation, promotion and rollback, to what was analysed or was there before",
		New: func(l *ledger) oracle.Checker { return &analysedTemplate{ledger: l} },
	},
	{
		Number: "I7", Text: "the weight rises only while the canary has enough ready pods",
		New: func(l *ledger) oracle.Checker { return &readyBeforeWeight{ledger: l} },
	},
	{
		Number: "I8", Text: "of objects that users made, only what is documented changes, and none is deleted",
		New: newUserObjects,
	},
	{
		Number: "I10", Text: "no byte of a secret is in a status, an event or an object other than the copy of that Secret",
		New: newSecrecy,
	},
	{
		Number: "I11", Text: "a question leaves once, and once more for each crash or lost answer, with the same key; polled gates are asked once an interval",
		New: func(l *ledger) oracle.Checker { return &singleQueries{ledger: l} },
	},
	{
		Number: "I12", Text: "every write names the version that it was decided on",
		New: func(l *ledger) oracle.Checker {
			return &oracle.Preconditions{Ledger: l.Ledger, DeletesNameVersion: true}
		},
	},
	{
		Number: "I13", Text: "the status moves sensibly: phases along their graph, generations never back, counters only reset with a new run",
		New: func(l *ledger) oracle.Checker { return &consistentStatus{ledger: l} },
	},
	{
		Number: "I14", Text: "a clock that is set makes at most one window due, and shortens none that opens afterwards",
		New: func(l *ledger) oracle.Checker { return &clockTolerance{ledger: l} },
	},
	{
		Number: "I15", Text: "at take-over the apex moves to a primary that is ready, and the target loses its pods only afterwards",
		New: func(l *ledger) oracle.Checker { return &takeover{ledger: l} },
	},
	{
		Number: "I16", Text: "at deletion the target serves before Services and route go back, and the finalizer goes last",
		New: func(l *ledger) oracle.Checker { return &restoration{ledger: l} },
	},
	{
		Number: "I17", Text: "nothing counted, approved or measured for an earlier revision counts for the next one",
		New: func(l *ledger) oracle.Checker { return &freshRun{ledger: l} },
	},
	{
		Number: "I18", Text: "the target's replicas are written at documented transitions only, the primary's with its template",
		New: func(l *ledger) oracle.Checker { return &documentedScaling{ledger: l} },
	},
	{
		Number: "I19", Text: "at rest an object is written at most once for each time that somebody else changed something",
		New: newNoConflict,
	},
	{
		Number: "I20", Text: "of one release at most one question is out, and of a process no more than its limit",
		New: func(l *ledger) oracle.Checker { return &boundedQueries{ledger: l} },
	},
	{
		Number: "I21", Text: "no release is looked at again and again without a change",
		New: func(l *ledger) oracle.Checker { return oracle.NewBoundedWork(l.Ledger) },
	},
	{
		Number: "I23", Text: "a rollback brings back what was stable when the run began, and what failed is not tried again unasked",
		New: func(l *ledger) oracle.Checker { return &rollbackToStable{ledger: l} },
	},
	{
		Number: "I24", Text: "a command acts once, and an aborted run is never promoted",
		New: func(l *ledger) oracle.Checker { return &commandsOnce{ledger: l} },
	},
	{
		Number: "I25", Text: "a suspended release has no effects",
		New: func(l *ledger) oracle.Checker { return &suspension{ledger: l} },
	},
	{
		Number: "I26", Text: "a release that waits says for what, and who opens it",
		New: func(l *ledger) oracle.Checker { return &explainedWaits{ledger: l} },
	},
	{
		Number: "I27", Text: "what Serin makes has an owner, and nothing of a run is left at its end",
		New: newCleanEnd,
	},
	{
		Number: "I28", Text: "copies of configuration change only at creation, promotion and rollback",
		New: func(l *ledger) oracle.Checker { return &promotedConfig{ledger: l} },
	},
	{
		Number: "I31", Text: "of two Canaries with one target, the younger one writes nothing but its status, and says why",
		New: func(l *ledger) oracle.Checker { return &exclusiveTarget{ledger: l} },
	},
	{
		Number: "I32", Text: "between the last progress of a copy and a rollback for its readiness lies at least the deadline",
		New: func(l *ledger) oracle.Checker { return &progressDeadline{ledger: l} },
	},
	{
		Number: "I33", Text: "after a promotion that failed, a primary that is ready gets the users back: the promotion completes or is recorded, and no other revision has more than its first step",
		New: func(l *ledger) oracle.Checker { return &failedPromotionRecovery{ledger: l} },
	},
	{
		Number: "I34", Text: "a rollback gives the primary at once the share that its pods carry, whatever replicas it asks for since, and no more",
		New: func(l *ledger) oracle.Checker { return &gradualRollback{ledger: l} },
	},
	{
		Number: "I35", Text: "receivers that hang, however many, delay no question of another namespace",
		New: func(l *ledger) oracle.Checker { return &fairSlots{ledger: l} },
	},
	{
		Number: "I36", Text: "no series, and nothing that a process remembers, outlives its Canary",
		New: func(l *ledger) oracle.Checker { return &oracle.Forgotten{Ledger: l.Ledger} },
	},
}

// phase of a release as the API server has it.
func (r *record) phase() flaggerv1.CanaryPhase {
	if r.status == nil {
		return ""
	}
	return r.status.Phase
}

// blocked is true of a release that a user has to mend something for.
func (r *record) blocked() bool {
	return slices.ContainsFunc(r.canary.Status.Conditions, func(c flaggerv1.CanaryCondition) bool { return c.Type == flaggerv1.ConditionBlocked })
}

// mine is false while someone else's hands in the status make it say what Serin never decided.
func (r *record) mine() bool {
	return r.tampered.IsZero() || r.run != nil && r.tampered.Before(r.run.began)
}
