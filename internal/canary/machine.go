package canary

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/release"
)

// Decision is what follows from a snapshot of a Canary.
type Decision = release.Decision[flaggerv1.CanaryStatus]

// Next decides what this Canary needs now. It is total: a snapshot that no healthy cluster shows has an answer too.
func Next(s Snapshot) Decision {
	if s.Peer.Acts() {
		return besideAnother(s)
	}
	return withUnanswered(s, withProgress(s, decide(s)))
}

func decide(s Snapshot) Decision {
	if d, ok := mended(s); ok && (s.Deleting || !s.Plan.Suspended) {
		return d
	}
	switch {
	case s.Deleting && s.Finalizer && s.Obstacle == "":
		return leave(s)
	case s.Deleting && s.Finalizer:
		return forsake(s)
	case s.Deleting:
		return hold(s, nil) // what it owned is collected without us
	case s.Plan.Suspended:
		return suspended(s)
	case s.Status.Phase == "":
		e := s.edit().phase(flaggerv1.CanaryPhaseInitializing)
		e.status.LastAppliedSpec = "" // nothing is taken up yet, whatever somebody left of the status; see handing
		return e.done(nil)
	}
	if gates := obstacles(s); len(gates) > 0 {
		return blocked(s, gates)
	}
	if s.held() {
		return s.edit().stamp(release.StampSince).done(nil)
	}
	switch s.Status.Phase {
	case flaggerv1.CanaryPhaseInitializing:
		return initialise(s)
	case flaggerv1.CanaryPhaseWaiting:
		switch {
		case s.withdrawable():
			return withdraw(s)
		case s.becameReady():
			return recordPrimary(s)
		}
		return rescued(s, begin(s))
	case flaggerv1.CanaryPhaseProgressing, flaggerv1.CanaryPhaseWaitingPromotion:
		return progress(s)
	case flaggerv1.CanaryPhasePromoting:
		return promoting(s)
	case flaggerv1.CanaryPhaseFinalising:
		return finalising(s)
	default: // at rest: Initialized, Succeeded, Failed, and phases that only a newer Serin writes
		return rescued(s, rest(s))
	}
}

// hold keeps the status. A condition Blocked that nothing justifies any more goes; that of a refused step holds until the step
// is tried again.
func hold(s Snapshot, gates release.Gates, effects ...release.Effect) Decision {
	d := Decision{Status: s.Status, Effects: effects, Gates: gates, Probes: gates.Probes(), Wake: gates.Wake()}
	for _, gate := range gates {
		for _, event := range gate.Events {
			if event.Standing {
				d.Events = append(d.Events, event)
			}
		}
	}
	was := condition(s.Status, flaggerv1.ConditionBlocked)
	if was != nil && was.Reason != reasonStep && !s.Deleting && !s.Plan.Suspended {
		e := s.edit()
		e.effects, e.events = d.Effects, d.Events
		return e.done(gates)
	}
	return d
}

// wakeBy wakes at that moment at the latest; zero: no such moment.
func wakeBy(d Decision, moment time.Time) Decision {
	if !moment.IsZero() && (d.Wake.IsZero() || moment.Before(d.Wake)) {
		d.Wake = moment
	}
	return d
}

// suspended has no effect of any kind; the start of an open window stays, so that it is judged at once after resume.
// No deadline runs meanwhile.
func suspended(s Snapshot) Decision {
	gate := release.WaitsFor("suspended", release.ByPerson, "spec.suspend is true: set it to false to go on")
	gate.Events = []release.Event{{Type: release.Normal, Message: "skipping canary run as object is suspended", Standing: true}}
	return stopped(s, hold(s, release.Gates{gate}))
}

// obstacles are the reasons for which Serin must not act on this Canary, each of which a person has to remove.
func obstacles(s Snapshot) release.Gates {
	var gates release.Gates
	if s.Obstacle != "" {
		gates = append(gates, release.Fails("obstacle", release.ByPerson, s.Obstacle))
	}
	for _, block := range s.Plan.Blocks {
		gates = append(gates, release.Fails("plan", release.ByPerson, block))
	}
	if s.Workload.Problem != "" {
		gates = append(gates, release.Fails("target", release.ByPerson, s.Workload.Problem))
	}
	if s.Workload.ScalerProblem != "" {
		gates = append(gates, release.Fails("autoscaler", release.ByPerson, s.Workload.ScalerProblem))
	}
	return gates
}

