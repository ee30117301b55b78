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

// countPods returns the status with the numbers of pods, and the hashes of the template and the steps that it
// describes.
func countPods(f facts) argov1.RolloutStatus {
	s := *f.Status.DeepCopy()
	s.Replicas, s.ReadyReplicas, s.AvailableReplicas = 0, 0, 0
	for _, rs := range f.ReplicaSets {
		s.Replicas += rs.Replicas
		s.ReadyReplicas += rs.Ready
		s.AvailableReplicas += rs.Available
	}
	s.HPAReplicas = s.Replicas
	s.UpdatedReplicas = f.new.Replicas
	s.CurrentPodHash, s.CurrentStepHash, s.Selector = f.Hash, f.StepHash, f.Selector
	s.WorkloadObservedGeneration = f.observedWorkloadGeneration()
	if f.Spec.Strategy.BlueGreen != nil {
		s.CurrentStepHash, s.CurrentStepIndex, s.Canary = "", nil, argov1.CanaryStatus{}
		return s
	}
	s.BlueGreen = argov1.BlueGreenStatus{}
	return withStepIndex(f, s, int(valueOr(s.CurrentStepIndex, 0)))
}

// withAllSteps returns the status with the index after the last step.
func withAllSteps(f facts, s argov1.RolloutStatus) argov1.RolloutStatus {
	return withStepIndex(f, s, len(f.steps()))
}

// withStepIndex returns the status with the index of a step; nil without steps.
func withStepIndex(f facts, s argov1.RolloutStatus, index int) argov1.RolloutStatus {
	s.CurrentStepIndex = nil
	if len(f.steps()) > 0 {
		s.CurrentStepIndex = new(int32(index)) //nolint:gosec // a list in one object
	}
	return s
}

// withoutPauses returns the status without pauses. An abort remains: otherwise, a revision within the rollback window
// whose pods never start would be retried indefinitely.
func withoutPauses(s argov1.RolloutStatus) argov1.RolloutStatus {
	s.PauseConditions, s.ControllerPause = nil, false
	return s
}

// withoutAnalyses returns the status of a canary release without analyses and experiment.
func withoutAnalyses(s argov1.RolloutStatus) argov1.RolloutStatus {
	s.Canary.CurrentStepAnalysisRunStatus, s.Canary.CurrentBackgroundAnalysisRunStatus, s.Canary.CurrentExperiment = nil, nil, ""
	return s
}

// withPause returns the status with a pause that starts now, unless it already contains the pause. A pause that the
// user ended is not started again.
func withPause(f facts, s argov1.RolloutStatus, reason argov1.PauseReason) argov1.RolloutStatus {
	endedByUser := s.ControllerPause && len(s.PauseConditions) == 0
	if endedByUser || hasPauseReason(s, reason) {
		return s
	}
	s.PauseConditions = append(slices.Clip(s.PauseConditions), argov1.PauseCondition{Reason: reason, StartTime: metav1.NewTime(f.Now)})
	s.ControllerPause = true
	serin := argov1.SerinStatus{PausedAt: new(metav1.NewMicroTime(f.Now))}
	if s.Serin != nil {
		serin.RouterPlugins = s.Serin.RouterPlugins
	}
	s.Serin = &serin
	return s
}

// withoutPause returns the status without one reason for a pause.
func withoutPause(s argov1.RolloutStatus, reason argov1.PauseReason) argov1.RolloutStatus {
	var remaining []argov1.PauseCondition
	for _, c := range s.PauseConditions {
		if c.Reason != reason {
			remaining = append(remaining, c)
		}
	}
	s.PauseConditions = remaining
	return s
}

// pausedSince returns the start of a pause: to the microsecond if the status contains it.
func pausedSince(status argov1.RolloutStatus, pause argov1.PauseCondition) time.Time {
	if status.Serin != nil && status.Serin.PausedAt != nil && status.Serin.PausedAt.Truncate(time.Second).Equal(pause.StartTime.Truncate(time.Second)) {
		return status.Serin.PausedAt.Time
	}
	return pause.StartTime.Time
}

