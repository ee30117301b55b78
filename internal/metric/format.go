package metric

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// FormatValue renders a measured value: numbers in decimal notation, lists of numbers in brackets, all else as JSON.
func FormatValue(value any) string {
	switch v := value.(type) {
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64)
	case []float64:
		return FormatList(v, -1)
	}
	out, err := json.Marshal(value)
	if err != nil { // it contains NaN or an infinity, which JSON cannot represent
		return fmt.Sprint(value)
	}
	return string(out)
}

// FormatList renders numbers in brackets, with a fixed number of digits after the point; -1: as many as needed.
func FormatList(values []float64, digits int) string {
	parts := make([]string, len(values))
	for i, v := range values {
		parts[i] = strconv.FormatFloat(v, 'f', digits, 64)
	}
	return "[" + strings.Join(parts, ",") + "]"
}
