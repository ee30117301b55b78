package metric

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"time"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/outbound"
)

// Service is one metrics service: an entry of the registry. It serves the MetricTemplates of Canaries, the metrics of
// AnalysisRuns, or both. Flagger and Argo Rollouts call some services by different endpoints, take credentials from
// different places, and read the same response differently; an entry contains both ways.
type Service struct {
	// TemplateType is the spec.provider.type of MetricTemplates. Empty: they cannot name the service.
	TemplateType string
	// NewProvider checks the configuration of a MetricTemplate; it sends no request. Its errors name what to correct and
	// contain no credential.
	NewProvider func(client *outbound.Client, c Config) (Provider, error)

	// AnalysisType is one of argov1.MetricProvider.Types. Empty: AnalysisTemplates cannot name the service.
	AnalysisType string
	// NewMeasurement checks the provider of a metric. It sends no request, except to the API server for Secrets.
	NewMeasurement func(ctx context.Context, r AnalysisRequest) (Measurement, error)
}

// Config is the provider of one MetricTemplate.
type Config struct {
	// Namespace of the MetricTemplate, for providers whose queries name namespaces.
	Namespace string
	// Address is the URL of the service as given; empty without one.
	Address string
	// Header is sent with each query, by providers that read it. The caller owns it.
	Header http.Header
	// Region of the service, for providers that have regions.
	Region string
	// SkipVerify disables the verification of certificates.
	SkipVerify bool
	// Timeout of one request, for providers that read it; zero: their own.
	Timeout time.Duration
	// Credentials are the keys of the Secret. Nil: the template names no Secret, which differs from an empty one.
	Credentials map[string]outbound.Secret
}

// AnalysisRequest is one metric of an AnalysisRun, with what a service may use to query it.
type AnalysisRequest struct {
	Run *argov1.AnalysisRun
	// Metric has its arguments resolved.
	Metric argov1.Metric
	Now    time.Time
	// Restricted sends requests to addresses that users name, Unrestricted to those that the administrator names.
	Restricted, Unrestricted *outbound.Client
	// ControllerNamespace contains the Secrets of services that AnalysisTemplates name by profile.
	ControllerNamespace string
	// Credentials reads all keys of a Secret; a missing Secret has none.
	Credentials func(ctx context.Context, namespace, name string) (map[string]outbound.Secret, error)
	// Hide masks values in every text of the measurement. Addresses and regions in a Secret are not masked: they are not
	// secret, and without them errors are unreadable.
	Hide func(values ...outbound.Secret)
	// Environment is that of the process; some services may be configured in it.
	Environment func(string) string
	// EvaluateTime evaluates an expression such as now() - duration("1h").
	EvaluateTime func(ctx context.Context, expression string) (time.Time, error)
}

// ReadSecret returns the data of the Secret that a metric names. Without a name, it is that of the service in the namespace
// of the controller. A missing Secret has no data.
func (r AnalysisRequest) ReadSecret(ctx context.Context, service string, ref argov1.SecretRef) (map[string]outbound.Secret, error) {
	if ref.Namespaced && ref.Name == "" {
		return nil, fmt.Errorf("%s secretRef.name is required when secretRef.namespaced is true", service)
	}
	namespace := r.ControllerNamespace
	if ref.Namespaced {
		namespace = r.Run.Namespace
	}
	return r.Credentials(ctx, namespace, cmp.Or(ref.Name, service))
}

// ReadConfig returns the configuration of a provider whose Secret contains both the address and a token for it, so that the token
// is sent only to the server that the owner of the Secret chose. The texts of the run do not contain the token.
func (r AnalysisRequest) ReadConfig(ctx context.Context, service string, ref argov1.SecretRef, tokenKey string) (Config, error) {
	credentials, err := r.ReadSecret(ctx, service, ref)
	if err != nil {
		return Config{}, err
	}
	r.Hide(credentials[tokenKey])
	if credentials[KeyAddress] == "" {
		return Config{}, Missing(service, KeyAddress)
	}
	return Config{Address: credentials[KeyAddress].Reveal(), Credentials: credentials}, nil
}

// Measurement is the query of one metric of an AnalysisRun, and the rules of Argo Rollouts for reading its response.
type Measurement struct {
	Provider RawQuerier
	Query    Query
	// NoData is the value that conditions evaluate if the response has none; NoDataError, if set, is returned instead.
	NoData      any
	NoDataError error
	// Format renders a value; nil: FormatValue.
	Format func(value any) string
	// ConvertError returns the error texts of Argo Rollouts for a failed request; nil: errors are unchanged.
	ConvertError func(error) error

	// Async is set instead of Provider if a measurement takes longer than one request. Judge rates its result.
	Async AsyncProvider
	Judge func(score float64) argov1.AnalysisPhase
}

// KeyAddress is the key of the address in a Secret of analyses.
const KeyAddress = "address"

// DefaultAnalysisInterval is the time range of a query of an AnalysisTemplate that names none.
const DefaultAnalysisInterval = 5 * time.Minute

// DurationOr parses a duration that a user wrote; empty: the default.
func DurationOr(text argov1.DurationString, byDefault time.Duration) (time.Duration, error) {
	if text == "" {
		return byDefault, nil
	}
	return time.ParseDuration(string(text))
}

// HeaderOf returns the headers that a metric of an AnalysisTemplate sets.
func HeaderOf(list []argov1.WebMetricHeader) http.Header {
	header := http.Header{}
	for _, h := range list {
		header.Set(h.Key, h.Value)
	}
	return header
}

// WithText returns an error with a text of Argo Rollouts in place of its own, and the same outcome.
func WithText(err error, text string) error { return &textError{text: text, cause: err} }

type textError struct {
	text  string
	cause error
}

func (e *textError) Error() string { return e.text }
func (e *textError) Unwrap() error { return e.cause }
