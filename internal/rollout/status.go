package rollout

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/release"
)

// edit is a status in the making.
type edit struct {
	v      *pass
	status argov1.RolloutStatus
	events []release.Event
	// detail is why it was not a person who aborted, if so.
	detail string
}

func (e *edit) tell(kind release.EventType, reason, message string) {
	e.events = append(e.events, release.Event{Type: kind, Reason: reason, Message: message})
}

// count begins a status with what can be counted.
func (p *pass) count() *edit {
	e := &edit{v: p, status: *p.Status.DeepCopy()}
	s := &e.status
	s.Replicas, s.ReadyReplicas, s.AvailableReplicas = 0, 0, 0
	for _, rs := range p.Sets {
		s.Replicas += rs.Replicas
		s.ReadyReplicas += rs.Ready
		s.AvailableReplicas += rs.Available
	}
	s.HPAReplicas = s.Replicas
	s.UpdatedReplicas = p.new.Replicas
	s.CurrentPodHash, s.CurrentStepHash, s.Selector = p.Hash, p.StepHash, p.Selector
	s.WorkloadObservedGeneration = p.workloadGeneration()
	if p.Spec.Strategy.BlueGreen != nil {
		s.CurrentStepHash, s.CurrentStepIndex, s.Canary = "", nil, argov1.CanaryStatus{}
		return e
	}
	s.BlueGreen = argov1.BlueGreenStatus{}
	e.index(int(value(s.CurrentStepIndex, 0)))
	return e
}

// all puts the index behind the last step.
func (e *edit) all() { e.index(len(e.v.steps())) }

// index moves to a step; without steps there is none.
func (e *edit) index(to int) {
	e.status.CurrentStepIndex = nil
	if len(e.v.steps()) > 0 {
		e.status.CurrentStepIndex = new(int32(to)) //nolint:gosec // a list in one object
	}
}

// free takes away what holds or takes back a release.
func (e *edit) free() {
	e.resume()
	e.status.Abort = false
}

// resume takes away what holds a release. What took it back stays: a revision within the rollback window that never starts
// is given up as any other is.
func (e *edit) resume() { e.status.PauseConditions, e.status.ControllerPause = nil, false }

// reset begins a release. One that goes back skips its steps.
func (e *edit) reset() {
	e.free()
	e.status.PromoteFull = false
	e.forget()
	e.status.Canary.StepPluginStatuses = nil
	if RestartDue(e.v.Spec, e.v.Status, e.v.Now) {
		e.status.RestartedAt = e.v.Spec.RestartAt.DeepCopy() // new pods come anyway
	}
	if e.v.Spec.Strategy.BlueGreen != nil {
		b := &e.status.BlueGreen
		b.ScaleUpPreviewCheckPoint, b.PrePromotionAnalysisRunStatus, b.PostPromotionAnalysisRunStatus = false, nil, nil
		return
	}
	e.index(0)
	if len(e.v.steps()) == 0 {
		return
	}
	switch {
	case promoted(e.status):
		e.tell(release.Normal, "SkipSteps", "Rollback to stable ReplicaSets")
		e.all()
	case e.v.inWindow && e.v.new.Spec > 0:
		e.tell(release.Normal, "SkipSteps", "Rollback to active ReplicaSets within RollbackWindow")
		e.all()
	}
}

// move goes on from where the release is.
func (e *edit) move() {
	switch {
	case e.status.PromoteFull:
		e.free()
		e.all()
	case e.v.inWindow:
		e.resume()
		e.all()
	}
	e.abort()
	under := !e.status.Abort && !promoted(e.status) && e.v.distinct()
	if under && e.v.Status.AbortedAt != nil {
		e.status.Canary.StepPluginStatuses = nil // of before the retry
	}
	if under && !e.status.PromoteFull && !e.v.inWindow {
		e.record()
		e.hold()
	}
	switch reason := e.v.promotion(e.status); {
	case reason != "":
		e.promote(reason)
	case e.status.Abort:
		e.index(0)
	case promoted(e.status):
		e.all()
	default:
		e.stepOn()
	}
}

