package view

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/serin-dev/serin/internal/cli/explain"
	"github.com/serin-dev/serin/internal/release"
)

// TableOptions selects the columns of a table.
type TableOptions struct {
	// Namespaces adds a column for the namespace; Wide adds columns for details.
	Namespaces, Wide bool
	Paint
}

// Table renders a table with a header and one line for each release.
func Table(releases []explain.Release, now time.Time, o TableOptions) string {
	releases = printable(releases)
	header := []string{"NAME", "KIND", "TARGET", "STRATEGY", "PHASE", "WEIGHT", "FAILED", "WAITS FOR", "SINCE"}
	if o.Namespaces {
		header = append([]string{"NAMESPACE"}, header...)
	}
	if o.Wide {
		header = append(header, "PROVIDER", "REVISION", "PROMOTED", "NEXT", "MESSAGE")
	}
	rows := [][]string{header}
	for i := range releases {
		r := &releases[i]
		row := []string{
			r.Name, string(r.Kind), r.Target, r.Strategy, o.styled(phaseStyle(r), cmp.Or(r.Phase, "new")), progressText(r), failedChecksText(r), WaitsFor(r, now), ageText(r.Since, now),
		}
		if o.Namespaces {
			row = append([]string{r.Namespace}, row...)
		}
		if o.Wide {
			row = append(row, r.Provider, cmp.Or(r.Revision, "-"), cmp.Or(r.PromotedRevision, "-"), cmp.Or(r.NextStep, "-"), cmp.Or(waitMessage(r), "-"))
		}
		rows = append(rows, row)
	}
	return align(rows)
}

// align gives each column the width of its widest cell; the last one is not padded.
func align(rows [][]string) string {
	var widths []int
	for _, row := range rows {
		for i, cell := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], width(cell))
		}
	}
	var b strings.Builder
	for _, row := range rows {
		var line strings.Builder
		for i, cell := range row {
			if i == len(row)-1 {
				line.WriteString(cell)
				break
			}
			line.WriteString(pad(cell, widths[i]) + "   ")
		}
		b.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
	return b.String()
}

// progressText returns the share of requests of the new revision, and the iteration or step.
func progressText(r *explain.Release) string {
	text := fmt.Sprintf("%d%%", r.Weight)
	switch {
	case r.Mirrored:
		text = "mirror"
	case r.State == release.Idle && r.Weight == 0:
		return "-"
	}
	switch {
	case r.TotalIterations > 0 && r.Iterations > 0:
		text += fmt.Sprintf(" %d/%d", min(r.Iterations, r.TotalIterations), r.TotalIterations)
	case r.TotalSteps > 0 && r.Step > 0:
		text += fmt.Sprintf(" %d/%d", r.Step, r.TotalSteps)
	}
	return text
}

// failedChecksText returns the number of failed checks and the number at which the release is rolled back. A Rollout has no such
// number, because each of its metrics has a limit.
func failedChecksText(r *explain.Release) string {
	if r.Kind == explain.KindRollout {
		return "-"
	}
	return fmt.Sprintf("%d/%d", r.FailedChecks, r.Threshold)
}

// WaitsFor names the gate that a release waits for. Gates that the user opens take precedence.
func WaitsFor(r *explain.Release, now time.Time) string {
	gate := r.UserGate()
	if gate != nil {
		return gate.Name + " (user)"
	}
	gate = r.ClosedGate()
	if r.TimedOut {
		gate = r.DeadlineGate()
	}
	switch {
	case r.State == release.Idle && (gate == nil || gate.Opener == "time"): // a promoted Rollout retains its deadline until its old pods have ended
		return "-"
	case gate == nil:
		return "nothing"
	case gate.Opener == "time" && gate.Until.After(now):
		return gate.Name + " " + explain.FormatDuration(gate.Until.Sub(now))
	case gate.Opener == "cluster" && len(r.PodProblems) > 0:
		reason, _, _ := strings.Cut(r.PodProblems[0].Reason, ",")
		return gate.Name + " (" + reason + ")"
	default:
		return gate.Name
	}
}

func waitMessage(r *explain.Release) string {
	if len(r.PodProblems) > 0 {
		return r.PodProblems[0].Summary()
	}
	if gate := r.UserGate(); gate != nil {
		return gate.Message
	}
	if gate := r.ClosedGate(); gate != nil {
		return gate.Message
	}
	return r.Message
}

// ageText formats the duration since a time.
func ageText(t, now time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return explain.FormatDuration(now.Sub(t).Truncate(time.Second))
}
