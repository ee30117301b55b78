package rollout

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/test/sim/cluster"
	"github.com/serin-dev/serin/test/sim/oracle"
)

// newRouteReports returns the checker of I47.
func newRouteReports(l *ledger) *oracle.RouteReports {
	c := &confirmedWeights{ledger: l, waiting: map[types.NamespacedName]time.Time{}}
	return &oracle.RouteReports{Ledger: l.Ledger, Kind: cluster.HTTPRouteKind, Advances: c.advances, Resumed: c.resumed}
}

// confirmedWeights are the steps that wait until the router has applied their weight, for I47.
type confirmedWeights struct {
	*ledger

	waiting map[types.NamespacedName]time.Time // since when a status waits for the report of a router
}

// advances returns the completed weights of steps, and the promotions.
func (c *confirmedWeights) advances(event any) []oracle.RoutedAdvance {
	h, ok := event.(rolloutWritten)
	if !ok || !h.StatusReported() || h.beginsRun || !c.followsPlan(h.Record) || !c.advancesByPlan(h) {
		return nil
	}
	before, after := &h.Before.Status, &h.After.Status
	advance := oracle.RoutedAdvance{Release: h.Record.Name(), Process: h.Actor, Route: oracle.KeyOf(cluster.HTTPRouteKind, h.Record.Key)}
	steps, index := h.Record.object.Spec.Strategy.Canary.Steps, before.CurrentStepIndex
	switch {
	case before.StableRS != after.StableRS && after.StableRS == h.Record.run.hash:
		advance.What, advance.IgnoresSilence = after.StableRS+" was promoted", true
	case index != nil && after.CurrentStepIndex != nil && *after.CurrentStepIndex > *index && int(*index) < len(steps) && steps[*index].SetWeight != nil:
		advance.What = fmt.Sprintf("the weight of step %d was completed", *index)
	default:
		return nil
	}
	return []oracle.RoutedAdvance{advance}
}

// advancesByPlan reports whether only the steps determine how a release advances: its revision is not the stable one or a recent
// one, no user promotes or aborts it, and the stable revision exists.
func (c *confirmedWeights) advancesByPlan(h rolloutWritten) bool {
	r, before, after := h.Record, &h.Before.Status, &h.After.Status
	canary := r.object.Spec.Strategy.Canary
	return canary != nil && canary.TrafficRouting != nil && len(c.expectedSpecs(r)) == 1 && r.object.Spec.RollbackWindow == nil && !c.mayHaveNoPods(r) &&
		!before.PromoteFull && !after.PromoteFull && !before.Abort && !after.Abort &&
		before.StableRS != "" && before.StableRS != r.run.hash && c.replicaSetOf(r, before.StableRS) != nil
}

// resumed returns the writes that record that the router has applied a weight.
func (c *confirmedWeights) resumed(event any) []oracle.Resumption {
	h, ok := event.(rolloutWritten)
	switch {
	case !ok || !h.StatusReported() || isVerified(h.Before.Status) == isVerified(h.After.Status):
		return nil
	case isVerified(h.Before.Status):
		c.waiting[h.Record.Key] = c.Now()
		return nil
	default:
		return []oracle.Resumption{{Release: h.Record.Name(), Route: oracle.KeyOf(cluster.HTTPRouteKind, h.Record.Key), Began: c.waiting[h.Record.Key]}}
	}
}

// isVerified reports whether a status does not wait for the report of a router.
func isVerified(s argov1.RolloutStatus) bool {
	return s.Canary.Weights == nil || s.Canary.Weights.Verified == nil || *s.Canary.Weights.Verified
}
