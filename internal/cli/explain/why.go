package explain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/release"
)

// Why explains why a release is waiting, or its state if it is not waiting. Each sentence is a separate paragraph. A line that
// begins with two blanks, such as a command, belongs to the sentence above it and is not wrapped, so that users can copy it.
func Why(r Release, now time.Time) []string {
	var out []string
	if len(r.Unread) > 0 {
		out = append(out, strings.Join(r.Unread, " ")+" Missing information comes from the status, as far as it is there.")
	}
	switch r.State {
	case release.Idle:
		return append(append(out, idleSentences(r, now)...), noticeSentences(r)...)
	default:
		out = append(out, progressSentence(r, now))
	}
	if r.TimedOut {
		return append(append(out, timedOutSentences(r, now)...), noticeSentences(r)...)
	}
	out = append(append(out, closedGateSentences(r, now)...), podProblemSentences(r)...)
	if r.State != release.RollingBack && 0 < r.FailedChecks && r.FailedChecks < r.Threshold {
		out = append(out, fmt.Sprintf("Failed checks so far: %d. The release is rolled back at %d.", r.FailedChecks, r.Threshold))
		out = append(out, warningSentences(r)...) // a deferred check does not show why it failed in the last window
	}
	return append(append(out, nextStepSentences(r, now)...), noticeSentences(r)...)
}

// noticeSentences describes the settings that the user should correct although they delay nothing.
func noticeSentences(r Release) []string {
	var out []string
	for _, gate := range r.Gates {
		if gate.IsNotice() {
			out = append(out, asSentence(fmt.Sprintf("Note on %s: %s", gate.Name, gate.Message)))
		}
	}
	return out
}

// timedOutSentences describes a Rollout that exceeded its progress deadline, and what the user can do. It may still continue, unlike
// an aborted one.
func timedOutSentences(r Release, now time.Time) []string {
	lostPods := r.Revision == r.PromotedRevision && r.wasHealthy
	failure := "The release exceeded its progress deadline"
	if lostPods {
		failure = "The pods of the stable revision have not become available again within the progress deadline"
	}
	others := r
	others.Gates = slices.DeleteFunc(slices.Clone(r.Gates), func(g Gate) bool {
		isPods := !lostPods && g.Name == podsGate && g.Verdict == string(release.Wait)
		if isPods {
			failure += ": " + strings.TrimSuffix(g.Message, ".")
		}
		return isPods || g.Name == deadlineGate
	})
	out := append([]string{failure + "."}, podProblemSentences(r)...)
	out = append(out, closedGateSentences(others, now)...)
	const recovers = "The release continues if its pods become available"
	switch {
	case lostPods:
		return append(out, fmt.Sprintf("It recovers if they become available; otherwise correct the cause, or the template of %s.", r.Target))
	case r.Revision == r.PromotedRevision, !r.wasHealthy:
		return append(out, fmt.Sprintf("%s; otherwise correct the template of %s. There is no earlier revision to return to.", recovers, r.Target))
	default:
		return append(out, fmt.Sprintf("%s; otherwise correct the template of %s. To return to revision %s:", recovers, r.Target, r.PromotedRevision),
			fmt.Sprintf("  serin abort rollout/%s -n %s", r.Name, r.Namespace))
	}
}

// The gates with a special sentence.
const (
	podsGate            = "pods"
	otherControllerGate = "peer"
	deadlineGate        = "deadline"
)

// idleSentences describes a release that is not in progress, and the result of the last one.
func idleSentences(r Release, now time.Time) []string {
	out := []string{fmt.Sprintf("%s is idle (%s%s): no release is in progress.", r.FullName(), cmp.Or(r.Phase, "new"), sinceText(r.Since, now))}
	if r.Kind == KindRollout {
		out = append(out, idleRolloutSentences(r)...)
	} else {
		out = append(out, idleCanarySentences(r)...)
	}
	out = append(out, podProblemSentences(r)...)
	for _, gate := range r.Gates { // another controller, and post-rollout webhooks that have not responded
		if gate.Verdict != "pass" && (r.Kind == KindCanary || gate.Name == otherControllerGate) {
			out = append(out, gateSentences(gate, now, true)...)
		}
	}
	return out
}

