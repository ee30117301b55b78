package measure_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/analysis"
	"github.com/serin-dev/serin/internal/analysis/measure"
	"github.com/serin-dev/serin/internal/metric"
	"github.com/serin-dev/serin/internal/metric/cloudwatch"
	"github.com/serin-dev/serin/internal/metric/datadog"
	"github.com/serin-dev/serin/internal/metric/dynatrace"
	"github.com/serin-dev/serin/internal/metric/externalmetrics"
	"github.com/serin-dev/serin/internal/metric/graphite"
	"github.com/serin-dev/serin/internal/metric/influxdb"
	"github.com/serin-dev/serin/internal/metric/kayenta"
	"github.com/serin-dev/serin/internal/metric/keptn"
	"github.com/serin-dev/serin/internal/metric/newrelic"
	metricprometheus "github.com/serin-dev/serin/internal/metric/prometheus"
	"github.com/serin-dev/serin/internal/metric/skywalking"
	"github.com/serin-dev/serin/internal/metric/splunk"
	"github.com/serin-dev/serin/internal/metric/stackdriver"
	"github.com/serin-dev/serin/internal/metric/wavefront"
	"github.com/serin-dev/serin/internal/metric/web"
	"github.com/serin-dev/serin/internal/outbound"
	"github.com/serin-dev/serin/internal/queryrunner"
	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/internal/telemetry"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

const runUID = "95973e2b-e743-44cc-9066-46a8543edd2b"

// harness is a measurer with a metrics service that the test implements.
type harness struct {
	t           *testing.T
	client      client.Client
	measurer    *measure.Measurer
	environment map[string]string
	// URL is the address of the metrics service.
	URL string
}

// newHarness returns a harness whose metrics service is implemented by answer.
func newHarness(t *testing.T, answer http.HandlerFunc, objects ...client.Object) *harness {
	t.Helper()
	server := httptest.NewServer(answer)
	t.Cleanup(server.Close)
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, batchv1.AddToScheme, argov1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	b := &harness{t: t, environment: map[string]string{}, URL: server.URL}
	b.client = fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithStatusSubresource(&batchv1.Job{}).Build()
	outboundClient := outbound.New(outbound.Policy{AllowLoopback: true})
	t.Cleanup(outboundClient.Close)
	clk := clocktesting.NewFakePassiveClock(noon)
	b.measurer = &measure.Measurer{
		Client: b.client, Secrets: b.client, Clock: clk, Restricted: outboundClient, Unrestricted: outboundClient, Services: services(metric.Cluster{}), Namespace: "serin-system",
		Environment: func(name string) string { return b.environment[name] },
		Jobs:        &measure.Jobs{Client: b.client, APIReader: b.client, Clock: clk},
		Telemetry:   telemetry.New(prometheus.NewRegistry()),
	}
	return b
}

// services returns all metrics services for analyses.
func services(cluster metric.Cluster) *metric.Registry {
	ambient := &cloudwatch.Ambient{}
	return metric.NewRegistry(
		cloudwatch.Service(ambient), datadog.Service(), graphite.Service(), influxdb.Service(), kayenta.Service(), newrelic.Service(),
		metricprometheus.Service(ambient.Signer), skywalking.Service(), wavefront.Service(), web.Service(cluster),
		dynatrace.Service(), externalmetrics.Service(cluster), keptn.Service(cluster, clock.RealClock{}), splunk.Service(), stackdriver.Service(),
	)
}

// measure measures one metric of a run.
func (b *harness) measure(m argov1.Metric, q analysis.MeasurementRequest, args ...argov1.Argument) analysis.MeasurementResult {
	b.t.Helper()
	m.Name = cmp.Or(m.Name, "m")
	run := &argov1.AnalysisRun{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "run", UID: runUID}, Spec: argov1.AnalysisRunSpec{Metrics: []argov1.Metric{m}, Args: args}}
	if err := b.client.Create(b.t.Context(), run); client.IgnoreAlreadyExists(err) != nil {
		b.t.Fatal(err)
	}
	resolved, err := analysis.ResolveMetric(m, args, nil)
	if err != nil {
		b.t.Fatal(err)
	}
	q.Metric = resolved
	if q.Number == 0 {
		q.Number = 1
	}
	key := queryrunner.Key{NamespacedName: types.NamespacedName{Namespace: "shop", Name: "run"}, UID: runUID}
	answer := b.measurer.Measure(b.t.Context(), key, release.Query{ID: "x", Request: q})
	detail, ok := answer.Detail.(analysis.MeasurementResult)
	if !ok {
		b.t.Fatalf("the answer has no detail: %+v", answer)
	}
	return detail
}

func secret(namespace, name string, data map[string]string) *corev1.Secret {
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Data: map[string][]byte{}}
	for key, value := range data {
		s.Data[key] = []byte(value)
	}
	return s
}

