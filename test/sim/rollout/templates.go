package rollout

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/test/sim"
	"github.com/serin-dev/serin/test/sim/actors"
	"github.com/serin-dev/serin/test/sim/cluster"
	"github.com/serin-dev/serin/test/sim/store"
)

// UnreadableTemplates is the class of faults during which Serin has no permission to read AnalysisTemplates.
const UnreadableTemplates sim.FaultClass = "unreadable-templates"

// scheduleUnreadableTemplates schedules the times without the permission.
func (k *Rollouts) scheduleUnreadableTemplates() {
	k.World.ScheduleFaults(UnreadableTemplates, 8*time.Minute, func(s *sim.Stream) {
		k.allowTemplates(false)
		k.World.After(s.Skewed(20*time.Second, 12*time.Minute), func() { k.allowTemplates(true) })
	})
}

// allowTemplates sets whether Serin may read AnalysisTemplates.
func (k *Rollouts) allowTemplates(allowed bool) {
	k.World.Trace("AnalysisTemplates may be read: %t", allowed)
	k.World.AllowReads(templateKind, allowed)
}

// unreadableTemplates returns a story of a release that is retried while its AnalysisTemplates may not be read.
func unreadableTemplates() []Story {
	abortCarriedOut := func(_ *Release, s argov1.RolloutStatus) bool {
		return s.Abort && s.AbortedAt != nil && s.Canary.Weights != nil && s.Canary.Weights.Canary.Weight == 0
	}
	return []Story{{
		Name: "retried without permission to read templates", Router: actors.Istio, Spec: func(spec *argov1.RolloutSpec) {
			withSteps(weightStep(20), pauseStep(30))(spec)
			spec.Strategy.Canary.Analysis = &argov1.RolloutAnalysisBackground{RolloutAnalysis: analysisWith(endlessTemplate)}
		}, Acts: []Act{
			shipWhenHealthy(actors.GoodVersion),
			{When: isPaused, After: 2 * time.Second, Do: func(p *users, r *Release) { p.abort(r.Key) }},
			{When: abortCarriedOut, After: 5 * time.Second, Do: func(p *users, r *Release) {
				p.allowTemplates(false)
				p.retry(r.Key)
			}},
			{After: 3 * time.Minute, Do: func(p *users, _ *Release) { p.allowTemplates(true) }},
		}, End: argov1.RolloutPhaseHealthy, Version: "v2",
	}}
}

// analysedWeights is I49: a weight is analysed from its beginning.
type analysedWeights struct {
	*ledger

	// raised is when Serin last raised the weight of a canary.
	raised map[types.UID]time.Time
}

// check records raised weights, and evaluates them after each reconciliation.
func (c *analysedWeights) check(event any) {
	switch h := event.(type) {
	case routeWritten:
		if h.hasWeights() && h.record.canaryWeight(h.New) > h.record.canaryWeight(h.Old) {
			c.raised[h.record.UID] = c.Now()
		}
	case sim.Reconciled:
		r := c.ByName[h.Release]
		if r == nil || h.Err != nil || h.Skipped || !c.requiresBackgroundAnalysis(r) {
			return
		}
		raised, known := c.raised[r.UID]
		observed := c.OldestView().Add(-c.Lag)
		if !known || !raised.Before(observed) || !raised.After(r.run.began) || !raised.After(c.LastFault.Add(maxRetryDelay)) || c.canaryShare(r) == 0 {
			return
		}
		if !c.hasBackgroundRun(r, raised) {
			c.Violate("I49", r.Name(), "it has had weight %d for %s without its background analysis", c.canaryShare(r), c.Now().Sub(raised))
		}
	}
}

// canaryShare returns the weight of the canary in the stored route.
func (c *analysedWeights) canaryShare(r *record) int {
	share := 0
	for _, kind := range cluster.WeightKinds {
		share = max(share, r.canaryWeight(c.World.Server.Peek(kind, r.Key)))
	}
	return share
}

// requiresBackgroundAnalysis reports whether the current step of a release has a background analysis, no user skips it, and nothing
// but the plan determines the release since its weight was raised.
func (c *analysedWeights) requiresBackgroundAnalysis(r *record) bool {
	specs, s := r.Specs.Since(c.raised[r.UID]), &r.object.Status
	undisturbed := r.run != nil && r.changedByOthers.Before(c.raised[r.UID]) && len(c.World.Instances()) == 1
	if !undisturbed || len(specs) != 1 || specs[0].Strategy.Canary == nil || specs[0].Strategy.Canary.Analysis == nil || specs[0].RollbackWindow != nil {
		return false
	}
	canary := specs[0].Strategy.Canary
	first := int32(0)
	if canary.Analysis.StartingStep != nil {
		first = *canary.Analysis.StartingStep
	}
	return canary.TrafficRouting != nil && s.CurrentStepIndex != nil && *s.CurrentStepIndex >= first && int(*s.CurrentStepIndex) < len(canary.Steps) &&
		!s.Abort && !s.PromoteFull && s.StableRS != "" && s.StableRS != r.run.hash && c.replicaSetOf(r, s.StableRS) != nil && !pausedInconclusive(*s) && !invalid(*s)
}

// hasBackgroundRun reports whether an AnalysisRun of the release evaluates a weight, or a user ended or deleted it since the weight was
// raised.
func (c *analysedWeights) hasBackgroundRun(r *record, raised time.Time) bool {
	for at, w := range c.Objects {
		if at.Kind == runKind && w.ByOthers.After(raised) {
			return true
		}
	}
	return slices.ContainsFunc(c.World.Server.All(runKind), func(v *store.Version) bool {
		run := actors.Typed[*argov1.AnalysisRun](c.World, v)
		return run != nil && run.Labels[argov1.RolloutTypeLabel] == argov1.TypeBackground && run.Labels[argov1.PodTemplateHashLabel] == r.run.hash &&
			(!run.Spec.Terminate || c.endedByUser[run.UID])
	})
}