func idleCanarySentences(r Release) []string {
	var out []string
	primary := strings.TrimPrefix(r.Target, "Deployment/") + "-primary"
	switch {
	case r.PromotionFailed:
		out = append(out, fmt.Sprintf("The last release failed during its promotion: the canary receives %d%% of the traffic, because %s cannot run the new revision. "+
			"The next revision repairs it.", r.Weight, primary))
	case r.Result == release.RolledBack && r.Weight > 0:
		out = append(out, fmt.Sprintf("The last release failed, and the canary still receives %d%% of the traffic.", r.Weight))
	case r.Result == release.RolledBack:
		out = append(out, fmt.Sprintf("The last release failed: %s serves the previous revision.", primary))
	case r.Phase == string(flaggerv1.CanaryPhaseInitialized):
		out = append(out, fmt.Sprintf("No release has started yet: %s serves the initial revision.", primary))
	default:
		out = append(out, fmt.Sprintf("The last release was promoted: %s serves its revision.", primary))
	}
	if r.Result == release.RolledBack {
		out = append(out, failureSentences(r)...)
		again := "release the same revision again"
		if r.PromotionFailed {
			again = "continue the promotion"
		}
		out = append(out, fmt.Sprintf("A new release starts when %s changes. To %s:", r.Target, again),
			fmt.Sprintf("  serin retry canary/%s -n %s", r.Name, r.Namespace))
	}
	if r.Suspended {
		out = append(out, "It is suspended: no release starts while spec.suspend is true.",
			fmt.Sprintf("  serin resume canary/%s -n %s", r.Name, r.Namespace))
	}
	return out
}

func idleRolloutSentences(r Release) []string {
	var out []string
	if r.Result != release.RolledBack {
		out = append(out, fmt.Sprintf("The last release was promoted: revision %s serves.", r.PromotedRevision))
	} else {
		out = append(out, fmt.Sprintf("The last release was aborted: revision %s serves again. %s.", r.PromotedRevision, strings.TrimSuffix(r.Message, ".")))
		out = append(out, lastCommandSentences(r)...)
		for _, gate := range r.Gates {
			if gate.Check && gate.Verdict == "fail" {
				out = append(out, failedMetricSentences(gate)...)
			}
		}
		out = append(out, "A new release starts when the template changes. To release the same revision again:",
			fmt.Sprintf("  serin retry rollout/%s -n %s", r.Name, r.Namespace))
	}
	if r.Suspended {
		out = append(out, "It is paused: a new revision gets no pods while spec.paused is true.",
			fmt.Sprintf("  serin resume rollout/%s -n %s", r.Name, r.Namespace))
	}
	return out
}

// lastCommandSentences describes the last command of a user, such as the one that aborted the release, while its event exists.
func lastCommandSentences(r Release) []string {
	for _, event := range slices.Backward(r.Events) {
		if event.ByUser {
			return []string{fmt.Sprintf("Last command: %s at %s.", strings.TrimSuffix(event.Message, "."), timeOfDay(event.At))}
		}
	}
	return nil
}

// failedMetricSentences describes a metric that made a release fail.
func failedMetricSentences(g Gate) []string {
	out := []string{fmt.Sprintf("%s failed: %s%s.", g.Name, strings.TrimSuffix(g.Message, "."), valueText(g))}
	if g.Query != "" {
		out = append(out, "  "+joinLines(g.Query))
	}
	return out
}

// failureSentences describe why the last release failed: by its record, which remains, and by its events, which expire.
func failureSentences(r Release) []string {
	warnings := warningSentences(r)
	if r.LastFailure == nil || r.LastFailure.Cause == nil {
		if len(warnings) == 0 {
			return []string{"Kubernetes has no events of that release anymore, or they cannot be read."}
		}
		return warnings
	}
	failure, cause := r.LastFailure, r.LastFailure.Cause
	what := "It"
	if len(failure.Images) > 0 {
		what = strings.Join(failure.Images, ", ")
	}
	text := fmt.Sprintf("%s was released at %s and failed at %s: %s", what, timeOfDay(failure.Start), timeOfDay(failure.End), joinLines(strings.TrimSuffix(cause.Message, ".")))
	if cause.Gate != "" && !strings.Contains(cause.Message, cause.Gate) {
		text += " (gate " + cause.Gate + ")"
	}
	traffic := "No traffic was routed to it."
	if failure.MaxWeight > 0 {
		traffic = fmt.Sprintf("At most %d%% of the traffic was routed to it.", failure.MaxWeight)
	}
	out := []string{text + ". " + traffic}
	if cause.Query != "" {
		out = append(out, "  "+joinLines(cause.Query))
	}
	return append(out, warnings...)
}

// warningSentences lists the warnings and the commands of users among the events of the last release.
func warningSentences(r Release) []string {
	var out []string
	title := "Its warnings:"
	for _, event := range r.Events {
		if event.ByUser {
			title = "Its warnings and commands:"
		}
		if event.ByUser || event.Type == "Warning" && !strings.HasPrefix(event.Message, "Canary failed!") {
			out = append(out, fmt.Sprintf("  %s %s%s", timeOfDay(event.At), event.Message, event.Repetitions()))
		}
	}
	if len(out) == 0 {
		return nil
	}
	return append([]string{title}, out...)
}

