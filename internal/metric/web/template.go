package web

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/serin-dev/serin/internal/metric"
	"github.com/serin-dev/serin/internal/outbound"
)

// Type is the provider's name in a MetricTemplate.
const Type = "web"

// templateQuery is the query of a MetricTemplate, in YAML. The server is in the address of the provider, because the Secret
// of the template must not be sent to a host that a variable of a Canary names.
type templateQuery struct {
	// Path is appended to the address. It may contain parameters.
	Path string `json:"path"`
	// Method is GET, POST or PUT; the default is GET.
	Method string `json:"method"`
	// Body is sent with POST and PUT.
	Body string `json:"body"`
	// JSONPath defaults to the whole document.
	JSONPath string `json:"jsonPath"`
}

// templateProvider answers the queries of MetricTemplates.
type templateProvider struct {
	client  *outbound.Client
	server  *url.URL
	options options
}

// newTemplateProvider checks the configuration of a MetricTemplate. The credentials are optional: a token, username and
// password, or those of a grant.
func newTemplateProvider(client *outbound.Client, c metric.Config) (metric.Provider, error) {
	server, err := outbound.ParseURL(c.Address)
	if err != nil {
		return nil, err
	}
	p := &templateProvider{client: client, server: server, options: options{Header: c.Header.Clone(), SkipVerify: c.SkipVerify}}
	if p.options.Header == nil {
		p.options.Header = http.Header{}
	}
	if c.Credentials != nil {
		if p.options.Grant, err = metric.Authorize(Type, p.options.Header, c.Credentials); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// Measure returns the number at the JSONPath of the response.
func (p *templateProvider) Measure(ctx context.Context, q metric.Query) (float64, error) {
	o, err := p.optionsFor(q.Text)
	if err != nil {
		return 0, err
	}
	querier, err := newQuerier(p.client, o)
	if err != nil {
		return 0, err
	}
	result, err := querier.QueryRaw(ctx, q)
	switch {
	case errors.Is(err, errNoValue):
		return 0, metric.ErrNoData
	case err != nil:
		return 0, err
	default:
		return numberOf(result)
	}
}

// Online requests the address without a path. The server need not have a page there: it must respond, and accept the
// credentials.
func (p *templateProvider) Online(ctx context.Context) error {
	o := p.options
	o.URL = p.server.String()
	querier, err := newQuerier(p.client, o)
	if err != nil {
		return err
	}
	_, err = querier.fetch(ctx)
	if status, ok := errors.AsType[*metric.StatusError](err); ok && slices.Contains(noPageStatuses, status.Code) {
		return nil
	}
	return err
}

// noPageStatuses are the statuses of a server that has no page at the address.
var noPageStatuses = []int{http.StatusBadRequest, http.StatusNotFound, http.StatusMethodNotAllowed}

var errNotRelative = errors.New("path is not a path such as /api/errors?app=cart: correct it. The server belongs in the address of the provider")

// optionsFor returns the request of a query.
func (p *templateProvider) optionsFor(text string) (options, error) {
	var q templateQuery
	if err := yaml.UnmarshalStrict([]byte(text), &q); err != nil {
		return options{}, fmt.Errorf("the query is not YAML with the fields path, method, body and jsonPath: %s", outbound.Excerpt([]byte(err.Error())))
	}
	reference, err := url.Parse(q.Path)
	if err != nil || reference.Scheme != "" || reference.Host != "" || reference.User != nil || slices.Contains(strings.Split(reference.Path, "/"), "..") {
		return options{}, errNotRelative
	}
	target := p.server.JoinPath(reference.EscapedPath())
	parameters := []string{p.server.RawQuery, reference.RawQuery}
	target.RawQuery = strings.Join(slices.DeleteFunc(parameters, func(part string) bool { return part == "" }), "&")
	o := p.options
	o.URL, o.Method, o.Body, o.JSONPath = target.String(), strings.ToUpper(q.Method), q.Body, q.JSONPath
	return o, nil
}

// numberOf returns a result as a number. Many services write numbers as strings; true is 1 and false is 0.
func numberOf(result metric.Result) (float64, error) {
	switch value := result.Value.(type) {
	case bool:
		if value {
			return 1, nil
		}
		return 0, nil
	case string:
		if number, err := strconv.ParseFloat(strings.TrimSpace(value), 64); err == nil {
			return metric.Number(number)
		}
	}
	return metric.Single(result)
}
