package canary

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/release"
)

// succeedRelease ends a release whose revision is promoted.
func succeedRelease(e *statusEdit, intent string) *statusEdit {
	e.enterPhase(flaggerv1.CanaryPhaseSucceeded)
	e.status.CanaryWeight, e.status.Iterations = 0, 0
	e.status.LastPromotedSpec, e.serin.Promoted, e.serin.Unfinished = e.status.LastAppliedSpec, e.serin.Revision, nil
	e.ending = release.EndingPromoted
	if intent == intentSkipped {
		e.ending = release.EndingUnanalyzed
	}
	recordPostRolloutPending(e.clearRunState(), intent)
	if e.serin.Intent != "" {
		return e // the last event follows the responses of the hooks
	}
	return e.addEvents(promotionCompletedEvent(e.snapshot, intent))
}

// failRelease ends a release that was rolled back. Every transition to Failed sends exactly one error alert that names the
// cause: the threshold and the deadline send theirs when the rollback starts, a rollback that the user requested sends it here.
func failRelease(e *statusEdit, why string) *statusEdit {
	s := e.snapshot
	waiting := s.Status.Phase == flaggerv1.CanaryPhaseWaiting
	alerted := !waiting && (s.serin().Intent == intentRollback && !requestedByUser(s) || len(thresholdEvents(s)) > 0)
	e.enterPhase(flaggerv1.CanaryPhaseFailed)
	e.ending, e.endingReason = release.EndingFailed, why
	recordRepairedPrimary(e)
	e.resetCounters()
	if waiting {
		e.recordAppliedRevision()
		e.status.CanaryWeight = s.currentWeight() // the release moved no traffic
	}
	e.clearRunState()
	event := release.Event{
		Type: release.Warning, Message: "Canary failed! Scaling down " + s.Plan.qualifiedName(), Phase: string(flaggerv1.CanaryPhaseFailed),
	}
	if !alerted {
		event.Alert = &release.Alert{Severity: release.Error, Message: "Canary failed: " + why}
	}
	return recordPostRolloutPending(e.addEvents(event), intentFailed)
}

// failKeepingCanary ends a release without a primary that could serve, and leaves the canary that weight. why is the start of the
// message of the condition.
func failKeepingCanary(e *statusEdit, weight int, why string) *statusEdit {
	e.enterPhase(flaggerv1.CanaryPhaseFailed)
	e.ending, e.endingReason = release.EndingFailed, why+": "+primaryMessage(e.snapshot)
	message := why + ", primary not ready."
	if weight > 0 {
		message = fmt.Sprintf("%s, primary not ready: %s keeps %d%% of the traffic.", why, e.snapshot.Plan.Kind, weight)
	}
	e.setCondition(flaggerv1.CanaryCondition{
		Type: flaggerv1.ConditionPromoted, Status: corev1.ConditionFalse, Reason: string(flaggerv1.CanaryPhaseFailed), Message: message,
	})
	e.resetCounters()
	e.status.CanaryWeight = weight
	e.clearRunState()
	e.serin.Promoted = noRevision
	return recordPostRolloutPending(e, intentFailed)
}

// thresholdEvents returns the event about a release that is rolled back because of failed checks alone; none for another
// rollback.
func thresholdEvents(s Snapshot) []release.Event {
	if !s.hasReachedThreshold() || s.serin().Intent != "" {
		return nil
	}
	return []release.Event{{
		Type: release.Warning, Message: fmt.Sprintf("Rolling back %s failed checks threshold reached %d", s.Plan.qualifiedName(), s.Status.FailedChecks),
		Alert: &release.Alert{Severity: release.Error, Message: fmt.Sprintf("Failed checks threshold reached %d", s.Status.FailedChecks), Cause: lastFailure(s)},
	}}
}

// lastFailure is the message of the last failed check, according to the gates in the status; empty if they contain none.
func lastFailure(s Snapshot) string {
	i := slices.IndexFunc(s.serin().Gates, func(g flaggerv1.GateStatus) bool { return g.Verdict == string(release.Fail) })
	if i < 0 {
		return ""
	}
	gate := s.serin().Gates[i]
	if strings.Contains(gate.Message, gate.Name) {
		return gate.Message
	}
	return gate.Name + ": " + gate.Message
}

