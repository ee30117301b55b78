package v1alpha1

import (
	"encoding/json"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// MetricProvider has exactly one field set.
type MetricProvider struct {
	// Prometheus is asked a query.
	// +optional
	Prometheus *PrometheusMetric `json:"prometheus,omitempty"`
	// Kayenta is asked for a score.
	// +optional
	Kayenta *KayentaMetric `json:"kayenta,omitempty"`
	// Web is a URL that answers.
	// +optional
	Web *WebMetric `json:"web,omitempty"`
	// Datadog is asked a query.
	// +optional
	Datadog *DatadogMetric `json:"datadog,omitempty"`
	// Wavefront is asked a query.
	// +optional
	Wavefront *WavefrontMetric `json:"wavefront,omitempty"`
	// NewRelic is asked a query.
	// +optional
	NewRelic *NewRelicMetric `json:"newRelic,omitempty"`
	// Job is run, and must end well.
	// +optional
	Job *JobMetric `json:"job,omitempty"`
	// CloudWatch is asked queries.
	// +optional
	CloudWatch *CloudWatchMetric `json:"cloudWatch,omitempty"`
	// Graphite is asked a query.
	// +optional
	Graphite *GraphiteMetric `json:"graphite,omitempty"`
	// Influxdb is asked a query.
	// +optional
	Influxdb *InfluxdbMetric `json:"influxdb,omitempty"`
	// SkyWalking is asked a query.
	// +optional
	SkyWalking *SkyWalkingMetric `json:"skywalking,omitempty"`
	// Plugin is a provider of others: one name, with its configuration.
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Type=object
	// +kubebuilder:pruning:PreserveUnknownFields
	// +optional
	Plugin map[string]json.RawMessage `json:"plugin,omitempty"`
}

// providerTypes are the providers by the names of the API, with which metrics about analyses are labeled.
var providerTypes = []struct {
	name string
	set  func(p *MetricProvider) bool
}{
	{"Prometheus", func(p *MetricProvider) bool { return p.Prometheus != nil }},
	{"Kayenta", func(p *MetricProvider) bool { return p.Kayenta != nil }},
	{"Web", func(p *MetricProvider) bool { return p.Web != nil }},
	{"Datadog", func(p *MetricProvider) bool { return p.Datadog != nil }},
	{"Wavefront", func(p *MetricProvider) bool { return p.Wavefront != nil }},
	{"NewRelic", func(p *MetricProvider) bool { return p.NewRelic != nil }},
	{"Job", func(p *MetricProvider) bool { return p.Job != nil }},
	{"CloudWatch", func(p *MetricProvider) bool { return p.CloudWatch != nil }},
	{"Graphite", func(p *MetricProvider) bool { return p.Graphite != nil }},
	{"Influxdb", func(p *MetricProvider) bool { return p.Influxdb != nil }},
	{"skywalking", func(p *MetricProvider) bool { return p.SkyWalking != nil }},
}

// Types are the names of all providers that are set, RPCPlugin once for each plugin. A valid metric has exactly one.
func (p *MetricProvider) Types() []string {
	var types []string
	for _, t := range providerTypes {
		if t.set(p) {
			types = append(types, t.name)
		}
	}
	for range p.Plugin {
		types = append(types, "RPCPlugin")
	}
	return types
}

// PrometheusMetric is a query to Prometheus.
type PrometheusMetric struct {
	// Address of the server. Without it: the environment variable ARGO_ROLLOUTS_PROMETHEUS_ADDRESS of the controller.
	// +optional
	Address string `json:"address,omitempty"`
	// Query in PromQL.
	// +optional
	Query string `json:"query,omitempty"`
	// Authentication at the server.
	// +optional
	Authentication Authentication `json:"authentication,omitzero"`
	// Timeout of a query in seconds. Without it: 30.
	// +optional
	Timeout *int64 `json:"timeout,omitempty"`
	// Insecure does not check the certificate.
	// +optional
	Insecure bool `json:"insecure,omitempty"`
	// Headers of the request.
	// +listType=atomic
	// +optional
	Headers []WebMetricHeader `json:"headers,omitempty"`
	// RangeQuery asks over a range of time.
	// +optional
	RangeQuery *PrometheusRangeQueryArgs `json:"rangeQuery,omitempty"`
}

// PrometheusRangeQueryArgs is a range of time.
type PrometheusRangeQueryArgs struct {
	// Start is an expression such as now() - duration("1h").
	// +optional
	Start string `json:"start,omitempty"`
	// End is an expression such as now().
	// +optional
	End string `json:"end,omitempty"`
	// Step between two points.
	// +optional
	Step DurationString `json:"step,omitempty"`
}

// Authentication has at most one field set.
type Authentication struct {
	// BasicAuth sends a name and a password.
	// +optional
	BasicAuth BasicAuth `json:"basicAuth,omitzero"`
	// Sigv4 signs for AWS.
	// +optional
	Sigv4 Sigv4Config `json:"sigv4,omitzero"`
	// OAuth2 gets a token with client credentials.
	// +optional
	OAuth2 OAuth2Config `json:"oauth2,omitzero"`
}

// BasicAuth is a name and a password.
type BasicAuth struct {
	// Username to send.
	// +optional
	Username string `json:"username,omitempty"`
	// Password to send.
	// +optional
	Password string `json:"password,omitempty"`
}

// Sigv4Config says how to sign for AWS.
type Sigv4Config struct {
	// Region of the service.
	// +optional
	Region string `json:"region,omitempty"`
	// Profile of the credentials.
	// +optional
	Profile string `json:"profile,omitempty"`
	// RoleARN to assume.
	// +optional
	RoleARN string `json:"roleArn,omitempty"`
}

// OAuth2Config are client credentials.
type OAuth2Config struct {
	// TokenURL is where tokens are given.
	// +optional
	TokenURL string `json:"tokenUrl,omitempty"`
	// ClientID of the client.
	// +optional
	ClientID string `json:"clientId,omitempty"`
	// ClientSecret of the client.
	// +optional
	ClientSecret string `json:"clientSecret,omitempty"`
	// Scopes that are asked for.
	// +listType=atomic
	// +optional
	Scopes []string `json:"scopes,omitempty"`
}

// WebMetricHeader is a header of a request.
type WebMetricHeader struct {
	// Key of it.
	Key string `json:"key"`
	// Value of it.
	Value string `json:"value"`
}

// WebMetricMethod is the method of a request.
type WebMetricMethod string

// The methods of a web metric.
const (
	WebMetricMethodGet  WebMetricMethod = "GET"
	WebMetricMethodPost WebMetricMethod = "POST"
	WebMetricMethodPut  WebMetricMethod = "PUT"
)

// WebMetric is a call to a URL.
type WebMetric struct {
	// Method is GET, POST or PUT. Without it: GET.
	// +optional
	Method WebMetricMethod `json:"method,omitempty"`
	// URL that is called.
	URL string `json:"url"`
	// Headers of the request.
	// +listType=atomic
	// +optional
	Headers []WebMetricHeader `json:"headers,omitempty"`
	// Body of the request, for POST and PUT.
	// +optional
	Body string `json:"body,omitempty"`
	// TimeoutSeconds of the call. Without it: 10.
	// +optional
	TimeoutSeconds int64 `json:"timeoutSeconds,omitempty"`
	// JSONPath of the value in the answer. Without it: the whole answer.
	// +optional
	JSONPath string `json:"jsonPath,omitempty"`
	// Insecure does not check the certificate.
	// +optional
	Insecure bool `json:"insecure,omitempty"`
	// JSONBody of the request instead of body, for POST and PUT.
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Type=object
	// +kubebuilder:pruning:PreserveUnknownFields
	// +optional
	JSONBody json.RawMessage `json:"jsonBody,omitempty"`
	// Authentication at the server.
	// +optional
	Authentication Authentication `json:"authentication,omitzero"`
}

// JobMetric is a Job that must end well.
type JobMetric struct {
	// Metadata is put on the Job.
	// +optional
	Metadata JobMetadata `json:"metadata,omitzero"`
	// Spec of the Job.
	Spec batchv1.JobSpec `json:"spec"`
}

// JobMetadata is put on a Job.
type JobMetadata struct {
	// Labels by key.
	// +optional
	Labels map[string]string `json:"labels,omitempty"`
	// Annotations by key.
	// +optional
	Annotations map[string]string `json:"annotations,omitempty"`
}

// DatadogMetric is a query to Datadog.
type DatadogMetric struct {
	// Interval that is asked about, up to now.
	// +kubebuilder:default="5m"
	// +optional
	Interval DurationString `json:"interval,omitempty"`
	// RequestTimeout of one call.
	// +kubebuilder:default="10s"
	// +optional
	RequestTimeout DurationString `json:"requestTimeout,omitempty"`
	// Query to ask.
	// +optional
	Query string `json:"query,omitempty"`
	// Queries by name, for a formula. Only v2.
	// +optional
	Queries map[string]string `json:"queries,omitempty"`
	// Formula over the queries. Only v2.
	// +optional
	Formula string `json:"formula,omitempty"`
	// APIVersion of Datadog.
	// +kubebuilder:validation:Enum=v1;v2
	// +kubebuilder:default="v1"
	// +optional
	APIVersion string `json:"apiVersion,omitempty"`
	// Aggregator of many points to one. Only v2. Without it: last.
	// +kubebuilder:validation:Enum=avg;min;max;sum;last;percentile;mean;l2norm;area
	// +optional
	Aggregator string `json:"aggregator,omitempty"`
	// SecretRef names the Secret with the keys.
	// +optional
	SecretRef SecretRef `json:"secretRef,omitzero"`
}

// SecretRef names a Secret.
type SecretRef struct {
	// Name of it.
	// +optional
	Name string `json:"name,omitempty"`
	// Namespaced is true when it lies in the namespace of the run; otherwise in that of the controller.
	// +optional
	Namespaced bool `json:"namespaced,omitempty"`
}

// WavefrontMetric is a query to Wavefront.
type WavefrontMetric struct {
	// Address of the server.
	// +optional
	Address string `json:"address,omitempty"`
	// Query to ask.
	// +optional
	Query string `json:"query,omitempty"`
}

// NewRelicMetric is a query to New Relic.
type NewRelicMetric struct {
	// Profile is the name of the Secret with the keys. Without it: newrelic.
	// +optional
	Profile string `json:"profile,omitempty"`
	// Query in NRQL.
	Query string `json:"query"`
	// Timeout of a query in seconds. Without it: 5.
	// +optional
	Timeout *int64 `json:"timeout,omitempty"`
}

// CloudWatchMetric are queries to CloudWatch.
type CloudWatchMetric struct {
	// Interval that is asked about, up to now. Without it: 5m.
	// +optional
	Interval DurationString `json:"interval,omitempty"`
	// MetricDataQueries to ask.
	// +listType=atomic
	MetricDataQueries []CloudWatchMetricDataQuery `json:"metricDataQueries"`
}

// CloudWatchMetricDataQuery is one query.
type CloudWatchMetricDataQuery struct {
	// ID by which expressions name it.
	// +optional
	ID string `json:"id,omitempty"`
	// Expression over other queries.
	// +optional
	Expression *string `json:"expression,omitempty"`
	// Label of the result.
	// +optional
	Label *string `json:"label,omitempty"`
	// MetricStat is a statistic of a metric.
	// +optional
	MetricStat *CloudWatchMetricStat `json:"metricStat,omitempty"`
	// Period of a point in seconds.
	// +optional
	Period *intstr.IntOrString `json:"period,omitempty"`
	// ReturnData is false for a query that only others use.
	// +optional
	ReturnData *bool `json:"returnData,omitempty"`
}

// CloudWatchMetricStat is a statistic of a metric.
type CloudWatchMetricStat struct {
	// Metric that is meant.
	// +optional
	Metric CloudWatchMetricStatMetric `json:"metric,omitzero"`
	// Period of a point in seconds.
	// +optional
	Period intstr.IntOrString `json:"period,omitzero"`
	// Stat, for example Average.
	// +optional
	Stat string `json:"stat,omitempty"`
	// Unit, for example Count.
	// +optional
	Unit string `json:"unit,omitempty"`
}

// CloudWatchMetricStatMetric names a metric.
type CloudWatchMetricStatMetric struct {
	// Dimensions that tell it apart.
	// +listType=atomic
	// +optional
	Dimensions []CloudWatchMetricStatMetricDimension `json:"dimensions,omitempty"`
	// MetricName is its name.
	// +optional
	MetricName string `json:"metricName,omitempty"`
	// Namespace of the metric.
	// +optional
	Namespace *string `json:"namespace,omitempty"`
}

// CloudWatchMetricStatMetricDimension is a name and a value.
type CloudWatchMetricStatMetricDimension struct {
	// Name of the dimension.
	// +optional
	Name string `json:"name,omitempty"`
	// Value of the dimension.
	// +optional
	Value string `json:"value,omitempty"`
}

// GraphiteMetric is a query to Graphite.
type GraphiteMetric struct {
	// Address of the server.
	// +optional
	Address string `json:"address,omitempty"`
	// Query to ask.
	// +optional
	Query string `json:"query,omitempty"`
}

// InfluxdbMetric is a query to InfluxDB.
type InfluxdbMetric struct {
	// Profile is the name of the Secret with the keys. Without it: influxdb.
	// +optional
	Profile string `json:"profile,omitempty"`
	// Query in Flux.
	// +optional
	Query string `json:"query,omitempty"`
}

// SkyWalkingMetric is a query to SkyWalking.
type SkyWalkingMetric struct {
	// Address of the server.
	// +optional
	Address string `json:"address,omitempty"`
	// Query in GraphQL.
	// +optional
	Query string `json:"query,omitempty"`
	// Interval that is asked about, up to now. Without it: 5m.
	// +optional
	Interval DurationString `json:"interval,omitempty"`
}

// KayentaMetric is a comparison by Kayenta.
type KayentaMetric struct {
	// Address of the server.
	Address string `json:"address"`
	// Application that is compared.
	Application string `json:"application"`
	// CanaryConfigName is the name of the configuration.
	CanaryConfigName string `json:"canaryConfigName"`
	// MetricsAccountName is the account of the metrics.
	MetricsAccountName string `json:"metricsAccountName"`
	// ConfigurationAccountName is the account of the configuration.
	ConfigurationAccountName string `json:"configurationAccountName"`
	// StorageAccountName is the account of the results.
	StorageAccountName string `json:"storageAccountName"`
	// Threshold of the score.
	Threshold KayentaThreshold `json:"threshold"`
	// Scopes that are compared.
	// +listType=atomic
	Scopes []KayentaScope `json:"scopes"`
	// Lookback begins the comparison at the start of the run.
	// +optional
	Lookback bool `json:"lookback,omitempty"`
}

// KayentaThreshold are the bounds of a score.
type KayentaThreshold struct {
	// Pass is the least good score.
	Pass int64 `json:"pass"`
	// Marginal is the least score that is not bad.
	Marginal int64 `json:"marginal"`
}

// KayentaScope are two sides that are compared.
type KayentaScope struct {
	// Name of the comparison.
	Name string `json:"name"`
	// ControlScope is the side that is known.
	ControlScope ScopeDetail `json:"controlScope"`
	// ExperimentScope is the side that is new.
	ExperimentScope ScopeDetail `json:"experimentScope"`
}

// ScopeDetail is one side.
type ScopeDetail struct {
	// Scope is its name.
	Scope string `json:"scope"`
	// Region of it.
	Region string `json:"region"`
	// Step between two points in seconds.
	Step int64 `json:"step"`
	// Start of the range, in RFC 3339. Without it: the start of the run, or the interval before now.
	// +optional
	Start string `json:"start,omitempty"`
	// End of the range, in RFC 3339. Without it: now.
	// +optional
	End string `json:"end,omitempty"`
}
