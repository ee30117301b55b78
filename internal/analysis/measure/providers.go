package measure

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/analysis/condition"
	"github.com/serin-dev/serin/internal/metric"
	"github.com/serin-dev/serin/internal/metric/cloudwatch"
	"github.com/serin-dev/serin/internal/metric/datadog"
	"github.com/serin-dev/serin/internal/metric/graphite"
	"github.com/serin-dev/serin/internal/metric/influxdb"
	"github.com/serin-dev/serin/internal/metric/kayenta"
	"github.com/serin-dev/serin/internal/metric/newrelic"
	"github.com/serin-dev/serin/internal/metric/prometheus"
	"github.com/serin-dev/serin/internal/metric/skywalking"
	"github.com/serin-dev/serin/internal/metric/wavefront"
	"github.com/serin-dev/serin/internal/metric/web"
	"github.com/serin-dev/serin/internal/outbound"
)

// The defaults of the API.
const (
	prometheusTimeout = 30 * time.Second
	newRelicTimeout   = 5 * time.Second
	graphiteTimeout   = 10 * time.Second
	influxTimeout     = 30 * time.Second
	datadogTimeout    = 10 * time.Second
	defaultInterval   = 5 * time.Minute

	prometheusVariable = "ARGO_ROLLOUTS_PROMETHEUS_ADDRESS"
)

// service makes the one that a metric names. Making it calls nobody but the API server, for Secrets.
func (m *Measurer) service(ctx context.Context, run *argov1.AnalysisRun, of argov1.Metric, hidden *secrets) (service, error) {
	switch p := of.Provider; {
	case p.Prometheus != nil:
		return m.prometheus(ctx, run.Namespace, *p.Prometheus, hidden)
	case p.Web != nil:
		return m.web(*p.Web, hidden)
	case p.Datadog != nil:
		return m.datadog(ctx, run.Namespace, *p.Datadog, hidden)
	case p.NewRelic != nil:
		return m.newRelic(ctx, *p.NewRelic, hidden)
	case p.Wavefront != nil:
		return m.wavefront(ctx, *p.Wavefront, hidden)
	case p.CloudWatch != nil:
		return m.cloudWatch(*p.CloudWatch)
	case p.Graphite != nil:
		return m.graphite(*p.Graphite)
	case p.Influxdb != nil:
		return m.influxdb(ctx, *p.Influxdb, hidden)
	case p.SkyWalking != nil:
		return m.skyWalking(*p.SkyWalking)
	case p.Kayenta != nil:
		return m.kayenta(run, of, *p.Kayenta)
	case len(p.Plugin) > 0:
		return service{}, errors.New("this version of Serin runs no plugins of others: use one of the providers that it has")
	default:
		return service{}, fmt.Errorf("no valid provider in metric '%s'", of.Name)
	}
}

// span is a duration that was written by a user; empty: the default.
func span(text argov1.DurationString, otherwise time.Duration) (time.Duration, error) {
	if text == "" {
		return otherwise, nil
	}
	return time.ParseDuration(string(text))
}

func (m *Measurer) prometheus(ctx context.Context, namespace string, p argov1.PrometheusMetric, hidden *secrets) (service, error) {
	caller := m.Named
	if p.Address == "" {
		p.Address, caller = m.Environment(prometheusVariable), m.Trusted
	}
	timeout := prometheusTimeout
	if p.Timeout != nil {
		timeout = time.Duration(*p.Timeout) * time.Second
	}
	switch _, err := outbound.ParseURL(p.Address); {
	case timeout < 0:
		return service{}, errors.New("prometheus timeout should not be negative")
	case p.Address == "":
		return service{}, errors.New("prometheus address is not configured")
	case err != nil:
		return service{}, errors.New("prometheus address is not is url format")
	}
	config := metric.Config{Address: p.Address, Header: header(p.Headers), SkipVerify: p.Insecure, Timeout: timeout}
	var err error
	if config.Credentials, err = prometheusCredentials(p.Authentication); err != nil {
		return service{}, err
	}
	hide(hidden, config.Credentials["password"], config.Credentials["oauth2_client_secret"])
	query := metric.Query{Text: p.Query, Now: m.Clock.Now()}
	if p.RangeQuery != nil {
		err = m.evaluate(ctx, namespace, func() (err error) {
			query.Range, err = rangeOf(ctx, *p.RangeQuery, query.Now)
			return err
		})
		if err != nil {
			return service{}, err
		}
	}
	finder, err := finderOf(prometheus.Factory().New(caller, config))
	// Argo Rollouts signs for any address with this text in it. Here the signer refuses what is not Amazon's.
	if auth := p.Authentication.Sigv4; err == nil && strings.Contains(p.Address, "aps-workspaces") {
		finder, err = prometheus.Signed(caller, config, m.Amazon.Signer(auth.Region, auth.Profile, auth.RoleARN))
	}
	return service{finder: finder, query: query, none: []float64{}, text: text}, err
}

