// Package view renders releases as text: tables, a tree, sentences, lines, and a live screen.
//
// Every function is pure: its input is a description, a size, a time and whether to use colours, its output is text. The package
// must not know clusters, terminals or commands.
package view

import (
	"strings"

	"github.com/charmbracelet/lipgloss"

	"github.com/serin-dev/serin/internal/cli/explain"
	"github.com/serin-dev/serin/internal/release"
)

// Paint styles text. The zero value returns it unchanged.
type Paint struct {
	// Colours enables styles, as ANSI sequences of the sixteen basic colours, which every terminal theme supports.
	Colours bool
}

// style is the parameter of an ANSI sequence: a colour or an emphasis.
type style string

const (
	plain   style = ""
	bold    style = "1"
	faint   style = "2"
	red     style = "31"
	green   style = "32"
	yellow  style = "33"
	blue    style = "34"
	cyan    style = "36"
	reverse style = "7" // the selected row
)

func (p Paint) styled(s style, text string) string {
	if !p.Colours || s == plain || text == "" {
		return text
	}
	return "\x1b[" + string(s) + "m" + text + "\x1b[0m"
}

// phaseStyle returns the style for the phase of a release.
func phaseStyle(r *explain.Release) style {
	switch {
	case r.State == release.WaitsForUser:
		return yellow
	case r.State == release.RollingBack, r.HasFailed():
		return red
	case r.State == release.InProgress:
		return cyan
	default:
		return green
	}
}

// verdictSymbol returns the symbol and the style for a verdict. Symbols differ, so that they are readable without colours.
func verdictSymbol(verdict string) (symbol string, s style) {
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

// width returns the number of columns of a text on the screen, without its ANSI sequences.
func width(text string) int { return lipgloss.Width(text) }

// truncate shortens a line to a number of columns, and retains its styles.
func truncate(line string, columns int) string {
	if columns <= 0 {
		return ""
	}
	if width(line) <= columns {
		return line
	}
	return lipgloss.NewStyle().MaxWidth(columns-1).Render(line) + "…"
}

// pad extends or truncates a text to a number of columns.
func pad(text string, columns int) string {
	text = truncate(text, columns)
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

// wrapWords breaks a text between words, and a word that is longer than a line, such as a URL, at the end of the line.
func wrapWords(text string, columns int) []string {
	var lines []string
	for _, line := range wrap(text, columns, "") {
		for width(line) > columns {
			end := len(lipgloss.NewStyle().MaxWidth(columns).Render(line))
			if end == 0 || end >= len(line) {
				break
			}
			lines, line = append(lines, line[:end]), line[end:]
		}
		lines = append(lines, line)
	}
	return lines
}

// bar draws the ratio of share to whole as a bar with a number of columns.
func bar(share, whole float64, columns int) string {
	if columns <= 0 || whole <= 0 {
		return ""
	}
	filled := int(share/whole*float64(columns) + 0.5)
	if share > 0 {
		filled = max(filled, 1) // a small share is never drawn as an empty bar
	}
	if share < whole {
		filled = min(filled, columns-1) // a large share is never drawn as a full bar
	}
	filled = min(max(filled, 0), columns)
	return strings.Repeat("█", filled) + strings.Repeat("░", columns-filled)
}
