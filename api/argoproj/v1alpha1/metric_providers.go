package v1alpha1

import (
	"encoding/json"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// MetricProvider is the source of a metric. Exactly one field must be set.
type MetricProvider struct {
	// Prometheus is a query to Prometheus.
	// +optional
	Prometheus *PrometheusMetric `json:"prometheus,omitempty"`
	// Kayenta is an analysis by Kayenta, which returns a score.
	// +optional
	Kayenta *KayentaMetric `json:"kayenta,omitempty"`
	// Web is a request to a URL.
	// +optional
	Web *WebMetric `json:"web,omitempty"`
	// Datadog is a query to Datadog.
	// +optional
	Datadog *DatadogMetric `json:"datadog,omitempty"`
	// Wavefront is a query to Wavefront.
	// +optional
	Wavefront *WavefrontMetric `json:"wavefront,omitempty"`
	// NewRelic is a query to New Relic.
	// +optional
	NewRelic *NewRelicMetric `json:"newRelic,omitempty"`
	// Job is a Job that must succeed.
	// +optional
	Job *JobMetric `json:"job,omitempty"`
	// CloudWatch is a set of queries to CloudWatch.
	// +optional
	CloudWatch *CloudWatchMetric `json:"cloudWatch,omitempty"`
	// Graphite is a query to Graphite.
	// +optional
	Graphite *GraphiteMetric `json:"graphite,omitempty"`
	// Influxdb is a query to InfluxDB.
	// +optional
	Influxdb *InfluxdbMetric `json:"influxdb,omitempty"`
	// SkyWalking is a query to SkyWalking.
	// +optional
	SkyWalking *SkyWalkingMetric `json:"skywalking,omitempty"`
	// Dynatrace is a query to Dynatrace. Argo Rollouts does not have this provider.
	// +optional
	Dynatrace *DynatraceMetric `json:"dynatrace,omitempty"`
	// Splunk is a program for Splunk Observability Cloud. Argo Rollouts does not have this provider.
	// +optional
	Splunk *SplunkMetric `json:"splunk,omitempty"`
	// Stackdriver is a query to Google Cloud Monitoring. Argo Rollouts does not have this provider.
	// +optional
	Stackdriver *StackdriverMetric `json:"stackdriver,omitempty"`
	// ExternalMetrics is a query to the external metrics API of Kubernetes. Argo Rollouts does not have this provider.
	// +optional
	ExternalMetrics *ExternalMetric `json:"externalMetrics,omitempty"`
	// Keptn reads a KeptnMetric, or runs an Analysis of Keptn. Argo Rollouts does not have this provider.
	// +optional
	Keptn *KeptnMetric `json:"keptn,omitempty"`
	// Plugin is a third-party provider: one name, with its configuration.
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Type=object
	// +kubebuilder:pruning:PreserveUnknownFields
	// +optional
	Plugin map[string]json.RawMessage `json:"plugin,omitempty"`
}

// providerTypes maps the fields of MetricProvider to the names that label the metrics of analyses.
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
	{"Dynatrace", func(p *MetricProvider) bool { return p.Dynatrace != nil }},
	{"Splunk", func(p *MetricProvider) bool { return p.Splunk != nil }},
	{"Stackdriver", func(p *MetricProvider) bool { return p.Stackdriver != nil }},
	{"ExternalMetrics", func(p *MetricProvider) bool { return p.ExternalMetrics != nil }},
	{"Keptn", func(p *MetricProvider) bool { return p.Keptn != nil }},
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
	// Address of the server. Defaults to the environment variable ARGO_ROLLOUTS_PROMETHEUS_ADDRESS of the controller.
	// +optional
	Address string `json:"address,omitempty"`
	// Query in PromQL.
	// +optional
	Query string `json:"query,omitempty"`
	// Authentication for the server.
	// +optional
	Authentication Authentication `json:"authentication,omitzero"`
	// Timeout of a query, in seconds. Defaults to 30.
	// +optional
	Timeout *int64 `json:"timeout,omitempty"`
	// Insecure disables the verification of the server's certificate.
	// +optional
	Insecure bool `json:"insecure,omitempty"`
	// Headers of the request.
	// +listType=atomic
	// +optional
	Headers []WebMetricHeader `json:"headers,omitempty"`
	// RangeQuery queries a range of time.
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

// Authentication is the way to authenticate at a server. At most one field may be set.
type Authentication struct {
	// BasicAuth sends a user name and a password.
	// +optional
	BasicAuth BasicAuth `json:"basicAuth,omitzero"`
	// Sigv4 signs requests for AWS.
	// +optional
	Sigv4 Sigv4Config `json:"sigv4,omitzero"`
	// OAuth2 requests a token with client credentials.
	// +optional
	OAuth2 OAuth2Config `json:"oauth2,omitzero"`
}

// BasicAuth is a user name and a password.
type BasicAuth struct {
	// Username to send.
	// +optional
	Username string `json:"username,omitempty"`
	// Password to send.
	// +optional
	Password string `json:"password,omitempty"`
}

// Sigv4Config configures the signature of requests for AWS.
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

// OAuth2Config has client credentials.
type OAuth2Config struct {
	// TokenURL is the URL of the token endpoint.
	// +optional
	TokenURL string `json:"tokenUrl,omitempty"`
	// ClientID of the client.
	// +optional
	ClientID string `json:"clientId,omitempty"`
	// ClientSecret of the client.
	// +optional
	ClientSecret string `json:"clientSecret,omitempty"`
	// Scopes that are requested.
	// +listType=atomic
	// +optional
	Scopes []string `json:"scopes,omitempty"`
}

// WebMetricHeader is a header of a request.
type WebMetricHeader struct {
	// Key of the header.
	Key string `json:"key"`
	// Value of the header.
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

// WebMetric is a request to a URL.
type WebMetric struct {
	// Method is GET, POST or PUT. Defaults to GET.
	// +optional
	Method WebMetricMethod `json:"method,omitempty"`
	// URL of the request.
	URL string `json:"url"`
	// Headers of the request.
	// +listType=atomic
	// +optional
	Headers []WebMetricHeader `json:"headers,omitempty"`
	// Body of the request, for POST and PUT.
	// +optional
	Body string `json:"body,omitempty"`
	// TimeoutSeconds is the timeout of the request, in seconds. Defaults to 10.
	// +optional
	TimeoutSeconds int64 `json:"timeoutSeconds,omitempty"`
	// JSONPath of the value in the response. Defaults to the whole response.
	// +optional
	JSONPath string `json:"jsonPath,omitempty"`
	// Insecure disables the verification of the server's certificate.
	// +optional
	Insecure bool `json:"insecure,omitempty"`
	// JSONBody of the request instead of body, for POST and PUT.
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Type=object
	// +kubebuilder:pruning:PreserveUnknownFields
	// +optional
	JSONBody json.RawMessage `json:"jsonBody,omitempty"`
	// Authentication for the server.
	// +optional
	Authentication Authentication `json:"authentication,omitzero"`
}

// JobMetric is a Job that must succeed.
type JobMetric struct {
	// Metadata is added to the Job.
	// +optional
	Metadata JobMetadata `json:"metadata,omitzero"`
	// Spec of the Job.
	Spec batchv1.JobSpec `json:"spec"`
}

// JobMetadata has labels and annotations of a Job.
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
	// Interval before now that is queried.
	// +kubebuilder:default="5m"
	// +optional
	Interval DurationString `json:"interval,omitempty"`
	// RequestTimeout is the timeout of one request.
	// +kubebuilder:default="10s"
	// +optional
	RequestTimeout DurationString `json:"requestTimeout,omitempty"`
	// Query is the query.
	// +optional
	Query string `json:"query,omitempty"`
	// Queries by name, for a formula. Requires API version v2.
	// +optional
	Queries map[string]string `json:"queries,omitempty"`
	// Formula over the queries. Requires API version v2.
	// +optional
	Formula string `json:"formula,omitempty"`
	// APIVersion of Datadog.
	// +kubebuilder:validation:Enum=v1;v2
	// +kubebuilder:default="v1"
	// +optional
	ApiVersion string `json:"apiVersion,omitempty"` // plugins receive the field by this name
	// Aggregator reduces the points of a result to one. Requires API version v2. Defaults to last.
	// +kubebuilder:validation:Enum=avg;min;max;sum;last;percentile;mean;l2norm;area
	// +optional
	Aggregator string `json:"aggregator,omitempty"`
	// SecretRef names the Secret with the keys.
	// +optional
	SecretRef SecretRef `json:"secretRef,omitzero"`
}

// SecretRef names a Secret.
type SecretRef struct {
	// Name of the Secret.
	// +optional
	Name string `json:"name,omitempty"`
	// Namespaced is true if the Secret is in the namespace of the analysis run. Otherwise it is in that of the controller.
	// +optional
	Namespaced bool `json:"namespaced,omitempty"`
}

// WavefrontMetric is a query to Wavefront.
type WavefrontMetric struct {
	// Address of the server.
	// +optional
	Address string `json:"address,omitempty"`
	// Query is the query.
	// +optional
	Query string `json:"query,omitempty"`
}

// NewRelicMetric is a query to New Relic.
type NewRelicMetric struct {
	// Profile is the name of the Secret with the keys. Defaults to newrelic.
	// +optional
	Profile string `json:"profile,omitempty"`
	// Query in NRQL.
	Query string `json:"query"`
	// Timeout of a query, in seconds. Defaults to 5.
	// +optional
	Timeout *int64 `json:"timeout,omitempty"`
}

// CloudWatchMetric is a set of queries to CloudWatch.
type CloudWatchMetric struct {
	// Interval before now that is queried. Defaults to 5m.
	// +optional
	Interval DurationString `json:"interval,omitempty"`
	// MetricDataQueries are the queries.
	// +listType=atomic
	MetricDataQueries []CloudWatchMetricDataQuery `json:"metricDataQueries"`
}

// CloudWatchMetricDataQuery is one query.
type CloudWatchMetricDataQuery struct {
	// ID under which expressions refer to the query.
	// +optional
	Id string `json:"id,omitempty"` // plugins receive the field by this name
	// Expression over other queries.
	// +optional
	Expression *string `json:"expression,omitempty"`
	// Label of the result.
	// +optional
	Label *string `json:"label,omitempty"`
	// MetricStat is a statistic of a metric.
	// +optional
	MetricStat *CloudWatchMetricStat `json:"metricStat,omitempty"`
	// Period of a point, in seconds.
	// +optional
	Period *intstr.IntOrString `json:"period,omitempty"`
	// ReturnData is false for a query whose result only expressions use.
	// +optional
	ReturnData *bool `json:"returnData,omitempty"`
}

// CloudWatchMetricStat is a statistic of a metric.
type CloudWatchMetricStat struct {
	// Metric of the statistic.
	// +optional
	Metric CloudWatchMetricStatMetric `json:"metric,omitzero"`
	// Period of a point, in seconds.
	// +optional
	Period intstr.IntOrString `json:"period,omitzero"`
	// Stat is the statistic, for example Average.
	// +optional
	Stat string `json:"stat,omitempty"`
	// Unit of the metric, for example Count.
	// +optional
	Unit string `json:"unit,omitempty"`
}

// CloudWatchMetricStatMetric names a metric.
type CloudWatchMetricStatMetric struct {
	// Dimensions that identify the metric.
	// +listType=atomic
	// +optional
	Dimensions []CloudWatchMetricStatMetricDimension `json:"dimensions,omitempty"`
	// MetricName is the name of the metric.
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
	// Query is the query.
	// +optional
	Query string `json:"query,omitempty"`
}

// InfluxdbMetric is a query to InfluxDB.
type InfluxdbMetric struct {
	// Profile is the name of the Secret with the keys. Defaults to influxdb.
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
	// Interval before now that is queried. Defaults to 5m.
	// +optional
	Interval DurationString `json:"interval,omitempty"`
}

// DynatraceMetric is a query to Dynatrace.
type DynatraceMetric struct {
	// Query is a metric selector.
	Query string `json:"query"`
	// Interval before now that is queried. Defaults to 5m.
	// +optional
	Interval DurationString `json:"interval,omitempty"`
	// SecretRef names the Secret with address and dynatrace_token. Defaults to dynatrace in the namespace of the controller.
	// +optional
	SecretRef SecretRef `json:"secretRef,omitzero"`
}

// SplunkMetric is a program for Splunk Observability Cloud.
type SplunkMetric struct {
	// Query is a SignalFlow program that publishes one time series.
	Query string `json:"query"`
	// Interval before now that is queried. Defaults to 5m.
	// +optional
	Interval DurationString `json:"interval,omitempty"`
	// SecretRef names the Secret with address and sf_token_key. Defaults to splunk in the namespace of the controller.
	// +optional
	SecretRef SecretRef `json:"secretRef,omitzero"`
}

// StackdriverMetric is a query to Google Cloud Monitoring.
type StackdriverMetric struct {
	// Query in MQL. It contains the range of time.
	Query string `json:"query"`
	// SecretRef names the Secret with project and serviceAccountKey, the JSON key of a service account. Without the key, the
	// credentials of the controller are used. Defaults to stackdriver in the namespace of the controller, which need not exist.
	// +optional
	SecretRef SecretRef `json:"secretRef,omitzero"`
}

// ExternalMetric is a query to the external metrics API of Kubernetes.
type ExternalMetric struct {
	// Query is [namespace/]metric[?labelSelector=...]. The namespace defaults to that of the analysis run, and may differ from
	// it only if the Secret is in the namespace of the analysis run.
	Query string `json:"query"`
	// SecretRef names the Secret with a token and, optionally, the address of another API server. Defaults to the permissions
	// of the controller.
	// +optional
	SecretRef SecretRef `json:"secretRef,omitzero"`
}

// KeptnMetric reads a KeptnMetric, or runs an Analysis of Keptn.
type KeptnMetric struct {
	// Query is keptnmetric/namespace/name, or analysis/namespace/name[/duration[/key=value;...]]. The namespace must be that of
	// the analysis run.
	Query string `json:"query"`
}

// KayentaMetric is an analysis by Kayenta.
type KayentaMetric struct {
	// Address of the server.
	Address string `json:"address"`
	// Application whose metrics are compared.
	Application string `json:"application"`
	// CanaryConfigName is the name of Kayenta's canary configuration.
	CanaryConfigName string `json:"canaryConfigName"`
	// MetricsAccountName is the account for the metrics.
	MetricsAccountName string `json:"metricsAccountName"`
	// ConfigurationAccountName is the account for the configuration.
	ConfigurationAccountName string `json:"configurationAccountName"`
	// StorageAccountName is the account for the results.
	StorageAccountName string `json:"storageAccountName"`
	// Threshold of the score.
	Threshold KayentaThreshold `json:"threshold"`
	// Scopes that are compared.
	// +listType=atomic
	Scopes []KayentaScope `json:"scopes"`
	// Lookback starts the range of the comparison at the start of the analysis run.
	// +optional
	Lookback bool `json:"lookback,omitempty"`
}

// KayentaThreshold has the limits of a score.
type KayentaThreshold struct {
	// Pass is the lowest successful score.
	Pass int64 `json:"pass"`
	// Marginal is the lowest inconclusive score. A lower score is failed.
	Marginal int64 `json:"marginal"`
}

// KayentaScope is a comparison of two scopes.
type KayentaScope struct {
	// Name of the comparison.
	Name string `json:"name"`
	// ControlScope is the baseline.
	ControlScope ScopeDetail `json:"controlScope"`
	// ExperimentScope is compared with the baseline.
	ExperimentScope ScopeDetail `json:"experimentScope"`
}

// ScopeDetail is one side of a comparison.
type ScopeDetail struct {
	// Scope is the name of the scope.
	Scope string `json:"scope"`
	// Region of the scope.
	Region string `json:"region"`
	// Step between two points, in seconds.
	Step int64 `json:"step"`
	// Start of the range, in RFC 3339. Defaults to the start of the analysis run, or to the interval before now.
	// +optional
	Start string `json:"start,omitempty"`
	// End of the range, in RFC 3339. Defaults to now.
	// +optional
	End string `json:"end,omitempty"`
}
