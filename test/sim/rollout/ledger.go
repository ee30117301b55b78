package rollout

import (
	"reflect"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/test/sim"
	"github.com/serin-dev/serin/test/sim/actors"
	"github.com/serin-dev/serin/test/sim/cluster"
	"github.com/serin-dev/serin/test/sim/oracle"
	"github.com/serin-dev/serin/test/sim/store"
)

// ledger records what was observed of a run, including facts that the controllers cannot know: which actor wrote an object
// based on which version, which pods answered when, and when a property stopped being true.
type ledger struct {
	*oracle.Ledger
	oracle.Releases[*record]

	cluster *cluster.Cluster
	pods    map[types.NamespacedName]*oracle.Pods
	// endedByUser are the AnalysisRuns that a user has ended.
	endedByUser map[types.UID]bool
	// revisions contains the hashes of the revisions that Consul distinguishes by their versions.
	revisions map[consulVersion]string

	work processWork
}

// record is what is known of one Rollout, from its creation to its deletion.
type record struct {
	oracle.Release[*argov1.RolloutSpec]

	object *argov1.Rollout
	// changedByOthers is when another actor last wrote the status, or the spec except for its template and replicas.
	changedByOthers time.Time
	run             *run
	aborted         bool // and no user has retried it
	// sides are those of the last spec with a router, which still apply to the route afterwards.
	sides sides
}

// run is one release. It begins when the status is about another template.
type run struct {
	hash, stableBefore string
	began              time.Time
	// passedAnalyses contains the analyses that were successful, by type and step.
	passedAnalyses map[string]bool
}

func newLedger(w *sim.World, c *cluster.Cluster) *ledger {
	core := oracle.NewLedger(w, rolloutKind)
	core.LossDetection = cluster.DetectionTime(w)
	return &ledger{
		Ledger: core, work: processWork{Ledger: core, lastWrite: map[string]time.Time{}}, Releases: oracle.NewReleases[*record](), cluster: c,
		pods: map[types.NamespacedName]*oracle.Pods{}, endedByUser: map[types.UID]bool{}, revisions: map[consulVersion]string{},
	}
}

// rolloutWritten is a write of a Rollout.
type rolloutWritten struct {
	oracle.ReleaseWritten[*record, *argov1.Rollout]

	// beginsRun reports whether the status is about another release from this write on.
	beginsRun bool
}

// replicaSetWritten is a write of a ReplicaSet of a Rollout.
type replicaSetWritten struct {
	oracle.Write

	record        *record
	before, after *appsv1.ReplicaSet // nil before the creation and after the deletion
}

// previousReplicas and replicas are the desired replicas before and after the write.
func (w replicaSetWritten) previousReplicas() int32 { return desiredReplicas(w.before) }
func (w replicaSetWritten) replicas() int32         { return desiredReplicas(w.after) }

func desiredReplicas(set *appsv1.ReplicaSet) int32 {
	if set == nil || set.Spec.Replicas == nil {
		return 0
	}
	return *set.Spec.Replicas
}

func hashOf(set *appsv1.ReplicaSet) string { return set.Labels[argov1.PodTemplateHashLabel] }

// routeWritten is a write of a route, a DestinationRule or a Service of a Rollout.
type routeWritten struct {
	oracle.Write

	record *record
}

// hasWeights reports whether the object contains weights.
func (w routeWritten) hasWeights() bool { return slices.Contains(cluster.WeightKinds, w.Kind) }

