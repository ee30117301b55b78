package graphite

import (
	"testing"

	"github.com/serin-dev/serin/internal/metric/metrictest"
)

// FuzzAnswer parses arbitrary responses.
func FuzzAnswer(f *testing.F) {
	metrictest.Fuzz(f, parse, `[{"target":"a","datapoints":[[1.5,1767323045],[null,1767323105]]}]`, `[{"datapoints":[[1]]}]`)
}

// FuzzAllAnswers parses arbitrary responses for all values.
func FuzzAllAnswers(f *testing.F) {
	metrictest.Fuzz(f, func(answer []byte) (float64, error) {
		_, err := parseAll(answer)
		return 0, err
	}, `[{"datapoints":[[1.5,1],[null,2]]}]`)
}
