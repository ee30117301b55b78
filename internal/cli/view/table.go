package view

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/serin-dev/serin/internal/cli/explain"
	"github.com/serin-dev/serin/internal/release"
)

// TableOptions of a table.
type TableOptions struct {
	// Namespaces shows the column of the namespace, Wide more columns.
	Namespaces, Wide bool
	Paint
}

// Table has one line for each release, with a header.
func Table(releases []explain.Release, now time.Time, o TableOptions) string {
	header := []string{"NAME", "KIND", "TARGET", "STRATEGY", "PHASE", "WEIGHT", "CHECKS", "WAITS FOR", "SINCE"}
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
			r.Name, string(r.Kind), r.Target, r.Strategy, o.in(inkOfState(r), cmp.Or(r.Phase, "new")), progress(r), checks(r), WaitsFor(r, now), age(r.Since, now),
		}
		if o.Namespaces {
			row = append([]string{r.Namespace}, row...)
		}
		if o.Wide {
			row = append(row, r.Provider, cmp.Or(r.Revision, "-"), cmp.Or(r.Promoted, "-"), cmp.Or(r.NextStep, "-"), cmp.Or(firstMessage(r), "-"))
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

// progress is the share of requests of the new revision, and the iteration or step.
func progress(r *explain.Release) string {
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

// checks are the failed checks and the number at which the release is rolled back; each metric of a Rollout has a limit instead.
func checks(r *explain.Release) string {
	if r.Kind == explain.KindRollout {
		return "-"
	}
	return fmt.Sprintf("%d/%d", r.FailedChecks, r.Threshold)
}

// WaitsFor names the gate that a release waits for: one that the user opens before any other.
func WaitsFor(r *explain.Release, now time.Time) string {
	gate := r.UserGate()
	if gate != nil {
		return gate.Name + " (user)"
	}
	gate = r.ClosedGate()
	switch {
	case gate == nil && r.State == release.Idle:
		return "-"
	case gate == nil:
		return "nothing"
	case gate.Opener == "time" && gate.Until.After(now):
		return gate.Name + " " + explain.Short(gate.Until.Sub(now))
	default:
		return gate.Name
	}
}

func firstMessage(r *explain.Release) string {
	if gate := r.UserGate(); gate != nil {
		return gate.Message
	}
	if gate := r.ClosedGate(); gate != nil {
		return gate.Message
	}
	return r.Message
}

// age is the time since then, in one unit or two.
func age(t, now time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return explain.Short(now.Sub(t).Truncate(time.Second))
}