// progressSentence describes the progress of a release.
func progressSentence(r Release, now time.Time) string {
	phase := r.Phase
	if phase == "" {
		phase = "new (not reconciled yet)"
	}
	text := fmt.Sprintf("%s is %s%s", r.FullName(), phase, sinceText(r.Since, now))
	switch {
	case r.Phase == "" || r.Phase == string(flaggerv1.CanaryPhaseInitializing):
	case r.Kind == KindRollout:
		text += rolloutProgressText(r)
	case r.Mirrored:
		text += "; requests are mirrored to the canary"
	case r.TotalIterations > 0 && r.Iterations > 0:
		text += fmt.Sprintf("; iteration %d of %d, the canary receives %d%% of the traffic", min(r.Iterations, r.TotalIterations), r.TotalIterations, r.Weight)
	default:
		text += fmt.Sprintf("; the canary receives %d%% of the traffic", r.Weight)
	}
	switch {
	case r.State == release.RollingBack:
		text += ", and the release is being rolled back"
	case r.Kind == KindCanary && r.Result != "" && len(r.Steps) > 0:
		text += ", and there is a new revision"
	}
	return text + "."
}

// rolloutProgressText describes the current step and weight of a Rollout.
func rolloutProgressText(r Release) string {
	text := ""
	if r.TotalSteps > 0 && r.Step > 0 {
		text = fmt.Sprintf("; step %d of %d", r.Step, r.TotalSteps)
	}
	return text + fmt.Sprintf("; the new revision receives %d%% of the traffic", r.Weight)
}

// closedGateSentences describes the gates that do not pass, beginning with those that the user opens. Deferred queries are
// summarized in one sentence.
func closedGateSentences(r Release, now time.Time) []string {
	var out, deferred, queries []string
	for _, byUser := range []bool{true, false} {
		for _, gate := range r.Gates {
			switch {
			case gate.Verdict == "pass", byUser != (gate.Opener == "person"):
			case gate.QueryReceiver != "" && !byUser && gate.Verdict == "wait" && len(out) > 0:
				deferred = append(deferred, deferredQueryText(gate))
				if gate.Query != "" {
					queries = append(queries, "  "+gate.Name+": "+joinLines(gate.Query))
				}
			default:
				out = append(out, gateSentences(gate, now, len(out) == 0)...)
			}
		}
	}
	if len(deferred) > 0 {
		out = append(append(out, "Evaluated afterwards: "+strings.Join(deferred, ", ")+"."), queries...)
	}
	return out
}

// podProblemSentences describes what prevents pods from running. The message of Kubernetes has its own line and is complete, so that
// users can search for it.
func podProblemSentences(r Release) []string {
	var out []string
	for _, problem := range r.PodProblems {
		if problem.Message == "" {
			out = append(out, problem.Summary()+".")
			continue
		}
		out = append(out, problem.Summary()+":", "  "+joinLines(problem.Message))
	}
	return out
}

// deferredQueryText formats a deferred query with its limit and its last value.
func deferredQueryText(g Gate) string {
	var details []string
	if g.Limit != "" {
		details = append(details, "limit "+g.Limit)
	}
	if g.Value != "" {
		details = append(details, "last "+g.Value)
	}
	if g.LastVerdict == "fail" {
		details = append(details, "failed")
	}
	if len(details) == 0 {
		return g.Name
	}
	return g.Name + " (" + strings.Join(details, ", ") + ")"
}

// gateSentences describes one gate that does not pass. isFirst is true for the first gate in the output.
func gateSentences(g Gate, now time.Time, isFirst bool) []string {
	if g.Name == deadlineGate && g.Opener == "time" { // it delays nothing
		return []string{fmt.Sprintf("Without progress, it becomes degraded %s.", untilText(g.Until, now))}
	}
	subject := "It also waits for"
	if isFirst {
		subject = "It waits for"
	}
	if g.Verdict == "fail" {
		subject = "It is blocked by"
	}
	text := fmt.Sprintf("%s %s", subject, g.Name)
	if g.Message != "" {
		text += ": " + strings.TrimSuffix(g.Message, ".")
	}
	text = asSentence(text + valueText(g))
	if !g.Since.IsZero() {
		text += fmt.Sprintf(" Unchanged for %s (since %s).", FormatDuration(now.Sub(g.Since)), timeOfDay(g.Since))
	}
	out := []string{text + " " + openerSentence(g, now)}
	if g.Query != "" {
		out = append(out, "  "+joinLines(g.Query))
	}
	if g.UserAction != "" {
		out = append(out, "  "+g.UserAction)
	}
	return out
}

// valueText returns " (value 94.1, limit >= 99)"; empty for a gate that compares nothing.
func valueText(g Gate) string {
	if g.Value == "" && (!g.Check || g.Limit == "") {
		return ""
	}
	return " (" + strings.TrimSpace(strings.Join(nonEmpty(withPrefix("value ", g.Value), withPrefix("limit ", g.Limit)), ", ")) + ")"
}

