// Package dynatrace queries the metrics API (v2) of Dynatrace.
//
// It knows that API. It must not know where queries come from, or any other provider.
package dynatrace

import (
	"context"
	"encoding/json"
	"math"
	"net/http"
	"net/url"
	"slices"
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
	// isAnalysis requests a single point that covers exactly the interval.
	isAnalysis bool
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
	querier.isAnalysis = true
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
	}, nil
}

// lookback is the number of intervals in the time range of a MetricTemplate, because points are published late, and the resolution
// of a metric may be coarser than the interval.
const lookback = 10

// Measure returns a value of the last series: of its newest complete point that is not too old, or of the point of an analysis.
func (p *provider) Measure(ctx context.Context, q metric.Query) (float64, error) {
	minutes := max(1, int(math.Ceil(q.Interval.Minutes()))) // the unit of a resolution
	resolution, from := strconv.Itoa(minutes)+"m", q.Now.Add(-lookback*time.Duration(minutes)*time.Minute)
	if p.isAnalysis {
		resolution, from = "Inf", q.Now.Add(-q.Interval)
	}
	address := p.endpoint.JoinPath("query")
	address.RawQuery = url.Values{
		"metricSelector": {strings.TrimSpace(q.Text)},
		"resolution":     {resolution},
		"from":           {strconv.FormatInt(from.UnixMilli(), 10)},
		"to":             {strconv.FormatInt(q.Now.UnixMilli(), 10)},
	}.Encode()
	body, err := metric.Fetch(ctx, p.client, outbound.Request{URL: address.String(), Header: p.header}, nil)
	if err != nil {
		return 0, err
	}
	last, err := lastSeries(body)
	switch {
	case err != nil:
		return 0, err
	case p.isAnalysis:
		return last.first()
	default:
		return last.newest(q)
	}
}

// Online requests the name of one metric.
func (p *provider) Online(ctx context.Context) error {
	address := *p.endpoint
	address.RawQuery = url.Values{"pageSize": {"1"}}.Encode()
	_, err := metric.Fetch(ctx, p.client, outbound.Request{URL: address.String(), Header: p.header}, nil)
	return err
}

// series contains points in chronological order. A timestamp is the end of a point, in milliseconds.
type series struct {
	Timestamps []int64    `json:"timestamps"`
	Values     []*float64 `json:"values"`
}

func lastSeries(body []byte) (series, error) {
	var answer struct {
		Result []struct {
			Data []series `json:"data"`
		} `json:"result"`
	}
	if json.Unmarshal(body, &answer) != nil {
		return series{}, metric.Unexpected("Dynatrace")
	}
	if len(answer.Result) == 0 || len(answer.Result[0].Data) == 0 {
		return series{}, metric.ErrNoData
	}
	data := answer.Result[0].Data
	return data[len(data)-1], nil
}

func (s series) first() (float64, error) {
	if len(s.Values) == 0 || s.Values[0] == nil {
		return 0, metric.ErrNoData
	}
	return *s.Values[0], nil
}

func (s series) newest(q metric.Query) (float64, error) {
	if len(s.Timestamps) != len(s.Values) {
		return 0, metric.Unexpected("Dynatrace")
	}
	var period time.Duration // may be coarser than requested
	if len(s.Timestamps) > 1 {
		period = time.Duration(s.Timestamps[1]-s.Timestamps[0]) * time.Millisecond
	}
	for i, value := range slices.Backward(s.Values) {
		end := time.UnixMilli(s.Timestamps[i])
		if value == nil || end.After(q.Now) { // not published, or not complete yet
			continue
		}
		if !q.IsCurrent(end, period) {
			break
		}
		return *value, nil
	}
	return 0, metric.ErrNoData
}
