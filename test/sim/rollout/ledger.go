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
	"github.com/serin-dev/serin/internal/endpoints"
	"github.com/serin-dev/serin/test/sim"
	"github.com/serin-dev/serin/test/sim/actors"
	"github.com/serin-dev/serin/test/sim/cluster"
	"github.com/serin-dev/serin/test/sim/oracle"
	"github.com/serin-dev/serin/test/sim/store"
)

// ledger is what was seen of a run from outside, and what the controllers cannot see: who wrote what on which basis,
// which pods answered when, and how long ago something stopped being true.
type ledger struct {
	*oracle.Ledger
	oracle.Releases[*record]

	cluster *cluster.Cluster
	sets    map[types.NamespacedName]*oracle.Pods
	// published are the endpoints that take requests, by Service and by the names of their pods without their last part.
	published map[endpointsOf]*oracle.Timeline[int]
	// ended are the AnalysisRuns that a user has ended.
	ended map[types.UID]bool

	// wrote is when each process last wrote something.
	wrote map[string]time.Time
	// unfinished is true since a process died at its work, until another one has had the time to end that.
	unfinished bool
	// attended is up to when a process that died had the time to follow what others wrote.
	attended time.Time
}

// record is what is known of one Rollout, from its creation to its end.
type record struct {
	oracle.Release[*argov1.RolloutSpec]

	object *argov1.Rollout
	// meddled is when someone else last wrote the status, or the spec but for its template and replicas.
	meddled time.Time
	run     *run
	aborted bool // and no user has retried it
	// sides are those of the last spec that had a router: what that left in a route keeps its meaning.
	sides sides
}

// run is one release: from the moment at which the status is about another template.
type run struct {
	hash, before string
	began        time.Time
	// passed are the steps whose analysis was successful; pre is true once that before the switch was.
	passed map[string]bool
}

func newLedger(w *sim.World, c *cluster.Cluster) *ledger {
	return &ledger{
		Ledger: oracle.NewLedger(w, rolloutKind), Releases: oracle.NewReleases[*record](), cluster: c,
		sets: map[types.NamespacedName]*oracle.Pods{}, published: map[endpointsOf]*oracle.Timeline[int]{}, ended: map[types.UID]bool{},
		wrote: map[string]time.Time{},
	}
}

// resumes is true of a process that has just begun, and ends what another one was at that died.
func (l *ledger) resumes(by string) bool { return l.unfinished && l.Started[by].After(l.OldestView()) }

// rolloutWritten is a write of a Rollout.
type rolloutWritten struct {
	oracle.Write

	of            *record
	before, after *argov1.Rollout // nil before it is there, and when it is gone
	// begins is true where the status is about another release from then on.
	begins bool
}

// status is true when the status changed.
func (m rolloutWritten) status() bool {
	return m.before != nil && m.after != nil && m.Subresource == "status"
}

// replicaSetWritten is a write of a ReplicaSet of a Rollout.
type replicaSetWritten struct {
	oracle.Write

	of            *record
	before, after *appsv1.ReplicaSet // nil before it is there, and when it is gone
}

// was and is are the pods that are asked for.
func (s replicaSetWritten) was() int32 { return wanted(s.before) }
func (s replicaSetWritten) is() int32  { return wanted(s.after) }

func wanted(set *appsv1.ReplicaSet) int32 {
	if set == nil || set.Spec.Replicas == nil {
		return 0
	}
	return *set.Spec.Replicas
}

func hashOf(set *appsv1.ReplicaSet) string { return set.Labels[argov1.PodTemplateHashLabel] }

// routeWritten is a write of a route, of subsets, or of a Service, of a Rollout.
type routeWritten struct {
	oracle.Write

	of *record
}