// TestProviders queries every provider once. The service responds in its wire format, and rejects requests that its API
// does not accept.
func TestProviders(t *testing.T) {
	for _, c := range []struct {
		name string
		// metric queries the service; success is its condition.
		metric   func(address string) argov1.MetricProvider
		success  string
		secret   func(address string) *corev1.Secret
		accepts  func(r *http.Request, body string) bool
		answer   string
		text     string
		phase    argov1.AnalysisPhase
		message  string
		metadata map[string]string
	}{
		{
			name: "prometheus, a vector", success: "result[0] == 1.5 && len(result) == 2",
			metric: func(a string) argov1.MetricProvider {
				return argov1.MetricProvider{Prometheus: &argov1.PrometheusMetric{
					Address: a, Query: "up", Authentication: argov1.Authentication{BasicAuth: argov1.BasicAuth{Username: "me", Password: "pw"}},
					Headers: []argov1.WebMetricHeader{{Key: "X-Scope-OrgID", Value: "tenant"}},
				}}
			},
			accepts: func(r *http.Request, _ string) bool {
				user, password, _ := r.BasicAuth()
				return r.URL.Path == "/api/v1/query" && user == "me" && password == "pw" && r.Header.Get("X-Scope-OrgID") == "tenant"
			},
			answer: `{"status":"success","data":{"resultType":"vector","result":[{"value":[1,"1.5"]},{"value":[1,"2"]}]},"warnings":["slow"]}`,
			text:   "[1.5,2]", phase: argov1.AnalysisPhaseSuccessful, metadata: map[string]string{"warnings": `"slow"`},
		},
		{
			name: "prometheus, a range", success: "all(result, # < 3)",
			metric: func(a string) argov1.MetricProvider {
				return argov1.MetricProvider{Prometheus: &argov1.PrometheusMetric{
					Address: a, Query: "up", RangeQuery: &argov1.PrometheusRangeQueryArgs{Start: `now() - duration("1h")`, End: "now()", Step: "5m"},
				}}
			},
			accepts: func(r *http.Request, _ string) bool {
				q := r.URL.Query()
				return r.URL.Path == "/api/v1/query_range" && q.Get("start") == "1767265200.000" && q.Get("end") == "1767268800.000" && q.Get("step") == "300"
			},
			answer: `{"status":"success","data":{"resultType":"matrix","result":[{"values":[[1,"1"],[2,"2"]]}]}}`,
			text:   "[1,2]", phase: argov1.AnalysisPhaseSuccessful,
		},
		{
			name: "prometheus, no data", success: "len(result) == 0",
			metric: func(a string) argov1.MetricProvider {
				return argov1.MetricProvider{Prometheus: &argov1.PrometheusMetric{Address: a, Query: "up"}}
			},
			answer: `{"status":"success","data":{"resultType":"vector","result":[]}}`, text: "[]", phase: argov1.AnalysisPhaseSuccessful,
		},
		{
			name: "prometheus, the first value without data", success: "result[0] == 0",
			metric: func(a string) argov1.MetricProvider {
				return argov1.MetricProvider{Prometheus: &argov1.PrometheusMetric{Address: a, Query: "up"}}
			},
			answer: `{"status":"success","data":{"resultType":"vector","result":[]}}`, text: "[]", phase: argov1.AnalysisPhaseError,
			message: `could not evaluate successCondition "result[0] == 0": metric result is nil or empty: no data returned from the metric provider`,
		},
		{
			name: "web", success: "result.ok && result.count == 2",
			metric: func(a string) argov1.MetricProvider {
				return argov1.MetricProvider{Web: &argov1.WebMetric{URL: a + "/x", Method: "POST", JSONBody: []byte(`{"a":1}`), JSONPath: "{$.data}"}}
			},
			accepts: func(r *http.Request, body string) bool {
				return r.Method == "POST" && body == `{"a":1}` && r.Header.Get("Content-Type") == "application/json"
			},
			answer: `{"data":{"ok":true,"count":2}}`, text: `{"count":2,"ok":true}`, phase: argov1.AnalysisPhaseSuccessful,
		},
		{
			name: "web, a timeout longer than a time.Duration", success: "result == 1", metric: func(a string) argov1.MetricProvider {
				return argov1.MetricProvider{Web: &argov1.WebMetric{URL: a, TimeoutSeconds: 10_000_000_000}}
			},
			answer: `1`, text: "1", phase: argov1.AnalysisPhaseSuccessful,
		},
		{
			name: "prometheus, a timeout longer than a time.Duration", success: "len(result) == 0", metric: func(a string) argov1.MetricProvider {
				return argov1.MetricProvider{Prometheus: &argov1.PrometheusMetric{Address: a, Query: "up", Timeout: new(int64(10_000_000_000))}}
			},
			answer: `{"status":"success","data":{"resultType":"vector","result":[]}}`, text: "[]", phase: argov1.AnalysisPhaseSuccessful,
		},
		{
			name: "prometheus, a negative timeout", metric: func(a string) argov1.MetricProvider {
				return argov1.MetricProvider{Prometheus: &argov1.PrometheusMetric{Address: a, Query: "up", Timeout: new(int64(-10_000_000_000))}}
			},
			phase: argov1.AnalysisPhaseError, message: "prometheus timeout should not be negative",
		},
		{
			name: "new relic, a timeout longer than a time.Duration", success: "result.errors < 3", metric: func(string) argov1.MetricProvider {
				return argov1.MetricProvider{NewRelic: &argov1.NewRelicMetric{Query: "SELECT 1", Timeout: new(int64(10_000_000_000))}}
			},
			secret: func(a string) *corev1.Secret {
				return secret("serin-system", "newrelic", map[string]string{"base-url-nerdgraph": a, "personal-api-key": "k1", "account-id": "42"})
			},
			answer: `{"data":{"actor":{"account":{"nrql":{"results":[{"errors":2}]}}}}}`, text: `{"errors":2}`, phase: argov1.AnalysisPhaseSuccessful,
		},
		{
			name: "web, an error status", metric: func(a string) argov1.MetricProvider {
				return argov1.MetricProvider{Web: &argov1.WebMetric{URL: a}}
			},
			accepts: func(*http.Request, string) bool { return false },
			phase:   argov1.AnalysisPhaseError, message: "received non 2xx response code: 418",
		},
		{
			name: "datadog v1", success: "result < 3",
			metric: func(string) argov1.MetricProvider {
				return argov1.MetricProvider{Datadog: &argov1.DatadogMetric{Query: "avg:errors{*}", Interval: "5m"}}
			},
			secret: func(a string) *corev1.Secret {
				return secret("serin-system", "datadog", map[string]string{"address": a, "api-key": "k1", "app-key": "k2"})
			},
			accepts: func(r *http.Request, _ string) bool {
				q := r.URL.Query()
				return r.URL.Path == "/api/v1/query" && q.Get("from") == "1767268500" && q.Get("to") == "1767268800" &&
					r.Header.Get("DD-API-KEY") == "k1" && r.Header.Get("DD-APPLICATION-KEY") == "k2"
			},
			answer: `{"status":"ok","series":[{"interval":60,"pointlist":[[1,9],[2,2.5]]}]}`, text: "2.5", phase: argov1.AnalysisPhaseSuccessful,
		},
		{
			name: "datadog v1, no data", success: "default(result, 0) < 3",
			metric: func(string) argov1.MetricProvider {
				return argov1.MetricProvider{Datadog: &argov1.DatadogMetric{Query: "avg:errors{*}"}}
			},
			secret: func(a string) *corev1.Secret {
				return secret("serin-system", "datadog", map[string]string{"address": a, "api-key": "k1", "app-key": "k2"})
			},
			answer: `{"status":"ok","series":[]}`, text: "[]", phase: argov1.AnalysisPhaseSuccessful,
		},
		{
			name: "datadog v2, groups, with a Secret in the namespace of the run", success: "max(result) < 3",
			metric: func(string) argov1.MetricProvider {
				return argov1.MetricProvider{Datadog: &argov1.DatadogMetric{
					ApiVersion: "v2", Queries: map[string]string{"a": "x", "b": "y"}, Formula: "a/b", SecretRef: argov1.SecretRef{Name: "dd", Namespaced: true},
				}}
			},
			secret: func(a string) *corev1.Secret {
				return secret("shop", "dd", map[string]string{"address": a, "api-key": "k1", "app-key": "k2"})
			},
			accepts: func(r *http.Request, body string) bool {
				return r.URL.Path == "/api/v2/query/scalar" && strings.Contains(body, `"formulas":[{"formula":"a/b"}]`) &&
					strings.Contains(body, `"from":1767268500000`) && strings.Contains(body, `"aggregator":"last"`)
			},
			answer: `{"data":{"attributes":{"columns":[{"type":"group","name":"pod","values":[["p1"],["p2"]]},{"type":"number","name":"a/b","values":[1,2.5]}]}}}`,
			text:   "[1,2.5]", phase: argov1.AnalysisPhaseSuccessful, metadata: map[string]string{"groups": `[{"name":"p1","value":1},{"name":"p2","value":2.5}]`},
		},
		{
			name: "datadog without keys",
			metric: func(string) argov1.MetricProvider {
				return argov1.MetricProvider{Datadog: &argov1.DatadogMetric{Query: "x"}}
			},
			phase: argov1.AnalysisPhaseError, message: "API or App token not found",
		},
		{
			name: "newRelic", success: "result.errors < 3",
			metric: func(string) argov1.MetricProvider {
				return argov1.MetricProvider{NewRelic: &argov1.NewRelicMetric{Query: "SELECT 1"}}
			},
			secret: func(a string) *corev1.Secret {
				return secret("serin-system", "newrelic", map[string]string{"base-url-nerdgraph": a, "personal-api-key": "k1", "account-id": "42"})
			},
			accepts: func(r *http.Request, body string) bool {
				return r.Header.Get("Api-Key") == "k1" && strings.Contains(body, `"account":42`) && strings.Contains(body, "SELECT 1")
			},
			answer: `{"data":{"actor":{"account":{"nrql":{"results":[{"errors":2}]}}}}}`, text: `{"errors":2}`, phase: argov1.AnalysisPhaseSuccessful,
		},
		{
			name: "newRelic, no data",
			metric: func(string) argov1.MetricProvider {
				return argov1.MetricProvider{NewRelic: &argov1.NewRelicMetric{Query: "SELECT 1"}}
			},
			secret: func(a string) *corev1.Secret {
				return secret("serin-system", "newrelic", map[string]string{"base-url-nerdgraph": a, "personal-api-key": "k1", "account-id": "42"})
			},
			answer: `{"data":{"actor":{"account":{"nrql":{"results":[]}}}}}`, phase: argov1.AnalysisPhaseError, message: "no results returned from NRQL query",
		},
		{
			name: "graphite", success: "result[0] == 1.5", metric: func(a string) argov1.MetricProvider {
				return argov1.MetricProvider{Graphite: &argov1.GraphiteMetric{Address: a, Query: "target=errors\n  &from=-1m"}}
			},
			accepts: func(r *http.Request, _ string) bool {
				return r.URL.Path == "/render" && r.URL.Query().Get("format") == "json" && strings.TrimSpace(r.URL.Query().Get("target")) == "errors"
			},
			answer: `[{"datapoints":[[1.5,1],[null,2],[3,3]]}]`, text: "[1.5,3]", phase: argov1.AnalysisPhaseSuccessful,
		},
		{
			name: "influxdb", success: `result[1] == "b"`, metric: func(string) argov1.MetricProvider {
				return argov1.MetricProvider{Influxdb: &argov1.InfluxdbMetric{Profile: "flux", Query: "from(x)"}}
			},
			secret: func(a string) *corev1.Secret {
				return secret("serin-system", "flux", map[string]string{"address": a, "authToken": "k1", "org": "shop"})
			},
			accepts: func(r *http.Request, _ string) bool {
				return r.Header.Get("Authorization") == "Token k1" && r.URL.Query().Get("org") == "shop"
			},
			answer: "#datatype,string,long,double\n,result,table,_value\n,,0,1.5\n\n#datatype,string,long,string\n,result,table,_value\n,,1,b\n",
			text:   `[1.5,"b"]`, phase: argov1.AnalysisPhaseSuccessful,
		},
		{
			name: "skywalking", success: "result.readMetricsValue < 3", metric: func(a string) argov1.MetricProvider {
				return argov1.MetricProvider{SkyWalking: &argov1.SkyWalkingMetric{Address: a, Query: "query q", Interval: "3m"}}
			},
			accepts: func(r *http.Request, body string) bool {
				return r.URL.Path == "/graphql" && strings.Contains(body, `"start":"2026-01-01 1157"`) && strings.Contains(body, `"step":"MINUTE"`)
			},
			answer: `{"data":{"readMetricsValue":2}}`, text: `{"readMetricsValue":2}`, phase: argov1.AnalysisPhaseSuccessful,
		},
		{
			name: "dynatrace", success: "result < 3", metric: func(string) argov1.MetricProvider {
				return argov1.MetricProvider{Dynatrace: &argov1.DynatraceMetric{Query: "builtin:errors"}}
			},
			secret: func(a string) *corev1.Secret {
				return secret("serin-system", "dynatrace", map[string]string{"address": a, "dynatrace_token": "tok3n"})
			},
			accepts: func(r *http.Request, _ string) bool {
				q := r.URL.Query()
				return r.URL.Path == "/api/v2/metrics/query" && q.Get("from") == "1767268500000" && q.Get("to") == "1767268800000" &&
					r.Header.Get("Authorization") == "Api-Token tok3n"
			},
			answer: `{"result":[{"data":[{"values":[2.5]}]}]}`, text: "2.5", phase: argov1.AnalysisPhaseSuccessful,
		},
		{
			name: "dynatrace, no data", success: "default(result, 0) < 3", metric: func(string) argov1.MetricProvider {
				return argov1.MetricProvider{Dynatrace: &argov1.DynatraceMetric{Query: "builtin:errors", Interval: "1m"}}
			},
			secret: func(a string) *corev1.Secret {
				return secret("serin-system", "dynatrace", map[string]string{"address": a, "dynatrace_token": "tok3n"})
			},
			answer: `{"result":[]}`, text: "null", phase: argov1.AnalysisPhaseSuccessful,
		},
		{
			name: "dynatrace without a Secret", metric: func(string) argov1.MetricProvider {
				return argov1.MetricProvider{Dynatrace: &argov1.DynatraceMetric{Query: "builtin:errors"}}
			},
			phase: argov1.AnalysisPhaseError, message: "dynatrace credentials does not contain address: add it to the secret",
		},
		{
			name: "splunk, with a Secret in the namespace of the run", success: "result < 3", metric: func(string) argov1.MetricProvider {
				return argov1.MetricProvider{Splunk: &argov1.SplunkMetric{Query: "data('errors').publish()", Interval: "1m", SecretRef: argov1.SecretRef{Name: "sf", Namespaced: true}}}
			},
			secret: func(a string) *corev1.Secret {
				return secret("shop", "sf", map[string]string{"address": a, "sf_token_key": "tok3n"})
			},
			accepts: func(r *http.Request, body string) bool {
				return r.URL.Path == "/v2/signalflow/execute" && r.URL.Query().Get("start") == "1767268740000" && body == "data('errors').publish()" &&
					r.Header.Get("X-SF-Token") == "tok3n"
			},
			answer: "event: data\ndata: {\"data\":[{\"tsId\":\"A\",\"value\":2.5}],\"logicalTimestampMs\":1767268740000}\n\nevent: control-message\ndata: {\"event\":\"END_OF_CHANNEL\"}\n\n",
			text:   "2.5", phase: argov1.AnalysisPhaseSuccessful,
		},
		{
			name: "splunk, a Secret in the namespace of the run without a name", metric: func(string) argov1.MetricProvider {
				return argov1.MetricProvider{Splunk: &argov1.SplunkMetric{Query: "x", SecretRef: argov1.SecretRef{Namespaced: true}}}
			},
			phase: argov1.AnalysisPhaseError, message: "splunk secretRef.name is required when secretRef.namespaced is true",
		},
		{
			name: "stackdriver with an address but without its own key", metric: func(string) argov1.MetricProvider {
				return argov1.MetricProvider{Stackdriver: &argov1.StackdriverMetric{Query: "fetch x", SecretRef: argov1.SecretRef{Name: "gcp", Namespaced: true}}}
			},
			secret: func(a string) *corev1.Secret {
				return secret("shop", "gcp", map[string]string{"address": a, "project": "shop-17"})
			},
			phase:   argov1.AnalysisPhaseError,
			message: "an address needs its own credentials, because the controller's are sent to Google only: add serviceAccountKey, or remove the address",
		},
		{
			name: "stackdriver with a Secret that does not exist", metric: func(string) argov1.MetricProvider {
				return argov1.MetricProvider{Stackdriver: &argov1.StackdriverMetric{Query: "fetch x", SecretRef: argov1.SecretRef{Name: "gcp", Namespaced: true}}}
			},
			phase: argov1.AnalysisPhaseError, message: "stackdriver credentials does not contain project: add it to the secret",
		},
		{
			name: "externalMetrics, at an address with its own token, in another namespace", success: "result == 1.5", metric: func(string) argov1.MetricProvider {
				return argov1.MetricProvider{ExternalMetrics: &argov1.ExternalMetric{Query: "bank/queue?labelSelector=app%3Dcart", SecretRef: argov1.SecretRef{Name: "em", Namespaced: true}}}
			},
			secret: func(a string) *corev1.Secret {
				return secret("shop", "em", map[string]string{"address": a, "token": "tok3n"})
			},
			accepts: func(r *http.Request, _ string) bool {
				return r.URL.Path == "/apis/external.metrics.k8s.io/v1beta1/namespaces/bank/queue" && r.URL.Query().Get("labelSelector") == "app=cart" &&
					r.Header.Get("Authorization") == "Bearer tok3n"
			},
			answer: `{"kind":"ExternalMetricValueList","items":[{"value":"1500m"}]}`, text: "1.5", phase: argov1.AnalysisPhaseSuccessful,
		},
		{
			name: "wavefront without a token", metric: func(a string) argov1.MetricProvider {
				return argov1.MetricProvider{Wavefront: &argov1.WavefrontMetric{Address: a, Query: "ts(x)"}}
			},
			phase: argov1.AnalysisPhaseError, message: "API token not found",
		},
		{
			name: "prometheus without an address", metric: func(string) argov1.MetricProvider {
				return argov1.MetricProvider{Prometheus: &argov1.PrometheusMetric{Query: "up"}}
			},
			phase: argov1.AnalysisPhaseError, message: "prometheus address is not configured",
		},
		{
			name: "a plugin", metric: func(string) argov1.MetricProvider {
				return argov1.MetricProvider{Plugin: map[string]json.RawMessage{"shop/plugin": []byte(`{}`)}}
			},
			phase: argov1.AnalysisPhaseError, message: "metric plugin shop/plugin: plugins are off: start the controller with --allow-plugins, see docs/plugins.md",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newHarness(t, func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				if c.accepts != nil && !c.accepts(r, string(body)) {
					w.WriteHeader(http.StatusTeapot)
					return
				}
				_, _ = io.WriteString(w, c.answer)
			})
			if c.secret != nil {
				if err := b.client.Create(t.Context(), c.secret(b.URL)); err != nil {
					t.Fatal(err)
				}
			}
			got := b.measure(argov1.Metric{SuccessCondition: c.success, Provider: c.metric(b.URL)}, analysis.MeasurementRequest{})
			if got.Phase != c.phase || got.Value != c.text || got.Message != c.message {
				t.Errorf("got %s %q %q, want %s %q %q", got.Phase, got.Value, got.Message, c.phase, c.text, c.message)
			}
			for key, value := range c.metadata {
				if got.Metadata[key] != value {
					t.Errorf("got the metadata %q, want %s=%s", got.Metadata, key, value)
				}
			}
		})
	}
}

