package explain

import (
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The units of measured numbers. The unit is empty for numbers without one.
const (
	unitPercent = "%"
	unitSeconds = "s"
)

// number is a measured number. Durations are in seconds.
type number struct {
	value float64
	unit  string
}

// parseNumber parses the first number of a measured value, such as 99.5%, 350ms or [0.97]; false: the value is not a finite number.
func parseNumber(text string) (number, bool) {
	text, _, _ = strings.Cut(strings.TrimLeft(text, "[ "), ",")
	text = strings.TrimRight(text, "] ")
	if first, _, ok := strings.Cut(text, " "); ok {
		text = first
	}
	if percent, ok := strings.CutSuffix(text, unitPercent); ok {
		value, err := strconv.ParseFloat(percent, 64)
		return number{value, unitPercent}, err == nil && isFinite(value)
	}
	if value, err := strconv.ParseFloat(text, 64); err == nil {
		return number{value, ""}, isFinite(value)
	}
	duration, err := time.ParseDuration(text)
	return number{duration.Seconds(), unitSeconds}, err == nil
}

func isFinite(value float64) bool { return !math.IsNaN(value) && !math.IsInf(value, 0) }

// comparison matches a comparison with a number, on either side of the operator. The index in result[0] is none.
var comparison = regexp.MustCompile(`(?:<=|>=|<|>)\s*(-?[0-9][0-9.]*(?:e-?[0-9]+)?(?:%|[a-zµ0-9.]+)?)|(?:^|[\s(!])(-?[0-9][0-9.]*(?:e-?[0-9]+)?)\s*(?:<=|>=|<|>)`)

// boundsIn returns the numbers that a limit compares values of a unit with, in ascending order.
func boundsIn(limit, unit string) []float64 {
	limit, _, _ = strings.Cut(limit, " (failure limit") // a number of measurements
	var out []float64
	for _, match := range comparison.FindAllStringSubmatch(limit, -1) {
		if bound, ok := parseNumber(match[1] + match[2]); ok && (bound.unit == unit || unit == "" || bound.unit == "") {
			out = append(out, bound.value)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}
