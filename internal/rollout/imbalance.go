package rollout

import (
	"fmt"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/release"
)

// Imbalance is a sentence about the first step, from an index on, that gives the pods of the new revision more than twice
// the traffic that is theirs by their number. A user may want that; who does not should read it before it happens. Empty:
// no step does.
func Imbalance(spec argov1.RolloutSpec, from int32) string {
	c := spec.Strategy.Canary
	if c == nil || c.TrafficRouting == nil {
		return ""
	}
	n, most := value(spec.Replicas, 1), mostWeight(c)
	for i := max(from, 0); int(i) < len(c.Steps); i++ {
		at := Progress{Steps: c.Steps, Index: &i}
		weight := at.Weight(most)
		pods := Routed{Progress: at, Replicas: n, Most: most, MinPods: value(c.MinPodsPerReplicaSet, 0)}.Want().Canary
		if needed := podsFor(weight, n, most); int64(needed) > 2*int64(pods) {
			by := cause(c.Steps, i)
			return fmt.Sprintf("step %d (%s) gives %d of %d of the traffic to %d pods, where %d would have that share",
				by+1, stepText(c.Steps[by]), weight, most, pods, needed)
		}
	}
	return ""
}

// cause is the step that set weight or pods last.
func cause(steps []argov1.CanaryStep, at int32) int32 {
	for i := at; i >= 0; i-- {
		if steps[i].SetWeight != nil || steps[i].SetCanaryScale != nil {
			return i
		}
	}
	return at
}

// imbalance warns of what the steps to come do to the pods of the new revision. It holds nothing.
func (p *pass) imbalance(s argov1.RolloutStatus) {
	if s.Abort || s.PromoteFull || promoted(s) || !p.distinct() {
		return
	}
	warning := Imbalance(p.Spec, value(s.CurrentStepIndex, 0))
	if warning == "" {
		return
	}
	p.gate(release.Passes("imbalance", warning))
	p.events = append(p.events, release.Event{Type: release.Warning, Reason: "TrafficImbalance", Message: "The plan is out of balance: " + warning, Standing: true})
}
