// Package kayenta requests the judgement of a canary from Kayenta, by a configuration that is stored there.
//
// It knows that API. It must not know what follows from a score, or any other provider.
package kayenta

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"regexp"
	"time"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/metric"
	"github.com/serin-dev/serin/internal/outbound"
)

// timeout bounds one request; looking up a configuration is slow.
const timeout = 15 * time.Second

// Service serves analyses.
func Service() metric.Service {
	return metric.Service{AnalysisType: "Kayenta", NewMeasurement: newMeasurement}
}

func newMeasurement(_ context.Context, r metric.AnalysisRequest) (metric.Measurement, error) {
	p := r.Metric.Provider.Kayenta
	o := options{
		Address: p.Address, Application: p.Application, ConfigName: p.CanaryConfigName,
		MetricsAccount: p.MetricsAccountName, ConfigurationAccount: p.ConfigurationAccountName, StorageAccount: p.StorageAccountName,
		Pass: int(p.Threshold.Pass), Marginal: int(p.Threshold.Marginal), Scopes: map[string]scopes{},
	}
	for _, s := range p.Scopes {
		control, err := newScope(r.Run, p.Lookback, s.ControlScope)
		if err != nil {
			return metric.Measurement{}, err
		}
		experiment, err := newScope(r.Run, p.Lookback, s.ExperimentScope)
		if err != nil {
			return metric.Measurement{}, err
		}
		o.Scopes[s.Name] = scopes{Control: control, Experiment: experiment}
	}
	interval, err := metric.DurationOr(r.Metric.Interval, 0)
	if err != nil {
		return metric.Measurement{}, err
	}
	async, err := newProvider(r.Restricted, o)
	return metric.Measurement{Async: async, Query: metric.Query{Interval: interval, Now: r.Now}, Judge: o.judge}, err
}

// newScope returns one side of a comparison. Without a start, it begins with the run if lookback is set, or one interval ago.
func newScope(run *argov1.AnalysisRun, lookback bool, d argov1.ScopeDetail) (scope, error) {
	out := scope{Scope: d.Scope, Region: d.Region, Step: int(d.Step)}
	if lookback && run.Status.StartedAt != nil {
		out.Start = run.Status.StartedAt.Time
	}
	for _, limit := range []struct {
		text string
		into *time.Time
	}{{d.Start, &out.Start}, {d.End, &out.End}} {
		if limit.text == "" {
			continue
		}
		parsed, err := time.Parse(time.RFC3339, limit.text)
		if err != nil {
			return out, fmt.Errorf("scope %s: %w", d.Scope, err)
		}
		*limit.into = parsed
	}
	return out, nil
}

// options are the settings of the judgement.
type options struct {
	Address     string
	Application string
	// ConfigName is the name of the canary configuration.
	ConfigName string
	// The accounts that Kayenta uses for metrics, configurations and storage.
	MetricsAccount, ConfigurationAccount, StorageAccount string
	// Pass and Marginal are the minimum scores for successful and inconclusive.
	Pass, Marginal int
	// Scopes are the comparisons by name.
	Scopes map[string]scopes
}

func (o options) judge(score float64) argov1.AnalysisPhase {
	switch {
	case score >= float64(o.Pass):
		return argov1.AnalysisPhaseSuccessful
	case score >= float64(o.Marginal):
		return argov1.AnalysisPhaseInconclusive
	default:
		return argov1.AnalysisPhaseFailed
	}
}

// scopes are the two sides of a comparison.
type scopes struct {
	Control    scope `json:"controlScope"`
	Experiment scope `json:"experimentScope"`
}

// scope is one side of a comparison: the measured workload and the time range. Without a start, the range begins one interval
// ago; without an end, it ends now.
type scope struct {
	Scope  string    `json:"scope"`
	Region string    `json:"region"`
	Step   int       `json:"step"`
	Start  time.Time `json:"start"`
	End    time.Time `json:"end"`
}

// withDefaultTimes returns the scope with the default start and end if they are missing.
func (s scope) withDefaultTimes(q metric.Query) scope {
	if s.Start.IsZero() {
		s.Start = q.Now.Add(-q.Interval)
	}
	if s.End.IsZero() {
		s.End = q.Now
	}
	s.Start, s.End = s.Start.UTC(), s.End.UTC()
	return s
}

// provider runs one comparison.
type provider struct {
	client  *outbound.Client
	address *url.URL
	options options
}