// weights is true of what has weights.
func (h routeWritten) weights() bool { return slices.Contains(routeKinds, h.Kind) }

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
		m := rolloutWritten{Write: e, of: l.ByUID[e.New.UID()], before: actors.Typed[*argov1.Rollout](l.World, e.Old)}
		if e.Type != store.Deleted {
			m.after = actors.Typed[*argov1.Rollout](l.World, e.New)
		}
		m.begins = m.status() && m.before.Status.CurrentPodHash != m.after.Status.CurrentPodHash
		out = append(out, m)
	case actors.ReplicaSetKind:
		s := replicaSetWritten{Write: e, before: actors.Typed[*appsv1.ReplicaSet](l.World, e.Old)}
		if e.Type != store.Deleted {
			s.after = actors.Typed[*appsv1.ReplicaSet](l.World, e.New)
		}
		if kind, name := owner(e.New.Meta()); kind == argov1.RolloutKind {
			s.of = l.ByName[types.NamespacedName{Namespace: e.Key.Namespace, Name: name}]
		}
		if s.of != nil {
			out = append(out, s)
		}
	case actors.ServiceKind, actors.VirtualServiceKind, actors.DestinationRuleKind, actors.HTTPRouteKind:
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
		l.recordCrash(h) // before it is known to have ended
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

// recordWrite records what a write of any object says.
func (l *ledger) recordWrite(h oracle.Write) {
	if h.BySerin {
		l.wrote[h.Actor] = l.Now()
	}
	switch h.Kind {
	case actors.PodKind, actors.ReplicaSetKind:
		l.countPods()
	case runKind:
		l.recordRun(h)
	case endpoints.Kind:
		l.recordEndpoints(h)
	}
}

// countPods records the actual pods of all ReplicaSets.
func (l *ledger) countPods() {
	for _, v := range l.World.Server.All(actors.ReplicaSetKind) {
		of, key := l.cluster.PodsOf(v.Key().Namespace, v.Key().Name), v.Key()
		p := l.sets[key]
		if p == nil {
			p = &oracle.Pods{}
			l.sets[key] = p
		}
		p.Answering.Set(of.Answering > 0, l.Now())
		oracle.Count(&p.Serving, of.Ready, l.Now())
	}
}

// unattended is since when no process of Serin may have processed the writes of others, where the actor is a process that has just started
// that acts.
func (l *ledger) unattended(by string) time.Time {
	if l.Started[by].After(l.OldestView()) && l.attended.Before(l.OldestView()) {
		return l.attended
	}
	return l.OldestView()
}

// recordCrash remembers whether the process that died had written something within the lags: it may have been about to write
// more. One that did not live for that long has not ended what others left either.
func (l *ledger) recordCrash(h sim.ProcessCrashed) {
	if !l.Started[h.Instance].After(l.OldestView()) {
		l.attended = l.OldestView()
	}
	switch {
	case l.wrote[h.Instance].After(l.OldestView()):
		l.unfinished = true
	case !l.Started[h.Instance].After(l.OldestView()):
		l.unfinished = false
	}
}