// Moves is true of a phase in which what is decided has effects that another phase would not have.
func Moves(phase flaggerv1.CanaryPhase) bool {
	switch phase {
	case "", flaggerv1.CanaryPhaseInitialized, flaggerv1.CanaryPhaseSucceeded, flaggerv1.CanaryPhaseFailed:
		return false
	default:
		return true
	}
}

// blocked holds everything where it is and says, in the condition Blocked and in an event, what a person must do. Only
// requests for a target that is gone are given to those who can answer them, by the Canary whose target it is.
func blocked(s Snapshot, gates release.Gates) Decision {
	lost := s.Obstacle == "" && !s.Workload.Target.Found && s.Workload.Problem != "" && s.readable() && s.live() > 0 && s.primaryStands()
	switch {
	case !lost:
		return stopped(s, barred(s, gates))
	case s.unnoticed():
		return s.notice()
	default:
		return stopped(s, barred(s, gates, RouteIs{}))
	}
}

// barred keeps the status but for the condition Blocked, which says what the first gate does.
func barred(s Snapshot, gates release.Gates, effects ...release.Effect) Decision {
	e := s.copy().effect(effects...)
	first := gates.First()
	e.condition(flaggerv1.CanaryCondition{Type: flaggerv1.ConditionBlocked, Status: corev1.ConditionTrue, Reason: reason(first.Name), Message: first.Message})
	for _, gate := range gates {
		e.tell(release.Event{Type: release.Warning, Message: gate.Message, Standing: true})
	}
	d := e.done(gates)
	if len(diffConditions(s.Status, d.Status)) == 0 {
		d.Status, d.Wake = s.Status, gates.Wake()
	}
	return d
}

// diffConditions are the conditions that differ, generations apart: a block that holds is written once.
func diffConditions(a, b flaggerv1.CanaryStatus) []string {
	var out []string
	for _, c := range b.Conditions {
		old := condition(a, c.Type)
		if old == nil || old.Status != c.Status || old.Reason != c.Reason || old.Message != c.Message || old.ObservedGeneration != c.ObservedGeneration {
			out = append(out, c.Type)
		}
	}
	return out
}

// reason makes a condition's reason of a gate's name: canary-ready becomes CanaryReady.
func reason(gate string) string {
	var b strings.Builder
	for word := range strings.FieldsFuncSeq(gate, func(r rune) bool { return r == '-' || r == '/' || r == ' ' }) {
		b.WriteString(strings.ToUpper(word[:1]) + word[1:])
	}
	return b.String()
}

// initialise makes the primary and hands the traffic over. Until the primary can serve nothing that serves is touched.
func initialise(s Snapshot) Decision {
	var effects []release.Effect
	if s.Plan.Revert != s.Finalizer {
		effects = append(effects, HasFinalizer{Held: s.Plan.Revert})
	}
	effects = append(effects, ServicesExist{})
	if s.Plan.Joins {
		effects = append(effects, RoutePrepared{})
	}
	effects = append(effects, PrimaryExists{ID: s.id("initialise", s.Workload.Target.Revision), Follow: true})
	if s.Workload.Primary.Found && !s.Workload.Same {
		effects = append(effects, ConfigsCollected{}) // what was kept for going back from a promotion before is out of date
	}
	gates := release.Look(s, sourcesKnown, primaryTaken, primaryEndpoints)
	if s.Workload.Primary.Exceeded {
		message := s.primaryMessage()
		gates[1].Events = append(gates[1].Events, release.Event{
			Type: release.Warning, Message: message, Standing: true,
			Alert: &release.Alert{Severity: release.Error, Message: message},
		})
	}
	if gates.Verdict() != release.Pass {
		return hold(s, gates, effects...)
	}
	if s.leaks() {
		return forgetDrain(s, effects)
	}
	effects = append(effects, ScalerExists{}, ServicesExist{Apex: true})
	switch {
	case s.exposed():
		// A route that is older than this Canary, or that somebody wrote, sends users to the target, whose pods will go.
		effects = append(effects, RouteIs{})
	case s.Plan.Routed:
		effects = append(effects, RouteStands{})
	}
	if s.Plan.scales() && !s.Workload.Target.gone() {
		if !s.left() && !s.handing() {
			e := s.edit().effect(effects...).stamp(release.StampDrain)
			if s.Pruned {
				e.status.LastAppliedSpec = s.Workload.Target.PeerHash
			}
			return e.tell(gates.Events()...).done(gates)
		}
		gates = append(gates, release.Look(s, drained)...)
		if gates.Verdict() != release.Pass {
			return hold(s, gates, effects...)
		}
		effects = append(effects, ScalerPaused{Paused: true}, DownToZero{})
	}
	e := s.edit().effect(effects...).phase(flaggerv1.CanaryPhaseInitialized)
	e.zero()
	e.applied()
	e.settle()
	e.status.LastPromotedSpec, e.serin.Promoted = e.status.LastAppliedSpec, e.serin.Revision
	return e.tell(gates.Events()...).tell(release.Event{
		Type: release.Normal, Message: "Initialization done! " + s.Plan.full(), Phase: string(flaggerv1.CanaryPhaseInitialized),
		Alert: &release.Alert{Severity: release.Info, Message: fmt.Sprintf("New %s detected, initialization completed.", s.Plan.Kind), Metadata: true},
	}).done(gates)
}

