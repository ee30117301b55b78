package view

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/serin-dev/serin/internal/cli/explain"
	"github.com/serin-dev/serin/internal/release"
)

// Screen is the content of the full-screen view.
type Screen struct {
	// Releases are shown in this order.
	Releases []explain.Release
	// Selected is the index of the selected release; Open shows only that one.
	Selected int
	Open     bool
	// Single is true if only one release was requested; then there is no list of releases.
	Single bool
	// Notes are shown above the releases: a missing controller, and interrupted streams.
	Notes []string
	// Summary is a line above the list of releases; empty: none.
	Summary string
	// Keys describes additional keys of a single release.
	Keys []string
	// Now is the current time, for durations.
	Now time.Time
	// Width is in columns, Height in lines.
	Width, Height int
	Paint
}

// String renders the screen: at most Height lines, none wider than Width.
func (s Screen) String() string {
	s = printable(s)
	s.Width, s.Height = max(s.Width, 20), max(s.Height, 5)
	var lines []string
	for _, note := range s.Notes {
		for _, line := range wrap("! "+note, s.Width, "  ") {
			lines = append(lines, s.styled(yellow, line))
		}
	}
	lines = lines[:min(len(lines), s.Height/3)]
	maxLines := s.Height - len(lines) - 1
	switch {
	case len(s.Releases) == 0:
		lines = append(lines, "No releases yet.")
	case s.Open || s.Single:
		lines = append(lines, s.detailLines(&s.Releases[min(max(s.Selected, 0), len(s.Releases)-1)], maxLines)...)
	default:
		if s.Summary != "" {
			lines, maxLines = append(lines, s.styled(bold, s.Summary)), maxLines-1
		}
		lines = append(lines, s.releaseLines(maxLines)...)
	}
	lines = lines[:min(len(lines), s.Height-1)]
	for len(lines) < s.Height-1 {
		lines = append(lines, "")
	}
	lines = append(lines, s.styled(faint, s.keysLine()))
	for i, line := range lines {
		lines[i] = truncate(line, s.Width)
	}
	return strings.Join(lines, "\n")
}

func (s Screen) keysLine() string {
	now := timeOfDay(s.Now)
	switch {
	case s.Single:
		return strings.Join(append(append([]string{now}, s.Keys...), "q quit"), "  ")
	case s.Open:
		return now + "  ↑↓ other release  esc list  q quit"
	default:
		return now + "  ↑↓ select  enter details  q quit"
	}
}

// barColumns is the width of a bar in the list.
const barColumns = 5

// releaseLines renders one line for each release. If not all fit, the lines around the selected release are shown.
func (s Screen) releaseLines(maxLines int) []string {
	rows := max(maxLines-1, 1)
	first := 0
	if s.Selected >= rows {
		first = s.Selected - rows + 1
	}
	nameWidth := len("RELEASE")
	for i := range s.Releases {
		nameWidth = max(nameWidth, width(s.Releases[i].Namespace)+1+width(s.Releases[i].Argument()))
	}
	nameWidth = min(nameWidth, max(s.Width/4, 12))
	phaseWidth, shareWidth := len("PHASE"), len("CANARY")
	for i := range s.Releases {
		phaseWidth, shareWidth = max(phaseWidth, width(s.Releases[i].Phase)), max(shareWidth, barColumns+1+width(progressText(&s.Releases[i])))
	}
	phaseWidth = min(phaseWidth, 16)
	const failedWidth = 6
	waitsWidth := max(s.Width-nameWidth-phaseWidth-failedWidth-shareWidth-8, 10)
	lines := []string{s.styled(faint, pad("RELEASE", nameWidth)+"  "+pad("PHASE", phaseWidth)+"  "+pad("CANARY", shareWidth)+"  "+pad("FAILED", failedWidth)+"  WAITS FOR")}
	for i := first; i < len(s.Releases) && len(lines) <= rows; i++ {
		r := &s.Releases[i]
		label := pad(r.Namespace+"/"+r.Argument(), nameWidth)
		if i == s.Selected {
			label = s.styled(reverse, label)
		}
		traffic := pad("", shareWidth)
		if r.State != release.Idle || r.Weight > 0 {
			traffic = s.styled(cyan, bar(float64(r.Weight), 100, barColumns)) + pad(" "+progressText(r), shareWidth-barColumns)
		}
		lines = append(lines, label+"  "+s.styled(phaseStyle(r), pad(cmp.Or(r.Phase, "new"), phaseWidth))+"  "+traffic+"  "+pad(failedChecksText(r), failedWidth)+"  "+pad(WaitsFor(r, s.Now), waitsWidth))
	}
	return lines
}