// undecided is true while a judgement was inconclusive and a person has not said what follows from it: no step is left
// then, and nothing is promoted.
func undecided(s argov1.RolloutStatus) bool {
	return heldBy(s, argov1.PauseReasonInconclusiveAnalysis) || heldBy(s, argov1.PauseReasonInconclusiveExperiment)
}

// abort takes a release back that an analysis is against.
func (e *edit) abort() {
	if e.status.StableRS == "" || promoted(e.status) || e.status.PromoteFull || e.v.inWindow {
		return
	}
	detail, failed := "", false
	if _, stepping := stepAt(e.v.steps(), e.status.CurrentStepIndex); stepping {
		detail, failed = AbortDetail(e.v.step)
	}
	if !failed {
		detail, failed = e.v.background.against("Background analysis phase error/failed")
	}
	if failed && !e.status.Abort {
		e.status.Abort, e.detail = true, detail
	}
}

// promotion is why the new revision becomes the stable one of a canary now; empty while it does not.
func (p *pass) promotion(s argov1.RolloutStatus) string {
	steps := len(p.steps())
	switch {
	case !p.new.exists():
		return ""
	case s.StableRS == "", !p.stable.exists() && !promoted(s):
		return "Initial deploy"
	case s.Abort || promoted(s) || !p.complete():
		return ""
	case s.PromoteFull: // a fix gets through whoever confirms nothing
		return "Full promotion requested"
	case p.inWindow:
		return "Rollback within window"
	case undecided(s), unverified(s.Canary.Weights, p.most()), p.step.Unpublished != nil:
		return ""
	case steps == 0 || int(value(s.CurrentStepIndex, 0)) >= steps:
		return fmt.Sprintf("Completed all %d canary steps", steps)
	default:
		return ""
	}
}

// complete is true when the new revision of a canary has pods enough to carry everything.
func (p *pass) complete() bool {
	threshold := p.Spec.Strategy.Canary.ReplicaProgressThreshold
	return p.new.Available >= p.replicas() ||
		threshold != nil && threshold.Value >= 0 && enough(threshold, p.new.scaled(), p.replicas())
}

// promote makes the new revision the stable one.
func (e *edit) promote(reason string) {
	e.free()
	e.status.PromoteFull = false
	e.all()
	first := e.status.Canary.StablePingPong == "" && e.status.Canary.Weights == nil
	if c := e.v.Spec.Strategy.Canary; c != nil && c.PingPong != nil && (e.v.stable.exists() || first) {
		// Where nobody knows what was stable, users are at the Service that was, and it waits for the pods of this revision.
		e.status.Canary.StablePingPong = flipped(e.status.Canary.StablePingPong)
	}
	e.status.StableRS = e.v.Hash
	e.tell(release.Normal, reasonCompleted, fmt.Sprintf("Rollout completed update to revision %d (%s): %s", e.v.new.Revision, e.v.Hash, reason))
}

func flipped(stable argov1.PingPongType) argov1.PingPongType {
	if stable == argov1.Ping {
		return argov1.Pong
	}
	return argov1.Ping
}

// record notes down what judges the release.
func (e *edit) record() {
	canary := &e.status.Canary
	canary.CurrentStepAnalysisRunStatus = e.v.step.Run.recorded()
	canary.CurrentBackgroundAnalysisRunStatus = e.v.background.recorded()
	canary.CurrentExperiment = ""
	if j := e.v.step.Experiment; j != nil {
		canary.CurrentExperiment = j.Name
	}
	e.recordPlugin()
}

// recordPlugin notes down that the plugin of the current step shall not be called.
func (e *edit) recordPlugin() {
	step := e.v.step
	if step.Step.Plugin == nil || !slices.Contains(step.DisabledPlugins, step.Step.Plugin.Name) || step.plugin() != nil {
		return
	}
	disabled := argov1.StepPluginStatus{Index: step.Index, Name: step.Step.Plugin.Name, Operation: argov1.StepPluginRun, Disabled: true}
	e.status.Canary.StepPluginStatuses = append(e.status.Canary.StepPluginStatuses, disabled)
}

func (j *Judgement) planned() bool { return j != nil && j.Planned }

