package oracle

import (
	"maps"
	"slices"

	"github.com/serin-dev/serin/test/sim/actors"
	"github.com/serin-dev/serin/test/sim/store"
)

// Facts are the functions by which one API reports the facts that the shared rules evaluate.
type Facts struct {
	TrafficShifts func(event any) []TrafficShift // I1
	// PlannedWeights and ReadyWeights report the same changes: whether the plan allows them, and whether the ready pods do.
	PlannedWeights func(event any) []WeightChange      // I2
	ReadyWeights   func(event any) []WeightChange      // I7
	Advances       func(event any) []Advance           // I3
	ScaleDowns     func(event any) []ScaleDown         // I5
	Ownership      Ownership                           // I8, I27
	Public         func(*store.Version) map[string]any // I10; see Secrecy
	Queries        func(event any) []Query             // I11
	StatusChanges  func(event any) []StatusChange      // I13
	Periods        []func(event any) []Period          // I14
	Starts         func(event any) []NewRelease        // I17
	Scalings       func(event any) []Scaling           // I18
	StableOutcomes func(event any) []Outcome           // I23
	Promotions     func(event any) []Outcome           // I24
	Effects        func(event any) []Effect            // I25
	Waiting        func() []Waiting                    // I26
	Remnants       func() []Remnant                    // I27
	Claims         func(event any) []Claim             // I31
	Rollbacks      func(event any) []GradualRollback   // I34
	// DeletesNameVersion concerns I12; see Preconditions.
	DeletesNameVersion bool
}

// Checkers contains the checkers of each invariant, by its number.
type Checkers map[string][]Checker

// Rules returns the rules that are the same for every API.
func (f Facts) Rules(l *Ledger) Checkers {
	rules := Checkers{
		"I1":  {ReadyBackends(l, f.TrafficShifts)},
		"I2":  {PlannedWeights(l, f.PlannedWeights)},
		"I3":  {GatedPromotion(l, f.Advances)},
		"I5":  {DrainBeforeScaleDown(l, f.ScaleDowns)},
		"I7":  {ReadyBeforeWeight(l, f.ReadyWeights)},
		"I8":  {&UserObjects{Ledger: l, Ownership: f.Ownership}},
		"I10": {&Secrecy{Ledger: l, Planted: actors.PlantedSecret, Public: f.Public}},
		"I11": {SingleQueries(l, f.Queries)},
		"I12": {&Preconditions{Ledger: l, DeletesNameVersion: f.DeletesNameVersion}},
		"I13": {ConsistentStatus(l, f.StatusChanges)},
		"I17": {FreshStart(l, f.Starts)},
		"I18": {NoScalingWhileIdle(l, f.Scalings)},
		"I21": {NewBoundedWork(l)},
		"I23": {StableAfterRollback(l, f.StableOutcomes)},
		"I24": {AbortedUnpromoted(l, f.Promotions)},
		"I25": {Suspension(l, f.Effects)},
		"I26": {ExplainedWaits(l, f.Waiting)},
		"I27": {&CreatedOwned{Ledger: l, Ownership: f.Ownership}, CleanEnd(l, f.Remnants)},
		"I31": {Exclusive(l, f.Claims)},
		"I34": {RespectsCapacity(l, f.Rollbacks)},
		"I36": {&Forgotten{Ledger: l}},
		"I38": {&Fenced{Ledger: l}},
	}
	for _, periods := range f.Periods {
		rules["I14"] = append(rules["I14"], FullPeriods(l, periods))
	}
	return rules
}

// After returns the checkers of an API together with the shared rules, which follow those of the same invariant: a rule may
// evaluate facts of an event that a checker of the API has recorded.
func (c Checkers) After(own Checkers) Checkers {
	all := maps.Clone(own)
	for number, rules := range c {
		all[number] = slices.Concat(own[number], rules)
	}
	return all
}