// detailLines renders all details of one release. If they do not fit, passing gates are omitted first. Events fill the remaining
// lines.
func (s Screen) detailLines(r *explain.Release, maxLines int) []string {
	lines := s.headLines(r)
	lines = append(lines, s.trafficLines(r)...)
	lines = append(lines, s.windowLines(r)...)
	lines = append(lines, s.nextLines(r)...)
	lines = append(lines, s.podProblemLines(r)...)
	for _, unread := range r.Unread {
		lines = append(lines, s.wrapAfter("", yellow, "! "+unread)...)
	}
	checks := s.checkLines(r)
	gates := s.gateLines(r, max(maxLines-len(lines)-len(checks)-4, 3))
	lines = append(append(lines, checks...), gates...)
	return append(lines, s.eventLines(r, maxLines-len(lines))...)
}

func (s Screen) headLines(r *explain.Release) []string {
	title := s.styled(bold, r.FullName()) + s.styled(faint, "  "+r.Target+"  "+r.Strategy+" by "+r.Provider)
	return []string{title, s.styled(phaseStyle(r), stateText(r)) + s.styled(faint, sinceText(r.Since, s.Now)) + failedText(r)}
}

// stateText returns the phase of a release, with what is special about its state.
func stateText(r *explain.Release) string {
	state := cmp.Or(r.Phase, "new")
	switch {
	case r.State == release.WaitsForUser:
		state += ", waits for the user"
	case r.State == release.RollingBack:
		state += ", rolling back"
	case r.Suspended:
		state += ", suspended"
	case r.Deleting:
		state += ", being deleted"
	}
	return state
}

func sinceText(t, now time.Time) string {
	if t.IsZero() {
		return ""
	}
	return " for " + ageText(t, now)
}

func failedText(r *explain.Release) string {
	if r.Kind == explain.KindRollout || r.State == release.Idle && r.FailedChecks == 0 {
		return ""
	}
	return fmt.Sprintf("   failed checks %d of %d", r.FailedChecks, r.Threshold)
}

// barWidth returns the width of a bar with a label before it and a text after it.
func (s Screen) barWidth() int { return max(min(s.Width-9-26, 50), 5) }

func (s Screen) trafficLines(r *explain.Release) []string {
	columns := s.barWidth()
	share := func(weight int) string { return fmt.Sprintf(" %3d%%", weight) }
	canary := share(r.Weight)
	if r.Mirrored {
		canary += " mirrored"
	}
	switch {
	case r.TotalIterations > 0 && r.Iterations > 0:
		canary += fmt.Sprintf("  iteration %d of %d", min(r.Iterations, r.TotalIterations), r.TotalIterations)
	case r.TotalSteps > 0 && r.Step > 0:
		canary += fmt.Sprintf("  step %d of %d", r.Step, r.TotalSteps)
	}
	oldSide, newSide := "primary", "canary"
	if r.Kind == explain.KindRollout {
		oldSide, newSide = "stable", "new"
	}
	if r.PrimaryMissing {
		return []string{pad(oldSide, 9) + s.styled(faint, "does not exist yet")}
	}
	return []string{
		pad(oldSide, 9) + s.styled(green, bar(float64(100-r.Weight), 100, columns)) + share(100-r.Weight),
		pad(newSide, 9) + s.styled(cyan, bar(float64(r.Weight), 100, columns)) + canary,
	}
}