func prometheusCredentials(a argov1.Authentication) (map[string]outbound.Secret, error) {
	switch {
	case a.OAuth2.TokenURL != "":
		if a.OAuth2.ClientID == "" || a.OAuth2.ClientSecret == "" {
			return nil, errors.New("missing mandatory parameter in metric for OAuth2 setup")
		}
		return map[string]outbound.Secret{
			"oauth2_token_url": outbound.Secret(a.OAuth2.TokenURL), "oauth2_client_id": outbound.Secret(a.OAuth2.ClientID),
			"oauth2_client_secret": outbound.Secret(a.OAuth2.ClientSecret), "oauth2_scopes": outbound.Secret(strings.Join(a.OAuth2.Scopes, " ")),
		}, nil
	case a.BasicAuth.Username != "" && a.BasicAuth.Password == "":
		return nil, errors.New("missing mandatory parameter in metric for basic auth setup: password")
	case a.BasicAuth.Username == "" && a.BasicAuth.Password != "":
		return nil, errors.New("missing mandatory parameter in metric for basic auth setup: username")
	case a.BasicAuth.Username != "":
		return map[string]outbound.Secret{"username": outbound.Secret(a.BasicAuth.Username), "password": outbound.Secret(a.BasicAuth.Password)}, nil
	default:
		return nil, nil
	}
}

func header(list []argov1.WebMetricHeader) http.Header {
	out := http.Header{}
	for _, h := range list {
		out.Set(h.Key, h.Value)
	}
	return out
}

// rangeOf evaluates a range; its ends are expressions such as now() - duration("1h").
func rangeOf(ctx context.Context, args argov1.PrometheusRangeQueryArgs, now time.Time) (*metric.Range, error) {
	start, err := condition.Moment(ctx, args.Start, now)
	if err != nil {
		return nil, fmt.Errorf("rangeQuery.start: %w", err)
	}
	end, err := condition.Moment(ctx, args.End, now)
	if err != nil {
		return nil, fmt.Errorf("rangeQuery.end: %w", err)
	}
	step, err := span(args.Step, time.Minute)
	if err != nil {
		return nil, fmt.Errorf("rangeQuery.step: %w", err)
	}
	return &metric.Range{Start: start, End: end, Step: step}, nil
}

// finderOf is a provider of the contract that gives whole answers.
func finderOf(p metric.Provider, err error) (metric.Finder, error) {
	if err != nil {
		return nil, err
	}
	finder, ok := p.(metric.Finder)
	if !ok {
		return nil, fmt.Errorf("provider %T gives single values only", p)
	}
	return finder, nil
}

func (m *Measurer) web(p argov1.WebMetric, hidden *secrets) (service, error) {
	options := web.Options{
		URL: p.URL, Method: string(p.Method), Header: header(p.Headers), Body: p.Body, JSONBody: p.JSONBody,
		Timeout: time.Duration(p.TimeoutSeconds) * time.Second, JSONPath: p.JSONPath, SkipVerify: p.Insecure,
	}
	if auth := p.Authentication.OAuth2; auth.TokenURL != "" {
		options.Grant = &metric.Grant{
			TokenURL: auth.TokenURL, ID: outbound.Secret(auth.ClientID), Secret: outbound.Secret(auth.ClientSecret), Scopes: auth.Scopes,
		}
		hide(hidden, options.Grant.Secret)
	}
	caller := m.Named
	if m.Cluster.Anonymous != nil && sameServer(p.URL, m.Cluster.Address) {
		caller = m.Cluster.Anonymous
	}
	finder, err := web.New(caller, options)
	return service{finder: finder, text: text, broken: refusedByWeb, noneErr: errors.New("result of web metric produced no value")}, err
}

// sameServer is true of two addresses with the same scheme and host.
func sameServer(a, b string) bool {
	first, err := url.Parse(a)
	if err != nil {
		return false
	}
	second, err := url.Parse(b)
	return err == nil && first.Scheme == second.Scheme && first.Host == second.Host
}

func refusedByWeb(err error) error {
	if status, ok := errors.AsType[*metric.StatusError](err); ok {
		return &saidError{text: fmt.Sprintf("received non 2xx response code: %d", status.Code), cause: err}
	}
	return err
}

// saidError has a text of the API in place of that of its cause.
type saidError struct {
	text  string
	cause error
}

func (e *saidError) Error() string { return e.text }
func (e *saidError) Unwrap() error { return e.cause }

