package newrelic

import (
	"testing"

	"github.com/serin-dev/serin/internal/metric/metrictest"
)

// FuzzAnswer parses arbitrary responses.
func FuzzAnswer(f *testing.F) {
	metrictest.Fuzz(f, parse, `{"results":[{"result":1.5}]}`, `{"results":[{"result":null}]}`, `{"results":[{"average":1}]}`)
}
