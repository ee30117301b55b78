package cloudwatch_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/fxamacker/cbor/v2"
	"github.com/google/go-cmp/cmp"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/metric"
	"github.com/serin-dev/serin/internal/metric/cloudwatch"
	"github.com/serin-dev/serin/internal/metric/metrictest"
	"github.com/serin-dev/serin/internal/outbound"
	"github.com/serin-dev/serin/internal/release"
)

type object = map[string]any

// encode encodes a document as the service does.
func encode(document any) string {
	out, err := cbor.Marshal(document)
	if err != nil {
		panic(err)
	}
	return string(out)
}

// answer returns a response with one result, newest value first, and a second result that is ignored.
func answer(status string, values ...float64) string {
	return answerAt(metrictest.Now, status, values...)
}

// answerAt returns such a response whose newest value is that of the period that starts at a time.
func answerAt(newest time.Time, status string, values ...float64) string {
	times := make([]cbor.Tag, len(values))
	for i := range values {
		times[i] = cbor.Tag{Number: 1, Content: newest.Unix() - int64(60*i)}
	}
	return encode(object{
		"Messages": []any{},
		"MetricDataResults": []object{
			{"Id": "e1", "Label": "ErrorRate", "StatusCode": status, "Timestamps": times, "Values": values},
			{"Id": "m2", "Label": "Requests", "StatusCode": "Complete", "Timestamps": []any{}, "Values": []float64{7}},
		},
	})
}

const query = `[
  {"Id": "e1", "Expression": "m1 / m2", "Label": "ErrorRate"},
  {"Id": "m1", "MetricStat": {"Metric": {"Namespace": "Shop", "MetricName": "Errors", "Dimensions": [{"Name": "app", "Value": "cart.shop"}]}, "Period": 60, "Stat": "Sum", "Unit": "Count"}, "ReturnData": false}
]`

var credentials = map[string][]byte{"aws_access_key_id": []byte("AKIDEXAMPLE"), "aws_secret_access_key": []byte("s3cret-key"), "aws_session_token": []byte("s3ssion-token")}

func TestContract(t *testing.T) {
	metrictest.Run(t, metrictest.Subject{
		Service: cloudwatch.Service(&cloudwatch.Ambient{}), Credentials: credentials, Region: "eu-west-1", Query: query,
		Value: answer("Complete", 1.5, 9),
		NoData: []string{
			encode(object{"MetricDataResults": []any{}}), encode(object{"MetricDataResults": []object{{"Id": "e1", "Values": []any{}}}}),
			answer("Complete"), answer("Complete", nan()), answerAt(metrictest.Now.Add(-5*time.Minute-time.Second), "Complete", 9), encode(object{}), "",
		},
		Invalid: []string{
			encode(object{"MetricDataResults": "none"}), encode(object{"MetricDataResults": []object{{"Values": []string{"1.5"}}}}),
			encode(object{"MetricDataResults": []object{{"Id": "e1", "Timestamps": []any{}, "Values": []float64{1.5}}}}),
			answer("Forbidden", 1.5), strings.Repeat("\x81", 1<<20), "\x9b\x7f\xff\xff\xff\xff\xff\xff\xff", "\xbb\x7f\xff\xff\xff\xff\xff\xff\xff",
		},
		IsAuthorised: func(r *http.Request) bool {
			signature := r.Header.Get("Authorization")
			return strings.HasPrefix(signature, "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/") && strings.Contains(signature, "/eu-west-1/monitoring/aws4_request") &&
				r.Header.Get("X-Amz-Security-Token") == "s3ssion-token"
		},
	})
}

func nan() float64 {
	zero := 0.0
	return zero / zero
}

func newProviderFor(t *testing.T, handler http.HandlerFunc) metric.Provider {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	client := outbound.New(outbound.Policy{AllowLoopback: true})
	t.Cleanup(client.Close)
	provider, err := metric.NewRegistry(cloudwatch.Service(&cloudwatch.Ambient{})).NewProvider(client, "shop", flaggerv1.MetricTemplateProvider{
		Type: "cloudwatch", Region: "eu-west-1", Address: server.URL, SecretRef: &flaggerv1.SecretReference{Name: "s"},
	}, credentials)
	if err != nil {
		t.Fatal(err)
	}
	return provider
}

func TestRequestMatchesTheAPI(t *testing.T) {
	var path string
	var body object
	provider := newProviderFor(t, func(w http.ResponseWriter, r *http.Request) {
		path = r.Method + " " + r.URL.Path
		if err := cbor.NewDecoder(r.Body).Decode(&body); err != nil {
			t.Error(err)
		}
		_, _ = w.Write([]byte(answer("Complete", 1)))
	})
	if _, err := provider.Measure(t.Context(), metric.Query{Text: query, Interval: time.Minute, Now: time.Unix(10_000, 0)}); err != nil {
		t.Fatal(err)
	}
	type m = map[any]any
	want := object{
		"StartTime": time.Unix(9_400, 0).UTC().Format(time.RFC3339), "EndTime": time.Unix(10_000, 0).UTC().Format(time.RFC3339), "MaxDatapoints": uint64(20), "ScanBy": "TimestampDescending",
		"MetricDataQueries": []any{
			m{"Id": "e1", "Expression": "m1 / m2", "Label": "ErrorRate"},
			m{"Id": "m1", "ReturnData": false, "MetricStat": m{
				"Metric": m{"Namespace": "Shop", "MetricName": "Errors", "Dimensions": []any{m{"Name": "app", "Value": "cart.shop"}}},
				"Period": uint64(60), "Stat": "Sum", "Unit": "Count",
			}},
		},
	}
	for _, key := range []string{"StartTime", "EndTime"} {
		if moment, ok := body[key].(time.Time); ok {
			body[key] = moment.UTC().Format(time.RFC3339)
		}
	}
	if diff := cmp.Diff(want, body); diff != "" || path != "POST /service/GraniteServiceVersion20100801/operation/GetMetricData" {
		t.Errorf("request %s (-want +got):\n%s", path, diff)
	}
}

