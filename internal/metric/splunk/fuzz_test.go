package splunk

import (
	"testing"

	"github.com/serin-dev/serin/internal/metric"
	"github.com/serin-dev/serin/internal/metric/metrictest"
)

// FuzzAnswer parses arbitrary responses.
func FuzzAnswer(f *testing.F) {
	read := func(body []byte) (float64, error) {
		return parse(body, metric.Query{Interval: metrictest.Interval, Now: metrictest.Now})
	}
	metrictest.Fuzz(f, read, begin+data(point("AAAAAC", "1.5"))+end, begin+data(point("AAAAAC", "null")), "data:\ndata\n:\n\n", "event: error\ndata: {}\n\n")
}
