package rollout

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/reconciler"
	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/test/sim"
	"github.com/serin-dev/serin/test/sim/actors"
)

// Quiesce implements sim.Kind.
func (k *Rollouts) Quiesce(*sim.World) {
	k.stopped = true
	k.cluster.Quiesce()
	if k.story == nil {
		k.users.repair()
	}
}

// CheckEnd implements sim.Kind.
func (k *Rollouts) CheckEnd(w *sim.World) {
	for _, i := range w.Instances() {
		if p := k.processes[i]; p != nil && i.Alive() {
			p.reportLeftovers(w)
		}
	}
	k.oracle.Finish()
}

// reportLeftovers reports the state that a process retains of objects that are gone.
func (p *process) reportLeftovers(w *sim.World) {
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

// Settled implements sim.Kind.
func (k *Rollouts) Settled(w *sim.World) bool {
	return k.inProgress(w) == "" && len(k.unsettledObjects(w)) == 0
}

// UnsettledReason implements sim.Kind.
func (k *Rollouts) UnsettledReason(w *sim.World) string {
	why := k.unsettledObjects(w)
	if busy := k.inProgress(w); busy != "" {
		why = append([]string{busy}, why...)
	}
	return strings.Join(why, "; ")
}

// inProgress describes an activity that has not ended, or returns "".
func (k *Rollouts) inProgress(w *sim.World) string {
	return actors.InProgress(w, k.users.Script, k.services.pending, k.cluster)
}

// unsettledObjects describes the objects that have neither ended nor wait for a user who will not act.
func (k *Rollouts) unsettledObjects(w *sim.World) []string {
	var unsettled []string
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
	case k.world.IsRequeued(keyOf(r)):
		return text + ", and is queued for reconciliation"
	case r.DeletionTimestamp != nil, s.ObservedGeneration != fmt.Sprint(r.Generation):
		return text + fmt.Sprintf(", of generation %s, and not %d", s.ObservedGeneration, r.Generation)
	case overdue(s, k.world.Now()) != "":
		return text + ", and its gate " + overdue(s, k.world.Now()) + " waits for a time that has passed, or is not set"
	case s.Phase == argov1.RolloutPhaseHealthy, s.Phase == argov1.RolloutPhaseDegraded, waitsFor(s, release.ByUser):
		return ""
	case s.Phase == argov1.RolloutPhasePaused && prunesStatus(k.world): // such a status cannot report more
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

// SettleTimeout implements sim.Kind. It allows for the rest of one run, another run for changes made in the meantime, and one
// that users start to repair a release.
func (k *Rollouts) SettleTimeout(w *sim.World) time.Duration {
	longest := time.Hour
	for _, v := range w.Server.All(rolloutKind) {
		if r := actors.Typed[*argov1.Rollout](w, v); r != nil {
			longest = max(longest, maxRunDuration(&r.Spec))
		}
	}
	return 3*longest + actors.LongestBackoff
}

// maxRunDuration returns the maximum duration of one run.
func maxRunDuration(spec *argov1.RolloutSpec) time.Duration {
	most := 20 * time.Minute
	if c := spec.Strategy.Canary; c != nil {
		most += time.Duration(len(c.Steps)) * 15 * time.Minute
	}
	return most
}