func promotionCompletedEvent(s Snapshot, intent string) release.Event {
	event := release.Event{
		Type: release.Normal, Message: "Promotion completed! Scaling down " + s.Plan.targetName(), Phase: string(flaggerv1.CanaryPhaseSucceeded),
		Alert: &release.Alert{Severity: release.Info, Message: "Canary analysis completed successfully, promotion finished."},
	}
	if intent == intentSkipped {
		event.Message = "Promotion completed! Canary analysis was skipped for " + s.Plan.targetName()
		event.Alert.Message = "Canary analysis was skipped, promotion finished."
	}
	return event
}

// recordUnfinishedPromotion records the revision that the primary received last: it becomes the promoted one when the primary is
// ready.
func (e *statusEdit) recordUnfinishedPromotion(revision, spec string) {
	e.serin.Unfinished = &flaggerv1.UnfinishedPrimary{Revision: revision, Spec: spec}
}

// recordRepairedPrimary records the revision of a primary that was not ready in time, once it is ready.
func recordRepairedPrimary(e *statusEdit) {
	if !e.snapshot.primaryUnpromoted() || !e.snapshot.Workload.Primary.Ready || !e.snapshot.Workload.Primary.Found {
		return
	}
	if unfinished := e.serin.Unfinished; unfinished != nil {
		e.serin.Promoted, e.status.LastPromotedSpec, e.serin.Unfinished = unfinished.Revision, unfinished.Spec, nil
	}
}

// recordPostRolloutPending records that the post-rollout hooks have to be called.
func recordPostRolloutPending(e *statusEdit, intent string) *statusEdit {
	if len(e.snapshot.Plan.hooksOfType(flaggerv1.PostRolloutHook)) > 0 {
		e.serin.Intent = intent
	}
	return e
}

// callPostRolloutHooks calls the post-rollout hooks of a release that has ended. Only the last event waits for them; a new
// revision does not.
func callPostRolloutHooks(s Snapshot) Decision {
	effects := steadyStateEffects(s)
	intent := s.serin().Intent
	phase := flaggerv1.CanaryPhaseSucceeded
	if intent == intentFailed {
		phase = flaggerv1.CanaryPhaseFailed
	}
	gates := postRolloutGates(s, phase)
	if gates.Verdict() != release.Pass && s.Workload.Target.Revision == s.pinnedRevision() {
		return keepStatus(s, gates, effects...)
	}
	e := s.edit().addEffects(effects...)
	for _, gate := range gates {
		e.addEvents(gate.Events...)
	}
	e.serin.Intent = ""
	if intent != intentFailed {
		e.addEvents(promotionCompletedEvent(s, intent))
	}
	return e.decision(gates)
}

// postRolloutGates call the post-rollout hooks in order, up to the first that refuses.
func postRolloutGates(s Snapshot, phase flaggerv1.CanaryPhase) release.Gates {
	var gates release.Gates
	for _, hook := range s.Plan.hooksOfType(flaggerv1.PostRolloutHook) {
		query := hookQuery(s, hook, string(phase), time.Time{})
		answer, ok := s.Answers.AnswerTo(query)
		if !ok {
			return append(gates, hookQueryGate(s, query, hook, phase, "waiting for a response from "+hook.Name))
		}
		g := release.NewPassingGate(hookGateName(hook), "response received")
		g.Answer = &answer
		event := release.Event{Type: release.Normal, Message: fmt.Sprintf("Post-rollout check %s passed", hook.Name), Phase: string(phase)}
		if answer.Outcome != release.Yes {
			event.Type, event.Message = release.Warning, fmt.Sprintf("Post-rollout hook %s failed %s", hook.Name, answer.Text)
		}
		g.Events = []release.Event{event}
		gates = append(gates, g)
		if answer.Outcome != release.Yes {
			break
		}
	}
	return gates
}

// requestedByUser reports whether a webhook, a command or a change of the spec, not the state of the canary, requested the rollback.
func requestedByUser(s Snapshot) bool {
	switch s.serin().Reason {
	case reasonHook, reasonAbort, reasonTarget:
		return true
	default:
		return false
	}
}
