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

// unansweredAfter is how long an answer may be missing before that is reported. It is shorter than the 30 seconds after which the
// status explains a waiting gate, so that one write reports both.
const unansweredAfter = 20 * time.Second

// reasonProviderUnreachable is the reason of the condition Unanswered for a metrics provider; for a webhook the reason is the
// name of its gate.
const reasonProviderUnreachable = "ProviderUnreachable"

// withUnansweredCondition adds the condition Unanswered to a decision, with the service that does not respond. It changes
// nothing else: the consequence for the release is already decided. The condition costs one write when it is set and one when
// it is removed.
func withUnansweredCondition(s Snapshot, d Decision) Decision {
	if s.Deleting || s.Plan.Suspended {
		return d
	}
	old := findCondition(d.Status, flaggerv1.ConditionUnanswered)
	condition, due := unansweredCondition(s, d)
	switch {
	case condition != nil && old != nil && condition.Reason == old.Reason && old.Status == condition.Status:
		return d
	case condition == nil && (old == nil || remainsUnanswered(s, d, old.Reason)):
		return wakeNoLaterThan(d, due)
	}
	e := statusEdit{snapshot: s, status: *d.Status.DeepCopy()}
	if condition == nil {
		e.dropCondition(flaggerv1.ConditionUnanswered)
	} else {
		e.setCondition(*condition)
	}
	if condition != nil && !due.IsZero() {
		// A pending query has no event yet; a failed one has the event of its gate.
		d.Events = append(slices.Clone(d.Events), release.Event{Type: release.Warning, Message: condition.Message})
	}
	d.Status, d.Wake = e.status, s.Now
	return d
}

// unansweredCondition returns the condition about a missing answer. due is the time at which an answer that is still missing is
// reported.
func unansweredCondition(s Snapshot, d Decision) (condition *flaggerv1.CanaryCondition, due time.Time) {
	if gate := d.Gates.Named(sourcesGate); gate != nil && gate.IsNotice() {
		if gate.Answer == nil { // not checked again since a restart
			return findCondition(s.Status, flaggerv1.ConditionUnanswered), time.Time{}
		}
		return unavailableSourcesCondition(s, *gate.Answer), time.Time{}
	}
	for _, gate := range d.Gates {
		if answer := gate.Answer; answer != nil && answer.Outcome == release.Unreachable {
			return silentServiceCondition(s, gate, answer.ID, fmt.Sprintf("has not responded since %s (%s)", formatClock(answer.Began), release.Truncate(answer.Text, maxReason))), time.Time{}
		}
	}
	for _, gate := range d.Gates {
		if gate.Verdict != release.Ask || gate.Pending == nil {
			continue
		}
		answer, sent := s.Answers[gate.Pending.ID]
		if !sent || !answer.Ended.IsZero() {
			return nil, s.Now.Add(unansweredAfter) // the query is about to be sent
		}
		due = s.clampToNow(answer.Began).Add(unansweredAfter)
		if strings.HasPrefix(gate.Name, rolloutAskedGate) {
			due = release.LaterOf(due, s.currentWindow().end()) // load tests may take the whole window
		}
		if s.Now.Before(due) {
			return nil, due
		}
		return silentServiceCondition(s, gate, answer.ID, "was queried at "+formatClock(answer.Began)+" and has not responded yet"), due
	}
	return nil, time.Time{}
}

// maxReason bounds the reported part of an error, in bytes.
const maxReason = 200

// silentServiceCondition is the condition about the service that a gate queries; queryID is the ID of the query.
func silentServiceCondition(s Snapshot, gate release.Gate, queryID, observation string) *flaggerv1.CanaryCondition {
	c := &flaggerv1.CanaryCondition{Type: flaggerv1.ConditionUnanswered, Status: corev1.ConditionTrue, Reason: unansweredReason(s, gate.Name)}
	if i := slices.IndexFunc(s.Plan.Checks, func(check Check) bool { return metricQuery(s, check).ID == queryID }); i >= 0 {
		c.Message = fmt.Sprintf("The metrics provider of %s %s: restore its availability; the release then continues automatically, and is rolled back if too many checks fail",
			s.Plan.Checks[i].Metric.Name, observation)
		return c
	}
	_, hook, _ := strings.Cut(gate.Name, "/")
	c.Message = fmt.Sprintf("Webhook %s %s: check the service at its URL; the release continues automatically when the service responds", hook, observation)
	return c
}

// unavailableSourcesMessage is the message about metrics providers that were unavailable before the first release.
func unavailableSourcesMessage(s Snapshot, answer release.Answer) string {
	if len(s.MissingReferences) > 0 {
		return fmt.Sprintf("Metrics are unavailable (%s): the checks of a release fail until spec.analysis.metrics names only existing templates whose providers are available",
			release.Truncate(answer.Text, maxReason))
	}
	return fmt.Sprintf("The metrics providers are unavailable (%s): no release advances until the operator starts them, or corrects their addresses",
		release.Truncate(answer.Text, maxReason))
}

// unavailableSourcesCondition is the condition about metrics providers that are unavailable before the first release.
func unavailableSourcesCondition(s Snapshot, answer release.Answer) *flaggerv1.CanaryCondition {
	return &flaggerv1.CanaryCondition{
		Type: flaggerv1.ConditionUnanswered, Status: corev1.ConditionTrue, Reason: reasonProviderUnreachable, Message: unavailableSourcesMessage(s, answer),
	}
}

// unansweredReason is the reason of the condition for a gate. A rollout hook has two gates: one that calls it, one that
// evaluates it.
func unansweredReason(s Snapshot, gate string) string {
	if gate == providerUnreachableGate || slices.ContainsFunc(s.Plan.Checks, func(c Check) bool { return c.Metric.Name == gate }) {
		return reasonProviderUnreachable
	}
	return conditionReason(strings.Replace(gate, rolloutAskedGate, "rollout/", 1))
}

// remainsUnanswered reports whether a condition with that reason is still up to date: the decision contains no news about the
// service that did not respond.
func remainsUnanswered(s Snapshot, d Decision, reason string) bool {
	switch d.Status.Phase {
	case flaggerv1.CanaryPhaseInitialized, flaggerv1.CanaryPhaseSucceeded, flaggerv1.CanaryPhaseFailed:
		if len(d.Gates) == 0 {
			return false
		}
	default: // the release is in progress
	}
	if d.Status.Phase != s.Status.Phase || RunOf(s.UID, d.Status) != s.run() {
		return false
	}
	if len(d.Gates) == 0 {
		return true
	}
	if serin := d.Status.Serin; reason == reasonProviderUnreachable && serin != nil && serin.Unreachable != nil {
		return true
	}
	answered, unanswered := false, false
	for _, gate := range d.Gates {
		if unansweredReason(s, gate.Name) != reason {
			continue
		}
		answered = answered || gate.Answer != nil || gate.Verdict == release.Pass
		unanswered = unanswered || gate.Answer == nil && gate.Verdict != release.Pass
	}
	return unanswered && !answered
}

func formatClock(at time.Time) string { return at.UTC().Format(time.TimeOnly) }