// awaitsUserDecision reports whether an analysis was inconclusive and the user has not decided yet: no step is
// completed then, and nothing is promoted.
func awaitsUserDecision(s argov1.RolloutStatus) bool {
	return hasPauseReason(s, argov1.PauseReasonInconclusiveAnalysis) || hasPauseReason(s, argov1.PauseReasonInconclusiveExperiment)
}

// startRelease starts a release. A release that returns to an earlier revision skips its steps.
func startRelease(f facts, s argov1.RolloutStatus) transition {
	s = withoutAnalyses(withoutPauses(s))
	s.Abort, s.PromoteFull, s.Canary.StepPluginStatuses = false, false, nil
	if IsRestartDue(f.Spec, f.Status, f.Now) {
		s.RestartedAt = f.Spec.RestartAt.DeepCopy() // the release brings new pods
	}
	if f.Spec.Strategy.BlueGreen != nil {
		b := &s.BlueGreen
		b.ScaleUpPreviewCheckPoint, b.PrePromotionAnalysisRunStatus, b.PostPromotionAnalysisRunStatus = false, nil, nil
		return transition{status: s}
	}
	t := transition{status: withStepIndex(f, s, 0)}
	if len(f.steps()) == 0 {
		return t
	}
	switch {
	case isPromoted(s):
		t = t.withEvent(release.Normal, "SkipSteps", "Rollback to stable ReplicaSets")
		t.status = withAllSteps(f, t.status)
	case f.inRollbackWindow && f.new.SpecReplicas > 0:
		t = t.withEvent(release.Normal, "SkipSteps", "Rollback to active ReplicaSets within RollbackWindow")
		t.status = withAllSteps(f, t.status)
	}
	return t
}

// promoteNewRevision makes the new revision the stable one.
func promoteNewRevision(f facts, t transition, reason string) transition {
	s := withAllSteps(f, withoutPauses(t.status))
	s.Abort, s.PromoteFull = false, false
	first := s.Canary.StablePingPong == "" && s.Canary.Weights == nil
	if c := f.Spec.Strategy.Canary; c != nil && c.PingPong != nil && (f.stable.exists() || first) {
		// If the stable revision is unknown, users are at the previous stable Service, which waits for the pods of this
		// revision.
		s.Canary.StablePingPong = swapPingPong(s.Canary.StablePingPong)
	}
	s.StableRS = f.Hash
	t.status = s
	return t.withEvent(release.Normal, reasonCompleted, fmt.Sprintf("Rollout completed update to revision %d (%s): %s", f.new.Revision, f.Hash, reason))
}

func swapPingPong(stable argov1.PingPongType) argov1.PingPongType {
	if stable == argov1.Ping {
		return argov1.Pong
	}
	return argov1.Ping
}

// fillInStatus fills in the status of a reconciliation: conditions, phase and duration, with the events about their
// changes.
func fillInStatus(f facts, t transition, plugins pluginPlan) transition {
	if !f.usesRouter() {
		t.status.Canary.Weights = nil
	}
	if route := routeOfPlugins(t.status); len(f.RouterPlugins) == 0 && route.Route != "" {
		t.status.Serin = withRouterPlugins(t.status.Serin, argov1.RouterPluginsStatus{Number: route.Number})
	}
	t.status = recordPodsBeforeReturn(f, t.status)
	s := t.status
	if s.Abort || s.PromoteFull || isPromoted(s) || f.inRollbackWindow {
		s = withoutAnalyses(s)
	}
	switch {
	case s.Abort:
		s.PauseConditions, s.ControllerPause, s.PromoteFull = nil, false, false
		if s.AbortedAt == nil {
			s.AbortedAt = &metav1.Time{Time: f.Now}
		}
	default:
		s.AbortedAt = nil
		// A user who ends a pause while spec.paused is true has already decided.
		s.ControllerPause = s.ControllerPause && (len(s.PauseConditions) > 0 || f.Spec.Paused || f.UnreadableTemplate != "" || t.scalesOnly)
	}
	if len(s.PauseConditions) == 0 {
		s.PauseConditions = nil
	}
	t.status = s
	t = fillInConditions(f, t)
	t.status.ObservedGeneration = f.observedGeneration()
	t.status.Phase, t.status.Message = currentPhase(f, t.status, plugins)
	t.status = recordDuration(f, t.status)
	switch before, after := f.Status.PauseConditions, t.status.PauseConditions; {
	case len(before) == 0 && len(after) > 0:
		t.events = append(slices.Clip(t.events), pausedEvent(f, t.status))
	case len(before) > 0 && len(after) == 0 && !t.status.Abort:
		t = t.withStatusEvent(reasonResumed, textResumed)
	}
	return t
}

