package canary

import flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"

// maxWeight is the weight from which a release is promoted: the last of stepWeights, else maxWeight, else 100.
func maxWeight(analysis *flaggerv1.CanaryAnalysis) int {
	if n := len(analysis.StepWeights); n > 0 {
		return min(analysis.StepWeights[n-1], 100)
	}
	if analysis.MaxWeight > 0 {
		return analysis.MaxWeight
	}
	return 100
}

// ascendingWeights are the weights that a canary reaches with stepWeights, each at most 100, and whether it reaches the last
// one. As in Flagger, a weight that does not increase ends the sequence, unless the previous weight is enough for the
// promotion.
func ascendingWeights(steps []int) (weights []int, complete bool) {
	weight, next := 0, 0
	for end := min(steps[len(steps)-1], 100); weight < end; next++ {
		if min(steps[next], 100) <= weight {
			return weights, false
		}
		weight = min(steps[next], 100)
		weights = append(weights, weight)
	}
	return weights, weight > 0
}

// nextWeight is the weight after the current one. It never exceeds the maximum of the plan (Flagger's does), and continues from
// any live weight, also from one that is not in the plan.
func (p *Plan) nextWeight(current int) int {
	if p.StepWeight > 0 {
		return min(current+p.StepWeight, max(p.MaxWeight, current))
	}
	for _, weight := range p.StepWeights {
		if weight > current {
			return weight
		}
	}
	return max(p.MaxWeight, current)
}
