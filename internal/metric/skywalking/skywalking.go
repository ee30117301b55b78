// Package skywalking asks the query protocol of Apache SkyWalking, in GraphQL.
//
// It knows that API and nothing of where queries come from, and no other provider.
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

// GraphQL may have to read a lot before it answers.
const timeout = 30 * time.Second

// Provider asks one service.
type Provider struct {
	client   *outbound.Client
	endpoint *url.URL
}

// New checks the address; it calls nobody.
func New(client *outbound.Client, address string) (*Provider, error) {
	server, err := outbound.ParseURL(address)
	if err != nil {
		return nil, err
	}
	return &Provider{client: client, endpoint: server.JoinPath("graphql")}, nil
}

// Measure is the only number of the answer.
func (p *Provider) Measure(ctx context.Context, q metric.Query) (float64, error) {
	found, err := p.Find(ctx, q)
	if err != nil {
		return 0, err
	}
	return onlyNumber(found.Value)
}

// Find is the data of the answer, a document in the form of the query, which may use the variable duration.
func (p *Provider) Find(ctx context.Context, q metric.Query) (metric.Result, error) {
	body, err := p.ask(ctx, q.Text, q.Now, q.Interval)
	if err != nil {
		return metric.Result{}, err
	}
	return parse(body)
}

// Online asks for what every GraphQL server knows.
func (p *Provider) Online(ctx context.Context) error {
	_, err := p.ask(ctx, "query { __typename }", time.Unix(60, 0), time.Minute)
	return err
}

func (p *Provider) ask(ctx context.Context, query string, now time.Time, interval time.Duration) ([]byte, error) {
	type duration struct {
		Start string `json:"start"`
		End   string `json:"end"`
		Step  string `json:"step"`
	}
	const minute = "2006-01-02 1504"
	body, err := json.Marshal(struct {
		Query     string              `json:"query"`
		Variables map[string]duration `json:"variables"`
	}{query, map[string]duration{"duration": {now.Add(-interval).UTC().Format(minute), now.UTC().Format(minute), "MINUTE"}}})
	if err != nil {
		return nil, err
	}
	return metric.Fetch(ctx, p.client, outbound.Request{
		Method: http.MethodPost, URL: p.endpoint.String(), Header: http.Header{"Content-Type": {"application/json"}, "Accept": {"application/json"}},
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

// onlyNumber finds the number in a document that has one.
func onlyNumber(document any) (float64, error) {
	var numbers []float64
	var walk func(any)
	walk = func(node any) {
		switch node := node.(type) {
		case float64:
			numbers = append(numbers, node)
		case []any:
			for _, child := range node {
				walk(child)
			}
		case map[string]any:
			for _, child := range node {
				walk(child)
			}
		}
	}
	walk(document)
	if len(numbers) == 0 {
		return 0, metric.ErrNoData
	}
	return metric.Single(metric.Result{Value: numbers})
}
