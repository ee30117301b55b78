package canary

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
)

// TestMaxWeight: the last of stepWeights, at most 100; else maxWeight when it is above zero; else 100 (Flagger's rule).
func TestMaxWeight(t *testing.T) {
	for _, test := range []struct {
		name     string
		analysis flaggerv1.CanaryAnalysis
		want     int
	}{
		{"nothing", flaggerv1.CanaryAnalysis{}, 100},
		{"max", flaggerv1.CanaryAnalysis{MaxWeight: 50}, 50},
		{"one", flaggerv1.CanaryAnalysis{MaxWeight: 1}, 1},
		{"all", flaggerv1.CanaryAnalysis{MaxWeight: 100}, 100},
		{"more than all is kept, for the plan to complain", flaggerv1.CanaryAnalysis{MaxWeight: 130}, 130},
		{"less than nothing", flaggerv1.CanaryAnalysis{MaxWeight: -1}, 100},
		{"steps win", flaggerv1.CanaryAnalysis{MaxWeight: 50, StepWeights: []int{10, 80}}, 80},
		{"steps end at all", flaggerv1.CanaryAnalysis{StepWeights: []int{50, 120}}, 100},
		{"one step", flaggerv1.CanaryAnalysis{StepWeights: []int{5}}, 5},
	} {
		if got := maxWeight(&test.analysis); got != test.want {
			t.Errorf("%s: maxWeight(%+v) = %d, want %d", test.name, test.analysis, got, test.want)
		}
	}
}

func TestNextWeight(t *testing.T) {
	for _, test := range []struct {
		name    string
		plan    Plan
		current int
		want    int
	}{
		{"first step", Plan{StepWeight: 20, MaxWeight: 50}, 0, 20},
		{"second step", Plan{StepWeight: 20, MaxWeight: 50}, 20, 40},
		{"the last step ends at the maximum", Plan{StepWeight: 20, MaxWeight: 50}, 40, 50},
		{"at the maximum", Plan{StepWeight: 20, MaxWeight: 50}, 50, 50},
		{"above the maximum, by hand", Plan{StepWeight: 20, MaxWeight: 50}, 70, 70},
		{"from a weight that a user set", Plan{StepWeight: 20, MaxWeight: 100}, 33, 53},
		{"by one", Plan{StepWeight: 1, MaxWeight: 100}, 99, 100},
		{"all at once", Plan{StepWeight: 100, MaxWeight: 100}, 0, 100},
		{"a step beyond the maximum", Plan{StepWeight: 100, MaxWeight: 30}, 0, 30},
		{"first of steps", Plan{StepWeights: []int{10, 45, 80}, MaxWeight: 80}, 0, 10},
		{"next of steps", Plan{StepWeights: []int{10, 45, 80}, MaxWeight: 80}, 10, 45},
		{"between steps, by hand", Plan{StepWeights: []int{10, 45, 80}, MaxWeight: 80}, 30, 45},
		{"last of steps", Plan{StepWeights: []int{10, 45, 80}, MaxWeight: 80}, 45, 80},
		{"beyond the steps", Plan{StepWeights: []int{10, 45, 80}, MaxWeight: 80}, 80, 80},
		{"beyond the steps, by hand", Plan{StepWeights: []int{10, 45, 80}, MaxWeight: 80}, 90, 90},
		{"a step beside steps wins", Plan{StepWeight: 5, StepWeights: []int{10, 80}, MaxWeight: 80}, 10, 15},
		{"nothing to step by", Plan{MaxWeight: 100}, 0, 100},
	} {
		if got := test.plan.nextWeight(test.current); got != test.want {
			t.Errorf("%s: next(%d) = %d, want %d", test.name, test.current, got, test.want)
		}
	}
}

// TestAscendingWeightsFollowFlagger compares with Flagger's rule: a step is added to the weight, and a step that is not above 0
// ends the sequence.
func TestAscendingWeightsFollowFlagger(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		steps := rapid.SliceOfN(rapid.IntRange(-2, 120), 1, 5).Draw(t, "steps")
		var want []int
		weight, stuck := 0, false
		for most := min(100, steps[len(steps)-1]); weight < most && !stuck; {
			room := 100 - weight
			step := room
			if i := slices.Index(steps, weight); weight == 0 {
				step = min(room, steps[0])
			} else if i >= 0 && i < len(steps)-1 {
				step = min(room, steps[i+1]-weight)
			}
			if stuck = step <= 0; !stuck {
				weight += step
				want = append(want, weight)
			}
		}
		got, arrives := ascendingWeights(steps)
		if arrives != (!stuck && weight > 0) || !slices.Equal(got, want) {
			t.Fatalf("climb %v: %v, arrives %v; Flagger: %v, stuck %v", steps, got, arrives, want, stuck)
		}
	})
}

// TestNextWeightLeadsToTheMaximum: from any weight a valid plan reaches its maximum, in at most 100 increasing steps.
func TestNextWeightLeadsToTheMaximum(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		analysis := &flaggerv1.CanaryAnalysis{
			StepWeight: rapid.OneOf(rapid.IntRange(-2, 120), rapid.Just(math.MaxInt)).Draw(t, "step"),
			MaxWeight:  rapid.IntRange(-2, 120).Draw(t, "max"), StepWeights: rapid.SliceOfN(rapid.IntRange(-2, 120), 0, 5).Draw(t, "steps"),
		}
		c := &flaggerv1.Canary{Spec: flaggerv1.CanarySpec{TargetRef: flaggerv1.TargetReference{Kind: "Deployment"}, Analysis: analysis}}
		p := NewPlan(c, Settings{Provider: "istio", Features: func(string) Features { return Features{Known: true, Weights: true} }})
		if len(p.ValidationErrors) > 0 {
			return
		}
		weight := rapid.IntRange(0, 100).Draw(t, "from")
		for range 100 {
			if weight >= p.MaxWeight {
				return
			}
			next := p.nextWeight(weight)
			if next <= weight || next > p.MaxWeight {
				t.Fatalf("%d is followed by %d, but the maximum is %d", weight, next, p.MaxWeight)
			}
			weight = next
		}
		if weight < p.MaxWeight {
			t.Fatalf("does not reach %d in a hundred steps: %d", p.MaxWeight, weight)
		}
	})
}