func (j *Judgement) recorded() *argov1.RolloutAnalysisRunStatus {
	if j == nil {
		return nil
	}
	return &argov1.RolloutAnalysisRunStatus{Name: j.Name, Status: j.Phase, Message: j.Message}
}

// forget is for a release that nothing judges any more.
func (e *edit) forget() {
	canary := &e.status.Canary
	canary.CurrentStepAnalysisRunStatus, canary.CurrentBackgroundAnalysisRunStatus, canary.CurrentExperiment = nil, nil, ""
}

// hold adds the pauses that begin now. One that a person took away does not begin again.
func (e *edit) hold() {
	if promoted(e.status) || e.v.Spec.Paused {
		return
	}
	step, _ := stepAt(e.v.steps(), e.status.CurrentStepIndex)
	inconclusive := func(j *Judgement) bool { return j != nil && j.Phase == argov1.AnalysisPhaseInconclusive }
	// A pause that is over while a person is asked is over. One begins when what judges it is there.
	if step.Pause != nil && !undecided(e.status) && !e.v.background.planned() {
		e.pause(argov1.PauseReasonCanaryPauseStep)
	}
	if step.Analysis != nil && inconclusive(e.v.step.Run) || inconclusive(e.v.background) {
		e.pause(argov1.PauseReasonInconclusiveAnalysis)
	}
	if step.Experiment != nil && inconclusive(e.v.step.Experiment) {
		e.pause(argov1.PauseReasonInconclusiveExperiment)
	}
}

func (e *edit) pause(reason argov1.PauseReason) {
	if resumed := e.status.ControllerPause && len(e.status.PauseConditions) == 0; resumed {
		return
	}
	for _, c := range e.status.PauseConditions {
		if c.Reason == reason {
			return
		}
	}
	e.status.PauseConditions = append(e.status.PauseConditions, argov1.PauseCondition{Reason: reason, StartTime: metav1.NewTime(e.v.Now)})
	e.status.ControllerPause = true
	e.status.Serin = &argov1.SerinStatus{PausedAt: new(metav1.NewMicroTime(e.v.Now))}
}

// pausedSince is when a pause of a status began.
func pausedSince(status argov1.RolloutStatus, pause argov1.PauseCondition) time.Time {
	if status.Serin != nil && status.Serin.PausedAt != nil && status.Serin.PausedAt.Truncate(time.Second).Equal(pause.StartTime.Truncate(time.Second)) {
		return status.Serin.PausedAt.Time
	}
	return pause.StartTime.Time
}

// stepOn leaves the current step when it is complete. A user's pause freezes the steps.
func (e *edit) stepOn() {
	step, ok := stepAt(e.v.steps(), e.status.CurrentStepIndex)
	looked := ok && e.v.Status.CurrentStepIndex != nil && *e.v.Status.CurrentStepIndex == *e.status.CurrentStepIndex
	if !looked || e.v.Spec.Paused || promoted(e.status) || LookAtStep(e.v.step).Verdict() != release.Pass {
		return
	}
	if undecided(e.status) {
		e.unpause(argov1.PauseReasonCanaryPauseStep) // only the person who is asked holds it now
		return
	}
	next := *e.status.CurrentStepIndex + 1
	e.index(int(next))
	e.status.Canary.CurrentStepAnalysisRunStatus, e.status.Canary.CurrentExperiment = nil, ""
	e.tell(release.Normal, "RolloutStepCompleted", stepCompleted(next, int32(len(e.v.steps())), step)) //nolint:gosec // a list in one object
	e.unpause(argov1.PauseReasonCanaryPauseStep)
}

// unpause takes a reason away for which the release is held.
func (e *edit) unpause(reason argov1.PauseReason) {
	kept := e.status.PauseConditions[:0:0]
	for _, c := range e.status.PauseConditions {
		if c.Reason != reason {
			kept = append(kept, c)
		}
	}
	e.status.PauseConditions = kept
}

