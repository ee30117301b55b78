// Package web sends a request to any address and reads the value at a JSONPath of the response.
//
// It knows HTTP, JSON and the queries of MetricTemplates for it. It must not know what the value means, or any other provider.
package web

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"k8s.io/client-go/util/jsonpath"

	"github.com/serin-dev/serin/internal/metric"
	"github.com/serin-dev/serin/internal/outbound"
)

const (
	defaultTimeout = 10 * time.Second
	defaultPath    = "{$}"
)

// Service serves both APIs. cluster is the API server, which analyses may query without credentials wherever it is.
func Service(cluster metric.Cluster) metric.Service {
	return metric.Service{
		TemplateType: Type, NewProvider: newTemplateProvider,
		AnalysisType: "Web",
		NewMeasurement: func(_ context.Context, r metric.AnalysisRequest) (metric.Measurement, error) {
			return newMeasurement(r, cluster)
		},
	}
}

func newMeasurement(r metric.AnalysisRequest, cluster metric.Cluster) (metric.Measurement, error) {
	p := r.Metric.Provider.Web
	o := options{
		URL: p.URL, Method: string(p.Method), Header: metric.HeaderOf(p.Headers), Body: p.Body, JSONBody: p.JSONBody,
		Timeout: metric.TimeoutOf(p.TimeoutSeconds), JSONPath: p.JSONPath, SkipVerify: p.Insecure,
	}
	if auth := p.Authentication.OAuth2; auth.TokenURL != "" {
		o.Grant = &metric.Grant{
			TokenURL: auth.TokenURL, ID: outbound.Secret(auth.ClientID), Secret: outbound.Secret(auth.ClientSecret), Scopes: auth.Scopes,
		}
		r.Hide(o.Grant.Secret)
	}
	client := r.Restricted
	if cluster.Anonymous != nil && sameServer(p.URL, cluster.Address) {
		client = cluster.Anonymous
	}
	querier, err := newQuerier(client, o)
	return metric.Measurement{Provider: querier, ConvertError: convertError}, err
}

// sameServer reports whether two addresses have the same scheme and host.
func sameServer(a, b string) bool {
	first, err := url.Parse(a)
	if err != nil {
		return false
	}
	second, err := url.Parse(b)
	return err == nil && first.Scheme == second.Scheme && first.Host == second.Host
}

func convertError(err error) error {
	if status, ok := errors.AsType[*metric.StatusError](err); ok {
		return metric.WithText(err, fmt.Sprintf("received non 2xx response code: %d", status.Code))
	}
	return err
}

// options are the settings of a request of an analysis.
type options struct {
	URL string
	// Method is GET, POST or PUT; the default is GET.
	Method string
	// Header is sent unchanged.
	Header http.Header
	// Body or JSONBody is sent with POST and PUT.
	Body     string
	JSONBody json.RawMessage
	// Timeout defaults to ten seconds.
	Timeout time.Duration
	// JSONPath defaults to the whole document.
	JSONPath   string
	SkipVerify bool
	// Grant, if set, requests a token for the request.
	Grant *metric.Grant
}

// querier sends requests to one address.
type querier struct {
	client  *outbound.Client
	request outbound.Request
	path    *jsonpath.JSONPath
	grant   *metric.Grant
}

// The texts that the API of analyses promises.
var (
	errTwoBodies = errors.New("use either Body or JSONBody; both cannot exists for WebMetric payload")
	errBodyOfGet = errors.New("Body/JSONBody can only be used with POST or PUT WebMetric Method types")
	errNoValue   = errors.New("result of web metric produced no value")
)

// newQuerier checks the options; it sends no request.
func newQuerier(client *outbound.Client, o options) (*querier, error) {
	if _, err := outbound.ParseURL(o.URL); err != nil {
		return nil, err
	}
	r := outbound.Request{Method: o.Method, URL: o.URL, Header: o.Header.Clone(), Body: []byte(o.Body), Timeout: o.Timeout, SkipVerify: o.SkipVerify}
	if r.Method == "" {
		r.Method = http.MethodGet
	}
	if r.Timeout == 0 {
		r.Timeout = defaultTimeout
	}
	if r.Header == nil {
		r.Header = http.Header{}
	}
	if len(o.JSONBody) > 0 {
		r.Body = o.JSONBody
		r.Header.Set("Content-Type", "application/json")
	}
	switch {
	case o.Body != "" && len(o.JSONBody) > 0:
		return nil, errTwoBodies
	case r.Method == http.MethodGet && len(r.Body) > 0:
		return nil, errBodyOfGet
	case r.Method != http.MethodGet && r.Method != http.MethodPost && r.Method != http.MethodPut:
		return nil, fmt.Errorf("method %q is not GET, POST or PUT: correct it", r.Method)
	}
	if o.Grant != nil {
		if err := o.Grant.Check(); err != nil {
			return nil, err
		}
	}
	if o.JSONPath == "" {
		o.JSONPath = defaultPath
	}
	path, err := parsePath(o.JSONPath)
	if err != nil {
		return nil, err
	}
	return &querier{client: client, request: r, path: path, grant: o.Grant}, nil
}

// QueryRaw returns the first match of the path, of any type, or a body that is not JSON as text. The query is ignored,
// because the options contain the whole request.
func (q *querier) QueryRaw(ctx context.Context, _ metric.Query) (metric.Result, error) {
	body, err := q.fetch(ctx)
	if err != nil {
		return metric.Result{}, err
	}
	return find(q.path, body)
}

func (q *querier) fetch(ctx context.Context) ([]byte, error) {
	request := q.request
	if q.grant != nil {
		token, err := q.grant.Token(ctx, q.client)
		if err != nil {
			return nil, err
		}
		request.Header = request.Header.Clone()
		request.Header.Set("Authorization", "Bearer "+token.Reveal())
	}
	return metric.Fetch(ctx, q.client, request, nil)
}

func find(path *jsonpath.JSONPath, body []byte) (metric.Result, error) {
	var document any
	if json.Unmarshal(body, &document) != nil {
		if len(bytes.TrimSpace(body)) == 0 {
			return metric.Result{}, errNoValue
		}
		return metric.Result{Value: string(body)}, nil
	}
	found, err := path.FindResults(document)
	if err != nil {
		return metric.Result{}, errors.New("Could not find JSONPath in body: " + outbound.Excerpt([]byte(err.Error())))
	}
	for _, list := range found {
		for _, value := range list {
			if !value.IsValid() || !value.CanInterface() {
				continue
			}
			return metric.Result{Value: value.Interface()}, nil
		}
	}
	return metric.Result{}, errNoValue
}
