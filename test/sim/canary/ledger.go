package canary

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/canary"
	"github.com/serin-dev/serin/test/sim"
	"github.com/serin-dev/serin/test/sim/actors"
	"github.com/serin-dev/serin/test/sim/cluster"
	"github.com/serin-dev/serin/test/sim/oracle"
	"github.com/serin-dev/serin/test/sim/store"
)

// ledger is what was seen of a run from outside, and what the controller cannot see: who wrote what on which
// basis, which question reached whom in which state of the world, and how long ago something stopped being true.
type ledger struct {
	*oracle.Ledger
	oracle.Releases[*record]

	drain  time.Duration
	things map[oracle.ObjectKey][]*record
	lives  map[string]*life

	// disagreed is when one of several processes whose clocks differ last wrote something.
	disagreed time.Time
	// lateGateways follow routes seconds later than usual.
	lateGateways bool
}

func newLedger(w *sim.World, drain time.Duration) *ledger {
	return &ledger{
		Ledger: oracle.NewLedger(w, schema.GroupKind{}), Releases: oracle.NewReleases[*record](), drain: drain,
		things: map[oracle.ObjectKey][]*record{}, lives: map[string]*life{},
		lateGateways: w.Faults.Has(cluster.LateGateways),
	}
}

func (l *ledger) life(name string) *life {
	if l.lives[name] == nil {
		l.lives[name] = &life{
			answers: map[types.UID]map[string]*question{}, out: map[types.UID]*question{},
			polled: map[types.UID]map[string]time.Time{},
		}
	}
	return l.lives[name]
}

// outpaced is true of a process that need not know yet what another one, which lives beside it, has just decided about a
// release: each of them may do what follows from what it saw. What it then writes into the status is a conflict.
func (l *ledger) outpaced(by string, r *record) bool {
	_, lives := l.lives[r.mover]
	return lives && r.mover != by && r.moved.After(l.OldestView())
}

// expectations are those that a decision of now may follow.
func (l *ledger) expectations(r *record) []*expectation { return r.Specs.Since(l.OldestView()) }

// least is the shortest interval that may hold now.
func (l *ledger) least(r *record) time.Duration {
	shortest := time.Duration(0)
	for i, d := range l.expectations(r) {
		if i == 0 || d.interval < shortest {
			shortest = d.interval
		}
	}
	return shortest
}

// canaryWritten is a write of a Canary.
type canaryWritten struct {
	oracle.Write

	of            *record
	before, after *flaggerv1.Canary // nil before it is there, and when it is gone
	// begins is the attempt that begins with it; opens is true when a window does.
	begins *run
	opens  bool
}

// status is true when the status changed.
func (m canaryWritten) status() bool {
	return m.before != nil && m.after != nil && m.Subresource == "status"
}

// routeWritten is a write of the object that has the weights.
type routeWritten struct {
	oracle.Write

	of            *record
	before, after weights
}

// workloadWritten is a write of the target or the primary.
type workloadWritten struct {
	oracle.Write

	of      *record
	primary bool
	// was and is are what was asked for; content is what it runs from now on, where that changed.
	was, is int64
	content string
	copy    *workloadState
}

// releasesOf are the releases that an object belongs to.
func (l *ledger) releasesOf(e oracle.Write) []*record { return l.things[oracle.At(e.Kind, e.Key)] }

// answered is an answer that came to a process.
type answered struct{ *question }

// Interpret implements oracle.Recorder.
func (l *ledger) Interpret(event any) []any {
	switch h := event.(type) {
	case sim.ObjectWritten:
		return l.readWrite(h.Event)
	case actors.QuerySent:
		return l.readQuestion(h)
	case actors.QueryAnswered:
		q := l.life(h.Instance).out[h.Of.UID]
		if q == nil || q.probe.ID != h.Query.ID {
			return nil
		}
		q.answered, q.answer = l.Now(), h.Answer
		return []any{answered{q}}
	default:
		return []any{event}
	}
}

// Record implements oracle.Recorder.
func (l *ledger) Record(event any) {
	l.Ledger.Record(event)
	switch h := event.(type) {
	case oracle.Write:
		if l.Clocks.Changed && h.BySerin && l.Clocks.Differ() {
			l.disagreed = l.Now()
		}
		l.recordConfig(h)
	case canaryWritten:
		l.recordCanary(h)
	case routeWritten:
		l.recordRoute(h)
	case workloadWritten:
		l.recordWorkload(h)
	case *question:
		l.life(h.by).out[h.of.UID] = h
	case answered:
		l.Events++
		life := l.life(h.by)
		delete(life.out, h.of.UID)
		if life.answers[h.of.UID] == nil {
			life.answers[h.of.UID] = map[string]*question{}
		}
		life.answers[h.of.UID][h.probe.ID] = h.question
	case cluster.PodDied:
		l.recordPodDeath(h)
	case sim.ProcessStarted:
		l.life(h.Instance) // from now on it is known to be running
	case sim.ProcessCrashed:
		delete(l.lives, h.Instance)
	}
}

