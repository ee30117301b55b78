package view

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/serin-dev/serin/internal/cli/explain"
	"github.com/serin-dev/serin/internal/release"
)

// ReleaseLine renders a release as one line without the current time and without durations, so that two lines differ only if
// something has changed.
func ReleaseLine(r *explain.Release) string {
	out := fmt.Sprintf("%s/%s %s", r.Namespace, r.Argument(), cmp.Or(r.Phase, "new"))
	switch {
	case r.Mirrored:
		out += " mirror"
	case r.State != release.Idle || r.Weight > 0:
		out += fmt.Sprintf(" weight=%d", r.Weight)
	}
	if r.TotalIterations > 0 && r.Iterations > 0 {
		out += fmt.Sprintf(" iteration=%d/%d", min(r.Iterations, r.TotalIterations), r.TotalIterations)
	}
	if r.TotalSteps > 0 && r.Step > 0 && r.State != release.Idle {
		out += fmt.Sprintf(" step=%d/%d", r.Step, r.TotalSteps)
	}
	if r.Kind == explain.KindCanary && (r.State != release.Idle || r.FailedChecks > 0) {
		out += fmt.Sprintf(" failed=%d/%d", r.FailedChecks, r.Threshold)
	}
	gate := r.UserGate()
	if gate == nil {
		gate = r.ClosedGate()
	}
	switch {
	case gate != nil && gate.Opener == "time" && !gate.Until.IsZero():
		out += fmt.Sprintf(" waits=%s until=%s", gate.Name, timeOfDay(gate.Until))
	case gate != nil:
		out += fmt.Sprintf(" waits=%s opener=%s", gate.Name, gate.Opener)
	}
	if len(r.PodProblems) > 0 {
		out += fmt.Sprintf(" problem=%q", r.PodProblems[0].Summary())
	}
	if r.NextStep != "" {
		out += fmt.Sprintf(" next=%q", r.NextStep)
	}
	return out
}

// EventLine renders an event as one line.
func EventLine(r *explain.Release, e explain.Event) string {
	return fmt.Sprintf("%s/%s event %s %s%s", r.Namespace, r.Argument(), strings.ToLower(e.Type), e.Message, e.Repetitions())
}

// WithTime prepends the time of day to a line without styles, and removes the control characters from it.
func WithTime(now time.Time, line string) string { return timeOfDay(now) + " " + SingleLine(line) }

func timeOfDay(t time.Time) string { return t.UTC().Format(time.TimeOnly) + "Z" }
