// Package dynatrace queries the metrics API (v2) of Dynatrace.
//
// It knows that API. It must not know where queries come from, or any other provider.
package dynatrace

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/serin-dev/serin/internal/metric"
	"github.com/serin-dev/serin/internal/outbound"
)

// Type is the provider's name in a MetricTemplate.
const Type = "dynatrace"

const keyToken = "dynatrace_token"

// Service serves both APIs. The credentials are dynatrace_token; the address is required. It is in the Secret of analyses, so
// that a token is sent only to the address that its owner has chosen.
func Service() metric.Service {
	return metric.Service{TemplateType: Type, NewProvider: newProvider, AnalysisType: "Dynatrace", NewMeasurement: newMeasurement}
}

type provider struct {
	client   *outbound.Client
	endpoint *url.URL
	header   http.Header
	// lookback is the number of intervals that the requested point covers.
	lookback int
}

func newProvider(client *outbound.Client, c metric.Config) (metric.Provider, error) {
	return newDynatrace(client, c)
}

func newMeasurement(ctx context.Context, r metric.AnalysisRequest) (metric.Measurement, error) {
	p := r.Metric.Provider.Dynatrace
	interval, err := metric.DurationOr(p.Interval, metric.DefaultAnalysisInterval)
	if err != nil {
		return metric.Measurement{}, err
	}
	config, err := r.ReadConfig(ctx, Type, p.SecretRef, keyToken)
	if err != nil {
		return metric.Measurement{}, err
	}
	querier, err := newDynatrace(r.Restricted, config)
	if err != nil {
		return metric.Measurement{}, err
	}
	querier.lookback = 1
	return metric.Measurement{Provider: metric.AsRaw(querier), Query: metric.Query{Text: p.Query, Interval: interval, Now: r.Now}}, nil
}

func newDynatrace(client *outbound.Client, c metric.Config) (*provider, error) {
	address, err := outbound.ParseURL(c.Address)
	if err != nil {
		return nil, err
	}
	token := c.Credentials[keyToken]
	if token == "" {
		return nil, metric.Missing(Type, keyToken)
	}
	return &provider{
		client:   client,
		endpoint: address.JoinPath("api/v2/metrics"),
		header:   http.Header{"Authorization": {"Api-Token " + token.Reveal()}},
		lookback: lookback,
	}, nil
}

// lookback is the number of intervals that the requested point of a MetricTemplate covers.
const lookback = 10

// Measure returns the first value of the last series.
func (p *provider) Measure(ctx context.Context, q metric.Query) (float64, error) {
	address := p.endpoint.JoinPath("query")
	address.RawQuery = url.Values{
		"metricSelector": {strings.TrimSpace(q.Text)},
		"resolution":     {"Inf"},
		"from":           {strconv.FormatInt(q.Now.Add(-time.Duration(p.lookback)*q.Interval).UnixMilli(), 10)},
		"to":             {strconv.FormatInt(q.Now.UnixMilli(), 10)},
	}.Encode()
	body, err := metric.Fetch(ctx, p.client, outbound.Request{URL: address.String(), Header: p.header}, nil)
	if err != nil {
		return 0, err
	}
	return parse(body)
}

// Online requests the name of one metric.
func (p *provider) Online(ctx context.Context) error {
	address := *p.endpoint
	address.RawQuery = url.Values{"pageSize": {"1"}}.Encode()
	_, err := metric.Fetch(ctx, p.client, outbound.Request{URL: address.String(), Header: p.header}, nil)
	return err
}

func parse(body []byte) (float64, error) {
	var answer struct {
		Result []struct {
			Data []struct {
				Values []*float64 `json:"values"`
			} `json:"data"`
		} `json:"result"`
	}
	if json.Unmarshal(body, &answer) != nil {
		return 0, metric.Unexpected("Dynatrace")
	}
	if len(answer.Result) == 0 || len(answer.Result[0].Data) == 0 {
		return 0, metric.ErrNoData
	}
	data := answer.Result[0].Data
	values := data[len(data)-1].Values
	if len(values) == 0 || values[0] == nil {
		return 0, metric.ErrNoData
	}
	return *values[0], nil
}
