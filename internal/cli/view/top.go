package view

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/serin-dev/serin/internal/cli/explain"
	"github.com/serin-dev/serin/internal/release"
)

// TopOptions are the options of the table of releases in progress.
type TopOptions struct {
	// Namespaces adds a column for the namespace.
	Namespaces bool
	Paint
}

// Top renders the number of releases in each group, and a table with one line for each release in progress.
func Top(top explain.Top, now time.Time, o TopOptions) string {
	top = printable(top)
	text := SummaryLine(top.Summary) + "\n"
	if len(top.Releases) == 0 {
		return text
	}
	header := []string{"RELEASE", "IMAGES", "WEIGHT", "STEP", "FAILED", "WAITS FOR", "AGE", "NEXT", "OVERDUE"}
	if o.Namespaces {
		header = append([]string{"NAMESPACE"}, header...)
	}
	rows := [][]string{header}
	for i := range top.Releases {
		r := &top.Releases[i]
		row := []string{
			o.styled(groupStyle(r.Group), strings.ToLower(string(r.Kind))+"/"+r.Name), imagesText(r.Images), shareText(&r.Release), stepText(&r.Release),
			failedChecksText(&r.Release), o.styled(groupStyle(r.Group), topWaitsFor(r, now)), ageText(r.WaitsSince, now), cmp.Or(nextText(&r.Release, now), "-"),
			o.styled(overdueStyle(r), ageText(r.OverdueSince, now)),
		}
		if o.Namespaces {
			row = append([]string{r.Namespace}, row...)
		}
		rows = append(rows, row)
	}
	return text + "\n" + align(rows)
}

// SummaryLine counts the releases of each group in one line.
func SummaryLine(s explain.Summary) string {
	if s == (explain.Summary{}) {
		return "No releases."
	}
	needs := "need"
	if s.NeedUser == 1 {
		needs = "needs"
	}
	return fmt.Sprintf("%d %s user action, %d rolling back, %d advancing, %d in the queue; not in progress: %d failed, %d idle",
		s.NeedUser, needs, s.RollingBack, s.Advancing, s.Queued, s.Failed, s.Idle)
}

func groupStyle(group explain.Group) style {
	switch group {
	case explain.NeedsUser:
		return yellow
	case explain.GroupRollingBack, explain.Failed:
		return red
	case explain.Advancing:
		return cyan
	case explain.Queued, explain.GroupIdle:
		return plain
	default:
		return plain
	}
}

// overdueStyle highlights a step that the controller has not taken in time.
func overdueStyle(r *explain.TopRelease) style {
	if r.OverdueSince.IsZero() {
		return plain
	}
	return red
}

// imagesText returns the images that differ between both revisions, as "cart:v1 → cart:v2".
func imagesText(images explain.Images) string {
	if len(images.Old) == 0 && len(images.New) == 0 {
		return "-"
	}
	before, after := images.Old, images.New
	if len(before) == len(after) {
		before, after = nil, nil
		for i := range images.Old {
			if images.Old[i] != images.New[i] {
				before, after = append(before, images.Old[i]), append(after, images.New[i])
			}
		}
	}
	if len(before) == 0 && len(after) == 0 { // other fields of the template differ
		return strings.Join(images.New, ",")
	}
	return cmp.Or(strings.Join(before, ","), "?") + " → " + cmp.Or(strings.Join(after, ","), "?")
}

// shareText returns the share of requests of the new revision.
func shareText(r *explain.Release) string {
	if r.Mirrored {
		return "mirror"
	}
	return fmt.Sprintf("%d%%", r.Weight)
}

// stepText returns the current step or iteration with their number.
func stepText(r *explain.Release) string {
	switch {
	case r.TotalIterations > 0 && r.Iterations > 0:
		return fmt.Sprintf("%d/%d", min(r.Iterations, r.TotalIterations), r.TotalIterations)
	case r.TotalSteps > 0 && r.Step > 0:
		return fmt.Sprintf("%d/%d", r.Step, r.TotalSteps)
	default:
		return "-"
	}
}

// topWaitsFor names the gate that a release waits for, with its place in the queue.
func topWaitsFor(r *explain.TopRelease, now time.Time) string {
	text := WaitsFor(&r.Release, now)
	switch {
	case r.Place != nil:
		text += fmt.Sprintf(" (%d of %d)", r.Place.Position, r.Place.Waiting)
	case r.State == release.RollingBack && r.ClosedGate() == nil:
		return "rollback"
	}
	return text
}