// primaryTaken is primary-ready for the first time, when the primary must also have the target's own template.
func primaryTaken(s Snapshot) release.Gate {
	primary := s.Workload.Primary
	switch {
	case !primary.Found:
		return release.WaitsFor("primary-ready", release.ByCluster, s.Plan.primary()+" is being made")
	case !s.Workload.Same:
		return release.WaitsFor("primary-ready", release.ByCluster, s.Plan.primary()+" takes over the template of "+s.Plan.workload())
	case !primary.Ready:
		return release.WaitsFor("primary-ready", release.ByCluster, s.primaryMessage())
	default:
		return release.Passes("primary-ready", pods(primary))
	}
}

// sourcesKnown asks once whether the metrics can be had. It only informs: a release that cannot be measured does not
// advance later, but taking a workload over needs no metrics.
func sourcesKnown(s Snapshot) release.Gate {
	const name = "metrics-available"
	if s.Plan.Skip {
		return release.Passes(name, "analysis is skipped")
	}
	p := release.Probe{ID: "sources/" + s.UID, Question: SourcesQuestion{Checks: s.Plan.Checks}}
	answer, ok := s.Answers.To(p)
	switch {
	case !ok:
		return release.Asks(name, p, "asking whether the metrics can be had")
	case answer.Outcome == release.Yes:
		g := release.Passes(name, "all sources answer")
		g.Events = []release.Event{{Type: release.Normal, Message: "all the metrics providers are available!", Standing: true}}
		return g
	default:
		g := release.Passes(name, "not available, which does not hold the initialisation: "+answer.Text)
		g.Events = []release.Event{{Type: release.Warning, Message: "Error checking metric providers: " + answer.Text, Standing: true, Internal: true}}
		return g
	}
}

// zero clears the counters of a run.
func (e *edit) zero() {
	e.status.CanaryWeight, e.status.FailedChecks, e.status.Iterations = 0, 0, 0
}

// applied records the target's revision as the one that was taken up, in our form and in the API's.
func (e *edit) applied() {
	w := e.s.Workload
	e.status.LastAppliedSpec, e.status.TrackedConfigs = w.Target.PeerHash, w.PeerConfigs
	e.serin.Revision, e.serin.Configs = w.Target.Revision, w.Configs
	e.leaveLine()
}

// pinned is the revision that was last taken up. A status that another controller wrote, or that lost our part, holds
// a hash of another form: then the same hash, or the same content, is the same revision, and a hash that differs is by
// itself never a new one.
func (s *Snapshot) pinned() string {
	if revision := s.serin().Revision; revision != "" {
		return revision
	}
	target := s.Workload.Target
	same := target.PeerHash == s.Status.LastAppliedSpec && sameConfigs(s.Workload.PeerConfigs, s.Status.TrackedConfigs)
	switch phase := s.Status.Phase; {
	case phase == flaggerv1.CanaryPhaseInitialized, phase == flaggerv1.CanaryPhaseSucceeded, s.copied():
		same = same || s.Workload.Same
	default: // in the middle of a run, or after one that failed, the primary says nothing about the target
		same = same || s.Status.LastAppliedSpec != "" && !s.Workload.NewestTemplate.After(s.Status.LastTransitionTime.Time) && !s.Pruned
	}
	if same {
		return target.Revision
	}
	return peer + s.Status.LastAppliedSpec
}

