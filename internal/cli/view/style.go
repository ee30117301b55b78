// Package view renders releases as text: a table, sentences, lines, and a live screen.
//
// Every function is pure, from documents, a size, a time and the use of colours to text. It must not know clusters, terminals or
// commands.
package view

import (
	"strings"

	"github.com/charmbracelet/lipgloss"

	"github.com/serin-dev/serin/internal/cli/explain"
	"github.com/serin-dev/serin/internal/release"
)

// Paint colours text. The zero value does not.
type Paint struct {
	// Colours are ANSI sequences of the sixteen basic colours, which every terminal theme can show.
	Colours bool
}

// ink is a colour or an emphasis.
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

// inkOfState is the ink of the phase of a release.
func inkOfState(r *explain.Release) ink {
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

// symbolOf returns the symbol and the ink of a verdict; the symbol is readable without colours.
func symbolOf(verdict string) (sign string, i ink) {
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

// width of a text on the screen, without its colours.
func width(text string) int { return lipgloss.Width(text) }

// cut shortens a line to a number of columns, and retains its colours.
func cut(line string, columns int) string {
	if columns <= 0 {
		return ""
	}
	if width(line) <= columns {
		return line
	}
	return lipgloss.NewStyle().MaxWidth(columns-1).Render(line) + "…"
}

// pad fills or cuts a text to a number of columns.
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

// bar draws a share of a whole in a number of columns.
func bar(share, whole float64, columns int) string {
	if columns <= 0 || whole <= 0 {
		return ""
	}
	full := int(share/whole*float64(columns) + 0.5)
	if share > 0 {
		full = max(full, 1) // a small share is never drawn as none
	}
	if share < whole {
		full = min(full, columns-1) // and a large one never as all
	}
	full = min(max(full, 0), columns)
	return strings.Repeat("█", full) + strings.Repeat("░", columns-full)
}
