package measure

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// text is a value as a measurement shows it: numbers plainly, lists of them in brackets, all else as JSON.
func text(value any) string {
	switch v := value.(type) {
	case float64:
		return number(v)
	case []float64:
		return list(v, number)
	}
	out, err := json.Marshal(value)
	if err != nil { // a number in it that JSON cannot write
		return fmt.Sprint(value)
	}
	return string(out)
}

func number(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }

// hundredths is how Wavefront's numbers are shown.
func hundredths(value any) string {
	short := func(v float64) string { return strconv.FormatFloat(v, 'f', 2, 64) }
	switch v := value.(type) {
	case float64:
		return short(v)
	case []float64:
		return list(v, short)
	default:
		return text(value)
	}
}

func list(values []float64, form func(float64) string) string {
	parts := make([]string, len(values))
	for i, v := range values {
		parts[i] = form(v)
	}
	return "[" + strings.Join(parts, ",") + "]"
}

// matrix shows the numbers of CloudWatch's results.
func matrix(value any) string {
	results, _ := value.([]any)
	rows := make([]string, len(results))
	for i, result := range results {
		fields, _ := result.(map[string]any)
		values, _ := fields["Values"].([]float64)
		rows[i] = list(values, number)
	}
	return "[" + strings.Join(rows, ",") + "]"
}
