package explain

import (
	"cmp"
	"fmt"
	"strings"
	"time"
)

// Report describes a release as Markdown, for a pull request or an incident: what was released, its result and cause, the checks with
// their values, and what happened. Texts of the cluster are escaped, so that they cannot change the document.
func Report(r *Release, history History, now time.Time) string {
	var b strings.Builder
	line := func(format string, args ...any) { _, _ = fmt.Fprintf(&b, format+"\n", args...) }
	line("# %s %s in namespace %s", r.Kind, markdownText(r.Name), markdownText(r.Namespace))
	line("")
	for _, sentence := range Why(*r, now) {
		if command, ok := strings.CutPrefix(sentence, "  "); ok {
			line("    %s\n", strings.ReplaceAll(command, "\n", " "))
			continue
		}
		line("%s\n", markdownText(sentence))
	}
	if len(history.Releases) > 0 {
		line("## Releases\n")
		line("| revision | images | start | end | result | cause |\n| --- | --- | --- | --- | --- | --- |")
		for _, past := range history.Releases {
			line("| %s | %s | %s | %s | %s | %s |", markdownText(past.Revision), markdownText(strings.Join(past.Images, " ")), reportTime(past.Start), reportTime(past.End),
				cmp.Or(past.Result, "-"), causeText(past))
		}
		line("")
	}
	var checks []Gate
	for _, gate := range r.Gates {
		if gate.Check {
			checks = append(checks, gate)
		}
	}
	if len(checks) > 0 {
		line("## Checks\n")
		line("| check | last value | limit | verdict |\n| --- | --- | --- | --- |")
		for _, gate := range checks {
			line("| %s | %s | %s | %s |", markdownText(gate.Name), markdownText(cmp.Or(gate.Value, "-")), markdownText(cmp.Or(gate.Limit, "-")), cmp.Or(gate.LastVerdict, gate.Verdict))
		}
		line("")
	}
	if len(r.Events) > 0 {
		line("## Events\n")
		for _, event := range r.Events {
			line("- %s %s: %s", reportTime(event.At), markdownText(event.Type), markdownText(event.Message))
		}
		line("")
	}
	line("Written at %s.", reportTime(now))
	return b.String()
}

func reportTime(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.UTC().Format(time.RFC3339)
}

func causeText(past PastRelease) string {
	var parts []string
	if past.Cause != nil {
		parts = append(parts, past.Cause.Message)
	}
	if request := past.RequestText(); request != "" {
		parts = append(parts, request)
	}
	return cmp.Or(markdownText(strings.Join(parts, "; ")), "-")
}

// markdownText escapes the characters that have a meaning in Markdown, and joins lines.
func markdownText(text string) string {
	return strings.NewReplacer(`\`, `\\`, "`", "\\`", "*", `\*`, "_", `\_`, "[", `\[`, "]", `\]`, "<", "&lt;", ">", "&gt;", "|", `\|`, "#", `\#`, "&", "&amp;").Replace(joinLines(text))
}