func (m *Measurer) datadog(ctx context.Context, namespace string, p argov1.DatadogMetric, hidden *secrets) (service, error) {
	interval, err := span(p.Interval, defaultInterval)
	if err != nil {
		return service{}, err
	}
	timeout, err := span(p.RequestTimeout, datadogTimeout)
	if err != nil {
		return service{}, err
	}
	keys, err := m.datadogKeys(ctx, namespace, p.SecretRef)
	if err != nil {
		return service{}, err
	}
	hide(hidden, keys.API, keys.Application)
	keys.Version, keys.Query, keys.Queries, keys.Formula, keys.Aggregator = p.APIVersion, p.Query, p.Queries, p.Formula, p.Aggregator
	keys.Timeout = timeout
	finder, err := datadog.New(m.Named, keys)
	return service{
		finder: finder, query: metric.Query{Interval: interval, Now: m.Clock.Now()}, text: datadogText, broken: refusedByDatadog,
	}, err
}

func datadogText(value any) string {
	if value == nil {
		return "[]"
	}
	return text(value)
}

func refusedByDatadog(err error) error {
	status, ok := errors.AsType[*metric.StatusError](err)
	switch {
	case !ok:
		return err
	case status.Code == http.StatusUnauthorized || status.Code == http.StatusForbidden:
		return &saidError{text: fmt.Sprintf("received authentication error response code: %d %s", status.Code, http.StatusText(status.Code)), cause: err}
	default:
		return &saidError{text: fmt.Sprintf("received non 2xx response code: %d %s", status.Code, http.StatusText(status.Code)), cause: err}
	}
}

// datadogKeys are those of the Secret that the metric names, of Secret datadog of the controller, or of its environment.
func (m *Measurer) datadogKeys(ctx context.Context, namespace string, ref argov1.SecretRef) (datadog.Options, error) {
	if ref.Namespaced && ref.Name == "" {
		return datadog.Options{}, errors.New("datadog secretRef.name is required when secretRef.namespaced is true")
	}
	if !ref.Namespaced {
		namespace = m.Namespace
	}
	found, err := m.credentials(ctx, namespace, cmp.Or(ref.Name, "datadog"))
	if err != nil {
		return datadog.Options{}, err
	}
	o := datadog.Options{Address: found["address"].Reveal(), API: found["api-key"], Application: found["app-key"]}
	if o.API == "" && o.Application == "" && ref.Name == "" {
		o = datadog.Options{
			Address: m.Environment("DD_ADDRESS"), API: outbound.Secret(m.Environment("DD_API_KEY")), Application: outbound.Secret(m.Environment("DD_APP_KEY")),
		}
	}
	return o, nil
}

func (m *Measurer) newRelic(ctx context.Context, p argov1.NewRelicMetric, hidden *secrets) (service, error) {
	found, err := m.credentials(ctx, m.Namespace, cmp.Or(p.Profile, "newrelic"))
	if err != nil {
		return service{}, err
	}
	hide(hidden, found["personal-api-key"])
	timeout := newRelicTimeout
	if p.Timeout != nil {
		timeout = time.Duration(*p.Timeout) * time.Second
	}
	finder, err := newrelic.New(m.Named, newrelic.Options{
		Key: found["personal-api-key"], Account: found["account-id"].Reveal(), Region: found["region"].Reveal(),
		Address: found["base-url-nerdgraph"].Reveal(), Timeout: timeout,
	})
	return service{
		finder: finder, query: metric.Query{Text: p.Query}, text: text, noneErr: errors.New("no results returned from NRQL query"),
	}, err
}

func (m *Measurer) wavefront(ctx context.Context, p argov1.WavefrontMetric, hidden *secrets) (service, error) {
	found, err := m.credentials(ctx, m.Namespace, "wavefront-api-tokens")
	if err != nil {
		return service{}, err
	}
	hide(hidden, found[p.Address])
	finder, err := wavefront.New(m.Named, wavefront.Options{Address: p.Address, Token: found[p.Address]})
	return service{
		finder: finder, query: metric.Query{Text: p.Query, Now: m.Clock.Now()}, text: hundredths,
		noneErr: errors.New("No TimeSeries found in response from Wavefront"), //nolint:staticcheck // the text is part of the API
	}, err
}

func (m *Measurer) cloudWatch(p argov1.CloudWatchMetric) (service, error) {
	interval, err := span(p.Interval, defaultInterval)
	if err != nil {
		return service{}, err
	}
	queries := make([]cloudwatch.DataQuery, len(p.MetricDataQueries))
	for i, q := range p.MetricDataQueries {
		queries[i] = dataQuery(q)
	}
	query, err := json.Marshal(queries)
	if err != nil {
		return service{}, err
	}
	finder, err := cloudwatch.New(m.Named, m.Amazon)
	return service{
		finder: finder, query: metric.Query{Text: string(query), Interval: interval, Now: m.Clock.Now()}, none: []any{}, text: matrix,
	}, err
}

