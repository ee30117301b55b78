package datadog

import (
	"testing"

	"github.com/serin-dev/serin/internal/metric/metrictest"
)

// FuzzAnswer parses arbitrary responses.
func FuzzAnswer(f *testing.F) {
	read := func(answer []byte) (float64, error) {
		return parse(answer, metrictest.Now.Add(-metrictest.Interval), metrictest.Now)
	}
	metrictest.Fuzz(f, read,
		`{"status":"ok","series":[{"interval":20,"pointlist":[[1767323000000.0,1.5],[1767323020000.0,null]]}]}`,
		`{"status":"ok","series":[{"interval":1e308,"pointlist":[[1e308,1]]}]}`, `{"status":"error","error":"x"}`)
}
