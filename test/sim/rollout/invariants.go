package rollout

import "github.com/serin-dev/serin/test/sim/oracle"

// Invariants are all that are checked of Rollouts. I9 and I9q are the engine's; I30 is checked by a test of its own.
func Invariants() []oracle.Invariant[*ledger] { return invariants }

var invariants = []oracle.Invariant[*ledger]{
	{
		Number: "I1", Text: "no request goes to a revision without a pod that answers while another one has some, unless none are asked for",
		New: func(l *ledger) oracle.Checker { return &readyBackends{ledger: l} },
	},
	{
		Number: "I2", Text: "weights are whole, add up to 100, and rise to what a step asks for, or to everything",
		New: func(l *ledger) oracle.Checker { return &plannedWeights{ledger: l} },
	},
	{
		Number: "I3", Text: "a revision becomes stable, or gets the users of a blue-green release, only after every step and every analysis, or when a person says so",
		New: func(l *ledger) oracle.Checker { return &gatedPromotion{ledger: l} },
	},
	{
		Number: "I4", Text: "each measurement counts once, as what was answered, and a judgement ends when its limits say so, and not before",
		New: func(l *ledger) oracle.Checker { return &measurementsCountedOnce{ledger: l} },
	},
	{
		Number: "I5", Text: "a revision keeps its pods until its users have left and its delay is over",
		New: func(l *ledger) oracle.Checker { return &drainBeforeScaleDown{ledger: l} },
	},
	{
		Number: "I7", Text: "the weight rises only while the canary has the ready pods for it",
		New: func(l *ledger) oracle.Checker { return &readyBeforeWeight{ledger: l} },
	},
	{
		Number: "I8", Text: "of objects that users made, only what is documented changes, and none is deleted",
		New: newUserObjects,
	},
	{
		Number: "I10", Text: "no byte of a secret is in a status, an event, a log, or an object other than its Secret",
		New: newSecrecy,
	},
	{
		Number: "I11", Text: "a measurement is asked for once by a process, and the next one no earlier than its interval says",
		New: func(l *ledger) oracle.Checker { return &singleQueries{ledger: l} },
	},
	{
		Number: "I12", Text: "every write names the version that it was decided on",
		New: func(l *ledger) oracle.Checker { return &oracle.Preconditions{Ledger: l.Ledger} },
	},
	{
		Number: "I13", Text: "the status moves sensibly: steps in order, only the newest revision becomes stable, with which Services that take turns do so, no generation that was not seen",
		New: func(l *ledger) oracle.Checker { return &consistentStatus{ledger: l} },
	},
	{
		Number: "I14", Text: "a clock that is set makes at most one pause and one interval due, and shortens none that begins afterwards",
		New: func(l *ledger) oracle.Checker { return &fullPauses{ledger: l} },
	},
	{
		Number: "I16", Text: "when a Rollout is deleted, its Services lead to all pods again, its route has nothing of its steps, nothing says any more that it manages them, and a Deployment that no Rollout refers to has its replicas",
		New: func(l *ledger) oracle.Checker {
			return &restoration{ledger: l, workloads: workloadRestoration{ledger: l}}
		},
	},
	{
		Number: "I17", Text: "nothing decided or judged for an earlier revision counts for the next one",
		New: func(l *ledger) oracle.Checker { return &freshRun{ledger: l} },
	},
	{
		Number: "I18", Text: "no more pods are asked for than the plan allows, and at rest none, and a workload that lends its template only loses its own, once others have come",
		New: func(l *ledger) oracle.Checker { return &boundedScaling{ledger: l} },
	},
	{
		Number: "I19", Text: "at rest an object is written at most once for each time that somebody else changed something, and once more after a process died at its work",
		New: newNoConflict,
	},
	{
		Number: "I21", Text: "no object is looked at again and again without a change",
		New: func(l *ledger) oracle.Checker { return oracle.NewBoundedWork(l.Ledger) },
	},
	{
		Number: "I22", Text: "at most one AnalysisRun, Experiment and ReplicaSet for each purpose, and one Job for each measurement",
		New: func(l *ledger) oracle.Checker { return &uniqueObjects{ledger: l} },
	},
	{
		Number: "I23", Text: "an abort brings back what was stable when the release began",
		New: func(l *ledger) oracle.Checker { return &rollbackToStable{ledger: l} },
	},
	{
		Number: "I24", Text: "an aborted release is never promoted, and does not go on unasked",
		New: func(l *ledger) oracle.Checker { return &abortedStays{ledger: l} },
	},
	{
		Number: "I25", Text: "a paused Rollout is not scaled, and leaves no step",
		New: func(l *ledger) oracle.Checker { return &pausedUnscaled{ledger: l} },
	},
	{
		Number: "I26", Text: "a release that waits says for what, and who opens it",
		New: func(l *ledger) oracle.Checker { return &explainedWaits{ledger: l} },
	},
	{
		Number: "I27", Text: "what Serin makes has an owner, and nothing of a release is left at its end, its users and the Jobs of its judgements neither",
		New: newCleanEnd,
	},
	{
		Number: "I31", Text: "a Rollout whose Services another one manages gets nothing, and says why, and the other one keeps them",
		New: func(l *ledger) oracle.Checker { return &exclusiveServices{ledger: l} },
	},
	{
		Number: "I34", Text: "the share of an aborted release falls whenever stable capacity rises, whatever spec.replicas asks for, and its pending pods leave the room to stable ones",
		New: func(l *ledger) oracle.Checker { return &gradualAbort{ledger: l} },
	},
	{
		Number: "I36", Text: "no series, and nothing that a process remembers, outlives its Rollout, AnalysisRun or Experiment",
		New: func(l *ledger) oracle.Checker { return &oracle.Forgotten{Ledger: l.Ledger} },
	},
	{
		Number: "I37", Text: "a revision gets traffic through a Service only when that publishes its pods, unless nobody else answers",
		New: func(l *ledger) oracle.Checker { return &endpointsBeforeWeight{ledger: l} },
	},
}
