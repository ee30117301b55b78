package stackdriver

import (
	"testing"

	"github.com/serin-dev/serin/internal/metric/metrictest"
)

// FuzzAnswer parses arbitrary responses.
func FuzzAnswer(f *testing.F) {
	metrictest.Fuzz(f, parse, series(point(`{"doubleValue":1.5}`)), series(point(`{"int64Value":"42"}`)), series(point(`{"doubleValue":"NaN"}`)), `{"partialErrors":[{}]}`)
}