// peer marks a revision that is known by another controller's hash alone. No revision of ours equals it.
const peer = "peer-"

// promoted is the revision that the primary runs. As long as that is known by another controller's hash alone, the
// content of the primary says whether the target is back at it.
func (s *Snapshot) promoted() string {
	if promoted := s.serin().Promoted; promoted != "" && !strings.HasPrefix(promoted, peer) {
		return promoted
	}
	target := s.Workload.Target
	// The configuration that such a status tracks is that of the revision taken up, which says nothing about another one. One
	// that differs in its configuration alone has the same hash, so that only a release that succeeded tells.
	succeeded := s.Status.Phase == flaggerv1.CanaryPhaseInitialized || s.Status.Phase == flaggerv1.CanaryPhaseSucceeded
	tracked := succeeded && s.Status.LastAppliedSpec == s.Status.LastPromotedSpec || len(s.Status.TrackedConfigs) == 0
	byHash := target.PeerHash == s.Status.LastPromotedSpec && s.Status.LastPromotedSpec != "" && tracked
	if s.Workload.Same || byHash && sameConfigs(s.Workload.PeerConfigs, s.Status.TrackedConfigs) {
		return target.Revision
	}
	return peer + s.Status.LastPromotedSpec
}

func sameConfigs(a, b map[string]string) bool {
	if len(a) != len(b) {
		return false
	}
	for k, v := range a {
		if b[k] != v {
			return false
		}
	}
	return true
}

// rest keeps things as they are until a new revision comes. Nothing that others own is held: no weight, no replicas,
// no template.
func rest(s Snapshot) Decision {
	switch s.serin().Intent {
	case intentCompleted, intentSkipped, intentFailed:
		return afterwards(s)
	case intentRollback, intentCancel, intentSkip:
		// Somebody wrote the phase by hand: what was being carried out is over with it.
		return s.edit().effect(standing(s)...).settle().done(nil)
	}
	if s.foreign() {
		// Adopted: what is there is recorded in our form, and nothing starts.
		return s.edit().effect(standing(s)...).adopt().done(nil)
	}
	revision := s.Workload.Target.Revision
	retry := s.commanded("retry") && s.Status.Phase == flaggerv1.CanaryPhaseFailed && revision != s.promoted()
	switch {
	case s.resumable():
		return resume(s, s.Plan.primary()+" is ready")
	case retry && revision == s.pinned() && s.hasAnalysed() && !s.Workload.Primary.Exceeded && !s.Pruned:
		return resume(s, "a person asked for it")
	case s.withdrawable():
		return withdraw(s)
	}
	if from := s.Status.LastTransitionTime.Add(time.Second); retry && s.Pruned && s.Now.Before(from) {
		// Without our part of the status runs are told apart by the second in which they began.
		return wakeBy(hold(s, nil, standing(s)...), from)
	}
	if revision == s.pinned() && !retry {
		if s.serin().Queue != nil {
			return s.edit().effect(standing(s)...).leaveLine().done(nil) // the user went back to what failed before
		}
		return resting(s)
	}
	if revision == s.promoted() {
		// The user went back to what the primary runs. The same revision may be tried again later.
		e := s.edit().effect(standing(s)...)
		e.applied()
		return e.done(nil)
	}
	return begin(s)
}

// resting holds what is. References that lead nowhere are said while there is time to mend them: a release that starts
// with them fails its checks.
func resting(s Snapshot) Decision {
	gates := s.afterPruned()
	if len(s.Missing) == 0 {
		return hold(s, gates, standing(s)...)
	}
	for _, missing := range s.Missing {
		gates = append(gates, release.Fails("references", release.ByPerson, missing))
	}
	e := s.copy().effect(standing(s)...)
	e.condition(flaggerv1.CanaryCondition{Type: flaggerv1.ConditionBlocked, Status: corev1.ConditionTrue, Reason: reason("references"), Message: s.Missing[0]})
	d := e.done(gates)
	if len(diffConditions(s.Status, d.Status)) == 0 {
		d.Status, d.Wake = s.Status, gates.Wake()
	}
	return d
}