func errorResponse(code int, class string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Smithy-Protocol", "rpc-v2-cbor")
		w.WriteHeader(code)
		_, _ = w.Write([]byte(encode(object{"__type": class, "message": "arn:aws:iam::123:user/secret is not authorised"})))
	}
}

func TestErrorCodesAreClassified(t *testing.T) {
	for _, c := range []struct {
		code    int
		class   string
		outcome release.Outcome
		text    string
		online  bool
	}{
		{400, "com.amazonaws.cloudwatch#ValidationError", release.Broken, "error response: Status 400 Bad Request: ValidationError", true},
		{400, "Throttling", release.Unreachable, "error response: Status 400 Bad Request: Throttling", false},
		{400, "UnrecognizedClientException", release.Broken, "error response: Status 400 Bad Request: UnrecognizedClientException", false},
		{403, "AccessDenied", release.Broken, "error response: Status 403 Forbidden: AccessDenied", false},
		{403, "arn:aws:iam::123:user/secret", release.Broken, "error response: Status 403 Forbidden", false},
		{500, "InternalServiceFault", release.Unreachable, "error response: Status 500 Internal Server Error: InternalServiceFault", false},
	} {
		provider := newProviderFor(t, errorResponse(c.code, c.class))
		_, err := provider.Measure(t.Context(), metric.Query{Text: query, Interval: time.Minute, Now: metrictest.Now})
		if err == nil || err.Error() != c.text || metric.OutcomeOf(err) != c.outcome {
			t.Errorf("%s: %v is %s", c.class, err, metric.OutcomeOf(err))
		}
		if online := provider.Online(t.Context()); (online == nil) != c.online {
			t.Errorf("%s: Online returns %v", c.class, online)
		}
	}
}

func TestRawResultIsTheListOfResults(t *testing.T) {
	provider := newProviderFor(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(answer("Complete", 1.5, 9))) })
	found, err := provider.(metric.RawQuerier).QueryRaw(t.Context(), metric.Query{Text: query, Interval: time.Minute, Now: metrictest.Now})
	if err != nil {
		t.Fatal(err)
	}
	first := found.Value.([]any)[0].(object)
	if diff := cmp.Diff([]float64{1.5, 9}, first["Values"]); diff != "" || first["Id"] != "e1" {
		t.Errorf("got %v", found.Value)
	}
}

// TestLatePointsAreUsed has points that are as old as they can be if they are published in time.
func TestLatePointsAreUsed(t *testing.T) {
	const perFiveMinutes = `[{"Id": "m1", "MetricStat": {"Metric": {"Namespace": "Shop", "MetricName": "Errors"}, "Period": 300, "Stat": "Sum"}}]`
	for text, age := range map[string]time.Duration{
		query:          time.Minute + time.Minute + metric.PublishDelay,
		perFiveMinutes: 5*time.Minute + 5*time.Minute + metric.PublishDelay,
		`[{"Id": "e1", "Expression": "SEARCH('{Shop} Errors', 'Sum')"}]`: 5*time.Minute + 5*time.Minute + metric.PublishDelay,
	} {
		newest := metrictest.Now.Add(-age)
		provider := newProviderFor(t, func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write([]byte(answerAt(newest, "Complete", 1.5)))
		})
		value, err := provider.Measure(t.Context(), metric.Query{Text: text, Interval: metrictest.Interval, Now: metrictest.Now})
		if err != nil || value != 1.5 {
			t.Errorf("%s: got %v, %v, want 1.5", text, value, err)
		}
	}
}

func TestInvalidQueriesAreRefused(t *testing.T) {
	provider := newProviderFor(t, func(http.ResponseWriter, *http.Request) { t.Error("the service was called") })
	for _, text := range []string{"", "{}", "[]", "SELECT AVG(CPUUtilization)", `[{"Id": 1}]`, `[{"MetricStat": "x"}]`} {
		if _, err := provider.Measure(t.Context(), metric.Query{Text: text, Now: metrictest.Now}); metric.OutcomeOf(err) != release.Broken {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestConfiguration(t *testing.T) {
	configure := func(spec flaggerv1.MetricTemplateProvider) error {
		_, err := metric.NewRegistry(cloudwatch.Service(&cloudwatch.Ambient{})).NewProvider(outbound.New(outbound.Policy{}), "shop", spec, nil)
		return err
	}
	for _, region := range []string{"", "eu", "EU-WEST-1", "x.example.com/a-1", "eu-west-1.example.com"} {
		if err := configure(flaggerv1.MetricTemplateProvider{Type: "cloudwatch", Region: region}); err == nil {
			t.Errorf("region %q is accepted", region)
		}
	}
	for _, region := range []string{"eu-west-1", "us-gov-east-1", "ap-southeast-12", "cn-north-1"} {
		if err := configure(flaggerv1.MetricTemplateProvider{Type: "cloudwatch", Region: region}); err != nil {
			t.Errorf("region %q: %v", region, err)
		}
	}
	if err := configure(flaggerv1.MetricTemplateProvider{Type: "cloudwatch", Region: "eu-west-1", Address: "https://evil.example"}); err == nil {
		t.Error("the controller's credentials would be sent to an address of the template")
	}
}