// newProvider checks the options; it sends no request.
func newProvider(client *outbound.Client, o options) (*provider, error) {
	address, err := outbound.ParseURL(o.Address)
	if err != nil {
		return nil, err
	}
	return &provider{client: client, address: address, options: o}, nil
}

// Start starts the judgement.
func (p *provider) Start(ctx context.Context, q metric.Query) (string, error) {
	id, err := p.findConfiguration(ctx)
	if err != nil {
		return "", err
	}
	o := p.options
	compared := make(map[string]scopes, len(o.Scopes))
	for name, s := range o.Scopes {
		compared[name] = scopes{Control: s.Control.withDefaultTimes(q), Experiment: s.Experiment.withDefaultTimes(q)}
	}
	body, err := json.Marshal(map[string]any{"scopes": compared, "thresholds": map[string]int{"pass": o.Pass, "marginal": o.Marginal}})
	if err != nil {
		return "", err
	}
	answer, err := p.call(ctx, http.MethodPost, []string{"canary", id}, url.Values{
		"application": {o.Application}, "metricsAccountName": {o.MetricsAccount},
		"configurationAccountName": {o.ConfigurationAccount}, "storageAccountName": {o.StorageAccount},
	}, body)
	if err != nil {
		return "", err
	}
	return parseExecution(answer)
}

// Resume returns the score, an integer from 0 to 100.
func (p *provider) Resume(ctx context.Context, executionID string) (metric.Result, error) {
	if !idPattern.MatchString(executionID) {
		return metric.Result{}, errors.New("the stored ID is not that of an execution")
	}
	answer, err := p.call(ctx, http.MethodGet, []string{"canary", executionID}, nil, nil)
	if err != nil {
		return metric.Result{}, err
	}
	return parseScore(answer)
}

func (p *provider) findConfiguration(ctx context.Context) (string, error) {
	answer, err := p.call(ctx, http.MethodGet, []string{"canaryConfig"}, url.Values{
		"application": {p.options.Application}, "configurationAccountName": {p.options.ConfigurationAccount},
	}, nil)
	if err != nil {
		return "", err
	}
	return parseConfigurations(answer, p.options.ConfigName)
}

func (p *provider) call(ctx context.Context, method string, path []string, parameters url.Values, body []byte) ([]byte, error) {
	address := p.address.JoinPath(path...)
	address.RawQuery = parameters.Encode()
	header := http.Header{"Accept": {"application/json"}}
	if body != nil {
		header.Set("Content-Type", "application/json")
	}
	return metric.Fetch(ctx, p.client, outbound.Request{Method: method, URL: address.String(), Header: header, Body: body, Timeout: timeout}, nil)
}

// idPattern matches the IDs of configurations and executions, which become parts of a path.
var idPattern = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9_.-]{0,127}$`)

func parseConfigurations(body []byte, name string) (string, error) {
	var all []struct {
		ID   string `json:"id"`
		Name string `json:"name"`
	}
	if json.Unmarshal(body, &all) != nil {
		return "", metric.Unexpected("Kayenta")
	}
	for _, c := range all {
		if c.Name == name && idPattern.MatchString(c.ID) {
			return c.ID, nil
		}
	}
	return "", errors.New("the application has no canary configuration of that name: correct canaryConfigName, or create it")
}

func parseExecution(body []byte) (string, error) {
	var answer struct {
		ID string `json:"canaryExecutionId"`
	}
	if json.Unmarshal(body, &answer) != nil || !idPattern.MatchString(answer.ID) {
		return "", errors.New("Invalid canaryExecutionId") //nolint:staticcheck // promised by the API of analyses
	}
	return answer.ID, nil
}

func parseScore(body []byte) (metric.Result, error) {
	var answer struct {
		Complete *bool `json:"complete"`
		Result   struct {
			Judge struct {
				Score struct {
					Score *float64 `json:"score"`
				} `json:"score"`
			} `json:"judgeResult"`
		} `json:"result"`
	}
	switch {
	case json.Unmarshal(body, &answer) != nil:
		return metric.Result{}, metric.Unexpected("Kayenta")
	case answer.Complete == nil:
		return metric.Result{}, errors.New("Missing Complete Status") //nolint:staticcheck // promised by the API of analyses
	case !*answer.Complete:
		return metric.Result{}, metric.ErrUnfinished
	case answer.Result.Judge.Score.Score == nil:
		return metric.Result{}, errors.New("Missing Score") //nolint:staticcheck // promised by the API of analyses
	default:
		return metric.Result{Value: math.Trunc(*answer.Result.Judge.Score.Score)}, nil
	}
}