// foreign is true of a status that holds no revision in our form: another controller wrote it, or it lost our part.
func (s *Snapshot) foreign() bool { return s.serin().Revision == "" && !s.Pruned }

// adopt records in our form what a status of another controller says.
func (e *edit) adopt() *edit {
	e.serin.Revision, e.serin.Promoted, e.serin.Configs = e.s.pinned(), e.s.promoted(), e.s.Workload.Configs
	if e.s.Status.Phase == flaggerv1.CanaryPhasePromoting || e.s.Status.Phase == flaggerv1.CanaryPhaseFinalising {
		e.serin.Promoted = peer + e.s.Status.LastPromotedSpec // the primary already has what is not promoted yet
	}
	return e
}

// begin asks everything that must be so before a release starts. Nothing is written before.
func begin(s Snapshot) Decision {
	if s.Status.Phase == flaggerv1.CanaryPhaseWaiting {
		return waiting(s)
	}
	gates := release.Look(s, s.startGates()...)
	switch first := gates.First(); {
	case first == nil:
		return start(s, gates)
	case first.Opener == release.ByPerson && isHook(first, flaggerv1.ConfirmRolloutHook):
		e := s.edit().effect(standing(s)...).phase(flaggerv1.CanaryPhaseWaiting).await()
		return e.stepAside().refused(first).tell(s.waitingEvents(gates)...).done(gates)
	default:
		return inLine(s, gates, standing(s)...)
	}
}

// waiting holds a revision until people approve its release, asking once per interval. Approval belongs to a revision:
// another one is asked for anew.
func waiting(s Snapshot) Decision {
	effects := standing(s)
	switch {
	case s.foreign():
		return s.edit().effect(effects...).adopt().tell(release.Event{
			Type: release.Normal, Message: fmt.Sprintf("Adopted the release of %s in phase %s", s.Plan.workload(), s.Status.Phase),
		}).done(nil)
	case s.Workload.Target.Revision == s.promoted():
		e := s.edit().effect(effects...)
		e.phase(flaggerv1.CanaryPhaseSucceeded).settle()
		e.applied()
		return e.tell(cancelled(s)).done(nil)
	case s.commanded("abort"):
		e := s.edit().effect(effects...)
		e.serin.Command = s.Command
		return e.fail(reasonAbort).done(nil)
	case !s.Pruned && s.serin().Run != s.waitingRun(s.Status):
		return s.edit().effect(effects...).await().done(nil)
	}
	hooks := s.Plan.hooks(flaggerv1.RollbackHook)
	conditions := make([]gate, 0, len(hooks))
	for _, hook := range hooks {
		conditions = append(conditions, rollbackPolled(hook, "waiting"))
	}
	rollback := release.Look(s, conditions...)
	if first := rollback.First(); first != nil && first.Verdict == release.Fail {
		return s.edit().effect(effects...).tell(rollback.Events()...).fail("a rollback hook ended the release before it started").done(rollback)
	}
	starts := release.Look(s, s.startGates()...)
	gates := slices.Concat(rollback, starts)
	switch first := gates.First(); {
	case first == nil:
		return start(s, gates)
	case first.Answer != nil && first.Opener == release.ByPerson && isHook(first, flaggerv1.ConfirmRolloutHook) && s.serin().Held != first.Name && !s.Pruned:
		// It was asked and refused: one that is only to be asked again has told nothing new.
		return s.edit().effect(effects...).stepAside().refused(first).tell(s.waitingEvents(starts)...).done(gates)
	default:
		return wakeBy(inLine(s, gates, effects...), s.polledAgain("waiting"))
	}
}

// startGates are the conditions before a revision is taken up.
func (s *Snapshot) startGates() []gate {
	conditions := []gate{primaryReady, routeReadable}
	if s.commanded("promote") {
		return conditions
	}
	if s.Turn != nil {
		conditions = append(conditions, turn)
	}
	for _, hook := range s.Plan.hooks(flaggerv1.ConfirmRolloutHook) {
		conditions = append(conditions, approves(hook, s.Status.Phase, s.Workload.Target.Revision, s.askFrom(),
			fmt.Sprintf("Confirm-rollout check %s passed", hook.Name),
			fmt.Sprintf("Halt %s advancement waiting for approval %s", s.Plan.full(), hook.Name)))
	}
	return conditions
}

