package influxdb

import (
	"testing"

	"github.com/serin-dev/serin/internal/metric/metrictest"
)

// FuzzAnswer reads whatever a server says.
func FuzzAnswer(f *testing.F) {
	metrictest.Fuzz(f, parse, "#datatype,string,long,double\r\n,result,table,_value\r\n,_result,0,1.5\r\n\r\n", "#datatype,string,string\r\n,error,reference\r\n,x,1\r\n", "\"\n,\"")
}

// FuzzAllAnswers reads whatever a server says to a question for all values.
func FuzzAllAnswers(f *testing.F) {
	metrictest.Fuzz(f, func(answer []byte) (float64, error) {
		_, err := parseAll(answer)
		return 0, err
	}, "#datatype,string,long,double\r\n,result,table,_value\r\n,_result,0,1.5\r\n,_result,0,2\r\n\r\n", "#datatype,string,boolean\r\n,result,_value\r\n,x,true\r\n")
}
