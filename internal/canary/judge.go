package canary

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/serin-dev/serin/internal/release"
)

// checkResult is the result of one check.
type checkResult struct {
	ok bool
	// text is the message about a failed check; value and limit are formatted for users.
	text, value, limit string
}

// judgeValue compares a value with the bounds of its check. Bounds are inclusive; either may be absent. Without a range the
// threshold applies: a minimum for the success rate, a maximum for all other metrics.
func judgeValue(check Check, value float64) checkResult {
	switch check.Canonical {
	case SuccessRate:
		low, high := formatBounds(check)
		if check.Metric.ThresholdRange == nil {
			low = &check.Metric.Threshold
		}
		return compareWithBounds("success rate", value, low, high,
			func(v float64) string { return fmt.Sprintf("%.2f%%", v) },
			func(v float64) string { return formatNumber(v) + "%" })
	case Duration:
		low, high := formatBounds(check)
		if check.Metric.ThresholdRange == nil {
			high = &check.Metric.Threshold
		}
		// Values and bounds are whole milliseconds.
		return compareWithBounds("request duration", math.Trunc(value), truncated(low), truncated(high), formatMilliseconds, formatMilliseconds)
	default:
		low, high := formatBounds(check)
		if check.Metric.ThresholdRange == nil {
			high = &check.Metric.Threshold
		}
		return compareWithBounds(check.Metric.Name, value, low, high, func(v float64) string { return fmt.Sprintf("%.2f", v) }, formatNumber)
	}
}

func compareWithBounds(what string, value float64, low, high *float64, show, bound func(float64) string) checkResult {
	j := checkResult{ok: true, value: show(value)}
	var limits []string
	if low != nil {
		limits = append(limits, ">= "+bound(*low))
	}
	if high != nil {
		limits = append(limits, "<= "+bound(*high))
	}
	j.limit = "any"
	if len(limits) > 0 {
		j.limit = strings.Join(limits, " and ")
	}
	switch {
	case math.IsNaN(value): // providers report missing data as such, so NaN is a failed check
		j.ok, j.text = false, what+" is not a number"
	case low != nil && value < *low:
		j.ok, j.text = false, fmt.Sprintf("%s %s < %s", what, j.value, bound(*low))
	case high != nil && value > *high:
		j.ok, j.text = false, fmt.Sprintf("%s %s > %s", what, j.value, bound(*high))
	}
	return j
}

func formatBounds(check Check) (low, high *float64) {
	if r := check.Metric.ThresholdRange; r != nil {
		return r.Min, r.Max
	}
	return nil, nil
}

func truncated(v *float64) *float64 {
	if v == nil {
		return nil
	}
	whole := math.Trunc(*v)
	return &whole
}

// formatMilliseconds formats milliseconds as a duration, and as a plain number beyond the range of durations.
func formatMilliseconds(v float64) string {
	if math.IsNaN(v) || math.Abs(v) > math.MaxInt64/float64(time.Millisecond) {
		return formatNumber(v) + "ms"
	}
	return (time.Duration(v) * time.Millisecond).String()
}

func formatNumber(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }

// noValuesText is the event about a check without data.
func noValuesText(p Plan, check Check, text string) release.Event {
	message := ""
	switch {
	case check.Canonical == SuccessRate:
		message = fmt.Sprintf("Halt advancement no values found for %s metric %s probably %s is not receiving traffic: running query failed: %s",
			p.Provider, SuccessRate, p.targetName(), text)
	case check.Canonical == Duration:
		message = fmt.Sprintf("Halt advancement no values found for %s metric %s probably %s is not receiving traffic", p.Provider, Duration, p.targetName())
	case check.Source == Inline:
		message = "Halt advancement no values found for metric: " + check.Metric.Name
	default:
		message = fmt.Sprintf("Halt advancement no values found for custom metric: %s: %s", check.Metric.Name, text)
	}
	return release.Event{Type: release.Warning, Message: message}
}

// queryFailedText is the event about a check whose query failed. Messages about a missing or invalid template are complete and
// remain unchanged.
func queryFailedText(check Check, answer release.Answer) release.Event {
	message := answer.Text
	switch {
	case answer.Outcome == release.Broken && check.Source == Template && answer.Query == "":
	case check.Source == Builtin:
		message = "Prometheus query failed: " + answer.Text
	case check.Source == Inline:
		message = fmt.Sprintf("Prometheus query failed for %s: %s", check.Metric.Name, answer.Text)
	default:
		message = fmt.Sprintf("Metric query failed for %s: %s", check.Metric.Name, answer.Text)
	}
	return release.Event{Type: release.Warning, Message: message, Internal: true}
}