func (l *ledger) recordRollout(h rolloutWritten) {
	r := h.of
	if h.after == nil {
		if r != nil {
			r.Deleted = l.Now()
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
	r.object = h.after
	if sides, routed := sidesOf(&h.after.Spec); routed {
		r.sides = sides
	}
	if old == nil || old.Generation != h.after.Generation {
		r.Specs.Set(&h.after.Spec, l.Now())
	}
	if !h.BySerin && (h.Subresource == "status" || old == nil || !sameStrategy(&old.Spec, &h.after.Spec)) {
		r.meddled = l.Now()
	}
	switch paused := h.after.Spec.Paused; {
	case paused && r.Suspended.IsZero():
		r.Suspended = l.Now()
	case !paused:
		r.Suspended = time.Time{}
	}
	if h.begins {
		r.run = &run{hash: h.after.Status.CurrentPodHash, before: h.after.Status.StableRS, began: l.Now(), passed: map[string]bool{}}
		r.aborted = false
	}
	if h.status() {
		l.recordStatus(r, h)
	}
}

func (l *ledger) recordStatus(r *record, h rolloutWritten) {
	switch is := h.after.Status.Phase == argov1.RolloutPhaseHealthy; {
	case is && r.Rested.IsZero():
		r.Rested = l.Now()
	case !is:
		r.Rested = time.Time{}
	}
	switch {
	case h.after.Status.Abort:
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

// recordRun records which analyses were successful. One that a user ends is, whatever it has measured: that is how
// users skip it. What Serin ends says nothing.
func (l *ledger) recordRun(h oracle.Write) {
	a := actors.Typed[*argov1.AnalysisRun](l.World, h.New)
	if a == nil {
		return
	}
	if was := actors.Typed[*argov1.AnalysisRun](l.World, h.Old); !h.BySerin && a.Spec.Terminate && was != nil && !was.Spec.Terminate {
		l.ended[a.UID] = true
	}
	if a.Status.Phase != argov1.AnalysisPhaseSuccessful || a.Spec.Terminate && !l.ended[a.UID] {
		return
	}
	kind, name := owner(a)
	r := l.ByName[types.NamespacedName{Namespace: h.Key.Namespace, Name: name}]
	if kind != argov1.RolloutKind || r == nil || r.run == nil || a.Labels[argov1.PodTemplateHashLabel] != r.run.hash {
		return
	}
	r.run.passed[a.Labels[argov1.RolloutTypeLabel]+a.Labels[argov1.StepIndexLabel]] = true
}

// expectedSpecs are the specs that a decision of now may follow.
func (l *ledger) expectedSpecs(r *record) []*argov1.RolloutSpec { return r.Specs.Since(l.OldestView()) }

// noneAsked is true of a Rollout that may be asked for no pods at all.
func (l *ledger) noneAsked(r *record) bool {
	return slices.ContainsFunc(l.expectedSpecs(r), func(s *argov1.RolloutSpec) bool { return s.Replicas != nil && *s.Replicas == 0 })
}

// plain is true of a release that only its plan determines: a user who writes into the status, or changes the plan,
// makes anything possible.
func (l *ledger) plain(r *record) bool {
	return r.run != nil && r.meddled.Before(r.run.began) && len(l.World.Instances()) == 1
}

// setsOf are the ReplicaSets of a Rollout as they are. Those that one of the same name left behind are not among them: they
// are collected some time after it.
func (l *ledger) setsOf(r *record) []*appsv1.ReplicaSet {
	var out []*appsv1.ReplicaSet
	for _, v := range l.World.Server.All(actors.ReplicaSetKind) {
		set := actors.Typed[*appsv1.ReplicaSet](l.World, v)
		if of := metav1.GetControllerOfNoCopy(set); of != nil && of.UID == r.UID {
			out = append(out, set)
		}
	}
	return out
}

// setOf is the ReplicaSet of a hash; nil: there is none.
func (l *ledger) setOf(r *record, hash string) *appsv1.ReplicaSet {
	for _, set := range l.setsOf(r) {
		if hash != "" && hashOf(set) == hash {
			return set
		}
	}
	return nil
}

// podsOf are those of the ReplicaSet of a hash.
func (l *ledger) podsOf(r *record, hash string) *oracle.Pods {
	set := l.setOf(r, hash)
	if set == nil {
		return nil
	}
	return l.sets[keyOf(set)]
}

// selected is the hash that a Service selects; empty: none.
func (l *ledger) selected(v *store.Version) string {
	service := actors.Typed[*corev1.Service](l.World, v)
	if service == nil {
		return ""
	}
	return service.Spec.Selector[argov1.PodTemplateHashLabel]
}

func (l *ledger) serviceOf(name string) *store.Version {
	return l.World.Server.Peek(actors.ServiceKind, types.NamespacedName{Namespace: actors.Namespace, Name: name})
}

// served are the hashes of a Rollout that users reach now: by a route, or by the Service that they call.
func (l *ledger) served(r *record) []string {
	strategy := r.object.Spec.Strategy
	switch {
	case strategy.BlueGreen != nil:
		return []string{l.selected(l.serviceOf(strategy.BlueGreen.ActiveService))}
	case strategy.Canary != nil && strategy.Canary.TrafficRouting != nil:
		var out []string
		for _, kind := range routeKinds {
			for _, s := range weightsOf(l.World.Server.Peek(kind, r.Key)) {
				if s.Weight > 0 {
					out = append(out, l.leads(r, s.place))
				}
			}
		}
		return out
	default:
		return nil
	}
}
