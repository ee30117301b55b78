package view

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/serin-dev/serin/internal/cli/explain"
	"github.com/serin-dev/serin/internal/cli/plan"
)

// Plan renders what a release would do: its steps, a drawing of the weights, the duration, queries, webhooks, plugins and notes.
func Plan(p *plan.Plan, columns int, paint Paint) string {
	document := printable(*p)
	p = &document
	var b strings.Builder
	name := p.Name
	if p.Namespace != "" {
		name += "." + p.Namespace
	}
	fmt.Fprintf(&b, "%s\n\n", paint.styled(bold, fmt.Sprintf("%s %s: %s of %s with %s, %d %s (%s)", p.Kind, name, p.Strategy, p.Target, p.Provider, p.Replicas, plural(int(p.Replicas), "pod"), p.ReplicasSource)))
	b.WriteString(stepTable(p))
	if before := p.DelayingGates(p.WaitsBefore); len(before) > 0 {
		b.WriteString("Before step 1, it waits for " + strings.Join(before, ", ") + ".\n")
	}
	b.WriteString("Every step also waits for ready pods, and for the router if there is one.\n\n")
	b.WriteString(weightChart(p, chartColumns(columns)))
	for _, sentence := range durationSentences(p) {
		b.WriteString(strings.Join(wrap(sentence, columns, "  "), "\n") + "\n")
	}
	if len(p.Queries) > 0 {
		b.WriteString("\n" + queryTable(p))
	}
	if len(p.Webhooks) > 0 {
		b.WriteString("\n" + webhookTable(p))
	}
	if len(p.Plugins) > 0 {
		b.WriteString("\n" + pluginTable(p))
	}
	for i, note := range p.Notes {
		if i == 0 {
			b.WriteString("\n")
		}
		b.WriteString(paint.styled(yellow, strings.Join(wrap("Note: "+note, columns, "  "), "\n")) + "\n")
	}
	return b.String()
}

// plural returns the form of a noun for a number.
func plural(count int, noun string) string {
	if count == 1 {
		return noun
	}
	return noun + "s"
}

// planSeconds formats a number of seconds.
func planSeconds(seconds float64) string {
	return explain.FormatDuration(time.Duration(seconds * float64(time.Second)))
}

// stableName is the name of the revision that serves users, in the words of the API.
func stableName(p *plan.Plan) string {
	if p.Kind == string(explain.KindRollout) {
		return "stable"
	}
	return "primary"
}

func stepTable(p *plan.Plan) string {
	other := strings.ToUpper(stableName(p))
	rows := [][]string{{"STEP", "AFTER", "ACTION", "CANARY", other, "PODS CANARY/" + other, "WAITS FOR"}}
	for _, step := range p.Steps {
		weight := strconv.Itoa(step.CanaryWeight) + "%"
		if step.Mirrored {
			weight += " mirror"
		}
		rows = append(rows, []string{
			strconv.Itoa(step.Number), planSeconds(step.AfterSeconds), step.Action, weight, strconv.Itoa(step.StableWeight) + "%",
			fmt.Sprintf("%d/%d", step.CanaryPods, step.StablePods), cmp.Or(strings.Join(p.DelayingGates(step.WaitsFor), ", "), "-"),
		})
	}
	return align(rows)
}

// durationSentences describes how long a release takes.
func durationSentences(p *plan.Plan) []string {
	d := p.Duration
	out := []string{"Shortest: " + planSeconds(d.ShortestSeconds) + ", if nothing fails and pods are ready at once."}
	var causes []string
	switch {
	case p.Kind == string(explain.KindCanary) && p.FailedChecksLimit > 1:
		causes = append(causes, fmt.Sprintf("%d failed %s (at %d it is rolled back)", p.FailedChecksLimit-1, plural(p.FailedChecksLimit-1, "check"), p.FailedChecksLimit))
	case len(p.Queries) > 0 && p.Kind == string(explain.KindRollout):
		causes = append(causes, "as many errors of measurements as the analyses tolerate")
	}
	if d.PodStarts > 0 {
		causes = append(causes, fmt.Sprintf("%s without progress at each of %d %s of pods", planSeconds(d.PodDeadlineSeconds), d.PodStarts, plural(d.PodStarts, "start")))
	}
	if len(causes) > 0 {
		out = append(out, fmt.Sprintf("Longest: %s, with %s.", planSeconds(d.LongestSeconds), strings.Join(causes, " and ")))
	}
	for _, reason := range d.Unbounded {
		out = append(out, "Unbounded: "+reason+".")
	}
	return out
}

