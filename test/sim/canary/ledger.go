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

// ledger records what was observed of a run, including facts that the controller cannot know: which actor wrote an object based
// on which version, which query reached its receiver in which state of the world, and when a property stopped being true.
type ledger struct {
	*oracle.Ledger
	oracle.Releases[*record]

	drainDelay time.Duration
	byObject   map[oracle.ObjectKey][]*record
	processes  map[string]*processState
	// preceding contains the Canaries that precede each Canary with the same target, and since when.
	preceding map[*record]map[*record]time.Time

	// configs are the versions of ConfigMaps and Secrets; nil: there was none.
	configs map[oracle.ObjectKey]oracle.Timeline[*store.Version]

	// clocksDiffered is when a process last wrote an object while the clocks of the processes differed.
	clocksDiffered time.Time
	// lateGateways means that gateways observe routes seconds later than usual.
	lateGateways bool
}

func newLedger(w *sim.World, drain time.Duration) *ledger {
	core := oracle.NewLedger(w, schema.GroupKind{})
	core.LossDetection = cluster.DetectionTime(w)
	return &ledger{
		Ledger: core, Releases: oracle.NewReleases[*record](), drainDelay: drain,
		byObject: map[oracle.ObjectKey][]*record{}, processes: map[string]*processState{}, preceding: map[*record]map[*record]time.Time{},
		configs:      map[oracle.ObjectKey]oracle.Timeline[*store.Version]{},
		lateGateways: w.Faults.Has(cluster.LateGateways),
	}
}

func (l *ledger) processState(name string) *processState {
	if l.processes[name] == nil {
		l.processes[name] = &processState{
			answers: map[types.UID]map[string]*query{}, inFlight: map[types.UID]*query{},
			lastPoll: map[types.UID]map[string]time.Time{},
		}
	}
	return l.processes[name]
}

// abandonQueries records that a process no longer remembers its queries. Those in flight continue to use their slots.
func (l *ledger) abandonQueries(process string) {
	before := l.processState(process)
	delete(l.processes, process)
	after := l.processState(process)
	after.abandoned = before.abandoned
	for _, q := range before.inFlight {
		after.abandoned = append(after.abandoned, q)
	}
}

// mayBeOutdated reports whether a process may not know yet what another running process has just decided about a release. Each
// of them may act on what it observed; a write of the status then conflicts.
func (l *ledger) mayBeOutdated(process string, r *record) bool {
	_, running := l.processes[r.statusActor]
	return running && r.statusActor != process && r.statusChanged.After(l.OldestView())
}

// expectations returns the expectations of the specs that a current decision may be based on.
func (l *ledger) expectations(r *record) []*expectation { return r.Specs.Since(l.OldestView()) }

// minInterval returns the shortest interval that may apply.
func (l *ledger) minInterval(r *record) time.Duration {
	return l.shortest(r, func(d *expectation) time.Duration { return d.interval })
}

// shortestDeadline returns the shortest deadline that a process may know.
func (l *ledger) shortestDeadline(r *record) time.Duration {
	return l.shortest(r, func(d *expectation) time.Duration { return d.deadline })
}

// shortest returns the shortest duration of the expectations; zero without any.
func (l *ledger) shortest(r *record, of func(*expectation) time.Duration) time.Duration {
	var all []time.Duration
	for _, d := range l.expectations(r) {
		all = append(all, of(d))
	}
	if len(all) == 0 {
		return 0
	}
	return slices.Min(all)
}

// canaryWritten is a write of a Canary.
type canaryWritten struct {
	oracle.ReleaseWritten[*record, *flaggerv1.Canary]

	// newRun is the run that begins with this write. opensWindow reports whether a window begins with it.
	newRun      *run
	opensWindow bool
}

// routeWritten is a write of the object that contains the weights.
type routeWritten struct {
	oracle.Write

	record        *record
	before, after weights
}

// workloadWritten is a write of the target or the primary.
type workloadWritten struct {
	oracle.Write

	record  *record
	primary bool
	// previousReplicas and replicas are the desired replicas before and after the write; content is the new content of the
	// workload if it changed.
	previousReplicas, replicas int64
	content                    string
	state                      *workloadState
}