// persist ends a status: what it says of itself, and the changes that people are told of.
func (e *edit) persist() {
	s, old := &e.status, e.v.Status
	if !e.v.routes() {
		s.Canary.Weights = nil
	}
	e.recordCarriers()
	e.deadline()
	if s.Abort || s.PromoteFull || promoted(*s) || e.v.inWindow {
		e.forget()
	}
	switch {
	case s.Abort:
		s.PauseConditions, s.ControllerPause, s.PromoteFull = nil, false, false
		if s.AbortedAt == nil {
			s.AbortedAt = &metav1.Time{Time: e.v.Now}
		}
	default:
		s.AbortedAt = nil
		// A person who ends a pause under spec.paused has said so already.
		s.ControllerPause = s.ControllerPause && (len(s.PauseConditions) > 0 || e.v.Spec.Paused)
	}
	if len(s.PauseConditions) == 0 {
		s.PauseConditions = nil
	}
	e.conditions()
	s.ObservedGeneration = fmt.Sprint(e.v.Generation)
	s.Phase, s.Message = e.phase()
	e.duration()
	switch {
	case len(old.PauseConditions) == 0 && len(s.PauseConditions) > 0:
		e.tell(release.Normal, reasonPaused, fmt.Sprintf("Rollout is paused (%s)", s.PauseConditions[0].Reason))
	case len(old.PauseConditions) > 0 && len(s.PauseConditions) == 0 && !s.Abort:
		e.tell(release.Normal, reasonResumed, textResumed)
	}
}

// phase sums the Rollout up. What is available is counted over all revisions, so that pods of another one that wait out
// their delay must not hide that those of the new one are missing.
func (e *edit) phase() (argov1.RolloutPhase, string) {
	phase, message := PhaseOf(e.v.Spec, e.status)
	if phase == argov1.RolloutPhaseHealthy && e.v.new.Available < e.v.new.Replicas {
		return argov1.RolloutPhaseProgressing, textBecoming
	}
	return phase, message
}

// moved is true when something of the release goes on with this status. One that begins, or that could not be carried
// out before, does: what counted for a deadline until then is not its own.
func (e *edit) moved() bool {
	blocked := conditions(e.v.stored.Conditions).of(argov1.RolloutInvalidSpec) != nil
	return blocked || e.v.changed() || moved(e.v.Status, e.status, e.v.Spec.Strategy.BlueGreen != nil)
}

// late says whether the release has timed out.
func (e *edit) late() bool {
	if e.moved() {
		return false
	}
	return e.limit().Exceeded()
}

// limit is what the deadline of the release is judged by.
func (e *edit) limit() Deadline {
	delayed := slices.ContainsFunc(e.v.Sets, func(rs ReplicaSet) bool {
		return e.v.Now.Before(rs.Deadline) && rs.Spec > 0 && rs.Hash != e.v.Hash && rs.Hash != e.status.StableRS
	})
	return Deadline{Now: e.v.Now, Spec: e.v.Spec, Status: e.status, Waits: delayed}
}

// timedOut is what people read of a release that has.
func (e *edit) timedOut() string {
	return subject(e.v.Name, e.v.new.Name) + " has timed out progressing."
}

// deadline aborts a release that has timed out, where the user asks for that.
func (e *edit) deadline() {
	if !e.v.Spec.ProgressDeadlineAbort || e.status.Abort || e.status.StableRS == "" || promoted(e.status) || !e.late() {
		return
	}
	e.status.Abort, e.detail = true, e.timedOut()
	e.index(0)
	e.tell(release.Warning, reasonAborted, e.detail)
}

func (e *edit) conditions() {
	s, now := &e.status, e.v.Now
	all := conditions(s.Conditions).without(argov1.RolloutInvalidSpec)
	if all.of(argov1.RolloutProgressing) == nil {
		found := progressing(corev1.ConditionTrue, reasonFound, fmt.Sprintf("Found new replica set %q", e.v.new.Name))
		all = all.with(found, now)
	}
	before := all.of(argov1.RolloutCompleted)
	incomplete := before != nil && before.Status == corev1.ConditionFalse
	is := whole(e.v.Spec, *s, fmt.Sprint(e.v.Generation))
	all = all.with(available(e.serves()), now)
	all = e.progress(all, is)
	all = all.with(completed(promoted(*s)), now)
	if all.of(argov1.RolloutCompleted).Status == corev1.ConditionFalse && !incomplete {
		e.tell(release.Normal, "RolloutNotCompleted", fmt.Sprintf("Rollout not completed, started update to revision %d (%s)", e.v.new.Revision, e.v.Hash))
	}
	if well := is && len(s.PauseConditions) == 0 && !e.v.Spec.Paused; well || all.of(argov1.RolloutHealthy) != nil {
		all = all.with(healthy(well), now)
	}
	s.Conditions = e.failure(all)
}

