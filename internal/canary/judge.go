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

// evaluateCheck compares a value with the bounds of its check. Bounds are inclusive; either may be absent. Without a range, the
// threshold is the minimum of the success rate, and the maximum of all other metrics.
func evaluateCheck(check Check, value float64) checkResult {
	switch check.Canonical {
	case SuccessRate:
		low, high := rangeBounds(check)
		if check.Metric.ThresholdRange == nil {
			low = &check.Metric.Threshold
		}
		return compareWithBounds("success rate", value, low, high,
			func(v float64) string { return fmt.Sprintf("%.2f%%", v) },
			func(v float64) string { return formatNumber(v) + "%" })
	case Duration:
		low, high := rangeBounds(check)
		if check.Metric.ThresholdRange == nil {
			high = &check.Metric.Threshold
		}
		// Values and bounds are whole milliseconds.
		return compareWithBounds("request duration", math.Trunc(value), truncateFraction(low), truncateFraction(high), formatMilliseconds, formatMilliseconds)
	default:
		low, high := rangeBounds(check)
		if check.Metric.ThresholdRange == nil {
			high = &check.Metric.Threshold
		}
		return compareWithBounds(check.Metric.Name, value, low, high, func(v float64) string { return fmt.Sprintf("%.2f", v) }, formatNumber)
	}
}

// EvaluateValue compares a value with the bounds of a check, and returns both formatted for users.
func EvaluateValue(check Check, value float64) (ok bool, formatted, limit string) {
	result := evaluateCheck(check, value)
	return result.ok, result.value, result.limit
}

func compareWithBounds(subject string, value float64, low, high *float64, formatValue, formatBound func(float64) string) checkResult {
	result := checkResult{ok: true, value: formatValue(value)}
	var limits []string
	if low != nil {
		limits = append(limits, ">= "+formatBound(*low))
	}
	if high != nil {
		limits = append(limits, "<= "+formatBound(*high))
	}
	result.limit = "any"
	if len(limits) > 0 {
		result.limit = strings.Join(limits, " and ")
	}
	switch {
	case math.IsNaN(value): // not missing data, which providers report as such: the check fails
		result.ok, result.text = false, subject+" is not a number"
	case low != nil && value < *low:
		result.ok, result.text = false, fmt.Sprintf("%s %s < %s", subject, result.value, formatBound(*low))
	case high != nil && value > *high:
		result.ok, result.text = false, fmt.Sprintf("%s %s > %s", subject, result.value, formatBound(*high))
	}
	return result
}

// rangeBounds returns the bounds of the threshold range; nil: no bound.
func rangeBounds(check Check) (low, high *float64) {
	if r := check.Metric.ThresholdRange; r != nil {
		return r.Min, r.Max
	}
	return nil, nil
}

func truncateFraction(v *float64) *float64 {
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

// noValuesEvent is the event about a check without data.
func noValuesEvent(p Plan, check Check, text string) release.Event {
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

// queryFailedEvent is the event about a check whose query failed. Messages about a missing or invalid template are complete and
// remain unchanged.
func queryFailedEvent(check Check, answer release.Answer) release.Event {
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
