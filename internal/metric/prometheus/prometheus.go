// Package prometheus queries servers with the HTTP API of Prometheus.
//
// It knows that API. It must not know where queries come from (builtin metrics, templates, analyses), or any other provider.
package prometheus

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
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
const Type = "prometheus"

// Service serves both APIs. The address is required, except in AnalysisTemplates if the environment of the controller names
// one. The credentials of MetricTemplates are a token, or username and password, or oauth2_token_url, oauth2_client_id,
// oauth2_client_secret and, optionally, oauth2_scopes. newSign signs the requests of analyses to Amazon's managed Prometheus.
func Service(newSign NewSign) metric.Service {
	return metric.Service{
		TemplateType: Type, NewProvider: newProvider,
		AnalysisType: "Prometheus",
		NewMeasurement: func(ctx context.Context, r metric.AnalysisRequest) (metric.Measurement, error) {
			return newMeasurement(ctx, r, newSign)
		},
	}
}

type provider struct {
	client     *outbound.Client
	api        *url.URL
	header     http.Header
	skipVerify bool
	timeout    time.Duration
	// grant is not nil if a token is requested first, sign if requests are signed.
	grant *metric.Grant
	sign  Sign
}

// Sign adds a signature to the header of a request without a body.
type Sign = func(ctx context.Context, r *http.Request, now time.Time) error

// NewSign returns a function that signs with the credentials of a profile or role in a region. Empty arguments mean those of
// the process.
type NewSign func(region, profile, roleARN string) Sign

func newProvider(client *outbound.Client, c metric.Config) (metric.Provider, error) {
	return newPrometheus(client, c)
}

func newPrometheus(client *outbound.Client, c metric.Config) (*provider, error) {
	address, err := outbound.ParseURL(c.Address)
	if err != nil {
		return nil, err
	}
	p := &provider{client: client, api: address.JoinPath("api/v1"), header: c.Header.Clone(), skipVerify: c.SkipVerify, timeout: c.Timeout}
	if p.header == nil {
		p.header = http.Header{}
	}
	if c.Credentials == nil {
		return p, nil
	}
	if p.grant, err = metric.Authorize(Type, p.header, c.Credentials); err != nil {
		return nil, err
	}
	return p, nil
}

// Measure returns the value of the last element of the resulting vector.
func (p *provider) Measure(ctx context.Context, q metric.Query) (float64, error) {
	return p.instant(ctx, strings.TrimSpace(q.Text), q.Now)
}

// Online requests a constant.
func (p *provider) Online(ctx context.Context) error {
	one, err := p.instant(ctx, "vector(1)", time.Time{})
	if err == nil && one != 1 {
		return metric.Unexpected("Prometheus")
	}
	return err
}

// maxPoints is the maximum number of steps in a range that servers accept.
const maxPoints = 11_000

// QueryRaw returns a number if the result is a scalar, and otherwise the list of all values; those of a range are
// concatenated.
func (p *provider) QueryRaw(ctx context.Context, q metric.Query) (metric.Result, error) {
	parameters, path := url.Values{"query": {strings.TrimSpace(q.Text)}}, "query"
	if r := q.Range; r != nil {
		if r.Step <= 0 || r.End.Before(r.Start) || r.End.Sub(r.Start)/r.Step >= maxPoints {
			return metric.Result{}, fmt.Errorf("the range has no steps, or more than %d: correct its start, end or step", maxPoints)
		}
		path = "query_range"
		parameters.Set("start", unix(r.Start))
		parameters.Set("end", unix(r.End))
		parameters.Set("step", strconv.FormatFloat(r.Step.Seconds(), 'f', -1, 64))
	}
	body, err := p.fetch(ctx, path, parameters, q.Now)
	if err != nil {
		return metric.Result{}, err
	}
	return parseAll(body)
}

func unix(t time.Time) string {
	return strconv.FormatFloat(float64(t.UnixMilli())/1000, 'f', 3, 64)
}

func (p *provider) instant(ctx context.Context, query string, now time.Time) (float64, error) {
	body, err := p.fetch(ctx, "query", url.Values{"query": {query}}, now)
	if err != nil {
		return 0, err
	}
	return parse(body)
}

func (p *provider) fetch(ctx context.Context, path string, parameters url.Values, now time.Time) ([]byte, error) {
	address := p.api.JoinPath(path)
	all := p.api.Query() // the address may contain parameters, such as a tenant
	maps.Copy(all, parameters)
	address.RawQuery = all.Encode()
	header := p.header
	if p.grant != nil {
		token, err := p.grant.Token(ctx, p.client)
		if err != nil {
			return nil, err
		}
		header = header.Clone()
		header.Set("Authorization", "Bearer "+token.Reveal())
	}
	if p.sign != nil {
		request := &http.Request{Method: http.MethodGet, URL: address, Host: address.Host, Header: header.Clone()}
		if err := p.sign(ctx, request, now); err != nil {
			return nil, err
		}
		header = request.Header
	}
	return metric.Fetch(ctx, p.client, outbound.Request{URL: address.String(), Header: header, SkipVerify: p.skipVerify, Timeout: p.timeout}, classify)
}

// errorTypes are the error codes of the API. The messages are not repeated, because they may quote data that the user must
// not read.
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