func (s Screen) windowLines(r *explain.Release) []string {
	if r.Window == nil || r.State == release.Idle {
		return nil
	}
	length, elapsed := r.Window.End.Sub(r.Window.Start), s.Now.Sub(r.Window.Start)
	elapsed = min(max(elapsed, 0), length)
	text := fmt.Sprintf(" %s remaining", explain.FormatDuration(r.Window.End.Sub(s.Now)))
	if !s.Now.Before(r.Window.End) {
		text = " elapsed"
	}
	return []string{pad("window", 9) + s.styled(yellow, bar(elapsed.Seconds(), length.Seconds(), s.barWidth())) + text + s.styled(faint, " of "+explain.FormatDuration(length))}
}

func (s Screen) nextLines(r *explain.Release) []string {
	if r.NextStep == "" {
		if r.Message == "" {
			return nil
		}
		return s.wrapAfter(pad("status", 9), plain, r.Message)
	}
	text := r.NextStep
	last := r.Steps[len(r.Steps)-1]
	if remaining := last.At.Sub(s.Now); len(r.Steps) > 1 && remaining > 0 {
		text += s.styled(faint, fmt.Sprintf("   ends in %s at the earliest", explain.FormatDuration(remaining)))
	}
	return []string{pad("next", 9) + text}
}

// podProblemLines renders what prevents pods from running, with the complete message of Kubernetes.
func (s Screen) podProblemLines(r *explain.Release) []string {
	var lines []string
	for _, problem := range r.PodProblems {
		lines = append(lines, s.wrapAfter(pad("pods", 9), red, problem.Summary())...)
		if problem.Message != "" {
			lines = append(lines, s.wrapAfter(pad("", 9), red, problem.Message)...)
		}
	}
	return lines
}

// wrapAfter renders a text after a prefix, and continues it in the same column of the next lines, so that nothing of it is cut.
func (s Screen) wrapAfter(prefix string, i style, text string) []string {
	column := width(prefix)
	lines := wrapWords(text, max(s.Width-column, 10))
	for n, line := range lines {
		if n > 0 {
			prefix = strings.Repeat(" ", column)
		}
		lines[n] = prefix + s.styled(i, line)
	}
	return lines
}

// checkLines renders the checks with value, limit and verdict.
func (s Screen) checkLines(r *explain.Release) []string {
	nameWidth, valueWidth, limitWidth := len("CHECK"), len("VALUE"), len("LIMIT")
	var checks []*explain.Gate
	for i := range r.Gates {
		if g := &r.Gates[i]; g.Check {
			checks = append(checks, g)
			nameWidth, valueWidth, limitWidth = max(nameWidth, width(g.Name)), max(valueWidth, width(g.Value)), max(limitWidth, width(g.Limit))
		}
	}
	if len(checks) == 0 {
		return nil
	}
	nameWidth = min(nameWidth, s.Width/3)
	lines := []string{s.styled(faint, "  "+pad("CHECK", nameWidth)+"  "+pad("VALUE", valueWidth)+"  "+pad("LIMIT", limitWidth)+"  VERDICT")}
	for _, g := range checks {
		verdict, i := verdictText(g)
		symbol, _ := verdictSymbol(cmp.Or(g.LastVerdict, g.Verdict))
		row := s.styled(i, symbol) + " " + pad(g.Name, nameWidth) + "  " + pad(cmp.Or(g.Value, "-"), valueWidth) + "  " + pad(cmp.Or(g.Limit, "-"), limitWidth) + "  "
		if g.Verdict == "fail" && width(row)+width(verdict) > s.Width {
			lines = append(append(lines, row), s.wrapAfter("    ", i, verdict)...)
			continue
		}
		lines = append(lines, row+s.styled(i, verdict))
	}
	return lines
}