// openerSentence describes who opens a gate, and when.
func openerSentence(g Gate, now time.Time) string {
	isInFuture := !g.Until.IsZero() && g.Until.After(now)
	switch g.Opener {
	case "time":
		if g.Until.IsZero() {
			return "It is evaluated again in the next window."
		}
		return fmt.Sprintf("Continues automatically %s.", untilText(g.Until, now))
	case "cluster":
		switch {
		case isInFuture && g.Otherwise != "":
			return fmt.Sprintf("Waiting on Kubernetes; otherwise %s %s.", g.Otherwise, untilText(g.Until, now))
		case isInFuture:
			return fmt.Sprintf("Waiting on Kubernetes; it is evaluated again %s.", untilText(g.Until, now))
		}
		return "Waiting on Kubernetes."
	case "answer":
		if g.QueryReceiver != "" {
			return fmt.Sprintf("Waiting for a reply from %s.", g.QueryReceiver)
		}
		return "Waiting for a reply."
	case "person":
		text := "Action required"
		if g.QueryReceiver != "" {
			text += ", through " + g.QueryReceiver
		}
		switch {
		case !isInFuture:
		case g.Name == otherControllerGate:
			text += fmt.Sprintf("; the sign of the other controller expires %s, unless it is renewed", untilText(g.Until, now))
		default:
			text += fmt.Sprintf("; it is evaluated again %s", untilText(g.Until, now))
		}
		if g.UserAction != "" {
			return text + ":"
		}
		return text + "."
	default:
		return "It is unknown who opens it."
	}
}

// nextStepSentences describes the next step and the earliest end of the release.
func nextStepSentences(r Release, now time.Time) []string {
	if len(r.Steps) == 0 {
		return nil
	}
	text := "Then: " + r.NextStep + "."
	if r.ClosedGate() == nil {
		text = "Not blocked. Next: " + r.NextStep + "."
	}
	last := r.Steps[len(r.Steps)-1]
	if len(r.Steps) > 1 && last.At.After(now) {
		text += fmt.Sprintf(" If nothing fails, it ends %s at the earliest.", untilText(last.At, now))
	}
	return []string{text}
}

func nonEmpty(texts ...string) []string {
	var out []string
	for _, text := range texts {
		if text != "" {
			out = append(out, text)
		}
	}
	return out
}

func withPrefix(prefix, text string) string {
	if text == "" {
		return ""
	}
	return prefix + text
}

// asSentence returns a text with one period. A long message ends with an ellipsis, because the status contains its beginning.
func asSentence(text string) string {
	if strings.HasSuffix(text, "…") {
		return text
	}
	return strings.TrimSuffix(text, ".") + "."
}

func joinLines(text string) string { return strings.Join(strings.Fields(text), " ") }

// sinceText returns " since 12:00:00Z (5m)"; empty for an unknown time.
func sinceText(t, now time.Time) string {
	if t.IsZero() {
		return ""
	}
	return fmt.Sprintf(" since %s (%s)", timeOfDay(t), FormatDuration(now.Sub(t)))
}

// untilText returns "in 18s (12:00:30Z)", or "now" for a time in the past.
func untilText(t, now time.Time) string {
	if !t.After(now) {
		return "now"
	}
	return "in " + FormatDuration(t.Sub(now)) + " (" + timeOfDay(t) + ")"
}

// timeOfDay formats the time of day in UTC, as messages in the status do.
func timeOfDay(t time.Time) string { return t.UTC().Format(time.TimeOnly) + "Z" }

// FormatDuration formats a duration with at most two units: 18s, 2m30s, 3h5m, 4d2h. It rounds up to whole seconds, so that a
// countdown never shows 0s before the end; negative durations are 0s.
func FormatDuration(d time.Duration) string {
	d = max(d, 0)
	seconds := int64((d + time.Second - 1) / time.Second)
	minutes, hours, days := seconds/60, seconds/3600, seconds/86400
	switch {
	case seconds < 60:
		return fmt.Sprintf("%ds", seconds)
	case minutes < 60 && seconds%60 == 0:
		return fmt.Sprintf("%dm", minutes)
	case minutes < 60:
		return fmt.Sprintf("%dm%ds", minutes, seconds%60)
	case hours < 24 && minutes%60 == 0:
		return fmt.Sprintf("%dh", hours)
	case hours < 24:
		return fmt.Sprintf("%dh%dm", hours, minutes%60)
	case hours%24 == 0:
		return fmt.Sprintf("%dd", days)
	default:
		return fmt.Sprintf("%dd%dh", days, hours%24)
	}
}
