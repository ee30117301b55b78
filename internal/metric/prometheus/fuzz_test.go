package prometheus

import (
	"testing"

	"github.com/serin-dev/serin/internal/metric/metrictest"
)

// FuzzAnswer parses arbitrary responses.
func FuzzAnswer(f *testing.F) {
	metrictest.Fuzz(f, parse,
		`{"status":"success","data":{"resultType":"vector","result":[{"metric":{"a":"b"},"value":[1767323045.1,"1.5"]}]}}`,
		`{"status":"success","data":{"resultType":"scalar","result":[1,"NaN"]}}`,
		`{"status":"success","data":{"resultType":"matrix","result":[{"metric":{},"values":[[1,"1"]]}]}}`,
		`{"status":"error","errorType":"bad_data","error":"parse error"}`)
}

// FuzzAllAnswers parses arbitrary responses for all values.
func FuzzAllAnswers(f *testing.F) {
	read := func(answer []byte) (float64, error) {
		_, err := parseAll(answer)
		return 0, err
	}
	metrictest.Fuzz(f, read,
		`{"status":"success","data":{"resultType":"matrix","result":[{"metric":{},"values":[[1,"1"],[2,"NaN"]]}]}}`,
		`{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"value":[1,"1"]}]}}`)
}