func queryTable(p *plan.Plan) string {
	rows := [][]string{{"METRIC", "TIMES", "INTERVAL", "LIMIT", "REQUESTS", "PROVIDER", "QUERY"}}
	isDerived := false
	for _, q := range p.Queries {
		name := q.Metric
		if q.Analysis != "" {
			name += " (" + q.Analysis + ")"
		}
		requests := "-"
		if needed := q.Requests; needed != nil {
			requests, isDerived = fmt.Sprintf("%d per %s", needed.Count, needed.Window), true
		}
		rows = append(rows, []string{
			name, strconv.Itoa(q.Times), cmp.Or(q.Interval, "-"), cmp.Or(q.Limit, "-"), requests, q.Provider, cmp.Or(strings.Join(strings.Fields(q.Query), " "), "-"),
		})
	}
	text := align(rows)
	if isDerived {
		text += "REQUESTS: with fewer of them, a single request decides a rate, and a percentile is the slowest request.\n"
	}
	return text
}

func webhookTable(p *plan.Plan) string {
	rows := [][]string{{"WEBHOOK", "TYPE", "TIMES", "TIMEOUT", "RETRIES", "URL"}}
	for _, hook := range p.Webhooks {
		rows = append(rows, []string{hook.Name, hook.Type, strconv.Itoa(hook.Times), hook.Timeout, strconv.Itoa(hook.Retries), hook.URL})
	}
	return align(rows)
}

func pluginTable(p *plan.Plan) string {
	rows := [][]string{{"PLUGIN", "KIND", "PROBLEM"}}
	for _, used := range p.Plugins {
		rows = append(rows, []string{used.Name, used.Kind, cmp.Or(used.Problem, "-")})
	}
	return align(rows)
}

// The size of a chart in lines and columns.
const (
	chartLines      = 5
	maxChartColumns = 60
	chartMargin     = 6
)

// chartColumns returns the number of columns of a chart on a terminal with a number of columns.
func chartColumns(columns int) int { return min(max(columns-chartMargin, 10), maxChartColumns) }

// eighths are blocks with a height of one to eight eighths of a line.
var eighths = []rune(" ▁▂▃▄▅▆▇█")

// weightChart draws the share of requests that the canary receives over time, in the shortest release.
func weightChart(p *plan.Plan, columns int) string {
	if !slices.ContainsFunc(p.Steps, func(step plan.Step) bool { return step.CanaryWeight > 0 }) {
		return ""
	}
	weights := weightsOverTime(p, columns)
	var b strings.Builder
	subject := "canary" // of the Canary API; the primary takes the traffic over when it has the new revision
	if p.Kind == string(explain.KindRollout) {
		subject = "new revision"
	}
	b.WriteString("Requests to the " + subject + " over time:\n")
	for line := chartLines; line >= 1; line-- {
		label := ""
		switch line {
		case chartLines:
			label = "100%"
		case 1:
			label = "0%"
		}
		fmt.Fprintf(&b, "%4s ", label)
		var text strings.Builder
		for _, weight := range weights {
			level := (weight*chartLines*8 + 50) / 100
			if weight > 0 {
				level = max(level, 1)
			}
			text.WriteRune(eighths[min(max(level-(line-1)*8, 0), 8)])
		}
		b.WriteString("│" + strings.TrimRight(text.String(), " ") + "\n")
	}
	end := planSeconds(p.Duration.ShortestSeconds)
	fmt.Fprintf(&b, "     └%s\n", strings.Repeat("─", columns))
	fmt.Fprintf(&b, "      0s%s%s\n\n", strings.Repeat(" ", max(columns-2-width(end), 1)), end)
	return b.String()
}

// weightsOverTime returns the weight at equidistant times; if the release takes no time, of its steps in turn.
func weightsOverTime(p *plan.Plan, columns int) []int {
	total, last := p.Duration.ShortestSeconds, len(p.Steps)-1
	weights := make([]int, columns)
	for i := range weights {
		if total <= 0 {
			weights[i] = p.Steps[min(i*len(p.Steps)/columns, last)].CanaryWeight
			continue
		}
		at := (float64(i) + 0.5) / float64(columns) * total
		for _, step := range p.Steps {
			if step.AfterSeconds > at {
				break
			}
			weights[i] = step.CanaryWeight
		}
	}
	return weights
}