// releasesOf returns the releases that an object belongs to.
func (l *ledger) releasesOf(e oracle.Write) []*record { return l.byObject[oracle.KeyOf(e.Kind, e.Key)] }

// queryAnswered reports that a process received an answer.
type queryAnswered struct{ *query }

// Interpret implements oracle.Recorder.
func (l *ledger) Interpret(event any) []any {
	switch h := event.(type) {
	case sim.ObjectWritten:
		return l.readWrite(h.Event)
	case actors.QuerySent:
		return append([]any{h}, l.readQuery(h)...) // h is for the shared rules, of a Canary that was deleted too
	case actors.QueryAnswered:
		process := l.processState(h.Instance)
		for _, q := range process.abandoned {
			if q.request.ID == h.Query.ID {
				q.answeredAt = l.Now()
			}
		}
		q := process.inFlight[h.Key.UID]
		if q == nil || q.request.ID != h.Query.ID {
			return nil
		}
		q.answeredAt, q.answer = l.Now(), h.Answer
		return []any{queryAnswered{q}}
	default:
		return []any{event}
	}
}

// Record implements oracle.Recorder.
func (l *ledger) Record(event any) {
	l.Ledger.Record(event)
	records := &recorder{l}
	switch h := event.(type) {
	case oracle.Write:
		if l.Clocks.Changed && h.BySerin && l.Clocks.Differ() {
			l.clocksDiffered = l.Now()
		}
		records.recordConfig(h)
		records.recordFormerRoute(h)
		records.recordPrecedence()
	case canaryWritten:
		records.recordCanary(h)
		records.recordPrecedence()
	case routeWritten:
		records.recordRoute(h)
	case workloadWritten:
		records.recordWorkload(h)
	case *query:
		l.processState(h.process).inFlight[h.record.UID] = h
	case queryAnswered:
		l.Events++
		life := l.processState(h.process)
		if life.inFlight[h.record.UID] == h.query {
			delete(life.inFlight, h.record.UID)
		}
		if life.answers[h.record.UID] == nil {
			life.answers[h.record.UID] = map[string]*query{}
		}
		life.answers[h.record.UID][h.request.ID] = h.query
	case cluster.PodDied:
		records.recordPodDeath(h)
	case sim.ProcessStarted:
		l.processState(h.Instance) // registers the process as running
	case sim.ShardLost:
		l.abandonQueries(h.Instance)
	case sim.ProcessCrashed:
		delete(l.processes, h.Instance)
	}
}

// recorder updates the records of a ledger.
type recorder struct{ *ledger }

// recordPodDeath records that a pod of a workload failed.
func (c *recorder) recordPodDeath(h cluster.PodDied) {
	key := types.NamespacedName{Namespace: h.Namespace, Name: h.Deployment}
	for _, r := range c.byObject[oracle.KeyOf(actors.DeploymentKind, key)] {
		if h.Deployment == r.targetRef.Name {
			r.target.disturbedAt = c.Now()
		} else {
			r.primary.disturbedAt = c.Now()
		}
	}
}

func (l *ledger) readQuery(h actors.QuerySent) []any {
	r := l.ByUID[h.Key.UID]
	if r == nil {
		return nil
	}
	q := &query{record: r, process: h.Instance, request: h.Query, sent: l.Now(), content: r.target.content, run: r.run}
	q.contentUncertain = r.target.contentHistory.Changed().After(l.OldestView()) || r.target.removed.After(l.OldestView()) || l.lacksConfig(r.target.version)
	switch asks := h.Query.Request.(type) {
	case canary.HookQuery:
		q.hook = &asks
	case canary.MetricQuery:
		q.check = &asks.Check
	}
	return []any{q}
}

// readWrite translates a write into the terms of the releases.
func (l *ledger) readWrite(e *store.Event) []any {
	written := oracle.NewWrite(e)
	at, of := oracle.KeyOf(e.Kind, e.Key), l.releasesOf(written)
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
			if r.hasWeights(at) {
				before := r.route.weights
				if e.Type == store.Added {
					before = weights{} // it may have been deleted while the spec named another kind of route
				}
				of := oracle.Write{Event: e, BySerin: written.BySerin && l.ownsTarget(r) && !l.servesOther(e, r)}
				out = append(out, routeWritten{of, r, before, r.weightsIn(e)})
			}
		}
	}
	return out
}