// dataQuery has the field names of Amazon's API.
func dataQuery(q argov1.CloudWatchMetricDataQuery) cloudwatch.DataQuery {
	out := cloudwatch.DataQuery{ID: q.ID, Expression: q.Expression, Label: q.Label, ReturnData: q.ReturnData}
	if q.Period != nil {
		out.Period = new(q.Period.IntValue())
	}
	if stat := q.MetricStat; stat != nil {
		out.MetricStat = &cloudwatch.MetricStat{Period: stat.Period.IntValue(), Stat: stat.Stat, Unit: stat.Unit}
		out.MetricStat.Metric.MetricName, out.MetricStat.Metric.Namespace = stat.Metric.MetricName, stat.Metric.Namespace
		for _, d := range stat.Metric.Dimensions {
			out.MetricStat.Metric.Dimensions = append(out.MetricStat.Metric.Dimensions, cloudwatch.Dimension{Name: d.Name, Value: d.Value})
		}
	}
	return out
}

func (m *Measurer) graphite(p argov1.GraphiteMetric) (service, error) {
	finder, err := finderOf(graphite.Factory().New(m.Named, metric.Config{Address: p.Address, Timeout: graphiteTimeout}))
	return service{finder: finder, query: metric.Query{Text: p.Query}, text: text, noneErr: metric.ErrNoData}, err
}

func (m *Measurer) influxdb(ctx context.Context, p argov1.InfluxdbMetric, hidden *secrets) (service, error) {
	found, err := m.credentials(ctx, m.Namespace, cmp.Or(p.Profile, "influxdb"))
	if err != nil {
		return service{}, err
	}
	hide(hidden, found["authToken"])
	finder, err := finderOf(influxdb.Factory().New(m.Named, metric.Config{
		Address: found["address"].Reveal(), Timeout: influxTimeout,
		Credentials: map[string]outbound.Secret{"token": found["authToken"], "org": found["org"]},
	}))
	return service{
		finder: finder, query: metric.Query{Text: p.Query}, text: text, noneErr: errors.New("no results returned from flux query"),
	}, err
}

func (m *Measurer) skyWalking(p argov1.SkyWalkingMetric) (service, error) {
	interval, err := span(p.Interval, defaultInterval)
	if err != nil {
		return service{}, err
	}
	finder, err := skywalking.New(m.Named, p.Address)
	return service{finder: finder, query: metric.Query{Text: p.Query, Interval: interval, Now: m.Clock.Now()}, text: text}, err
}

func (m *Measurer) kayenta(run *argov1.AnalysisRun, of argov1.Metric, p argov1.KayentaMetric) (service, error) {
	options := kayenta.Options{
		Address: p.Address, Application: p.Application, ConfigName: p.CanaryConfigName,
		MetricsAccount: p.MetricsAccountName, ConfigurationAccount: p.ConfigurationAccountName, StorageAccount: p.StorageAccountName,
		Pass: int(p.Threshold.Pass), Marginal: int(p.Threshold.Marginal), Scopes: map[string]kayenta.Scopes{},
	}
	for _, s := range p.Scopes {
		control, err := scope(run, p.Lookback, s.ControlScope)
		if err != nil {
			return service{}, err
		}
		experiment, err := scope(run, p.Lookback, s.ExperimentScope)
		if err != nil {
			return service{}, err
		}
		options.Scopes[s.Name] = kayenta.Scopes{Control: control, Experiment: experiment}
	}
	interval, err := span(of.Interval, 0)
	if err != nil {
		return service{}, err
	}
	slow, err := kayenta.New(m.Named, options)
	return service{
		slow: slow, query: metric.Query{Interval: interval, Now: m.Clock.Now()}, now: m.Clock.Now,
		judge: func(score float64) argov1.AnalysisPhase {
			switch {
			case score >= float64(p.Threshold.Pass):
				return argov1.AnalysisPhaseSuccessful
			case score >= float64(p.Threshold.Marginal):
				return argov1.AnalysisPhaseInconclusive
			default:
				return argov1.AnalysisPhaseFailed
			}
		},
	}, err
}

// scope is one side. Without a start it begins with the run, where the metric looks back, or one interval ago.
func scope(run *argov1.AnalysisRun, lookback bool, d argov1.ScopeDetail) (kayenta.Scope, error) {
	out := kayenta.Scope{Scope: d.Scope, Region: d.Region, Step: int(d.Step)}
	if lookback && run.Status.StartedAt != nil {
		out.Start = run.Status.StartedAt.Time
	}
	for _, moment := range []struct {
		text string
		into *time.Time
	}{{d.Start, &out.Start}, {d.End, &out.End}} {
		if moment.text == "" {
			continue
		}
		at, err := time.Parse(time.RFC3339, moment.text)
		if err != nil {
			return out, fmt.Errorf("scope %s: %w", d.Scope, err)
		}
		*moment.into = at
	}
	return out, nil
}
