// Package prometheus asks servers with the HTTP API of Prometheus.
//
// It knows that API and nothing of where queries come from: not the builtin metrics, not templates, no other provider.
package prometheus

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/serin-dev/serin/internal/metric"
	"github.com/serin-dev/serin/internal/outbound"
)

// Type is the provider's name in a MetricTemplate.
const Type = "prometheus"

// Factory makes providers of this type. The credentials have a token, or username and password; the address is needed.
func Factory() metric.Factory { return metric.Factory{Type: Type, New: newProvider} }

type provider struct {
	client     *outbound.Client
	endpoint   *url.URL
	header     http.Header
	skipVerify bool
}

func newProvider(client *outbound.Client, c metric.Config) (metric.Provider, error) {
	address, err := outbound.ParseURL(c.Address)
	if err != nil {
		return nil, err
	}
	p := &provider{client: client, endpoint: address.JoinPath("api/v1/query"), header: c.Header.Clone(), skipVerify: c.SkipVerify}
	if p.header == nil {
		p.header = http.Header{}
	}
	if c.Credentials == nil {
		return p, nil
	}
	if token := c.Credentials["token"]; token != "" {
		p.header.Set("Authorization", "Bearer "+token.Reveal())
		return p, nil
	}
	username, password := c.Credentials["username"], c.Credentials["password"]
	if username == "" || password == "" {
		return nil, metric.Missing(Type, "a token, or username", "password")
	}
	request := http.Request{Header: p.header}
	request.SetBasicAuth(username.Reveal(), password.Reveal())
	return p, nil
}

// Measure is the value of the last element of the vector that the query gives.
func (p *provider) Measure(ctx context.Context, q metric.Query) (float64, error) {
	return p.ask(ctx, strings.TrimSpace(q.Text))
}

// Online asks for a constant.
func (p *provider) Online(ctx context.Context) error {
	one, err := p.ask(ctx, "vector(1)")
	if err == nil && one != 1 {
		return metric.Unexpected("Prometheus")
	}
	return err
}

func (p *provider) ask(ctx context.Context, query string) (float64, error) {
	address := *p.endpoint
	parameters := address.Query() // a tenant may be named in the address
	parameters.Set("query", query)
	address.RawQuery = parameters.Encode()
	body, err := metric.Fetch(ctx, p.client, outbound.Request{URL: address.String(), Header: p.header, SkipVerify: p.skipVerify}, classify)
	if err != nil {
		return 0, err
	}
	return parse(body)
}

// errorTypes are the words of the API for what went wrong. Only they are repeated: the sentence beside them may quote
// what is not the user's to read.
var errorTypes = []string{"timeout", "canceled", "execution", "bad_data", "internal", "unavailable", "not_found", "not_acceptable"}

func classify(body []byte) string {
	var answer struct {
		ErrorType string `json:"errorType"`
	}
	if json.Unmarshal(body, &answer) != nil || !slices.Contains(errorTypes, answer.ErrorType) {
		return ""
	}
	return answer.ErrorType
}

// element is one series of a vector, or, with Values, of a range.
type element struct {
	Value  json.RawMessage `json:"value"`
	Values json.RawMessage `json:"values"`
}

var errMultiple = errors.New("query returned multiple values: ask for an instant, not for a range")

func parse(body []byte) (float64, error) {
	var answer struct {
		Status string `json:"status"`
		Data   struct {
			Type   string          `json:"resultType"`
			Result json.RawMessage `json:"result"`
		} `json:"data"`
	}
	if json.Unmarshal(body, &answer) != nil || answer.Status != "success" {
		return 0, metric.Unexpected("Prometheus")
	}
	switch answer.Data.Type {
	case "scalar":
		return value(answer.Data.Result)
	case "matrix":
		return 0, errMultiple
	}
	var vector []element
	if json.Unmarshal(answer.Data.Result, &vector) != nil {
		return 0, metric.Unexpected("Prometheus")
	}
	if len(vector) == 0 {
		return 0, metric.ErrNoData
	}
	if slices.ContainsFunc(vector, func(e element) bool { return e.Values != nil }) {
		return 0, errMultiple
	}
	return value(vector[len(vector)-1].Value)
}

// value reads a sample: a pair of time and number, the number as text.
func value(sample json.RawMessage) (float64, error) {
	var pair []json.RawMessage
	var text string
	if json.Unmarshal(sample, &pair) != nil || len(pair) != 2 || json.Unmarshal(pair[1], &text) != nil {
		return 0, metric.Unexpected("Prometheus")
	}
	v, err := strconv.ParseFloat(text, 64)
	switch {
	case err != nil:
		return 0, metric.Unexpected("Prometheus")
	case math.IsNaN(v):
		return 0, metric.ErrNoData
	default:
		return v, nil
	}
}