func (l *ledger) readCanary(e oracle.Write) canaryWritten {
	m := canaryWritten{ReleaseWritten: oracle.NewReleaseWritten[*record, *flaggerv1.Canary](l.World, e, l.ByUID[e.New.UID()])}
	m.Before, m.After = decodeState(m.Before), decodeState(m.After)
	if m.Record == nil || !m.StatusChanged() {
		return m
	}
	before, after := &m.Before.Status, &m.After.Status
	if name := runName(after); l.beginsRun(m, name) {
		m.newRun = &run{
			name: name, began: l.Now(), phaseBefore: before.Phase, targetContents: l.observableContents(&m.Record.target), primaryContent: m.Record.primary.content,
			beganWithTraffic: m.Record.promotionFailed && m.Record.route.canary > 0,
		}
		m.newRun.shippedFromWaiting = before.Phase == flaggerv1.CanaryPhaseWaiting && m.Record.gave(canary.CommandPromoteFull+"@"+runName(before))
	}
	m.opensWindow = windowStart(after) != windowStart(before) && !windowStart(after).IsZero()
	return m
}

// beginsRun reports whether a status begins another run. If a user removes Serin's part of the status, or restores the name of
// a run, no run begins unless another revision is released; nor does a cancellation begin one, which returns to the revision of
// the primary.
func (l *ledger) beginsRun(m canaryWritten, name string) bool {
	before, after := &m.Before.Status, &m.After.Status
	switch {
	case !isActive(after.Phase):
		return false
	case m.Record.run != nil && !hasNoRunName(after) && name == m.Record.run.name:
		return false // it continues, even if a user wrote another phase in between
	case m.Record.run != nil && before.Phase == flaggerv1.CanaryPhaseFailed && after.Phase == flaggerv1.CanaryPhasePromoting && revisionOf(after) == revisionOf(before):
		return false // a failed promotion continues
	case !isActive(before.Phase):
		return true
	case name == runName(before):
		return false
	case m.Record.run != nil && (hasNoRunName(after) || hasNoRunName(before)):
		return m.BySerin && !hasNoRunName(after) && revisionOf(after) != revisionOf(before) && after.LastAppliedSpec != after.LastPromotedSpec
	default:
		return true
	}
}

// hasNoRunName reports whether a status names no run.
func hasNoRunName(status *flaggerv1.CanaryStatus) bool {
	return status.Serin == nil || status.Serin.Run == ""
}

// decodeState returns a Canary with its state in the field, however it is stored.
func decodeState(c *flaggerv1.Canary) *flaggerv1.Canary {
	if c == nil || !flaggerv1.HasEncodedState(c.Status) {
		return c
	}
	out := *c // the version is shared
	out.Status = flaggerv1.DecodeState(c.Status)
	return &out
}

// isActive reports whether a release is in progress in a phase.
func isActive(phase flaggerv1.CanaryPhase) bool {
	switch phase {
	case flaggerv1.CanaryPhaseWaiting, flaggerv1.CanaryPhaseProgressing, flaggerv1.CanaryPhaseWaitingPromotion,
		flaggerv1.CanaryPhasePromoting, flaggerv1.CanaryPhaseFinalising:
		return true
	default:
		return false
	}
}

// isEnded reports whether a release has ended in a phase.
func isEnded(phase flaggerv1.CanaryPhase) bool {
	switch phase {
	case flaggerv1.CanaryPhaseInitialized, flaggerv1.CanaryPhaseSucceeded, flaggerv1.CanaryPhaseFailed:
		return true
	default:
		return false
	}
}

// runName returns a name that distinguishes one run from the next. In a status of another controller, the applied spec
// identifies a run.
func runName(status *flaggerv1.CanaryStatus) string {
	if status.Serin != nil && status.Serin.Run != "" {
		return status.Serin.Run
	}
	return revisionOf(status)
}

