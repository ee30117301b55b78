package dynatrace

import (
	"testing"

	"github.com/serin-dev/serin/internal/metric/metrictest"
)

// FuzzAnswer parses arbitrary responses.
func FuzzAnswer(f *testing.F) {
	metrictest.Fuzz(f, parse, `{"result":[{"metricId":"m","data":[{"dimensions":[],"timestamps":[1],"values":[1.5,null]}]}]}`, `{"result":[{"data":[{"values":[null]}]}]}`)
}