func TestEnvironmentVariableSetsTheDefaultPrometheus(t *testing.T) {
	b := newHarness(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"status":"success","data":{"resultType":"scalar","result":[1,"0.25"]}}`)
	})
	b.environment["ARGO_ROLLOUTS_PROMETHEUS_ADDRESS"] = b.URL
	got := b.measure(argov1.Metric{SuccessCondition: "result == 0.25", Provider: argov1.MetricProvider{Prometheus: &argov1.PrometheusMetric{Query: "x"}}}, analysis.MeasurementRequest{})
	if got.Phase != argov1.AnalysisPhaseSuccessful || got.Value != "0.25" {
		t.Errorf("got %+v", got)
	}
}

// TestSecretsAreSentAndNeverShown uses a Secret in a condition and a header, and a service that returns the header.
func TestSecretsAreSentAndNeverShown(t *testing.T) {
	b := newHarness(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = fmt.Fprintf(w, `{"header":%q}`, r.Header.Get("Authorization"))
	}, secret("shop", "web", map[string]string{"token": "hunter2"}))
	arg := argov1.Argument{Name: "token", ValueFrom: &argov1.ValueFrom{SecretKeyRef: &argov1.SecretKeyRef{Name: "web", Key: "token"}}}
	provider := argov1.MetricProvider{Web: &argov1.WebMetric{
		URL: b.URL, JSONPath: "{$.header}", Headers: []argov1.WebMetricHeader{{Key: "Authorization", Value: "Bearer {{args.token}}"}},
	}}
	got := b.measure(argov1.Metric{SuccessCondition: `result == "Bearer {{args.token}}"`, Provider: provider}, analysis.MeasurementRequest{}, arg)
	if got.Phase != argov1.AnalysisPhaseSuccessful || got.Value != `"Bearer *****"` {
		t.Errorf("got %+v", got)
	}
}

func TestInvalidConditionShowsNoSecret(t *testing.T) {
	b := newHarness(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `1`) },
		secret("shop", "web", map[string]string{"token": "hunter2"}))
	arg := argov1.Argument{Name: "token", ValueFrom: &argov1.ValueFrom{SecretKeyRef: &argov1.SecretKeyRef{Name: "web", Key: "token"}}}
	got := b.measure(argov1.Metric{SuccessCondition: "result == {{args.token}}.x", Provider: argov1.MetricProvider{Web: &argov1.WebMetric{URL: b.URL}}}, analysis.MeasurementRequest{}, arg)
	if got.Phase != argov1.AnalysisPhaseError || strings.Contains(got.Message, "hunter2") || !strings.Contains(got.Message, "*****") {
		t.Errorf("got %+v", got)
	}
}

func TestMissingSecretIsNamed(t *testing.T) {
	b := newHarness(t, nil, secret("shop", "web", nil))
	arg := argov1.Argument{Name: "token", ValueFrom: &argov1.ValueFrom{SecretKeyRef: &argov1.SecretKeyRef{Name: "web", Key: "token"}}}
	got := b.measure(argov1.Metric{Provider: argov1.MetricProvider{Web: &argov1.WebMetric{URL: "http://{{args.token}}"}}}, analysis.MeasurementRequest{}, arg)
	if want := "key 'token' does not exist in secret 'web'"; got.Message != want {
		t.Errorf("got %q, want %q", got.Message, want)
	}
}

// TestNameOfAMetricMayContainArguments: the status contains the name with the values of the arguments. A secret is not among
// them, because the name also becomes a part of objects.
func TestNameOfAMetricMayContainArguments(t *testing.T) {
	b := newHarness(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `1`) },
		secret("shop", "web", map[string]string{"token": "hunter2"}))
	metric := argov1.Metric{Name: "{{args.service}}-{{args.token}}", SuccessCondition: "result == 1", Provider: argov1.MetricProvider{Web: &argov1.WebMetric{URL: b.URL}}}
	args := []argov1.Argument{
		{Name: "service", Value: new("cart")},
		{Name: "token", ValueFrom: &argov1.ValueFrom{SecretKeyRef: &argov1.SecretKeyRef{Name: "web", Key: "token"}}},
	}
	if got := b.measure(metric, analysis.MeasurementRequest{}, args...); got.Phase != argov1.AnalysisPhaseSuccessful {
		t.Errorf("got %+v", got)
	}
}

func TestJobOfAMetricWhoseNameContainsAnArgument(t *testing.T) {
	b := newHarness(t, nil)
	metric := jobMetric()
	metric.Name = "{{args.service}}-test"
	got := b.measure(metric, analysis.MeasurementRequest{}, argov1.Argument{Name: "service", Value: new("cart")})
	if name := measure.JobName(argov1.Measurement{Metadata: got.Metadata}); name != runUID+".cart-test.1" {
		t.Errorf("got %+v", got)
	}
}

func jobMetric() argov1.Metric {
	return argov1.Metric{Provider: argov1.MetricProvider{Job: &argov1.JobMetric{
		Metadata: argov1.JobMetadata{Labels: map[string]string{"team": "shop"}},
		Spec:     batchv1.JobSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever}}},
	}}}
}

func TestJobIsCreatedOnceAndEvaluated(t *testing.T) {
	for condition, want := range map[batchv1.JobConditionType]argov1.AnalysisPhase{
		batchv1.JobComplete: argov1.AnalysisPhaseSuccessful, batchv1.JobFailed: argov1.AnalysisPhaseFailed,
	} {
		b := newHarness(t, nil)
		first := b.measure(jobMetric(), analysis.MeasurementRequest{})
		again := b.measure(jobMetric(), analysis.MeasurementRequest{}) // as after a crash
		name := runUID + ".m.1"
		if first.Phase != argov1.AnalysisPhaseRunning || first.Metadata["job-name"] != name || first.Metadata["job-namespace"] != "shop" || !first.ResumeAt.Equal(noon) || again.Metadata["job-name"] != name {
			t.Fatalf("got %+v, then %+v", first, again)
		}
		job := &batchv1.Job{}
		if err := b.client.Get(t.Context(), client.ObjectKey{Namespace: "shop", Name: name}, job); err != nil {
			t.Fatal(err)
		}
		if job.Labels["team"] != "shop" || job.Labels[measure.RunUIDLabel] != runUID || job.Spec.Template.Labels[measure.RunUIDLabel] != runUID ||
			job.Annotations[measure.RunNameAnnotation] != "run" || job.Annotations[measure.MetricNameAnnotation] != "m" || len(job.OwnerReferences) != 1 {
			t.Errorf("created the Job %+v", job)
		}
		startedAt := metav1.NewTime(noon.Add(-50 * time.Second))
		inProgress := analysis.MeasurementRequest{InProgress: &argov1.Measurement{StartedAt: &startedAt, Metadata: first.Metadata}}
		if got := b.measure(jobMetric(), inProgress); got.Phase != argov1.AnalysisPhaseRunning || !got.ResumeAt.Equal(noon.Add(10*time.Second)) {
			t.Errorf("got %+v, want another check of the Job after ten seconds", got)
		}
		job.Status.Conditions = []batchv1.JobCondition{{Type: condition, Status: corev1.ConditionTrue, Message: "done"}}
		if err := b.client.Status().Update(t.Context(), job); err != nil {
			t.Fatal(err)
		}
		if got := b.measure(jobMetric(), inProgress); got.Phase != want {
			t.Errorf("got %+v, want %s", got, want)
		}
	}
}

// TestJobIsCreatedOnceIfItsResponseIsLost checks that a Job whose creation may have succeeded is looked up before another one is
// created.
func TestJobIsCreatedOnceIfItsResponseIsLost(t *testing.T) {
	b := newHarness(t, nil)
	watchClient, ok := b.client.(client.WithWatch)
	if !ok {
		t.Fatal("the client cannot be intercepted")
	}
	b.measurer.Jobs.Client = interceptor.NewClient(watchClient, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.CreateOption) error {
			if err := c.Create(ctx, object, options...); err != nil {
				return err
			}
			return apierrors.NewTimeoutError("request did not complete", 1)
		},
	})
	if got := b.measure(jobMetric(), analysis.MeasurementRequest{}); got.Phase != argov1.AnalysisPhaseRunning || measure.JobName(argov1.Measurement{Metadata: got.Metadata}) == "" {
		t.Errorf("got %+v, want the existing Job", got)
	}
}

// TestJobThatCannotBeReadRemainsInProgress: after an error, the next measurement would start a second Job.
func TestJobThatCannotBeReadRemainsInProgress(t *testing.T) {
	lost := &url.Error{Op: "Get", URL: "https://kubernetes/apis", Err: io.ErrUnexpectedEOF}
	newUnreadable := func(t *testing.T, unreadable func(any) bool) *harness {
		b := newHarness(t, nil, secret("shop", "web", map[string]string{"token": "hunter2"}))
		watchClient, ok := b.client.(client.WithWatch)
		if !ok {
			t.Fatal("the client cannot be intercepted")
		}
		broken := interceptor.NewClient(watchClient, interceptor.Funcs{
			Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, into client.Object, options ...client.GetOption) error {
				if unreadable(into) {
					return lost
				}
				return c.Get(ctx, key, into, options...)
			},
			List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
				if unreadable(list) {
					return lost
				}
				return c.List(ctx, list, options...)
			},
		})
		b.measurer.Client, b.measurer.Secrets, b.measurer.Jobs.Client, b.measurer.Jobs.APIReader = broken, broken, broken, broken
		return b
	}
	metric := jobMetric()
	metric.Provider.Job.Spec.Template.Annotations = map[string]string{"token": "{{args.token}}"}
	arg := argov1.Argument{Name: "token", ValueFrom: &argov1.ValueFrom{SecretKeyRef: &argov1.SecretKeyRef{Name: "web", Key: "token"}}}
	startedAt := metav1.NewTime(noon.Add(-50 * time.Second))
	for kind, unreadable := range map[string]func(any) bool{
		"Job":  func(object any) bool { _, is := object.(*batchv1.Job); return is },
		"EOF":  func(object any) bool { _, is := object.(*argov1.AnalysisRun); return is },
		"pods": func(object any) bool { _, is := object.(*corev1.PodList); return is },
		"":     func(object any) bool { _, is := object.(*corev1.Secret); return is },
	} {
		isBroken := false
		b := newUnreadable(t, func(object any) bool { return isBroken && unreadable(object) })
		first := b.measure(metric, analysis.MeasurementRequest{}, arg)
		isBroken = true
		inProgress := analysis.MeasurementRequest{InProgress: &argov1.Measurement{StartedAt: &startedAt, Metadata: first.Metadata}}
		got := b.measure(metric, inProgress, arg)
		if got.Phase != argov1.AnalysisPhaseRunning || !got.ResumeAt.Equal(noon.Add(10*time.Second)) || !strings.Contains(got.Message, kind) || (kind == "") != (got.Message == "") {
			t.Errorf("%s not readable: got %+v, want another check after ten seconds", kind, got)
		}
	}
}

func TestJobThatNoLongerExistsIsAnError(t *testing.T) {
	b := newHarness(t, nil)
	got := b.measure(jobMetric(), analysis.MeasurementRequest{InProgress: &argov1.Measurement{Metadata: map[string]string{"job-name": "gone"}}})
	if got.Phase != argov1.AnalysisPhaseError || !strings.Contains(got.Message, "not found") {
		t.Errorf("got %+v", got)
	}
}

func TestJobWithMissingImageIsInconclusive(t *testing.T) {
	b := newHarness(t, nil)
	first := b.measure(jobMetric(), analysis.MeasurementRequest{})
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "p", Labels: map[string]string{batchv1.JobNameLabel: first.Metadata["job-name"]}}}
	pod.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: "init", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull", Message: "no such image"}}}}
	if err := b.client.Create(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	got := b.measure(jobMetric(), analysis.MeasurementRequest{InProgress: &argov1.Measurement{Metadata: first.Metadata}})
	if want := "Pod p, container init has terminal error (ErrImagePull): no such image"; got.Phase != argov1.AnalysisPhaseInconclusive || got.Message != want {
		t.Errorf("got %s %q, want %q", got.Phase, got.Message, want)
	}
}

func TestOnlyTheTerminatedJobIsDeleted(t *testing.T) {
	unrelated := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "backup"}}
	b := newHarness(t, nil, unrelated)
	first := b.measure(jobMetric(), analysis.MeasurementRequest{})
	got := b.measure(jobMetric(), analysis.MeasurementRequest{Terminate: true, InProgress: &argov1.Measurement{Metadata: first.Metadata}})
	if got.Phase != argov1.AnalysisPhaseInconclusive {
		t.Errorf("got %+v", got)
	}
	// A user may write any name into a status.
	b.measure(jobMetric(), analysis.MeasurementRequest{Terminate: true, InProgress: &argov1.Measurement{Metadata: map[string]string{"job-name": "backup", "job-namespace": "shop"}}})
	jobs := &batchv1.JobList{}
	if err := b.client.List(t.Context(), jobs); err != nil || len(jobs.Items) != 1 || jobs.Items[0].Name != "backup" {
		t.Errorf("the remaining Jobs are %+v, %v, want only backup", jobs.Items, err)
	}
}

// jobNames measures metrics of one run with the provider job, and returns the names of their Jobs.
func (b *harness) jobNames(number int, metrics ...string) []string {
	b.t.Helper()
	run := &argov1.AnalysisRun{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "run", UID: runUID}}
	for _, name := range metrics {
		m := jobMetric()
		m.Name = name
		run.Spec.Metrics = append(run.Spec.Metrics, m)
	}
	if err := b.client.Create(b.t.Context(), run); err != nil {
		b.t.Fatal(err)
	}
	var names []string
	for _, m := range run.Spec.Metrics {
		answer := b.measurer.Measure(b.t.Context(), queryrunner.Key{NamespacedName: client.ObjectKeyFromObject(run), UID: runUID},
			release.Query{Request: analysis.MeasurementRequest{Metric: m, Number: number}})
		detail, _ := answer.Detail.(analysis.MeasurementResult)
		if detail.Phase != argov1.AnalysisPhaseRunning {
			b.t.Errorf("metric %s: got %+v", m.Name, detail)
		}
		names = append(names, measure.JobName(argov1.Measurement{Metadata: detail.Metadata}))
	}
	return names
}

func TestJobNamesAreValidLabels(t *testing.T) {
	for _, metric := range []string{
		strings.Repeat("long", 20), strings.Repeat("a-", 20), strings.Repeat("a.", 20), strings.Repeat("b", 14) + ".-" + strings.Repeat("c", 20),
	} {
		for _, number := range []int{1, 123, 12345} {
			b := newHarness(t, nil)
			name := b.jobNames(number, metric)[0]
			if problems := append(validation.IsDNS1123Subdomain(name), validation.IsValidLabelValue(name)...); len(problems) > 0 ||
				!strings.HasSuffix(name, fmt.Sprintf(".%d", number)) || !strings.HasPrefix(name, runUID+"."+metric[:8]) {
				t.Errorf("metric %s: the name %q is not valid, or does not name the metric and the measurement: %v", metric, name, problems)
			}
		}
	}
}

// TestMetricsWithSimilarNamesHaveTheirOwnJobs: a shared Job would pass for the test of each metric.
func TestMetricsWithSimilarNamesHaveTheirOwnJobs(t *testing.T) {
	b := newHarness(t, nil)
	names := b.jobNames(1, "integration-tests-checkout-cart", "integration-tests-checkout-payment")
	if names[0] == names[1] {
		t.Errorf("both metrics have the Job %s", names[0])
	}
}

// TestJobOfAnotherMetricIsRefused checks that the result of a Job counts only for the metric that it was created for.
func TestJobOfAnotherMetricIsRefused(t *testing.T) {
	b := newHarness(t, nil, &batchv1.Job{ObjectMeta: metav1.ObjectMeta{
		Namespace: "shop", Name: runUID + ".m.1", Labels: map[string]string{measure.RunUIDLabel: runUID},
		Annotations: map[string]string{measure.MetricNameAnnotation: "other"},
	}})
	got := b.measure(jobMetric(), analysis.MeasurementRequest{})
	if got.Phase != argov1.AnalysisPhaseError || !strings.Contains(got.Message, "belongs to another metric") {
		t.Errorf("got %+v, want an error", got)
	}
}

// TestKayentaIsStartedAndResumed checks that an analysis is started once, and that its score is compared with the thresholds.
func TestKayentaIsStartedAndResumed(t *testing.T) {
	for score, want := range map[int]argov1.AnalysisPhase{95: argov1.AnalysisPhaseSuccessful, 80: argov1.AnalysisPhaseInconclusive, 10: argov1.AnalysisPhaseFailed} {
		complete := false
		b := newHarness(t, func(w http.ResponseWriter, r *http.Request) {
			switch {
			case r.URL.Path == "/canaryConfig":
				_, _ = io.WriteString(w, `[{"id":"c1","name":"config"}]`)
			case r.Method == http.MethodPost:
				_, _ = io.WriteString(w, `{"canaryExecutionId":"e1"}`)
			case !complete:
				_, _ = io.WriteString(w, `{"complete":false}`)
			default:
				_, _ = fmt.Fprintf(w, `{"complete":true,"result":{"judgeResult":{"score":{"score":%d}}}}`, score)
			}
		})
		metric := argov1.Metric{Interval: "5m", Provider: argov1.MetricProvider{Kayenta: &argov1.KayentaMetric{
			Address: b.URL, Application: "a", CanaryConfigName: "config", Threshold: argov1.KayentaThreshold{Pass: 90, Marginal: 75},
			Scopes: []argov1.KayentaScope{{Name: "default"}},
		}}}
		started := b.measure(metric, analysis.MeasurementRequest{})
		if started.Phase != argov1.AnalysisPhaseRunning || started.Metadata["canaryExecutionId"] != "e1" || !started.ResumeAt.Equal(noon.Add(15*time.Second)) {
			t.Fatalf("got %+v", started)
		}
		inProgress := analysis.MeasurementRequest{InProgress: &argov1.Measurement{Metadata: started.Metadata}}
		if got := b.measure(metric, inProgress); got.Phase != argov1.AnalysisPhaseRunning {
			t.Errorf("got %+v", got)
		}
		complete = true
		if got := b.measure(metric, inProgress); got.Phase != want || got.Value != fmt.Sprint(score) {
			t.Errorf("got %+v, want %s", got, want)
		}
	}
}

// TestAPIServerMayHaveLoopbackAddress covers a controller on the host of its API server: it uses a loopback address, which
// queries of metrics must not use otherwise.
func TestAPIServerMayHaveLoopbackAddress(t *testing.T) {
	b := newHarness(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "" {
			http.Error(w, "credentials", http.StatusForbidden)
			return
		}
		_, _ = w.Write([]byte(`{"major":"1"}`))
	})
	b.measurer.Restricted = outbound.New(outbound.Policy{})
	t.Cleanup(b.measurer.Restricted.Close)
	version := argov1.Metric{
		SuccessCondition: `result == "1"`,
		Provider:         argov1.MetricProvider{Web: &argov1.WebMetric{URL: b.URL + "/version", JSONPath: "{$.major}"}},
	}
	if answer := b.measure(version, analysis.MeasurementRequest{}); !strings.Contains(answer.Message, "loopback") {
		t.Errorf("got %+v for a server on this host, want a refusal", answer)
	}
	anonymous, err := outbound.NewForServer(b.URL, http.DefaultTransport)
	if err != nil {
		t.Fatal(err)
	}
	b.measurer.Services = services(metric.Cluster{Address: b.URL, Anonymous: anonymous})
	if answer := b.measure(version, analysis.MeasurementRequest{}); answer.Phase != argov1.AnalysisPhaseSuccessful {
		t.Errorf("got %+v of the API server, want success", answer)
	}
}

// TestMeasurementTimesOut checks that a measurement ends even if the API server does not respond.
func TestMeasurementTimesOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hangingClient := interceptor.NewClient(fake.NewClientBuilder().Build(), interceptor.Funcs{
			Get: func(ctx context.Context, _ client.WithWatch, _ client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
				<-ctx.Done()
				return context.Cause(ctx)
			},
		})
		measurer := &measure.Measurer{Client: hangingClient, Clock: clocktesting.NewFakePassiveClock(noon), Telemetry: telemetry.New(prometheus.NewRegistry())}
		startedAt := time.Now()
		answer := measurer.Measure(t.Context(), queryrunner.Key{}, release.Query{Request: analysis.MeasurementRequest{}})
		detail, _ := answer.Detail.(analysis.MeasurementResult)
		if took := time.Since(startedAt); took != 2*time.Minute || detail.Phase != argov1.AnalysisPhaseError || detail.Message != "measurement timed out after 2m0s" {
			t.Errorf("got %+v after %s", detail, took)
		}
	})
}

// roundTripper is a transport.
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestMeasurementsDecodeAndEvaluateInSlots: hostile responses of many measurements would exceed the memory of the process.
func TestMeasurementsDecodeAndEvaluateInSlots(t *testing.T) {
	b := newHarness(t, nil)
	b.measurer.Restricted = outbound.NewThrough(roundTripper(func(r *http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader("1")), Request: r}, nil
	}))
	okMetric := argov1.Metric{SuccessCondition: "result == 1", Provider: argov1.MetricProvider{Web: &argov1.WebMetric{URL: "https://shop.test"}}}
	synctest.Test(t, func(t *testing.T) {
		b.t = t
		var release []func()
		for i := range 4 {
			ctx, end := metric.LimitAnalysis(t.Context(), fmt.Sprint(i))
			if err := metric.AcquireSlot(ctx); err != nil {
				t.Fatal(err)
			}
			release = append(release, end)
		}
		measured := make(chan analysis.MeasurementResult, 1)
		go func() { measured <- b.measure(okMetric, analysis.MeasurementRequest{}) }()
		synctest.Wait()
		if len(measured) > 0 {
			t.Error("all slots are occupied, and the measurement has ended")
		}
		for _, end := range release {
			end()
		}
		if got := <-measured; got.Phase != argov1.AnalysisPhaseSuccessful {
			t.Errorf("got %+v", got)
		}
	})
}

// TestHostileConditionIsAnError checks that a condition that needs too much time or memory is an error of its measurement.
func TestHostileConditionIsAnError(t *testing.T) {
	b := newHarness(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "1") })
	for _, condition := range []string{
		`let a = repeat("x", 900000); let b=a+a+a+a+a+a; let c=b+b+b+b+b+b+b+b+b+b; let d=c+c+c+c; len(d)>0`, `let a = 1..1000; all(a, all(a, all(a, #>0)))`,
	} {
		got := b.measure(argov1.Metric{SuccessCondition: condition, Provider: argov1.MetricProvider{Web: &argov1.WebMetric{URL: b.URL}}}, analysis.MeasurementRequest{})
		if got.Phase != argov1.AnalysisPhaseError || !strings.Contains(got.Message, "it needs too much time or memory") {
			t.Errorf("%s: got %+v", condition, got)
		}
		if err := b.client.DeleteAllOf(t.Context(), &argov1.AnalysisRun{}, client.InNamespace("shop")); err != nil {
			t.Fatal(err)
		}
	}
}
