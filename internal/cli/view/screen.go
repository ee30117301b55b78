package view

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/serin-dev/serin/internal/cli/explain"
	"github.com/serin-dev/serin/internal/release"
)

// Screen is everything that the live view shows.
type Screen struct {
	// Releases in the order in which they are shown.
	Releases []explain.Release
	// Selected is the index of the selected release; Open shows only that one.
	Selected int
	Open     bool
	// Single is true if only one release was requested, so that there is no list to return to.
	Single bool
	// Notes are shown first: no controller, no connection.
	Notes []string
	// Now is the time to which durations are counted.
	Now time.Time
	// Width and Height in columns and lines.
	Width, Height int
	Paint
}

// String renders the screen: at most Height lines, none wider than Width.
func (s Screen) String() string {
	s.Width, s.Height = max(s.Width, 20), max(s.Height, 5)
	var lines []string
	for _, note := range s.Notes {
		for _, line := range wrap("! "+note, s.Width, "  ") {
			lines = append(lines, s.in(yellow, line))
		}
	}
	lines = lines[:min(len(lines), s.Height/3)]
	room := s.Height - len(lines) - 1
	switch {
	case len(s.Releases) == 0:
		lines = append(lines, "No releases yet.")
	case s.Open || s.Single:
		lines = append(lines, s.detail(&s.Releases[min(max(s.Selected, 0), len(s.Releases)-1)], room)...)
	default:
		lines = append(lines, s.list(room)...)
	}
	lines = lines[:min(len(lines), s.Height-1)]
	for len(lines) < s.Height-1 {
		lines = append(lines, "")
	}
	lines = append(lines, s.in(faint, s.keys()))
	for i, line := range lines {
		lines[i] = cut(line, s.Width)
	}
	return strings.Join(lines, "\n")
}

func (s Screen) keys() string {
	now := clock(s.Now)
	switch {
	case s.Single:
		return now + "  q quit"
	case s.Open:
		return now + "  ↑↓ other release  esc list  q quit"
	default:
		return now + "  ↑↓ select  enter details  q quit"
	}
}

// barColumns is the width of a bar in the list.
const barColumns = 5

// list has one line for each release, those around the selected one if not all fit.
func (s Screen) list(room int) []string {
	rows := max(room-1, 1)
	first := 0
	if s.Selected >= rows {
		first = s.Selected - rows + 1
	}
	name := len("RELEASE")
	for i := range s.Releases {
		name = max(name, width(s.Releases[i].Namespace)+1+width(s.Releases[i].Argument()))
	}
	name = min(name, max(s.Width/4, 12))
	phase, share := len("PHASE"), len("CANARY")
	for i := range s.Releases {
		phase, share = max(phase, width(s.Releases[i].Phase)), max(share, barColumns+1+width(progress(&s.Releases[i])))
	}
	phase = min(phase, 16)
	const checked = 6
	waits := max(s.Width-name-phase-checked-share-8, 10)
	lines := []string{s.in(faint, pad("RELEASE", name)+"  "+pad("PHASE", phase)+"  "+pad("CANARY", share)+"  "+pad("FAILED", checked)+"  WAITS FOR")}
	for i := first; i < len(s.Releases) && len(lines) <= rows; i++ {
		r := &s.Releases[i]
		label := pad(r.Namespace+"/"+r.Argument(), name)
		if i == s.Selected {
			label = s.in(mark, label)
		}
		traffic := pad("", share)
		if r.State != release.Idle || r.Weight > 0 {
			traffic = s.in(cyan, bar(float64(r.Weight), 100, barColumns)) + pad(" "+progress(r), share-barColumns)
		}
		lines = append(lines, label+"  "+s.in(inkOfState(r), pad(cmp.Or(r.Phase, "new"), phase))+"  "+traffic+"  "+pad(checks(r), checked)+"  "+pad(WaitsFor(r, s.Now), waits))
	}
	return lines
}

// detail renders all details of one release. Events fill the remaining lines; passing gates are omitted first.
func (s Screen) detail(r *explain.Release, room int) []string {
	lines := s.head(r)
	lines = append(lines, s.traffic(r)...)
	lines = append(lines, s.window(r)...)
	lines = append(lines, s.next(r)...)
	for _, unread := range r.Unread {
		lines = append(lines, s.in(yellow, "! "+unread))
	}
	checks := s.checkLines(r)
	gates := s.gateLines(r, max(room-len(lines)-len(checks)-4, 3))
	lines = append(append(lines, checks...), gates...)
	return append(lines, s.events(r, room-len(lines))...)
}

func (s Screen) head(r *explain.Release) []string {
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
	title := s.in(bold, r.FullName()) + s.in(faint, "  "+r.Target+"  "+r.Strategy+" by "+r.Provider)
	return []string{title, s.in(inkOfState(r), state) + s.in(faint, sinceText(r.Since, s.Now)) + failedText(r)}
}

func sinceText(t, now time.Time) string {
	if t.IsZero() {
		return ""
	}
	return " for " + age(t, now)
}

func failedText(r *explain.Release) string {
	if r.Kind == explain.KindRollout || r.State == release.Idle && r.FailedChecks == 0 {
		return ""
	}
	return fmt.Sprintf("   failed checks %d of %d", r.FailedChecks, r.Threshold)
}

// barWidth leaves room for a label before the bar and a text after it.
func (s Screen) barWidth() int { return max(min(s.Width-9-26, 50), 5) }