// currentPhase returns the phase of the Rollout. Available pods are counted over all revisions: pods of another
// revision that are retained for their delay must not hide that pods of the new one are missing. An aborted release is Degraded
// once its plugins were aborted, so that a script that waits for this phase finds their results in the status.
func currentPhase(f facts, s argov1.RolloutStatus, plugins pluginPlan) (argov1.RolloutPhase, string) {
	phase, message := phaseOf(f.Spec, s)
	switch {
	case phase == argov1.RolloutPhaseHealthy && f.new.Available < f.new.Replicas:
		return argov1.RolloutPhaseProgressing, textPodsNotAvailable
	case phase == argov1.RolloutPhaseDegraded && s.Abort && plugins.areAborting(f, s):
		return argov1.RolloutPhaseProgressing, textPluginsAborting
	default:
		return phase, message
	}
}

// abortAfterDeadline aborts a release that has timed out, if spec.progressDeadlineAbort is set.
func abortAfterDeadline(f facts, t transition) transition {
	s := t.status
	if !f.Spec.ProgressDeadlineAbort || s.Abort || s.StableRS == "" || isPromoted(s) || !hasTimedOut(f, s) {
		return t
	}
	t.status = withStepIndex(f, s, 0)
	t.status.Abort, t.abortCause = true, timedOutText(f)
	return t.withEvent(release.Warning, reasonAborted, t.abortCause)
}

func fillInConditions(f facts, t transition) transition {
	s := t.status
	all := conditions(s.Conditions).withoutCondition(argov1.RolloutInvalidSpec)
	if all.find(argov1.RolloutProgressing) == nil {
		found := progressingCondition(corev1.ConditionTrue, reasonFound, fmt.Sprintf("Found new replica set %q", f.new.Name))
		all = all.withCondition(found, f.Now)
	}
	before := all.find(argov1.RolloutCompleted)
	wasIncomplete := before != nil && before.Status == corev1.ConditionFalse
	isComplete := isInDesiredState(f.Spec, s, f.observedGeneration())
	all = all.withCondition(availableCondition(hasMinimumAvailability(f, s)), f.Now)
	all, t = fillInProgress(f, t, all, isComplete)
	all = all.withCondition(completedCondition(isPromoted(s)), f.Now)
	if all.find(argov1.RolloutCompleted).Status == corev1.ConditionFalse && !wasIncomplete {
		t = t.withEvent(release.Normal, reasonNotCompleted, fmt.Sprintf("Rollout not completed, started update to revision %d (%s)", f.new.Revision, f.Hash))
	}
	if isHealthy := isComplete && len(s.PauseConditions) == 0 && !f.Spec.Paused; isHealthy || all.find(argov1.RolloutHealthy) != nil {
		all = all.withCondition(healthyCondition(isHealthy), f.Now)
	}
	t.status.Conditions = withReplicaFailure(f, all)
	return t
}

// hasMinimumAvailability reports whether enough pods are available to users.
func hasMinimumAvailability(f facts, s argov1.RolloutStatus) bool {
	if f.Spec.Strategy.BlueGreen != nil {
		return hasAllPods(f, f.findReplicaSet(s.BlueGreen.ActiveSelector))
	}
	return s.AvailableReplicas >= f.replicas()
}