// serves is true when enough pods are available to users.
func (e *edit) serves() bool {
	if e.v.Spec.Strategy.BlueGreen != nil {
		return e.v.saturated(e.v.set(e.status.BlueGreen.ActiveSelector))
	}
	return e.status.AvailableReplicas >= e.v.replicas()
}

// failure copies why pods cannot be made, of the new ReplicaSet before all others.
func (e *edit) failure(all conditions) conditions {
	failure := e.v.new.Failure
	for _, rs := range e.v.Sets {
		if failure == "" {
			failure = rs.Failure
		}
	}
	if failure == "" {
		return all.without(argov1.RolloutReplicaFailure)
	}
	return all.with(argov1.RolloutCondition{Type: argov1.RolloutReplicaFailure, Status: corev1.ConditionTrue, Reason: "FailedCreate", Message: failure}, e.v.Now)
}

// progress says how the release goes, in the order in which one statement counts before another.
func (e *edit) progress(all conditions, is bool) conditions {
	newSet, now := e.v.new, e.v.Now
	about := subject(e.v.Name, newSet.Name)
	lost := !is && whole(e.v.Spec, e.v.Status, e.v.Status.ObservedGeneration)
	held := (len(e.status.PauseConditions) > 0 || e.v.Spec.Paused) && !promoted(e.status) // which is what NotePause says
	switch moves := e.moved(); {
	case e.status.Abort:
		told := progressing(corev1.ConditionFalse, reasonAborted, abortText(newSet.Revision, e.detail))
		if c := all.of(argov1.RolloutProgressing); c == nil || c.Reason != reasonAborted {
			e.tell(release.Warning, reasonAborted, told.Message)
		}
		return all.with(told, now)
	case is && !held:
		return all.with(progressing(corev1.ConditionTrue, reasonProgressed, about+" has successfully progressed."), now)
	case lost && promoted(e.status):
		return all.renewed(progressing(corev1.ConditionTrue, reasonNotAvailable, textNotAvailable), now)
	case moves || lost:
		return all.renewed(progressing(corev1.ConditionTrue, reasonUpdated, about+" is progressing."), now)
	case e.late():
		return all.with(progressing(corev1.ConditionFalse, reasonDeadlineExceeded, e.timedOut()), now)
	default:
		return all
	}
}

// NotePause is the status with what a pause, its end, or a retry means for its conditions, and whether that is news. It
// comes before everything else in a pass. A status for another generation is left alone.
func NotePause(now time.Time, generation int64, spec argov1.RolloutSpec, status argov1.RolloutStatus) (argov1.RolloutStatus, bool) {
	if status.ObservedGeneration != fmt.Sprint(generation) || status.Abort {
		return status, false
	}
	is := len(status.PauseConditions) > 0 || spec.Paused
	all := conditions(status.Conditions)
	if progress := all.of(argov1.RolloutProgressing); progress != nil {
		switch {
		case progress.Reason == reasonAborted:
			all = all.with(progressing(corev1.ConditionUnknown, reasonRetry, textRetry), now)
		case is && progress.Reason != reasonPaused && !promoted(status):
			all = all.with(progressing(corev1.ConditionUnknown, reasonPaused, textPaused), now)
		case !is && progress.Reason == reasonPaused:
			// Also where the new revision was made stable meanwhile: no deadline runs while the reason is a pause.
			all = all.with(progressing(corev1.ConditionUnknown, reasonResumed, textResumed), now)
		}
	}
	if is || all.of(argov1.RolloutPaused) != nil {
		all = all.with(paused(is), now)
	}
	if all.same(status.Conditions) {
		return status, false
	}
	next := *status.DeepCopy()
	next.Conditions = all
	next.Phase, next.Message = PhaseOf(spec, next)
	return next, true
}