// recordPodDeath records that a pod of a workload failed.
func (l *ledger) recordPodDeath(h cluster.PodDied) {
	key := types.NamespacedName{Namespace: h.Namespace, Name: h.Deployment}
	for _, r := range l.things[oracle.At(actors.DeploymentKind, key)] {
		if h.Deployment == r.canary.Spec.TargetRef.Name {
			r.target.disturbed = l.Now()
		} else {
			r.primary.disturbed = l.Now()
		}
	}
}

func (l *ledger) readQuestion(h actors.QuerySent) []any {
	r := l.ByUID[h.Of.UID]
	if r == nil {
		return nil
	}
	q := &question{of: r, by: h.Instance, probe: h.Query, asked: l.Now(), content: r.target.content, run: r.run}
	q.fresh = r.target.contents.Changed().After(l.OldestView())
	switch asks := h.Query.Request.(type) {
	case canary.HookQuery:
		q.hook = &asks
	case canary.MetricQuery:
		q.check = &asks.Check
	}
	return []any{q}
}

// readWrite says what a write is to the releases.
func (l *ledger) readWrite(e *store.Event) []any {
	written := oracle.NewWrite(e)
	at, of := oracle.At(e.Kind, e.Key), l.releasesOf(written)
	out := []any{written}
	switch e.Kind {
	case canaryKind:
		return append(out, l.readCanary(written))
	case actors.DeploymentKind, actors.DaemonSetKind:
		for _, r := range of {
			out = append(out, l.readWorkload(written, r))
		}
	default:
		for _, r := range of {
			if r.carries(at) {
				before := r.route.weights
				if e.Type == store.Added {
					before = weights{} // it may have gone while the spec named another kind of route
				}
				of := oracle.Write{Event: e, BySerin: written.BySerin && l.owns(r)}
				out = append(out, routeWritten{of, r, before, r.weightsIn(e)})
			}
		}
	}
	return out
}

func (l *ledger) readCanary(e oracle.Write) canaryWritten {
	m := canaryWritten{Write: e, of: l.ByUID[e.New.UID()], before: decoded(actors.Typed[*flaggerv1.Canary](l.World, e.Old))}
	if e.Type != store.Deleted {
		m.after = decoded(actors.Typed[*flaggerv1.Canary](l.World, e.New))
	}
	if m.of == nil || !m.status() {
		return m
	}
	before, after := &m.before.Status, &m.after.Status
	if name := nameOf(after); l.begins(m, name) {
		m.begins = &run{
			name: name, began: l.Now(), before: before.Phase, contents: m.of.target.contents.Since(l.OldestView()), primary: m.of.primary.content,
			unearned: m.of.orphaned && m.of.route.canary > 0,
		}
	}
	m.opens = opened(after) != opened(before) && !opened(after).IsZero()
	return m
}

// begins is true when a status is about another attempt from now on. Someone who takes our part of the status away, or
// puts the attempt's name back, begins none, unless something else is taken up; nor does the decision to cancel, which
// takes up what the primary runs.
func (l *ledger) begins(m canaryWritten, name string) bool {
	before, after := &m.before.Status, &m.after.Status
	switch {
	case !moving(after.Phase):
		return false
	case m.of.run != nil && !unnamed(after) && name == m.of.run.name:
		return false // it continues, whatever phase a user wrote in between
	case m.of.run != nil && before.Phase == flaggerv1.CanaryPhaseFailed && after.Phase == flaggerv1.CanaryPhasePromoting && takenUp(after) == takenUp(before):
		return false // a promotion that failed continues
	case !moving(before.Phase):
		return true
	case name == nameOf(before):
		return false
	case m.of.run != nil && (unnamed(after) || unnamed(before)):
		return m.BySerin && !unnamed(after) && takenUp(after) != takenUp(before) && after.LastAppliedSpec != after.LastPromotedSpec
	default:
		return true
	}
}

// unnamed is true of a status that names no attempt.
func unnamed(status *flaggerv1.CanaryStatus) bool {
	return status.Serin == nil || status.Serin.Run == ""
}