// revisionOf returns the revision of a status, in the terms of the API.
func revisionOf(status *flaggerv1.CanaryStatus) string {
	return fmt.Sprintf("%s %v", status.LastAppliedSpec, status.TrackedConfigs)
}

// windowStart returns the start of the open window in a status.
func windowStart(status *flaggerv1.CanaryStatus) time.Time {
	if status.Serin == nil || status.Serin.Window == nil {
		return time.Time{}
	}
	return status.Serin.Window.Start.Time
}

func (c *recorder) recordCanary(h canaryWritten) {
	r := h.Record
	if h.Type == store.Deleted {
		if r != nil {
			r.DeletedAt = c.Now()
			c.Remove(r.Key, r)
			c.indexObjects()
		}
		return
	}
	if r == nil {
		r = &record{kind: c.kindOf(h), created: c.Now()}
		r.Key, r.UID = h.Key, h.New.UID()
		c.Add(r.Key, r.UID, r)
	}
	old := r.canary
	var routeKind schema.GroupKind
	if old != nil {
		routeKind = r.routeKind()
	}
	r.object, r.canary, r.status, r.changed = h.New, h.After, &h.After.Status, c.Now()
	c.recordTarget(r, old)
	if old == nil || old.Generation != h.After.Generation {
		r.Specs.Set(expectationOf(&h.After.Spec), c.Now())
		c.updateReadiness(r, &r.target)
		c.updateReadiness(r, &r.primary)
		c.indexObjects()
		c.recordProvider(r, routeKind)
		c.recordExistingRoute(r)
		r.SetSuspended(h.After.Spec.Suspend, c.Now())
	}
	if said := h.After.Annotations["serin.dev/command"]; said != "" && (old == nil || old.Annotations["serin.dev/command"] != said) {
		verb, name, _ := strings.Cut(said, "@")
		r.commands = append(r.commands, command{verb, name, c.Now()})
	}
	if old == nil {
		c.recordExisting(r)
	}
	if h.StatusChanged() {
		c.recordStatus(r, h)
	}
}

// kindOf returns the kind of the workload that a Canary targets. A Canary whose target kind has no such object releases
// nothing.
func (c *recorder) kindOf(h canaryWritten) schema.GroupKind {
	target := types.NamespacedName{Namespace: h.Key.Namespace, Name: h.After.Spec.TargetRef.Name}
	if h.After.Spec.TargetRef.Kind == actors.DaemonSetKind.Kind && c.World.Server.Peek(actors.DaemonSetKind, target) != nil {
		return actors.DaemonSetKind
	}
	return actors.DeploymentKind
}

// recordExisting records the existing objects of a new release. Some process may still observe what the target ran under a
// Canary that is gone.
func (c *recorder) recordExisting(r *record) {
	for _, before := range c.All {
		if before != r && before.Key.Namespace == r.Key.Namespace && sameTarget(before.canary.Spec.TargetRef, r.canary.Spec.TargetRef) {
			r.target.contentHistory = slices.Clone(before.target.contentHistory)
		}
	}
	for _, copy := range []*workloadState{&r.target, &r.primary} {
		name := r.targetRef.Name
		if copy == &r.primary {
			name += "-primary"
		}
		if v := c.World.Server.Peek(r.kind, types.NamespacedName{Namespace: r.Key.Namespace, Name: name}); v != nil {
			c.recordPods(r, copy, v, "")
		}
	}
}

// recordExistingRoute records the weights when a spec names another kind of route, which was not observed before.
func (c *recorder) recordExistingRoute(r *record) {
	for _, at := range r.objectKeys() {
		if !r.hasWeights(at) {
			continue
		}
		r.route.weights = weights{}
		if v := c.World.Server.Peek(at.Kind, at.Key); v != nil {
			r.route.weights = r.weightsOf(v)
		}
	}
}

