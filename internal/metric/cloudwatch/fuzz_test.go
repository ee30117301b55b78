package cloudwatch

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatch"
	"github.com/fxamacker/cbor/v2"

	"github.com/serin-dev/serin/internal/metric"
	"github.com/serin-dev/serin/internal/metric/metrictest"
)

// fixedResponse is an HTTP client that returns the same response to every request.
type fixedResponse struct {
	code int
	body []byte
}

func (s fixedResponse) Do(r *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: s.code, Header: http.Header{}, Body: io.NopCloser(bytes.NewReader(s.body)), Request: r}, nil
}

// FuzzAnswer lets the library parse arbitrary responses, with successful and other statuses.
func FuzzAnswer(f *testing.F) {
	document := func(content any) string {
		out, err := cbor.Marshal(content)
		if err != nil {
			f.Fatal(err)
		}
		return string(out)
	}
	type object = map[string]any
	measure := func(code int, answer []byte) (float64, error) {
		p := &provider{api: cloudwatch.New(cloudwatch.Options{
			Region: "eu-west-1", Credentials: credentials.NewStaticCredentialsProvider("id", "secret", ""), HTTPClient: fixedResponse{code, answer}, Retryer: aws.NopRetryer{},
		})}
		return p.Measure(context.Background(), metric.Query{Text: `[{"Id":"a","Expression":"b"}]`, Interval: metrictest.Interval, Now: metrictest.Now})
	}
	read := func(answer []byte) (float64, error) {
		if value, err := measure(http.StatusBadRequest, answer); err == nil {
			panic(fmt.Sprintf("an error response is accepted as the value %v", value))
		}
		return measure(http.StatusOK, answer)
	}
	metrictest.Fuzz(f, read,
		document(object{"MetricDataResults": []object{{"Id": "a", "StatusCode": "Complete", "Timestamps": []cbor.Tag{{Number: 1, Content: 1767323045}}, "Values": []float64{1.5}}}}),
		document(object{"MetricDataResults": []object{{"StatusCode": "InternalError"}}}), document(object{"__type": "Throttling", "message": "m"}),
		"\x9b\x7f\xff\xff\xff\xff\xff\xff\xff", "\xbf\xff", "\x5f\x5f")
}