// decoded is a Canary with its state in the field, wherever it is stored.
func decoded(c *flaggerv1.Canary) *flaggerv1.Canary {
	if c == nil || !flaggerv1.HasEncodedState(c.Status) {
		return c
	}
	out := *c // the version is shared
	out.Status = flaggerv1.DecodeState(c.Status)
	return &out
}

// moving is true of phases in which something is done.
func moving(phase flaggerv1.CanaryPhase) bool {
	switch phase {
	case flaggerv1.CanaryPhaseWaiting, flaggerv1.CanaryPhaseProgressing, flaggerv1.CanaryPhaseWaitingPromotion,
		flaggerv1.CanaryPhasePromoting, flaggerv1.CanaryPhaseFinalising:
		return true
	default:
		return false
	}
}

// resting is true of phases in which a release is at an end.
func resting(phase flaggerv1.CanaryPhase) bool {
	switch phase {
	case flaggerv1.CanaryPhaseInitialized, flaggerv1.CanaryPhaseSucceeded, flaggerv1.CanaryPhaseFailed:
		return true
	default:
		return false
	}
}

// nameOf distinguishes one attempt from the next. In a status of another controller, the applied spec identifies an attempt.
func nameOf(status *flaggerv1.CanaryStatus) string {
	if status.Serin != nil && status.Serin.Run != "" {
		return status.Serin.Run
	}
	return takenUp(status)
}

// takenUp is the revision that a status is about, in the words of the API.
func takenUp(status *flaggerv1.CanaryStatus) string {
	return fmt.Sprintf("%s %v", status.LastAppliedSpec, status.TrackedConfigs)
}

// opened is when the open window began, as a status says.
func opened(status *flaggerv1.CanaryStatus) time.Time {
	if status.Serin == nil || status.Serin.Window == nil {
		return time.Time{}
	}
	return status.Serin.Window.Start.Time
}

func (l *ledger) recordCanary(h canaryWritten) {
	r := h.of
	if h.Type == store.Deleted {
		if r != nil {
			r.Deleted = l.Now()
			l.Remove(r.Key, r)
			l.rename()
		}
		return
	}
	if r == nil {
		r = &record{kind: l.kindOf(h), made: l.Now()}
		r.Key, r.UID = h.Key, h.New.UID()
		l.Add(r.Key, r.UID, r)
	}
	old := r.canary
	r.object, r.canary, r.status, r.changed = h.New, h.after, &h.after.Status, l.Now()
	if old == nil || !sameTarget(old.Spec.TargetRef, h.after.Spec.TargetRef) {
		r.aimed = l.Now()
	}
	if old == nil || old.Generation != h.after.Generation {
		r.Specs.Set(expectationOf(&h.after.Spec), l.Now())
		l.reckonReady(r, &r.target)
		l.reckonReady(r, &r.primary)
		l.rename()
		l.meetRoute(r)
		switch suspended := h.after.Spec.Suspend; {
		case suspended && r.Suspended.IsZero():
			r.Suspended = l.Now()
		case !suspended:
			r.Suspended = time.Time{}
		}
	}
	if said := h.after.Annotations["serin.dev/command"]; said != "" && (old == nil || old.Annotations["serin.dev/command"] != said) {
		verb, name, _ := strings.Cut(said, "@")
		r.commands = append(r.commands, command{verb, name, l.Now()})
	}
	if old == nil {
		l.meet(r)
	}
	if h.status() {
		l.recordStatus(r, h)
	}
}

// kindOf is the kind of the workload that a Canary is made for. One that points at a kind of which there is none releases
// nothing.
func (l *ledger) kindOf(h canaryWritten) schema.GroupKind {
	target := types.NamespacedName{Namespace: h.Key.Namespace, Name: h.after.Spec.TargetRef.Name}
	if h.after.Spec.TargetRef.Kind == actors.DaemonSetKind.Kind && l.World.Server.Peek(actors.DaemonSetKind, target) != nil {
		return actors.DaemonSetKind
	}
	return actors.DeploymentKind
}

// meet records what is there of the objects of a new release. What the target of a Canary that is gone ran until then,
// some process may still see.
func (l *ledger) meet(r *record) {
	for _, before := range l.All {
		if before != r && before.Key.Namespace == r.Key.Namespace && sameTarget(before.canary.Spec.TargetRef, r.canary.Spec.TargetRef) {
			r.target.contents = slices.Clone(before.target.contents)
		}
	}
	for _, copy := range []*workloadState{&r.target, &r.primary} {
		name := r.canary.Spec.TargetRef.Name
		if copy == &r.primary {
			name += "-primary"
		}
		if v := l.World.Server.Peek(r.kind, types.NamespacedName{Namespace: r.Key.Namespace, Name: name}); v != nil {
			l.lookAtPods(r, copy, v, "")
		}
	}
}