func (c *recorder) recordStatus(r *record, h canaryWritten) {
	r.statusChanged, r.statusActor = c.Now(), h.Actor
	if !h.BySerin {
		r.statusOverwritten, r.statusActor = c.Now(), ""
	}
	switch phase := h.After.Status.Phase; {
	case h.newRun != nil:
		if isAnalysing(h.Before.Status.Phase) && r.run != nil && r.route.trafficRemoved.After(r.run.began) {
			h.newRun.previousTrafficRemoved = r.route.trafficRemoved
		}
		if r.run != nil {
			c.closePreviousRun(r)
		}
		r.run, r.runs = h.newRun, r.runs+1
		r.SetIdle(false, c.Now())
	case isEnded(phase) && r.IdleSince.IsZero():
		r.SetIdle(true, c.Now())
		r.neverStarted = h.Before.Status.Phase == flaggerv1.CanaryPhaseWaiting
		c.recordEnd(r, phase)
	case !isEnded(phase):
		r.SetIdle(false, c.Now())
	}
	if r.run == nil {
		return
	}
	if isActive(h.After.Status.Phase) {
		r.run.name = runName(&h.After.Status) // the status may name it later than it begins
	}
	if h.opensWindow {
		r.run.window = &window{openedAt: c.Now(), statusStart: windowStart(&h.After.Status)}
	} else if windowStart(&h.After.Status).IsZero() {
		r.run.window = nil
	}
	if s := h.After.Status.Serin; s != nil && s.Intent != r.run.intent {
		r.run.intent, r.run.intentChanged = s.Intent, c.Now()
		r.run.cancelledEarly = s.Intent == "cancel" && c.JustStarted(h.Actor)
	}
}

// closePreviousRun discards what a run cannot report reliably to the next one.
func (c *recorder) closePreviousRun(r *record) {
	if !r.run.promotedAt.IsZero() && r.statusOverwritten.After(r.run.promotedAt) {
		r.stableContent = "" // a user wrote the status before it reported the promotion
	}
}

// recordEnd records the end of a run.
func (c *recorder) recordEnd(r *record, phase flaggerv1.CanaryPhase) {
	r.statusUnreliable = r.statusUnreliable || !r.statusBySerin()
	switch {
	case phase != flaggerv1.CanaryPhaseFailed:
		r.promotionFailed = false
	case r.run != nil && r.run.intent == "rollback" && r.primary.ready.True && r.route.canary == 0:
		r.promotionFailed = false // its primary was recreated in the meantime, and nothing was promoted
	case r.run != nil && !r.run.promotedAt.IsZero() && r.stableContent != r.run.primaryContent && slices.Contains(r.run.targetContents, r.stableContent):
		r.promotionFailed = true
	case r.run != nil && r.run.promotedAt.IsZero() && r.primary.ready.True && r.route.canary == 0:
		r.promotionFailed = false // a later run was analysed and rolled back, and the primary serves the users
	}
	switch {
	case phase == flaggerv1.CanaryPhaseInitialized:
		r.stableContent = r.primary.content
	case phase == flaggerv1.CanaryPhaseFailed && r.run != nil && len(r.run.targetContents) == 1:
		r.failedContent, r.failedAt = r.run.targetContents[0], c.Now()
	case phase == flaggerv1.CanaryPhaseSucceeded:
		r.failedContent = ""
	}
}

func (c *recorder) recordRoute(h routeWritten) {
	r := h.record
	if h.before == h.after {
		return
	}
	r.route.weights, r.route.changed = h.after, c.Now()
	if h.BySerin && c.mayBeOutdated(h.Actor, r) {
		r.route.outdatedWrite = c.Now()
	}
	if r.run != nil && h.BySerin {
		r.run.beganWithTraffic = false // from now on it has a weight that Serin set
	}
	switch {
	case !h.BySerin:
		r.route.changedByOthers = c.Now()
		if r.run != nil {
			r.run.weightsByOthers = append(r.run.weightsByOthers, h.after.canary)
		}
	case h.before.canary > 0 && h.after.canary == 0:
		r.route.trafficRemoved, r.route.removedWithoutPods = c.Now(), r.target.replicas == 0 && r.target.available == 0
	}
}

// indexObjects recomputes which objects belong to which releases: the names follow from the specs.
func (c *recorder) indexObjects() {
	clear(c.byObject)
	for _, r := range c.All {
		if r.Gone() || r.canary == nil {
			continue
		}
		for _, at := range r.objectKeys() {
			c.byObject[at] = append(c.byObject[at], r)
		}
	}
}
