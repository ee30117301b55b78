// Package newrelic queries New Relic: its Insights query API for MetricTemplates, NerdGraph for analyses.
//
// It knows these APIs. It must not know where queries come from, or any other provider.
package newrelic

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/serin-dev/serin/internal/metric"
	"github.com/serin-dev/serin/internal/outbound"
)

// Type is the provider's name in a MetricTemplate.
const Type = "newrelic"

const (
	publicAddress = "https://insights-api.newrelic.com"
	keyAccount    = "newrelic_account_id"
	keyQuery      = "newrelic_query_key"
)

// Service serves MetricTemplates by the Insights API, and analyses by NerdGraph. The credentials of MetricTemplates are
// newrelic_account_id and newrelic_query_key.
func Service() metric.Service {
	return metric.Service{TemplateType: Type, NewProvider: newProvider, AnalysisType: "NewRelic", NewMeasurement: newMeasurement}
}

type provider struct {
	client   *outbound.Client
	endpoint *url.URL
	header   http.Header
}

func newProvider(client *outbound.Client, c metric.Config) (metric.Provider, error) {
	if c.Address == "" {
		c.Address = publicAddress
	}
	address, err := outbound.ParseURL(c.Address)
	if err != nil {
		return nil, err
	}
	account, key := c.Credentials[keyAccount], c.Credentials[keyQuery]
	if account == "" || key == "" {
		return nil, metric.Missing(Type, keyAccount, keyQuery)
	}
	return &provider{
		client:   client,
		endpoint: address.JoinPath("v1/accounts", url.PathEscape(account.Reveal()), "query"),
		header:   http.Header{"X-Query-Key": {key.Reveal()}},
	}, nil
}

// Measure returns the only result of the query since the beginning of the interval, which is appended to the query.
func (p *provider) Measure(ctx context.Context, q metric.Query) (float64, error) {
	body, err := p.query(ctx, q.Text, q.Interval)
	if err != nil {
		return 0, err
	}
	return parse(body)
}

// Online sends a query whose result is ignored.
func (p *provider) Online(ctx context.Context) error {
	_, err := p.query(ctx, "SELECT * FROM Metric", time.Minute)
	return err
}

func (p *provider) query(ctx context.Context, query string, since time.Duration) ([]byte, error) {
	seconds := max(int(since/time.Second), 1)
	address := *p.endpoint
	address.RawQuery = url.Values{"nrql": {fmt.Sprintf("%s SINCE %d seconds ago", strings.TrimSpace(query), seconds)}}.Encode()
	return metric.Fetch(ctx, p.client, outbound.Request{URL: address.String(), Header: p.header}, nil)
}

func parse(body []byte) (float64, error) {
	var answer struct {
		Results []struct {
			Result json.RawMessage `json:"result"`
		} `json:"results"`
	}
	if json.Unmarshal(body, &answer) != nil {
		return 0, metric.Unexpected("New Relic")
	}
	if len(answer.Results) != 1 || answer.Results[0].Result == nil {
		return 0, metric.ErrNoData
	}
	var value *float64
	if json.Unmarshal(answer.Results[0].Result, &value) != nil {
		return 0, metric.Unexpected("New Relic")
	}
	if value == nil {
		return 0, metric.ErrNoData
	}
	return *value, nil
}
