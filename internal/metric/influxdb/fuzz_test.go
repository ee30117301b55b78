package influxdb

import (
	"testing"

	"github.com/serin-dev/serin/internal/metric/metrictest"
)

// FuzzAnswer parses arbitrary responses.
func FuzzAnswer(f *testing.F) {
	metrictest.Fuzz(f, parse, "#datatype,string,long,double\r\n,result,table,_value\r\n,_result,0,1.5\r\n\r\n", "#datatype,string,string\r\n,error,reference\r\n,x,1\r\n", "\"\n,\"")
}

// FuzzAllAnswers parses arbitrary responses for all values.
func FuzzAllAnswers(f *testing.F) {
	metrictest.Fuzz(f, func(answer []byte) (float64, error) {
		_, err := parseAll(answer)
		return 0, err
	}, "#datatype,string,long,double\r\n,result,table,_value\r\n,_result,0,1.5\r\n,_result,0,2\r\n\r\n", "#datatype,string,boolean\r\n,result,_value\r\n,x,true\r\n")
}
