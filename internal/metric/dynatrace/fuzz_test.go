package dynatrace

import (
	"testing"

	"github.com/serin-dev/serin/internal/metric"
	"github.com/serin-dev/serin/internal/metric/metrictest"
)

// FuzzAnswer parses arbitrary responses.
func FuzzAnswer(f *testing.F) {
	read := func(body []byte) (float64, error) {
		last, err := lastSeries(body)
		if err != nil {
			return 0, err
		}
		if _, err := last.first(); err != nil {
			return 0, err
		}
		return last.newest(metric.Query{Interval: metrictest.Interval, Now: metrictest.Now})
	}
	metrictest.Fuzz(f, read, `{"result":[{"data":[{"timestamps":[1767323040000],"values":[1.5]}]}]}`, `{"result":[{"metricId":"m","data":[{"dimensions":[],"timestamps":[1],"values":[1.5,null]}]}]}`, `{"result":[{"data":[{"values":[null]}]}]}`)
}
