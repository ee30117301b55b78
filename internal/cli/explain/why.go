package explain

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/release"
)

// Why says in sentences why a release does not move, or what it does instead. Each is a paragraph of its own; a line
// that begins with two blanks belongs to the sentence above it and is not wrapped, so that it can be copied.
func Why(r Release, now time.Time) []string {
	var out []string
	if len(r.Unread) > 0 {
		out = append(out, strings.Join(r.Unread, " ")+" What is said about them is what the status says.")
	}
	switch r.State {
	case release.Idle:
		return append(out, resting(r, now)...)
	default:
		out = append(out, moving(r, now))
	}
	out = append(out, waits(r, now)...)
	if left := r.Threshold - r.FailedChecks; r.State != release.RollingBack && r.FailedChecks > 0 && left > 0 {
		out = append(out, fmt.Sprintf("Failed checks so far: %d. The release is taken back at %d.", r.FailedChecks, r.Threshold))
	}
	return append(out, follows(r, now)...)
}

// The gates with a sentence of their own.
const (
	peerGate     = "peer"
	deadlineGate = "deadline"
)

// resting is about a release that is over.
func resting(r Release, now time.Time) []string {
	out := []string{fmt.Sprintf("%s is at rest (%s%s): there is nothing to release.", r.FullName(), cmp.Or(r.Phase, "new"), since(r.Since, now))}
	if r.Kind == KindRollout {
		out = append(out, restingRollout(r)...)
	} else {
		out = append(out, restingCanary(r)...)
	}
	for _, gate := range r.Gates { // a peer, and post-rollout hooks that are still out
		if gate.Verdict != "pass" && (r.Kind == KindCanary || gate.Name == peerGate) {
			out = append(out, gateSentence(gate, now, true)...)
		}
	}
	return out
}

func restingCanary(r Release) []string {
	var out []string
	primary := strings.TrimPrefix(r.Target, "Deployment/") + "-primary"
	switch {
	case r.PromotionFailed:
		out = append(out, fmt.Sprintf("The last release failed while it was promoted: the canary has %d %% of the traffic, because %s cannot run the new revision. "+
			"The next revision repairs it.", r.Weight, primary))
	case r.Result == release.RolledBack && r.Weight > 0:
		out = append(out, fmt.Sprintf("The last release failed, and the canary still has %d %% of the traffic.", r.Weight))
	case r.Result == release.RolledBack:
		out = append(out, fmt.Sprintf("The last release failed: %s serves the revision before it.", primary))
	case r.Phase == string(flaggerv1.CanaryPhaseInitialized):
		out = append(out, fmt.Sprintf("No new revision has come yet: %s serves the one that was taken over.", primary))
	default:
		out = append(out, fmt.Sprintf("The last release was promoted: %s serves its revision.", primary))
	}
	if r.Result == release.RolledBack {
		out = append(out, causes(r)...)
		out = append(out, fmt.Sprintf("A new release starts when %s changes.", r.Target))
	}
	if r.Suspended {
		out = append(out, "It is suspended: a new revision would not be taken up before spec.suspend is false.",
			fmt.Sprintf("  serin resume canary/%s -n %s", r.Name, r.Namespace))
	}
	return out
}

func restingRollout(r Release) []string {
	var out []string
	if r.Result != release.RolledBack {
		out = append(out, fmt.Sprintf("The last release was promoted: revision %s serves.", r.Promoted))
	} else {
		out = append(out, fmt.Sprintf("The last release was aborted: revision %s serves, as before it. %s.", r.Promoted, strings.TrimSuffix(r.Message, ".")))
		for _, gate := range r.Gates {
			if gate.Check && gate.Verdict == "fail" {
				out = append(out, measured(gate)...)
			}
		}
		out = append(out, "A new release starts when the template changes. To release the same revision once more:",
			fmt.Sprintf("  serin retry rollout/%s -n %s", r.Name, r.Namespace))
	}
	if r.Suspended {
		out = append(out, "It is paused: a new revision gets no pods before spec.paused is false.",
			fmt.Sprintf("  serin resume rollout/%s -n %s", r.Name, r.Namespace))
	}
	return out
}