// Interpret implements oracle.Recorder.
func (l *ledger) Interpret(event any) []any {
	h, ok := event.(sim.ObjectWritten)
	if !ok {
		return []any{event}
	}
	e := oracle.NewWrite(h.Event)
	out := []any{e}
	switch e.Kind {
	case rolloutKind:
		m := rolloutWritten{ReleaseWritten: oracle.NewReleaseWritten[*record, *argov1.Rollout](l.World, e, l.ByUID[e.New.UID()])}
		m.beginsRun = m.StatusChanged() && m.Before.Status.CurrentPodHash != m.After.Status.CurrentPodHash
		out = append(out, m)
	case actors.ReplicaSetKind:
		s := replicaSetWritten{Write: e, before: actors.Typed[*appsv1.ReplicaSet](l.World, e.Old)}
		if e.Type != store.Deleted {
			s.after = actors.Typed[*appsv1.ReplicaSet](l.World, e.New)
		}
		if owner := actors.ControllerOf(e.New.Meta()); owner.Kind == argov1.RolloutKind {
			s.record = l.ByName[types.NamespacedName{Namespace: e.Key.Namespace, Name: owner.Name}]
		}
		if s.record != nil {
			out = append(out, s)
		}
	default:
		if !slices.Contains(networkKinds, e.Kind) {
			break
		}
		for _, r := range l.All {
			if !r.Gone() && (e.Key.Name == r.Name() || strings.HasPrefix(e.Key.Name, r.Name()+"-")) {
				out = append(out, routeWritten{e, r})
			}
		}
	}
	return out
}

// Record implements oracle.Recorder.
func (l *ledger) Record(event any) {
	if h, crashed := event.(sim.ProcessCrashed); crashed {
		l.work.recordCrash(h) // while the process is still registered as running
	}
	l.Ledger.Record(event)
	switch h := event.(type) {
	case oracle.Write:
		l.recordWrite(h)
	case rolloutWritten:
		l.recordRollout(h)
	case actors.QueryAnswered:
		l.Events++
	case cluster.PodDied:
		l.countPods()
	}
}

// recordWrite records a write of any object.
func (l *ledger) recordWrite(h oracle.Write) {
	if h.BySerin {
		l.work.lastWrite[h.Actor] = l.Now()
	}
	switch h.Kind {
	case actors.PodKind, actors.ReplicaSetKind:
		l.countPods()
		l.recordVersion(h)
	case runKind:
		l.recordRun(h)
	}
}

// countPods records the actual pods of all ReplicaSets.
func (l *ledger) countPods() {
	for _, v := range l.World.Server.All(actors.ReplicaSetKind) {
		counts, key := l.cluster.PodsOf(v.Key().Namespace, v.Key().Name), v.Key()
		p := l.pods[key]
		if p == nil {
			p = &oracle.Pods{}
			l.pods[key] = p
		}
		p.Answering.Set(counts.Answering > 0, l.Now())
		oracle.SetCount(&p.Serving, counts.Ready, l.Now())
	}
}

func (l *ledger) recordRollout(h rolloutWritten) {
	r := h.Record
	if h.After == nil {
		if r != nil {
			r.DeletedAt = l.Now()
			l.Remove(r.Key, r)
		}
		return
	}
	if r == nil {
		r = &record{}
		r.Key, r.UID = h.Key, h.New.UID()
		l.Add(r.Key, r.UID, r)
	}
	old := r.object
	r.object = h.After
	if sides, routed := sidesOf(&h.After.Spec); routed {
		r.sides = sides
	}
	if old == nil || old.Generation != h.After.Generation {
		r.Specs.Set(&h.After.Spec, l.Now())
	}
	if !h.BySerin && (h.Subresource == "status" || old == nil || !sameStrategy(&old.Spec, &h.After.Spec)) {
		r.changedByOthers = l.Now()
	}
	r.SetSuspended(h.After.Spec.Paused, l.Now())
	if h.beginsRun {
		r.run = &run{hash: h.After.Status.CurrentPodHash, stableBefore: h.After.Status.StableRS, began: l.Now(), passedAnalyses: map[string]bool{}}
		r.aborted = false
	}
	if !h.StatusChanged() {
		return
	}
	r.SetIdle(h.After.Status.Phase == argov1.RolloutPhaseHealthy, l.Now())
	switch {
	case h.After.Status.Abort:
		r.aborted = true
	case !h.BySerin:
		r.aborted = false
	}
}

func sameStrategy(a, b *argov1.RolloutSpec) bool {
	x, y := *a.DeepCopy(), *b.DeepCopy()
	x.Template, x.Replicas, y.Replicas = y.Template, nil, nil
	return reflect.DeepEqual(x, y)
}

