// Package skywalking queries the query protocol of Apache SkyWalking, in GraphQL.
//
// It knows that API. It must not know where queries come from, or any other provider.
package skywalking

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"time"

	"github.com/serin-dev/serin/internal/metric"
	"github.com/serin-dev/serin/internal/outbound"
)

// timeout bounds one request, because a query may have to read a lot of data.
const timeout = 30 * time.Second

// Type is the provider's name in a MetricTemplate.
const Type = "skywalking"

// Service serves both APIs. The address is required.
func Service() metric.Service {
	return metric.Service{TemplateType: Type, NewProvider: newProvider, AnalysisType: "skywalking", NewMeasurement: newMeasurement}
}

// provider answers the queries of MetricTemplates.
type provider struct{ *querier }

func newProvider(client *outbound.Client, c metric.Config) (metric.Provider, error) {
	querier, err := newQuerier(client, c.Address)
	if err != nil {
		return nil, err
	}
	return provider{querier}, nil
}

// Measure returns the only number in the response, whose shape is that of the query.
func (p provider) Measure(ctx context.Context, q metric.Query) (float64, error) {
	result, err := p.QueryRaw(ctx, q)
	if err != nil {
		return 0, err
	}
	return onlyNumber(result)
}

// Online requests the name of a type of the protocol.
func (p provider) Online(ctx context.Context) error {
	_, err := p.fetch(ctx, metric.Query{Text: "query { __typename }"})
	return err
}

// onlyNumber returns the number in a document that contains one.
func onlyNumber(result metric.Result) (float64, error) {
	numbers := appendNumbers(nil, result.Value)
	if len(numbers) == 0 {
		return 0, metric.ErrNoData
	}
	return metric.Single(metric.Result{Value: numbers})
}

// appendNumbers appends the numbers in a document, up to the second one, which is one too many.
func appendNumbers(numbers []float64, node any) []float64 {
	if len(numbers) > 1 {
		return numbers
	}
	switch node := node.(type) {
	case float64:
		return append(numbers, node)
	case []any:
		for _, child := range node {
			numbers = appendNumbers(numbers, child)
		}
	case map[string]any:
		for _, child := range node {
			numbers = appendNumbers(numbers, child)
		}
	}
	return numbers
}

func newMeasurement(_ context.Context, r metric.AnalysisRequest) (metric.Measurement, error) {
	p := r.Metric.Provider.SkyWalking
	interval, err := metric.DurationOr(p.Interval, metric.DefaultAnalysisInterval)
	if err != nil {
		return metric.Measurement{}, err
	}
	querier, err := newQuerier(r.Restricted, p.Address)
	return metric.Measurement{Provider: querier, Query: metric.Query{Text: p.Query, Interval: interval, Now: r.Now}}, err
}

// querier sends queries to one server.
type querier struct {
	client   *outbound.Client
	endpoint *url.URL
}

// newQuerier checks the address; it sends no request.
func newQuerier(client *outbound.Client, address string) (*querier, error) {
	server, err := outbound.ParseURL(address)
	if err != nil {
		return nil, err
	}
	return &querier{client: client, endpoint: server.JoinPath("graphql")}, nil
}

// QueryRaw returns the data of the response, a document in the shape of the query, which may use the variable duration.
func (q *querier) QueryRaw(ctx context.Context, query metric.Query) (metric.Result, error) {
	body, err := q.fetch(ctx, query)
	if err != nil {
		return metric.Result{}, err
	}
	return parse(body)
}

func (q *querier) fetch(ctx context.Context, query metric.Query) ([]byte, error) {
	type duration struct {
		Start string `json:"start"`
		End   string `json:"end"`
		Step  string `json:"step"`
	}
	const minute = "2006-01-02 1504"
	body, err := json.Marshal(struct {
		Query     string              `json:"query"`
		Variables map[string]duration `json:"variables"`
	}{query.Text, map[string]duration{"duration": {
		query.Now.Add(-query.Interval).UTC().Format(minute), query.Now.UTC().Format(minute), "MINUTE",
	}}})
	if err != nil {
		return nil, err
	}
	return metric.Fetch(ctx, q.client, outbound.Request{
		Method: http.MethodPost, URL: q.endpoint.String(), Header: http.Header{"Content-Type": {"application/json"}, "Accept": {"application/json"}},
		Body: body, Timeout: timeout,
	}, nil)
}

func parse(body []byte) (metric.Result, error) {
	var answer *struct {
		Data   any               `json:"data"`
		Errors []json.RawMessage `json:"errors"`
	}
	switch {
	case json.Unmarshal(body, &answer) != nil || answer == nil:
		return metric.Result{}, metric.Unexpected("SkyWalking")
	case len(answer.Errors) > 0:
		return metric.Result{}, errors.New("the query could not be run: correct it")
	case answer.Data == nil:
		return metric.Result{}, metric.ErrNoData
	default:
		return metric.Result{Value: answer.Data}, nil
	}
}