// meetRoute records the weights where a spec names another kind of route, which was not observed before.
func (l *ledger) meetRoute(r *record) {
	for _, at := range r.places() {
		if !r.carries(at) {
			continue
		}
		r.route.weights = weights{}
		if v := l.World.Server.Peek(at.Kind, at.Key); v != nil {
			r.route.weights = r.weightsOf(v)
		}
	}
}

func (l *ledger) recordStatus(r *record, h canaryWritten) {
	r.moved, r.mover = l.Now(), h.Actor
	if !h.BySerin {
		r.tampered, r.mover = l.Now(), ""
	}
	switch phase := h.after.Status.Phase; {
	case h.begins != nil:
		if analysing(h.before.Status.Phase) && r.run != nil && r.route.left.After(r.run.began) {
			h.begins.left = r.route.left
		}
		if r.run != nil {
			l.succeeds(r)
		}
		r.run, r.runs = h.begins, r.runs+1
		r.Rested = time.Time{}
	case resting(phase) && r.Rested.IsZero():
		r.Rested, r.unbegun = l.Now(), h.before.Status.Phase == flaggerv1.CanaryPhaseWaiting
		l.ended(r, phase)
	case !resting(phase):
		r.Rested = time.Time{}
	}
	if r.run == nil {
		return
	}
	if moving(h.after.Status.Phase) {
		r.run.name = nameOf(&h.after.Status) // the status may name it only now
	}
	if h.opens {
		r.run.window = &window{opened: l.Now(), start: opened(&h.after.Status)}
	} else if opened(&h.after.Status).IsZero() {
		r.run.window = nil
	}
	if s := h.after.Status.Serin; s != nil && s.Intent != r.run.intent {
		r.run.intent, r.run.intended = s.Intent, l.Now()
		r.run.cancelledEarly = s.Intent == "cancel" && l.JustStarted(h.Actor)
	}
}

// succeeds records what of an attempt is true of the next one.
func (l *ledger) succeeds(r *record) {
	if !r.run.promoted.IsZero() && r.tampered.After(r.run.promoted) {
		r.stable = "" // the primary had the copy, and someone wrote the status before that was said to be promoted
	}
}

// ended closes the attempt of a release that came to an end.
func (l *ledger) ended(r *record, phase flaggerv1.CanaryPhase) {
	r.misled = r.misled || !r.mine()
	switch {
	case phase != flaggerv1.CanaryPhaseFailed:
		r.orphaned = false
	case r.run != nil && r.run.intent == "rollback" && r.primary.ready.True && r.route.canary == 0:
		r.orphaned = false // its primary was created again meanwhile, and nothing was promoted
	case r.run != nil && !r.run.promoted.IsZero() && r.stable != r.run.primary && slices.Contains(r.run.contents, r.stable):
		r.orphaned = true
	case r.run != nil && r.run.promoted.IsZero() && r.primary.ready.True && r.route.canary == 0:
		r.orphaned = false // a later attempt was analysed and rolled back, and the primary serves the users
	}
	switch {
	case phase == flaggerv1.CanaryPhaseInitialized:
		r.stable = r.primary.content
	case phase == flaggerv1.CanaryPhaseFailed && r.run != nil && len(r.run.contents) == 1:
		r.failed, r.failedAt = r.run.contents[0], l.Now()
	case phase == flaggerv1.CanaryPhaseSucceeded:
		r.failed = ""
	}
}

func (l *ledger) recordRoute(h routeWritten) {
	r := h.of
	if h.before == h.after {
		return
	}
	r.route.weights, r.route.touched = h.after, l.Now()
	if h.BySerin && l.outpaced(h.Actor, r) {
		r.route.outpaced = l.Now()
	}
	if r.run != nil && h.BySerin {
		r.run.unearned = false // from now on it has what Serin gave it
	}
	switch {
	case !h.BySerin:
		r.route.foreign = l.Now()
		if r.run != nil {
			r.run.foreign = append(r.run.foreign, h.after.canary)
		}
	case h.before.canary > 0 && h.after.canary == 0:
		r.route.left, r.route.leftNone = l.Now(), r.target.replicas == 0 && r.target.available == 0
	}
}

// rename reckons anew which objects are whose: names come from specs.
func (l *ledger) rename() {
	clear(l.things)
	for _, r := range l.All {
		if r.Gone() || r.canary == nil {
			continue
		}
		for _, at := range r.places() {
			l.things[at] = append(l.things[at], r)
		}
	}
}