// measured is a metric that was against a release.
func measured(g Gate) []string {
	out := []string{fmt.Sprintf("%s was against it: %s%s.", g.Name, strings.TrimSuffix(g.Message, "."), valueText(g))}
	if g.Query != "" {
		out = append(out, "  "+oneLine(g.Query))
	}
	return out
}

// causes are the warnings of the last run.
func causes(r Release) []string {
	var out []string
	for _, event := range r.Events {
		if event.Type == "Warning" && !strings.HasPrefix(event.Message, "Canary failed!") {
			text := fmt.Sprintf("  %s %s", clock(event.At), event.Message)
			if event.Count > 1 {
				text += fmt.Sprintf(" (%d times)", event.Count)
			}
			out = append(out, text)
		}
	}
	if len(out) == 0 {
		return []string{"Kubernetes has no events of that release any more, or they cannot be read."}
	}
	return append([]string{"What its events say:"}, out...)
}

// moving is what a release does now.
func moving(r Release, now time.Time) string {
	phase := r.Phase
	if phase == "" {
		phase = "new: no controller has looked at it yet"
	}
	text := fmt.Sprintf("%s is %s%s", r.FullName(), phase, since(r.Since, now))
	switch {
	case r.Phase == "" || r.Phase == string(flaggerv1.CanaryPhaseInitializing):
	case r.Kind == KindRollout:
		text += inRollout(r)
	case r.Mirrored:
		text += "; requests are mirrored to the canary"
	case r.TotalIterations > 0 && r.Iterations > 0:
		text += fmt.Sprintf("; iteration %d of %d, the canary has %d %% of the traffic", min(r.Iterations, r.TotalIterations), r.TotalIterations, r.Weight)
	default:
		text += fmt.Sprintf("; the canary has %d %% of the traffic", r.Weight)
	}
	switch {
	case r.State == release.RollingBack:
		text += ", and the release is being taken back"
	case r.Kind == KindCanary && r.Result != "" && len(r.Steps) > 0:
		text += ", and a new revision is there"
	}
	return text + "."
}

// inRollout is how far a release by a Rollout has come.
func inRollout(r Release) string {
	text := ""
	if r.TotalSteps > 0 && r.Step > 0 {
		text = fmt.Sprintf("; step %d of %d", r.Step, r.TotalSteps)
	}
	return text + fmt.Sprintf("; the new revision has %d %% of the traffic", r.Weight)
}

// waits are the gates that do not pass, those of people first. Questions that only wait for their turn are told in short.
func waits(r Release, now time.Time) []string {
	var out, later, queries []string
	for _, byPerson := range []bool{true, false} {
		for _, gate := range r.Gates {
			switch {
			case gate.Verdict == "pass", byPerson != (gate.Opener == "person"):
			case gate.Asks != "" && !byPerson && gate.Verdict == "wait" && len(out) > 0:
				later = append(later, inShort(gate))
				if gate.Query != "" {
					queries = append(queries, "  "+gate.Name+": "+oneLine(gate.Query))
				}
			default:
				out = append(out, gateSentence(gate, now, len(out) == 0)...)
			}
		}
	}
	if len(later) > 0 {
		out = append(append(out, "After that is asked: "+strings.Join(later, ", ")+"."), queries...)
	}
	return out
}

// inShort is a question whose turn has not come.
func inShort(g Gate) string {
	var details []string
	if g.Limit != "" {
		details = append(details, "limit "+g.Limit)
	}
	if g.Value != "" {
		details = append(details, "last "+g.Value)
	}
	if g.Last == "fail" {
		details = append(details, "which failed")
	}
	if len(details) == 0 {
		return g.Name
	}
	return g.Name + " (" + strings.Join(details, ", ") + ")"
}