func (s Screen) traffic(r *explain.Release) []string {
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
	return []string{
		pad(oldSide, 9) + s.in(green, bar(float64(100-r.Weight), 100, columns)) + share(100-r.Weight),
		pad(newSide, 9) + s.in(cyan, bar(float64(r.Weight), 100, columns)) + canary,
	}
}

func (s Screen) window(r *explain.Release) []string {
	if r.Window == nil || r.State == release.Idle {
		return nil
	}
	length, done := r.Window.End.Sub(r.Window.Start), s.Now.Sub(r.Window.Start)
	done = min(max(done, 0), length)
	text := fmt.Sprintf(" %s remaining", explain.Short(r.Window.End.Sub(s.Now)))
	if !s.Now.Before(r.Window.End) {
		text = " elapsed"
	}
	return []string{pad("window", 9) + s.in(yellow, bar(done.Seconds(), length.Seconds(), s.barWidth())) + text + s.in(faint, " of "+explain.Short(length))}
}

func (s Screen) next(r *explain.Release) []string {
	if r.NextStep == "" {
		if r.Message == "" {
			return nil
		}
		return []string{pad("status", 9) + r.Message}
	}
	text := r.NextStep
	last := r.Steps[len(r.Steps)-1]
	if remaining := last.At.Sub(s.Now); len(r.Steps) > 1 && remaining > 0 {
		text += s.in(faint, fmt.Sprintf("   ends in %s at the earliest", explain.Short(remaining)))
	}
	return []string{pad("next", 9) + text}
}

// checkLines are the checks with value, limit and verdict.
func (s Screen) checkLines(r *explain.Release) []string {
	name, value, limit := len("CHECK"), len("VALUE"), len("LIMIT")
	var checks []*explain.Gate
	for i := range r.Gates {
		if g := &r.Gates[i]; g.Check {
			checks = append(checks, g)
			name, value, limit = max(name, width(g.Name)), max(value, width(g.Value)), max(limit, width(g.Limit))
		}
	}
	if len(checks) == 0 {
		return nil
	}
	name = min(name, s.Width/3)
	lines := []string{s.in(faint, "  "+pad("CHECK", name)+"  "+pad("VALUE", value)+"  "+pad("LIMIT", limit)+"  VERDICT")}
	for _, g := range checks {
		verdict, i := verdictOf(g)
		sign, _ := symbolOf(cmp.Or(g.Last, g.Verdict))
		lines = append(lines, s.in(i, sign)+" "+pad(g.Name, name)+"  "+pad(cmp.Or(g.Value, "-"), value)+"  "+pad(cmp.Or(g.Limit, "-"), limit)+"  "+s.in(i, verdict))
	}
	return lines
}

// verdictOf describes a check: its verdict, and the previous one while the next one is awaited.
func verdictOf(g *explain.Gate) (string, ink) {
	_, i := symbolOf(g.Verdict)
	switch {
	case g.Verdict == "pass":
		return "passed", i
	case g.Verdict == "fail":
		return "failed: " + g.Message, i
	case g.Verdict == "ask" && g.Last == "":
		return "pending", i
	case g.Verdict == "ask":
		return "pending; " + previous(g.Last), i
	case g.Last != "":
		_, i = symbolOf(g.Last)
		return previous(g.Last), i
	default:
		return "not evaluated yet", i
	}
}

func previous(last string) string {
	if last == "fail" {
		return "failed last time"
	}
	return "passed last time"
}

// gateLines renders the other gates. If not all fit, passing gates are omitted.
func (s Screen) gateLines(r *explain.Release, room int) []string {
	var found []*explain.Gate
	name := 0
	for i := range r.Gates {
		if g := &r.Gates[i]; !g.Check {
			found = append(found, g)
			name = max(name, width(g.Name))
		}
	}
	for i := 0; i < len(found) && len(found) > room-1; {
		if found[i].Verdict == "pass" {
			found = append(found[:i:i], found[i+1:]...)
			continue
		}
		i++
	}
	if len(found) == 0 {
		return nil
	}
	name = min(name, s.Width/3)
	lines := []string{s.in(faint, "  "+pad("GATE", name)+"  OBSERVED")}
	for _, g := range found[:min(len(found), max(room-1, 1))] {
		sign, i := symbolOf(g.Verdict)
		text := g.Message
		switch remaining := g.Until.Sub(s.Now); {
		case g.Verdict == "pass":
			text = s.in(faint, cmp.Or(text, "passed"))
		case g.Opener == "person":
			text = "the user opens it: " + text
		case g.Opener == "time" && remaining > 0:
			text = explain.Short(remaining) + " remaining: " + text
		case g.Opener == "answer" && g.Asks != "":
			text = "queries " + g.Asks
		}
		lines = append(lines, s.in(i, sign)+" "+pad(g.Name, name)+"  "+text)
		if g.Do != "" && g.Verdict != "pass" {
			for _, line := range wrap(g.Do, s.Width-6, "  ") {
				lines = append(lines, "    "+s.in(yellow, line))
			}
		}
	}
	return lines
}

// events are the newest that fit, newest last.
func (s Screen) events(r *explain.Release, room int) []string {
	if room < 2 || len(r.Events) == 0 {
		return nil
	}
	shown := r.Events[max(len(r.Events)-(room-1), 0):]
	lines := []string{s.in(faint, "  EVENTS")}
	for _, event := range shown {
		i := plain
		if event.Type == "Warning" {
			i = yellow
		}
		text := event.Message
		if event.Count > 1 {
			text += fmt.Sprintf(" (%d times)", event.Count)
		}
		lines = append(lines, "  "+s.in(faint, clock(event.At))+" "+s.in(i, text))
	}
	return lines
}