// waitingRun names the wait for approval of one revision, so that neither an answer nor a command for it counts for
// another one.
func (s *Snapshot) waitingRun(status flaggerv1.CanaryStatus) string {
	began := ""
	if c := condition(status, flaggerv1.ConditionPromoted); c != nil {
		began = c.LastUpdateTime.UTC().Format(time.RFC3339)
	}
	return digest(s.UID, "waiting", s.Workload.Target.Revision, began)[:16]
}

// await begins the wait for the approval of the target's revision.
func (e *edit) await() *edit {
	if c := condition(e.status, flaggerv1.ConditionPromoted); c != nil {
		c.LastUpdateTime = metav1.NewTime(e.s.Now.Truncate(time.Second))
	}
	e.serin.Run, e.serin.Asked, e.serin.Held = e.s.waitingRun(e.status), nil, ""
	e.obeyed()
	return e
}

// refused remembers a closed gate, so that it is told once, and when it was asked.
func (e *edit) refused(g *release.Gate) *edit {
	asked := metav1.NewMicroTime(g.Until.Add(-e.s.Plan.Window))
	e.serin.Asked, e.serin.Held = &asked, g.Name
	return e
}

func (s *Snapshot) waitingEvents(gates release.Gates) []release.Event {
	return withAlert(gates.Events(), s.muted(gates.First().Name), release.Warn, "Canary is waiting for approval.")
}

// muted is true for a gate whose hook wants no alerts.
func (s *Snapshot) muted(gateName string) bool {
	return slices.ContainsFunc(s.Plan.Hooks, func(hook flaggerv1.CanaryWebhook) bool {
		return hookGate(hook) == gateName && hook.MuteAlert
	})
}

// withAlert puts an alert on the last event, unless it is muted.
func withAlert(events []release.Event, muted bool, severity release.Severity, message string) []release.Event {
	if n := len(events); n > 0 && !muted {
		events[n-1].Alert = &release.Alert{Severity: severity, Message: message}
	}
	return events
}

// start takes a new revision up.
func start(s Snapshot, gates release.Gates) Decision {
	e := s.edit().effect(standing(s)...).phase(flaggerv1.CanaryPhaseProgressing)
	if s.exposed() && s.primaryCarries() {
		e.effect(RouteIs{}) // somebody sent users to the target, which changes now
	}
	e.zero()
	e.run()
	if s.exposed() {
		e.stamp(release.StampLeft) // after a promotion that failed, the revision before this one had users until now
	}
	return e.stamp(release.StampSince).tell(gates.Events()...).tell(release.Event{
		Type: release.Normal, Message: "New revision detected! Scaling up " + s.Plan.workload(), Phase: string(flaggerv1.CanaryPhaseProgressing),
		Alert: &release.Alert{Severity: release.Info, Message: "New revision detected, progressing canary analysis.", Metadata: true},
	}).done(gates)
}

// run begins a new attempt with the target's revision; nothing that was asked or counted for another one stays.
func (e *edit) run() {
	old := *e.serin
	if left := old.LastTraffic; left != nil && (Moves(e.s.Status.Phase) || e.s.Now.Before(left.Add(e.s.Plan.Drain))) {
		// It may have gone on for half a drain, if what took it off could not say so; see unnoticed.
		old.LastTraffic = new(metav1.NewMicroTime(e.s.past(left.Add(e.s.Plan.Drain / 2))))
	}
	*e.serin = flaggerv1.SerinStatus{
		Promoted: old.Promoted, LastTraffic: old.LastTraffic, Command: old.Command, Shape: e.s.Plan.shape(),
	}
	if old.Unfinished != nil {
		unfinished := *old.Unfinished
		unfinished.Inherited = e.s.live() > 0 && !slices.ContainsFunc(e.effects, takesOff)
		e.serin.Unfinished = &unfinished
	}
	if old.Promoted == "" {
		e.serin.Promoted = e.s.promoted()
	}
	e.obeyed()
	e.applied()
	e.began()
}

func cancelled(s Snapshot) release.Event {
	return release.Event{Type: release.Normal, Message: fmt.Sprintf("Release of %s cancelled: it is back at the promoted revision", s.Plan.workload())}
}