// gateSentence says one gate that does not pass.
func gateSentence(g Gate, now time.Time, first bool) []string {
	if g.Name == deadlineGate && g.Opener == "time" { // which holds nothing
		return []string{fmt.Sprintf("Without progress it counts as degraded %s.", in(g.Until, now))}
	}
	it := "It also waits for"
	if first {
		it = "It waits for"
	}
	if g.Verdict == "fail" {
		it = "It is held by"
	}
	text := fmt.Sprintf("%s %s", it, g.Name)
	if g.Message != "" {
		text += ": " + strings.TrimSuffix(g.Message, ".")
	}
	text += valueText(g) + "."
	if !g.Since.IsZero() {
		text += fmt.Sprintf(" That is so for %s (since %s).", Short(now.Sub(g.Since)), clock(g.Since))
	}
	out := []string{text + " " + opener(g, now)}
	if g.Query != "" {
		out = append(out, "  "+oneLine(g.Query))
	}
	if g.Do != "" {
		out = append(out, "  "+g.Do)
	}
	return out
}

// valueText is " (value 94.1, limit >= 99)"; empty where nothing was compared.
func valueText(g Gate) string {
	if g.Value == "" && (!g.Check || g.Limit == "") {
		return ""
	}
	return " (" + strings.TrimSpace(strings.Join(nonEmpty(prefixed("value ", g.Value), prefixed("limit ", g.Limit)), ", ")) + ")"
}

// opener says who opens a gate, and when.
func opener(g Gate, now time.Time) string {
	left := g.Until.Sub(now)
	switch g.Opener {
	case "time":
		if g.Until.IsZero() {
			return "The next window decides it anew."
		}
		return fmt.Sprintf("Time opens it, %s.", in(g.Until, now))
	case "cluster":
		if !g.Until.IsZero() && left > 0 {
			return fmt.Sprintf("The cluster opens it; without that the release is taken back %s.", in(g.Until, now))
		}
		return "The cluster opens it."
	case "answer":
		if g.Asks != "" {
			return fmt.Sprintf("The answer of %s opens it.", g.Asks)
		}
		return "An answer opens it."
	case "person":
		text := "A person opens it"
		if g.Asks != "" {
			text += ", through " + g.Asks
		}
		switch {
		case g.Until.IsZero() || left <= 0:
		case g.Name == peerGate:
			text += fmt.Sprintf("; unless it is renewed, the sign is over %s", in(g.Until, now))
		default:
			text += fmt.Sprintf("; it is asked again %s", in(g.Until, now))
		}
		if g.Do != "" {
			return text + ":"
		}
		return text + "."
	default:
		return "Nobody is known to open it."
	}
}

// follows is what happens when the gates pass.
func follows(r Release, now time.Time) []string {
	if len(r.Steps) == 0 {
		return nil
	}
	text := "Then: " + r.NextStep + "."
	if r.First() == nil {
		text = "Nothing holds it. Next: " + r.NextStep + "."
	}
	last := r.Steps[len(r.Steps)-1]
	if len(r.Steps) > 1 && last.At.After(now) {
		text += fmt.Sprintf(" If nothing fails, it is over %s at the earliest.", in(last.At, now))
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

func prefixed(prefix, text string) string {
	if text == "" {
		return ""
	}
	return prefix + text
}

func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

// since is ", since 12:00:00Z (5m0s)"; empty for a moment that is not known.
func since(t, now time.Time) string {
	if t.IsZero() {
		return ""
	}
	return fmt.Sprintf(" since %s (%s)", clock(t), Short(now.Sub(t)))
}

// in is "in 18s, at 12:00:30Z"; a moment that is past is now.
func in(t, now time.Time) string {
	left := t.Sub(now)
	if left <= 0 {
		return "now"
	}
	return "in " + Short(left) + ", at " + clock(t)
}

// clock is a time of the day in UTC, as the texts of the status have it.
func clock(t time.Time) string { return t.UTC().Format(time.TimeOnly) + "Z" }

// Short is a duration as people say it: 18s, 2m30s, 3h5m, 4d2h. A duration is rounded up to whole seconds, so that a
// wait that is not over is never said to be; negative durations are 0s.
func Short(d time.Duration) string {
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
