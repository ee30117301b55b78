package graphite

import (
	"testing"

	"github.com/serin-dev/serin/internal/metric/metrictest"
)

// FuzzAnswer reads whatever a server says.
func FuzzAnswer(f *testing.F) {
	metrictest.Fuzz(f, parse, `[{"target":"a","datapoints":[[1.5,1767323045],[null,1767323105]]}]`, `[{"datapoints":[[1]]}]`)
}
