package rollout

import (
	"fmt"

	"github.com/serin-dev/serin/test/sim"
	"github.com/serin-dev/serin/test/sim/cluster"
	"github.com/serin-dev/serin/test/sim/kinds"
)

// Invariant is one thing that must hold whatever happens to a Rollout.
type Invariant struct {
	// Number as in docs/simulator.md.
	Number   string
	Sentence string

	check func(*ledger) checker
}

// checker looks at everything that happens, before the ledger takes it down, and at the end.
type checker interface {
	see(happening any)
	end()
}

// Invariants are all that are checked of Rollouts. I9 and I9q are the engine's; I30 is checked by a test of its own.
func Invariants() []Invariant {
	return []Invariant{
		{"I1", "no request goes to a revision without a pod that answers while another one has some, unless none are asked for", func(l *ledger) checker { return &noDeadEnd{ledger: l} }},
		{"I2", "weights are whole, add up to 100, and rise to what a step asks for, or to everything", func(l *ledger) checker { return &plannedWeights{ledger: l} }},
		{"I3", "a revision becomes stable, or gets the users of a blue-green release, only after every step and every analysis, or when a person says so", func(l *ledger) checker { return &earned{ledger: l} }},
		{"I4", "each measurement counts once, as what was answered, and a judgement ends when its limits say so, and not before", func(l *ledger) checker { return &countedOnce{ledger: l} }},
		{"I5", "a revision keeps its pods until its users have left and its delay is over", func(l *ledger) checker { return &drainedFirst{ledger: l} }},
		{"I7", "the weight rises only while the canary has the ready pods for it", func(l *ledger) checker { return &enoughPods{ledger: l} }},
		{"I8", "of objects that users made, only what is documented changes, and none is deleted", func(l *ledger) checker { return &usersOwn{ledger: l} }},
		{"I10", "no byte of a secret is in a status, an event, a log, or an object other than its Secret", func(l *ledger) checker { return &noSecrets{ledger: l} }},
		{"I11", "a measurement is asked for once by a process, and the next one no earlier than its interval says", func(l *ledger) checker { return &askedOnce{ledger: l} }},
		{"I12", "every write names the version that it was decided on", func(l *ledger) checker { return &preconditions{ledger: l} }},
		{"I13", "the status moves sensibly: steps in order, only the newest revision becomes stable, with which Services that take turns do so, no generation that was not seen", func(l *ledger) checker { return &sensibleStatus{ledger: l} }},
		{"I14", "a clock that is set makes at most one pause and one interval due, and shortens none that begins afterwards", func(l *ledger) checker { return &wholePauses{ledger: l} }},
		{"I16", "when a Rollout is deleted, its Services lead to all pods again, its route has nothing of its steps, nothing says any more that it manages them, and a Deployment that no Rollout refers to has its replicas", func(l *ledger) checker { return &givenBack{ledger: l, workloads: workloadsBack{ledger: l}} }},
		{"I17", "nothing decided or judged for an earlier revision counts for the next one", func(l *ledger) checker { return &freshStart{ledger: l} }},
		{"I18", "no more pods are asked for than the plan allows, and at rest none, and a workload that lends its template only loses its own, once others have come", func(l *ledger) checker { return &oneScaler{ledger: l} }},
		{"I19", "at rest an object is written at most once for each time that somebody else changed something, and once more after a process died at its work", func(l *ledger) checker { return &noFight{ledger: l} }},
		{"I21", "no object is looked at again and again without a change", func(l *ledger) checker { return &boundedWork{ledger: l} }},
		{"I22", "at most one AnalysisRun, Experiment and ReplicaSet for each purpose, and one Job for each measurement", func(l *ledger) checker { return &oneOfEach{ledger: l} }},
		{"I23", "an abort brings back what was stable when the release began", func(l *ledger) checker { return &stableAgain{ledger: l} }},
		{"I24", "an aborted release is never promoted, and does not go on unasked", func(l *ledger) checker { return &obeyed{ledger: l} }},
		{"I25", "a paused Rollout is not scaled, and leaves no step", func(l *ledger) checker { return &pausedStill{ledger: l} }},
		{"I26", "a release that waits says for what, and who opens it", func(l *ledger) checker { return &explainedWait{ledger: l} }},
		{"I27", "what Serin makes has an owner, and nothing of a release is left at its end, its users and the Jobs of its judgements neither", func(l *ledger) checker { return &nothingLeft{ledger: l} }},
		{"I31", "a Rollout whose Services another one manages gets nothing, and says why, and the other one keeps them", func(l *ledger) checker { return &oneOwner{ledger: l, relists: l.world.Trouble.Has(sim.Relists)} }},
		{"I34", "the share of an aborted release falls whenever stable capacity rises, whatever spec.replicas asks for, and its pending pods leave the room to stable ones", func(l *ledger) checker { return &wayBack{ledger: l} }},
		{"I36", "no series, and nothing that a process remembers, outlives its Rollout, AnalysisRun or Experiment", func(l *ledger) checker { return &forgotten{ledger: l} }},
		{"I37", "a revision gets traffic through a Service only when that publishes its pods, unless nobody else answers", func(l *ledger) checker { return &publishedFirst{ledger: l} }},
	}
}

// oracle holds a history against all invariants.
type oracle struct {
	ledger   *ledger
	checkers []checker
}

// newOracle watches a world from now on.
func newOracle(w *sim.World, c *cluster.Cluster) *oracle {
	o := &oracle{ledger: newLedger(w, c)}
	for _, invariant := range Invariants() {
		o.checkers = append(o.checkers, invariant.check(o.ledger))
	}
	w.Watch(o.see)
	return o
}

func (o *oracle) see(happening any) {
	for _, meaning := range o.ledger.read(happening) {
		for _, c := range o.checkers {
			c.see(meaning)
		}
		o.ledger.note(meaning)
	}
}

// end checks what must hold at the very end.
func (o *oracle) end() {
	for _, c := range o.checkers {
		c.end()
	}
}

// without has nothing to check at the end.
type without struct{}

func (without) end() {}

// violate records a violation.
func (l *ledger) violate(number, who, format string, args ...any) {
	if who != "" {
		who += ": "
	}
	l.world.Violate(number, "%s%s", who, fmt.Sprintf(format, args...))
}

// forgotten is I36.
type forgotten struct {
	*ledger
	without
}

func (c *forgotten) see(happening any) {
	if h, ok := happening.(kinds.Outlived); ok {
		c.violate("I36", "", "%s: %s", h.Instance, h.What)
	}
}
