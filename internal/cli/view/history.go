package view

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"github.com/serin-dev/serin/internal/cli/explain"
)

// HistoryTable renders a history as a table with a header and one line for each release.
func HistoryTable(h explain.History, p Paint) string {
	h = printable(h)
	rows := [][]string{{"STARTED", "DURATION", "RESULT", "IMAGES", "REVISION", "MAX WEIGHT", "CAUSE"}}
	for _, r := range h.Releases {
		duration, weight := "-", "-"
		if !r.End.IsZero() {
			duration = explain.FormatDuration(r.End.Sub(r.Start))
		}
		if h.Kind == explain.KindCanary {
			weight = strconv.Itoa(r.MaxWeight) + "%"
		}
		rows = append(rows, []string{
			r.Start.UTC().Format("2006-01-02T15:04:05Z"), duration, p.styled(resultStyle(r.Result), cmp.Or(r.Result, "-")),
			cmp.Or(strings.Join(r.Images, ","), "-"), shortRevision(r.Revision), weight, cmp.Or(causeText(r), "-"),
		})
	}
	return align(rows)
}

func resultStyle(result string) style {
	switch result {
	case "promoted":
		return green
	case "failed":
		return red
	case "unanalyzed", explain.InProgress:
		return yellow
	default:
		return plain
	}
}

// revisionLength is the length of a revision in a table, which distinguishes the releases of one Canary.
const revisionLength = 11

func shortRevision(revision string) string {
	return cmp.Or(revision[:min(len(revision), revisionLength)], "-")
}

// causeText describes why a release failed in one line, with the value and its limit, or which command ended it, and who sent the
// command and why.
func causeText(r explain.PastRelease) string {
	request := r.RequestText()
	switch cause := describeCause(r); {
	case request == "":
		return cause
	case r.Cause == nil:
		return request
	default:
		return cause + " (" + request + ")"
	}
}

func describeCause(r explain.PastRelease) string {
	if r.Cause == nil {
		switch gate, approved := strings.CutPrefix(r.Command, "approve "); {
		case r.Command == "":
			return ""
		case approved:
			return gate + " was approved by command"
		default:
			return "command " + r.Command
		}
	}
	text := strings.Join(strings.Fields(r.Cause.Message), " ")
	if r.Cause.Gate != "" && !strings.Contains(text, r.Cause.Gate) {
		text = r.Cause.Gate + ": " + text
	}
	if r.Cause.Limit != "" {
		text += fmt.Sprintf(" (limit %s)", r.Cause.Limit)
	}
	return text
}