// recordRun records which analyses were successful. An analysis that a user ends counts as successful, because users skip it
// that way; one that Serin ends does not.
func (l *ledger) recordRun(h oracle.Write) {
	a := actors.Typed[*argov1.AnalysisRun](l.World, h.New)
	if a == nil {
		return
	}
	if was := actors.Typed[*argov1.AnalysisRun](l.World, h.Old); !h.BySerin && a.Spec.Terminate && was != nil && !was.Spec.Terminate {
		l.endedByUser[a.UID] = true
	}
	if a.Status.Phase != argov1.AnalysisPhaseSuccessful || a.Spec.Terminate && !l.endedByUser[a.UID] {
		return
	}
	owner := actors.ControllerOf(a)
	r := l.ByName[types.NamespacedName{Namespace: h.Key.Namespace, Name: owner.Name}]
	if owner.Kind != argov1.RolloutKind || r == nil || r.run == nil || a.Labels[argov1.PodTemplateHashLabel] != r.run.hash {
		return
	}
	r.run.passedAnalyses[a.Labels[argov1.RolloutTypeLabel]+a.Labels[argov1.StepIndexLabel]] = true
}

// expectedSpecs returns the specs that a current decision may be based on.
func (l *ledger) expectedSpecs(r *record) []*argov1.RolloutSpec { return r.Specs.Since(l.OldestView()) }

// mayHaveNoPods reports whether a current spec may request no pods.
func (l *ledger) mayHaveNoPods(r *record) bool {
	return slices.ContainsFunc(l.expectedSpecs(r), func(s *argov1.RolloutSpec) bool { return s.Replicas != nil && *s.Replicas == 0 })
}

// followsPlan reports whether only the plan determines a release. If a user writes the status or changes the plan, any
// transition is possible.
func (l *ledger) followsPlan(r *record) bool {
	return r.run != nil && r.changedByOthers.Before(r.run.began) && len(l.World.Instances()) == 1
}

// replicaSetsOf returns the current ReplicaSets of a Rollout. Those of a previous Rollout with the same name, which are garbage
// collected later, are not included.
func (l *ledger) replicaSetsOf(r *record) []*appsv1.ReplicaSet {
	var out []*appsv1.ReplicaSet
	for _, v := range l.World.Server.All(actors.ReplicaSetKind) {
		set := actors.Typed[*appsv1.ReplicaSet](l.World, v)
		if of := metav1.GetControllerOfNoCopy(set); of != nil && of.UID == r.UID {
			out = append(out, set)
		}
	}
	return out
}

// replicaSetOf returns the ReplicaSet with a hash, or nil.
func (l *ledger) replicaSetOf(r *record, hash string) *appsv1.ReplicaSet {
	for _, set := range l.replicaSetsOf(r) {
		if hash != "" && hashOf(set) == hash {
			return set
		}
	}
	return nil
}

// podsOf returns the pods of the ReplicaSet with a hash.
func (l *ledger) podsOf(r *record, hash string) *oracle.Pods {
	set := l.replicaSetOf(r, hash)
	if set == nil {
		return nil
	}
	return l.pods[keyOf(set)]
}

// selectedHash returns the hash that a Service selects, or "".
func (l *ledger) selectedHash(v *store.Version) string {
	service := actors.Typed[*corev1.Service](l.World, v)
	if service == nil {
		return ""
	}
	return service.Spec.Selector[argov1.PodTemplateHashLabel]
}

func (l *ledger) peekService(name string) *store.Version {
	return l.World.Server.Peek(actors.ServiceKind, types.NamespacedName{Namespace: actors.Namespace, Name: name})
}

// hashesWithTraffic returns the hashes of a Rollout that currently receive traffic, by a route or by the Service that clients
// call.
func (l *ledger) hashesWithTraffic(r *record) []string {
	strategy := r.object.Spec.Strategy
	switch {
	case strategy.BlueGreen != nil:
		return []string{l.selectedHash(l.peekService(strategy.BlueGreen.ActiveService))}
	case strategy.Canary != nil && strategy.Canary.TrafficRouting != nil:
		var out []string
		for _, kind := range cluster.WeightKinds {
			for _, s := range weightsOf(l.World.Server.Peek(kind, r.Key)) {
				if s.Weight > 0 {
					out = append(out, l.hashBehind(r, s.destination))
				}
			}
		}
		return out
	default:
		return nil
	}
}
