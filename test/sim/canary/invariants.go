package canary

import (
	"fmt"
	"slices"
	"time"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/test/sim"
	"github.com/serin-dev/serin/test/sim/kinds"
)

// Invariant is one thing that must hold whatever happens to a Canary.
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

// Invariants are all that are checked of Canaries. I9 and I9q are the engine's; I22 and I29 are about resources that
// Canaries do not have; I20, for releases that hang, and I30 are checked by tests of their own as well.
func Invariants() []Invariant {
	return []Invariant{
		{"I1", "no request goes to a version without a ready pod while the other one has some", func(l *ledger) checker { return &noDeadEnd{ledger: l} }},
		{"I2", "weights are whole, add up to 100, are planned or somebody else's, and fall only to 0 or on the way back", func(l *ledger) checker { return &plannedWeights{ledger: l} }},
		{"I3", "the primary gets a revision only after every gate and every check passed for it, or a person asked to skip them", func(l *ledger) checker { return &earned{ledger: l} }},
		{"I4", "each window is judged once, after its full length, and failed checks are the failed windows", func(l *ledger) checker { return &judgedOnce{ledger: l} }},
		{"I5", "the canary keeps its pods until its traffic has left and drained, and a rollback raises neither weight nor pods", func(l *ledger) checker { return &drainedFirst{ledger: l} }},
		{"I6", "the primary's template changes only at creation, promotion and rollback, to what was analysed or was there before", func(l *ledger) checker { return &analysedTemplate{ledger: l} }},
		{"I7", "the weight rises only while the canary has enough ready pods", func(l *ledger) checker { return &enoughPods{ledger: l} }},
		{"I8", "of objects that users made, only what is documented changes, and none is deleted", func(l *ledger) checker { return &usersOwn{ledger: l} }},
		{"I10", "no byte of a secret is in a status, an event or an object other than the copy of that Secret", func(l *ledger) checker { return &noSecrets{ledger: l} }},
		{"I11", "a question leaves once, and once more for each crash or lost answer, with the same key; polled gates are asked once an interval", func(l *ledger) checker { return &askedOnce{ledger: l} }},
		{"I12", "every write names the version that it was decided on", func(l *ledger) checker { return &preconditions{ledger: l} }},
		{"I13", "the status moves sensibly: phases along their graph, generations never back, counters only reset with a new run", func(l *ledger) checker { return &sensibleStatus{ledger: l} }},
		{"I14", "a clock that is set makes at most one window due, and shortens none that opens afterwards", func(l *ledger) checker { return &clockProof{ledger: l} }},
		{"I15", "at take-over the apex moves to a primary that is ready, and the target loses its pods only afterwards", func(l *ledger) checker { return &takenOver{ledger: l} }},
		{"I16", "at deletion the target serves before Services and route go back, and the finalizer goes last", func(l *ledger) checker { return &givenBack{ledger: l} }},
		{"I17", "nothing counted, approved or measured for an earlier revision counts for the next one", func(l *ledger) checker { return &freshStart{ledger: l} }},
		{"I18", "the target's replicas are written at documented transitions only, the primary's with its template", func(l *ledger) checker { return &oneScaler{ledger: l} }},
		{"I19", "at rest an object is written at most once for each time that somebody else changed something", func(l *ledger) checker { return &noFight{ledger: l} }},
		{"I20", "of one release at most one question is out, and of a process no more than its limit", func(l *ledger) checker { return &boundedQuestions{ledger: l} }},
		{"I21", "no release is looked at again and again without a change", func(l *ledger) checker { return &boundedWork{ledger: l} }},
		{"I23", "a rollback brings back what was stable when the run began, and what failed is not tried again unasked", func(l *ledger) checker { return &stableAgain{ledger: l} }},
		{"I24", "a command acts once, and an aborted run is never promoted", func(l *ledger) checker { return &obeyedOnce{ledger: l} }},
		{"I25", "a suspended release has no effects", func(l *ledger) checker { return &suspendedStill{ledger: l} }},
		{"I26", "a release that waits says for what, and who opens it", func(l *ledger) checker { return &explainedWait{ledger: l} }},
		{"I27", "what Serin makes has an owner, and nothing of a run is left at its end", func(l *ledger) checker { return &nothingLeft{ledger: l} }},
		{"I28", "copies of configuration change only at creation, promotion and rollback", func(l *ledger) checker { return &promotedConfig{ledger: l} }},
		{"I31", "of two Canaries with one target, the younger one writes nothing but its status, and says why", func(l *ledger) checker { return &oneOwner{ledger: l} }},
		{"I32", "between the last progress of a copy and a rollback for its readiness lies at least the deadline", func(l *ledger) checker { return &patient{ledger: l} }},
		{"I33", "after a promotion that failed, a primary that is ready gets the users back: the promotion completes or is recorded, and no other revision has more than its first step", func(l *ledger) checker { return &reinstated{ledger: l} }},
		{"I34", "a rollback gives the primary at once the share that its pods carry, whatever replicas it asks for since, and no more", func(l *ledger) checker { return &carriedBack{ledger: l} }},
		{"I35", "receivers that hang, however many, delay no question of another namespace", func(l *ledger) checker { return &fairShare{ledger: l} }},
		{"I36", "no series, and nothing that a process remembers, outlives its Canary", func(l *ledger) checker { return &forgotten{ledger: l} }},
	}
}

// oracle holds a history against all invariants.
type oracle struct {
	ledger   *ledger
	checkers []checker
}

// newOracle watches a world from now on.
func newOracle(w *sim.World, drain time.Duration) *oracle {
	o := &oracle{ledger: newLedger(w, drain)}
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

// calm tells that the troubles are over, and clocks right.
func (o *oracle) calm() {
	o.ledger.calm = true
	if o.ledger.jumped {
		o.ledger.unsteady = o.ledger.now()
	}
}

// end checks what must hold at the very end.
func (o *oracle) end() {
	for _, c := range o.checkers {
		c.end()
	}
}

// forgotten is I36.
type forgotten struct {
	*ledger
	without
}

func (c *forgotten) see(happening any) {
	if h, ok := happening.(kinds.Outlived); ok {
		c.violate("I36", nil, "%s: %s", h.Instance, h.What)
	}
}

// without has nothing to check at the end.
type without struct{}

func (without) end() {}

// violate records a violation.
func (l *ledger) violate(number string, r *record, format string, args ...any) {
	who := ""
	if r != nil {
		who = r.key.Name + ": "
	}
	l.world.Violate(number, "%s%s", who, fmt.Sprintf(format, args...))
}

// phase of a release as the API server has it.
func (r *record) phase() flaggerv1.CanaryPhase {
	if r.status == nil {
		return ""
	}
	return r.status.Phase
}

// blocked is true of a release that a person has to mend something for.
func (r *record) blocked() bool {
	return slices.ContainsFunc(r.canary.Status.Conditions, func(c flaggerv1.CanaryCondition) bool { return c.Type == flaggerv1.ConditionBlocked })
}

// mine is false while somebody else's hands in the status make it say what Serin never decided.
func (r *record) mine() bool {
	return r.tampered.IsZero() || r.run != nil && r.tampered.Before(r.run.began)
}
