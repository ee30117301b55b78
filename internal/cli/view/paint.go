// Package view draws releases as text: a table, sentences, lines, and a live screen.
//
// Every function is pure: documents, a size, a moment and whether colours are wanted come in, text comes out. It must
// not know clusters, terminals or commands.
package view

import (
	"strings"

	"github.com/charmbracelet/lipgloss"

	"github.com/serin-dev/serin/internal/cli/explain"
	"github.com/serin-dev/serin/internal/release"
)

// Paint colours text, or leaves it as it is. The zero value leaves it.
type Paint struct {
	// Colours are written as ANSI sequences of the sixteen basic colours, which every theme of a terminal can show.
	Colours bool
}

// ink is one way to write.
type ink string

const (
	plain  ink = ""
	bold   ink = "1"
	faint  ink = "2"
	red    ink = "31"
	green  ink = "32"
	yellow ink = "33"
	blue   ink = "34"
	cyan   ink = "36"
	mark   ink = "7" // the selected row
)

func (p Paint) in(i ink, text string) string {
	if !p.Colours || i == plain || text == "" {
		return text
	}
	return "\x1b[" + string(i) + "m" + text + "\x1b[0m"
}

// ofState is how the phase of a release is written.
func ofState(r *explain.Release) ink {
	switch {
	case r.State == release.WaitsForUser:
		return yellow
	case r.State == release.RollingBack, r.State == release.Idle && r.Result == release.RolledBack:
		return red
	case r.State == release.InProgress:
		return cyan
	default:
		return green
	}
}

// ofVerdict is a sign for a verdict, readable without colours.
func ofVerdict(verdict string) (sign string, i ink) {
	switch verdict {
	case "pass":
		return "✓", green
	case "fail":
		return "✗", red
	case "ask":
		return "?", blue
	default:
		return "…", yellow
	}
}

// width of a text on the screen, colours apart.
func width(text string) int { return lipgloss.Width(text) }

// cut shortens a line to so many columns; colours survive it.
func cut(line string, columns int) string {
	if columns <= 0 {
		return ""
	}
	if width(line) <= columns {
		return line
	}
	return lipgloss.NewStyle().MaxWidth(columns-1).Render(line) + "…"
}

// pad fills a text up to so many columns, and cuts it to them.
func pad(text string, columns int) string {
	text = cut(text, columns)
	return text + strings.Repeat(" ", max(columns-width(text), 0))
}

// wrap breaks a text between words; lines after the first begin with the indent.
func wrap(text string, columns int, indent string) []string {
	var lines []string
	line := ""
	for word := range strings.FieldsSeq(text) {
		switch {
		case line == "":
			line = word
		case width(line)+1+width(word) > columns:
			lines = append(lines, line)
			line = indent + word
		default:
			line += " " + word
		}
	}
	return append(lines, line)
}

// bar is a share of a whole, drawn in so many columns.
func bar(share, whole float64, columns int) string {
	if columns <= 0 || whole <= 0 {
		return ""
	}
	full := int(share/whole*float64(columns) + 0.5)
	if share > 0 {
		full = max(full, 1) // a little is never drawn as nothing
	}
	if share < whole {
		full = min(full, columns-1) // and never as all
	}
	full = min(max(full, 0), columns)
	return strings.Repeat("█", full) + strings.Repeat("░", columns-full)
}
