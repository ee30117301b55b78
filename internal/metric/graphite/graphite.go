// Package graphite queries servers with the render API of Graphite.
//
// It knows that API. It must not know where queries come from, or any other provider.
package graphite

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/serin-dev/serin/internal/metric"
	"github.com/serin-dev/serin/internal/outbound"
)

// Type is the provider's name in a MetricTemplate.
const Type = "graphite"

// analysisTimeout is the default of Argo Rollouts.
const analysisTimeout = 10 * time.Second

// Service serves both APIs. The address is required. The credentials of MetricTemplates are username and password.
func Service() metric.Service {
	return metric.Service{TemplateType: Type, NewProvider: newProvider, AnalysisType: "Graphite", NewMeasurement: newMeasurement}
}

type provider struct {
	client     *outbound.Client
	endpoint   *url.URL
	header     http.Header
	skipVerify bool
	timeout    time.Duration
}

func newProvider(client *outbound.Client, c metric.Config) (metric.Provider, error) {
	return newGraphite(client, c)
}

func newMeasurement(_ context.Context, r metric.AnalysisRequest) (metric.Measurement, error) {
	p := r.Metric.Provider.Graphite
	querier, err := newGraphite(r.Restricted, metric.Config{Address: p.Address, Timeout: analysisTimeout})
	return metric.Measurement{Provider: querier, Query: metric.Query{Text: p.Query}, NoDataError: metric.ErrNoData}, err
}

func newGraphite(client *outbound.Client, c metric.Config) (*provider, error) {
	address, err := outbound.ParseURL(c.Address)
	if err != nil {
		return nil, err
	}
	p := &provider{client: client, endpoint: address.JoinPath("render"), header: http.Header{}, skipVerify: c.SkipVerify, timeout: c.Timeout}
	if c.Credentials == nil {
		return p, nil
	}
	username, password := c.Credentials["username"], c.Credentials["password"]
	if username == "" || password == "" {
		return nil, metric.Missing(Type, "username", "password")
	}
	request := http.Request{Header: p.header}
	request.SetBasicAuth(username.Reveal(), password.Reveal())
	return p, nil
}

// Measure returns the newest datapoint of the last target. The query is that of a URL: target=…&from=-1m.
func (p *provider) Measure(ctx context.Context, q metric.Query) (float64, error) {
	body, err := p.render(ctx, q.Text)
	if err != nil {
		return 0, err
	}
	return parse(body)
}

// QueryRaw returns the list of the known datapoints of the first target.
func (p *provider) QueryRaw(ctx context.Context, q metric.Query) (metric.Result, error) {
	body, err := p.render(ctx, q.Text)
	if err != nil {
		return metric.Result{}, err
	}
	return parseAll(body)
}

// Online requests a target that need not exist.
func (p *provider) Online(ctx context.Context) error {
	_, err := p.render(ctx, "target=test")
	return err
}

func (p *provider) render(ctx context.Context, query string) ([]byte, error) {
	parameters, err := url.ParseQuery(strings.Join(strings.Fields(query), " "))
	if err != nil || !parameters.Has("target") {
		return nil, errors.New("the query is not that of a URL such as target=errors&from=-1m: correct it")
	}
	parameters.Set("format", "json")
	address := *p.endpoint
	address.RawQuery = parameters.Encode()
	return metric.Fetch(ctx, p.client, outbound.Request{URL: address.String(), Header: p.header, SkipVerify: p.skipVerify, Timeout: p.timeout}, nil)
}

// target is one series.
type target struct {
	// Datapoints are pairs of value and time, oldest first; an unknown value is null.
	Datapoints [][]*float64 `json:"datapoints"`
}

func parseAll(body []byte) (metric.Result, error) {
	var targets []target
	if json.Unmarshal(body, &targets) != nil {
		return metric.Result{}, metric.Unexpected("Graphite")
	}
	var values []float64
	if len(targets) > 0 {
		for _, point := range targets[0].Datapoints {
			if len(point) == 0 {
				return metric.Result{}, metric.Unexpected("Graphite")
			}
			if point[0] != nil {
				values = append(values, *point[0])
			}
		}
	}
	if len(values) == 0 {
		return metric.Result{}, metric.ErrNoData
	}
	return metric.Result{Value: values}, nil
}

func parse(body []byte) (float64, error) {
	var targets []target
	if json.Unmarshal(body, &targets) != nil {
		return 0, metric.Unexpected("Graphite")
	}
	if len(targets) == 0 {
		return 0, metric.ErrNoData
	}
	points := targets[len(targets)-1].Datapoints
	for _, point := range slices.Backward(points) {
		if len(point) == 0 {
			return 0, metric.Unexpected("Graphite")
		}
		if value := point[0]; value != nil {
			return *value, nil
		}
	}
	return 0, metric.ErrNoData
}
