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
	k.over = true
	k.cluster.Quiesce()
	if k.story == nil {
		k.users.repair()
	}
}

// End implements sim.Kind.
func (k *Rollouts) End(w *sim.World) {
	for _, i := range w.Instances() {
		if p := k.lives[i]; p != nil && i.Alive() {
			p.reportLeftovers(w)
		}
	}
	k.oracle.Finish()
}

// reportLeftovers reports what a process still has of objects that are gone.
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
func (k *Rollouts) Settled(w *sim.World) bool { return k.underWay(w) == "" && len(k.moving(w)) == 0 }

// Unsettled implements sim.Kind.
func (k *Rollouts) Unsettled(w *sim.World) string {
	why := k.moving(w)
	if busy := k.underWay(w); busy != "" {
		why = append([]string{busy}, why...)
	}
	return strings.Join(why, "; ")
}

// underWay describes what is still in progress; empty: nothing is.
func (k *Rollouts) underWay(w *sim.World) string {
	return actors.UnderWay(w, k.users.Script, k.services.pending, k.cluster)
}

// moving says which objects are neither at an end nor wait for someone who will not come.
func (k *Rollouts) moving(w *sim.World) []string {
	var moving []string
	for _, v := range w.Server.All(rolloutKind) {
		if r := actors.Typed[*argov1.Rollout](w, v); r != nil {
			if why := k.undone(r); why != "" {
				moving = append(moving, r.Name+" "+why)
			}
		}
	}
	for _, v := range w.Server.All(runKind) {
		if run := actors.Typed[*argov1.AnalysisRun](w, v); run != nil && (!run.Status.Phase.Completed() || w.Awaits(v.Key())) {
			moving = append(moving, fmt.Sprintf("AnalysisRun %s is %q", run.Name, run.Status.Phase))
		}
	}
	for _, v := range w.Server.All(experimentKind) {
		if e := actors.Typed[*argov1.Experiment](w, v); e != nil && (!e.Status.Phase.Completed() || w.Awaits(v.Key())) {
			moving = append(moving, fmt.Sprintf("Experiment %s is %q", e.Name, e.Status.Phase))
		}
	}
	return moving
}

// undone says why a Rollout is not at its end; empty: it is, or waits for a user who will not come, and says so.
func (k *Rollouts) undone(r *argov1.Rollout) string {
	s := r.Status
	said := "is" + statusText(r, "status")
	switch {
	case k.world.Awaits(keyOf(r)):
		return said + ", and is queued for reconciliation"
	case r.DeletionTimestamp != nil, s.ObservedGeneration != fmt.Sprint(r.Generation):
		return said + fmt.Sprintf(", of generation %s, and not %d", s.ObservedGeneration, r.Generation)
	case overdue(s, k.world.Now()) != "":
		return said + ", and its gate " + overdue(s, k.world.Now()) + " waits for a time that is over, or for none"
	case s.Phase == argov1.RolloutPhaseHealthy, s.Phase == argov1.RolloutPhaseDegraded, opens(s, release.ByUser):
		return ""
	case s.Phase == argov1.RolloutPhasePaused && pruning(k.world): // which is all that such a status can say
		return ""
	default:
		return said
	}
}

// pruning is true of a run in which the API server drops our part of every status.
func pruning(w *sim.World) bool { return slices.Contains(w.Faults.TookPlace, string(sim.Pruning)+"#1") }

// opens is true when a gate that is not passed, as the status says, is opened by one of those.
func opens(s argov1.RolloutStatus, by ...release.Opener) bool {
	return s.Serin != nil && slices.ContainsFunc(s.Serin.Gates, func(g argov1.GateStatus) bool {
		return g.Verdict != string(release.Pass) && slices.Contains(by, release.Opener(g.Opener))
	})
}

// overdue returns the first gate of a status that waits for a time which it does not have, or which is over for longer than it
// takes to explain what is waited for instead; empty: there is none.
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

// Patience implements sim.Kind. It is the time that the slowest release may need for what may still follow: the rest of
// one run, another run for changes made meanwhile, and one that users start to repair something.
func (k *Rollouts) Patience(w *sim.World) time.Duration {
	longest := time.Hour
	for _, v := range w.Server.All(rolloutKind) {
		if r := actors.Typed[*argov1.Rollout](w, v); r != nil {
			longest = max(longest, atMost(&r.Spec))
		}
	}
	return 3*longest + actors.LongestBackoff
}

// atMost is how long one run may take.
func atMost(spec *argov1.RolloutSpec) time.Duration {
	most := 20 * time.Minute
	if c := spec.Strategy.Canary; c != nil {
		most += time.Duration(len(c.Steps)) * 15 * time.Minute
	}
	return most
}
