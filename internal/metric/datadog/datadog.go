// Package datadog queries the metrics query API of Datadog.
//
// It knows that API. It must not know where queries come from, or any other provider.
package datadog

import (
	"context"
	"encoding/json"
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
const Type = "datadog"

const (
	publicAddress  = "https://api.datadoghq.com"
	keyAPI         = "datadog_api_key"
	keyApplication = "datadog_application_key"
)

// Service serves both APIs. The credentials of MetricTemplates are datadog_api_key and datadog_application_key.
func Service() metric.Service {
	return metric.Service{TemplateType: Type, NewProvider: newProvider, AnalysisType: "Datadog", NewMeasurement: newMeasurement}
}

type provider struct {
	client          *outbound.Client
	query, validate *url.URL
	header          http.Header
}

func newProvider(client *outbound.Client, c metric.Config) (metric.Provider, error) {
	if c.Address == "" {
		c.Address = publicAddress
	}
	address, err := outbound.ParseURL(c.Address)
	if err != nil {
		return nil, err
	}
	api, application := c.Credentials[keyAPI], c.Credentials[keyApplication]
	if api == "" || application == "" {
		return nil, metric.Missing(Type, keyAPI, keyApplication)
	}
	header := http.Header{}
	header.Set("DD-API-KEY", api.Reveal())
	header.Set("DD-APPLICATION-KEY", application.Reveal())
	return &provider{client: client, query: address.JoinPath("api/v1/query"), validate: address.JoinPath("api/v1/validate"), header: header}, nil
}

// lookback is the number of intervals in the time range, so that a roll-up that is coarser than one interval has a point.
const lookback = 10

// Measure returns the newest complete point of the first series that ended within the interval.
func (p *provider) Measure(ctx context.Context, q metric.Query) (float64, error) {
	address := *p.query
	address.RawQuery = url.Values{
		"query": {strings.TrimSpace(q.Text)},
		"from":  {strconv.FormatInt(q.Now.Add(-lookback*q.Interval).Unix(), 10)},
		"to":    {strconv.FormatInt(q.Now.Unix(), 10)},
	}.Encode()
	body, err := metric.Fetch(ctx, p.client, outbound.Request{URL: address.String(), Header: p.header}, nil)
	if err != nil {
		return 0, err
	}
	return parse(body, q.Now.Add(-q.Interval), q.Now)
}

// Online validates the keys.
func (p *provider) Online(ctx context.Context) error {
	_, err := metric.Fetch(ctx, p.client, outbound.Request{URL: p.validate.String(), Header: p.header}, nil)
	return err
}

// series is the response of version 1 of the API.
type series struct {
	Status string `json:"status"`
	Series []struct {
		// Interval is the duration of one point in seconds.
		Interval float64 `json:"interval"`
		// Points are pairs of the start in milliseconds and the value, oldest first.
		Points [][]*float64 `json:"pointlist"`
	} `json:"series"`
}

func readSeries(body []byte) (series, error) {
	var answer series
	if json.Unmarshal(body, &answer) != nil || answer.Status == "error" {
		return series{}, metric.Unexpected("Datadog")
	}
	return answer, nil
}

func parse(body []byte, after, until time.Time) (float64, error) {
	answer, err := readSeries(body)
	if err != nil {
		return 0, err
	}
	if len(answer.Series) == 0 {
		return 0, metric.ErrNoData
	}
	first := answer.Series[0]
	for _, point := range slices.Backward(first.Points) {
		if len(point) != 2 || point[0] == nil {
			return 0, metric.Unexpected("Datadog")
		}
		end := time.UnixMilli(int64(*point[0] + 1000*first.Interval))
		if point[1] == nil || end.After(until) { // unknown, or not complete yet
			continue
		}
		if end.Before(after) { // older points were measured before the interval
			break
		}
		return *point[1], nil
	}
	return 0, metric.ErrNoData
}
