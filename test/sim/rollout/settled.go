package rollout

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/reconciler"
	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/test/sim"
	"github.com/serin-dev/serin/test/sim/actors"
)

// reportLeftovers reports the state that a process retains of objects that are gone.
func (k *Rollouts) reportLeftovers(i *sim.Instance) {
	w, p := k.World, k.processes[i]
	if p == nil {
		return
	}
	for _, of := range []struct {
		kind   schema.GroupKind
		prefix string
	}{{rolloutKind, "rollout_"}, {runKind, "analysis_run_reconcile"}, {experimentKind, "experiment_reconcile"}} {
		if footprint := p.footprints[of.kind]; footprint != nil {
			actors.ReportMemory(w, p.instance, of.kind, footprint())
		}
		actors.ReportSeries(w, p.instance, p.registry, of.prefix, "name", func(name string) bool {
			return w.Server.Peek(of.kind, types.NamespacedName{Namespace: actors.Namespace, Name: name}) != nil
		})
	}
}

// unsettledObjects describes the objects that have neither ended nor wait for a user who will not act.
func (k *Rollouts) unsettledObjects() []string {
	w, unsettled := k.World, []string(nil)
	for _, v := range w.Server.All(rolloutKind) {
		if r := actors.Typed[*argov1.Rollout](w, v); r != nil {
			if why := k.unsettledReason(r); why != "" {
				unsettled = append(unsettled, r.Name+" "+why)
			}
		}
	}
	for _, v := range w.Server.All(runKind) {
		if run := actors.Typed[*argov1.AnalysisRun](w, v); run != nil && (!run.Status.Phase.Completed() || w.IsRequeued(v.Key())) {
			unsettled = append(unsettled, fmt.Sprintf("AnalysisRun %s is %q", run.Name, run.Status.Phase))
		}
	}
	for _, v := range w.Server.All(experimentKind) {
		if e := actors.Typed[*argov1.Experiment](w, v); e != nil && (!e.Status.Phase.Completed() || w.IsRequeued(v.Key())) {
			unsettled = append(unsettled, fmt.Sprintf("Experiment %s is %q", e.Name, e.Status.Phase))
		}
	}
	return unsettled
}

// unsettledReason describes why a Rollout has not ended, or returns "" if it has, or waits for a user who will not act and
// reports that in its status.
func (k *Rollouts) unsettledReason(r *argov1.Rollout) string {
	s := r.Status
	text := "is" + statusText(r, "status")
	switch {
	case k.World.IsRequeued(keyOf(r)):
		return text + ", and is queued for reconciliation"
	case r.DeletionTimestamp != nil, s.ObservedGeneration != fmt.Sprint(r.Generation):
		return text + fmt.Sprintf(", of generation %s, and not %d", s.ObservedGeneration, r.Generation)
	case overdue(s, k.World.Now()) != "":
		return text + ", and its gate " + overdue(s, k.World.Now()) + " waits for a time that has passed, or is not set"
	case s.Phase == argov1.RolloutPhaseHealthy, s.Phase == argov1.RolloutPhaseDegraded, waitsFor(s, release.ByUser):
		return ""
	case s.Phase == argov1.RolloutPhasePaused && prunesStatus(k.World): // such a status cannot report more
		return ""
	default:
		return text
	}
}

// prunesStatus reports whether the API server drops Serin's part of every status in this run.
func prunesStatus(w *sim.World) bool {
	return slices.Contains(w.Faults.Occurred, string(sim.Pruning)+"#1")
}

// waitsFor reports whether a gate in the status that has not passed is opened by one of the given openers.
func waitsFor(s argov1.RolloutStatus, by ...release.Opener) bool {
	return s.Serin != nil && slices.ContainsFunc(s.Serin.Gates, func(g argov1.GateStatus) bool {
		return g.Verdict != string(release.Pass) && slices.Contains(by, release.Opener(g.Opener))
	})
}

// overdue returns the first gate of a status that waits for a time which is not set, or which passed more than two explanation
// intervals ago, or "".
func overdue(s argov1.RolloutStatus, now time.Time) string {
	if s.Serin == nil {
		return ""
	}
	for _, g := range s.Serin.Gates {
		waits := g.Verdict != string(release.Pass) && g.Opener == string(release.ByTime)
		if waits && (g.Until == nil || g.Until.Add(2*reconciler.ExplainAfter).Before(now)) {
			return g.Name
		}
	}
	return ""
}

// longestRun returns the maximum duration of one run of a Rollout.
func (k *Rollouts) longestRun() time.Duration {
	longest := time.Hour
	for _, v := range k.World.Server.All(rolloutKind) {
		if r := actors.Typed[*argov1.Rollout](k.World, v); r != nil && r.Spec.Strategy.Canary != nil {
			longest = max(longest, 20*time.Minute+time.Duration(len(r.Spec.Strategy.Canary.Steps))*15*time.Minute)
		}
	}
	return longest
}
