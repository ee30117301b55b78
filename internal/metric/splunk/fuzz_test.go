package splunk

import (
	"testing"

	"github.com/serin-dev/serin/internal/metric/metrictest"
)

// FuzzAnswer parses arbitrary responses.
func FuzzAnswer(f *testing.F) {
	metrictest.Fuzz(f, parse, begin+data(point("AAAAAC", "1.5"))+end, begin+data(point("AAAAAC", "null")), "data:\ndata\n:\n\n", "event: error\ndata: {}\n\n")
}