// withReplicaFailure sets the condition ReplicaFailure: the reason why pods of the new ReplicaSet, or otherwise of
// another one, cannot be created.
func withReplicaFailure(f facts, all conditions) conditions {
	failure := f.new.Failure
	for _, rs := range f.ReplicaSets {
		if failure == "" {
			failure = rs.Failure
		}
	}
	if failure == "" {
		return all.withoutCondition(argov1.RolloutReplicaFailure)
	}
	return all.withCondition(argov1.RolloutCondition{Type: argov1.RolloutReplicaFailure, Status: corev1.ConditionTrue, Reason: "FailedCreate", Message: failure}, f.Now)
}

// fillInProgress sets the condition Progressing: the first case that applies.
func fillInProgress(f facts, t transition, all conditions, isComplete bool) (conditions, transition) {
	s, subject := t.status, progressSubject(f.Name, f.new.Name)
	lostPods := !isComplete && isInDesiredState(f.Spec, f.Status, f.Status.ObservedGeneration)
	healthy := all.find(argov1.RolloutHealthy)
	isScaled := !isComplete && healthy != nil && healthy.Status == corev1.ConditionTrue // often long after the last progress
	isPaused := (len(s.PauseConditions) > 0 || f.Spec.Paused) && !isPromoted(s)         // recordPause sets the condition
	switch {
	case s.Abort:
		aborted := progressingCondition(corev1.ConditionFalse, reasonAborted, abortText(f.new.Revision, t.abortCause))
		if c := all.find(argov1.RolloutProgressing); c == nil || c.Reason != reasonAborted {
			t = t.withEvent(release.Warning, reasonAborted, aborted.Message)
		}
		return all.withCondition(aborted, f.Now), t
	case isComplete && !isPaused:
		return all.withCondition(progressingCondition(corev1.ConditionTrue, reasonProgressed, subject+" has successfully progressed."), f.Now), t
	case lostPods && isPromoted(s):
		return all.withRenewedCondition(progressingCondition(corev1.ConditionTrue, reasonNotAvailable, textNotAvailable), f.Now), t
	case madeProgress(f, s) || lostPods || isScaled:
		return all.withRenewedCondition(progressingCondition(corev1.ConditionTrue, reasonUpdated, subject+" is progressing."), f.Now), t
	case hasTimedOut(f, s):
		return all.withCondition(progressingCondition(corev1.ConditionFalse, reasonDeadlineExceeded, timedOutText(f)), f.Now), t
	default:
		return all, t
	}
}

// recordPause returns the status with the conditions about a pause, its end, or a retry, and whether this changes the
// status. It precedes everything else in a reconciliation. A status for another generation is unchanged.
func recordPause(now time.Time, generation int64, spec argov1.RolloutSpec, status argov1.RolloutStatus) (argov1.RolloutStatus, bool) {
	if status.ObservedGeneration != fmt.Sprint(generation) || status.Abort {
		return status, false
	}
	isPaused := len(status.PauseConditions) > 0 || spec.Paused
	all := conditions(status.Conditions)
	if progress := all.find(argov1.RolloutProgressing); progress != nil {
		switch {
		case progress.Reason == reasonAborted:
			all = all.withCondition(progressingCondition(corev1.ConditionUnknown, reasonRetry, textRetry), now)
		case isPaused && progress.Reason != reasonPaused && !isPromoted(status):
			all = all.withCondition(progressingCondition(corev1.ConditionUnknown, reasonPaused, textPaused), now)
		case !isPaused && progress.Reason == reasonPaused:
			// Also if the new revision was promoted during the pause: no deadline applies while the reason is a pause.
			all = all.withCondition(progressingCondition(corev1.ConditionUnknown, reasonResumed, textResumed), now)
		}
	}
	if isPaused || all.find(argov1.RolloutPaused) != nil {
		all = all.withCondition(pausedCondition(isPaused), now)
	}
	if all.equal(status.Conditions) {
		return status, false
	}
	next := *status.DeepCopy()
	next.Conditions = all
	next.Phase, next.Message = phaseOf(spec, next)
	return next, true
}