// verdictText describes the verdict of a check; while an answer is pending, with the verdict on the previous answer.
func verdictText(g *explain.Gate) (string, style) {
	_, s := verdictSymbol(g.Verdict)
	switch {
	case g.Verdict == "pass":
		return "passed", s
	case g.Verdict == "fail":
		return "failed: " + g.Message, s
	case g.Verdict == "ask" && g.LastVerdict == "":
		return "pending", s
	case g.Verdict == "ask":
		return "pending; " + lastVerdictText(g.LastVerdict), s
	case g.LastVerdict != "":
		_, s = verdictSymbol(g.LastVerdict)
		return lastVerdictText(g.LastVerdict), s
	default:
		return "not evaluated yet", s
	}
}

func lastVerdictText(last string) string {
	if last == "fail" {
		return "failed last time"
	}
	return "passed last time"
}

// gateLines renders the gates that are no checks. If not all fit, passing gates are omitted.
func (s Screen) gateLines(r *explain.Release, maxLines int) []string {
	var gates []*explain.Gate
	nameWidth := 0
	for i := range r.Gates {
		if g := &r.Gates[i]; !g.Check {
			gates = append(gates, g)
			nameWidth = max(nameWidth, width(g.Name))
		}
	}
	if len(gates) == 0 {
		return nil
	}
	nameWidth = min(nameWidth, s.Width/3)
	blocks, total := make([][]string, len(gates)), 0
	for i, g := range gates {
		blocks[i] = s.gateBlock(g, nameWidth)
		total += len(blocks[i])
	}
	lines := []string{s.styled(faint, "  "+pad("GATE", nameWidth)+"  OBSERVED")}
	for i, g := range gates {
		if excess := total - (maxLines - 1); excess > 0 && g.Verdict == "pass" && !g.IsNotice() {
			total -= len(blocks[i])
			continue
		}
		lines = append(lines, blocks[i]...)
	}
	if len(lines) == 1 {
		return nil
	}
	return lines
}

// gateBlock renders one gate, with the action that opens it.
func (s Screen) gateBlock(g *explain.Gate, nameWidth int) []string {
	symbol, i := verdictSymbol(g.Verdict)
	text, textStyle := gateText(g, s.Now), plain
	switch {
	case g.IsNotice():
		symbol, i = "!", yellow
	case g.Verdict == "pass":
		textStyle = faint
	}
	lines := s.wrapAfter(s.styled(i, symbol)+" "+pad(g.Name, nameWidth)+"  ", textStyle, text)
	if g.UserAction != "" && g.Verdict != "pass" {
		for _, line := range wrap(g.UserAction, s.Width-6, "  ") {
			lines = append(lines, "    "+s.styled(yellow, line))
		}
	}
	return lines
}

// gateText describes what a gate observes, and what opens it.
func gateText(g *explain.Gate, now time.Time) string {
	switch remaining := g.Until.Sub(now); {
	case g.IsNotice():
		return g.Message
	case g.Verdict == "pass":
		return cmp.Or(g.Message, "passed")
	case g.Opener == "person":
		return "action required: " + g.Message
	case g.Opener == "time" && remaining > 0:
		return explain.FormatDuration(remaining) + " remaining: " + g.Message
	case g.Opener == "answer" && g.QueryReceiver != "":
		return "queries " + g.QueryReceiver
	default:
		return g.Message
	}
}

// eventLines renders the newest events that fit, newest last.
func (s Screen) eventLines(r *explain.Release, maxLines int) []string {
	var lines []string
	for _, event := range slices.Backward(r.Events) {
		eventStyle := plain
		if event.Type == "Warning" {
			eventStyle = yellow
		}
		block := s.wrapAfter("  "+s.styled(faint, timeOfDay(event.At))+" ", eventStyle, event.Message+event.Repetitions())
		if len(lines)+len(block) > maxLines-1 {
			break
		}
		lines = append(block, lines...)
	}
	if len(lines) == 0 {
		return nil
	}
	return append([]string{s.styled(faint, "  EVENTS")}, lines...)
}
