// Package web asks any address and reads what is at a JSONPath of the answer.
//
// It knows HTTP and JSON, and nothing of where addresses come from or what the answer means, and no other provider.
package web

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"k8s.io/client-go/util/jsonpath"

	"github.com/serin-dev/serin/internal/metric"
	"github.com/serin-dev/serin/internal/outbound"
)

const (
	defaultTimeout = 10 * time.Second
	defaultPath    = "{$}"
)

// Options are what an analysis says about the call.
type Options struct {
	URL string
	// Method is GET, POST or PUT; GET without it.
	Method string
	// Header is sent as it is.
	Header http.Header
	// Body or JSONBody is sent with POST and PUT.
	Body     string
	JSONBody json.RawMessage
	// Timeout is ten seconds without it.
	Timeout time.Duration
	// JSONPath is the whole answer without it.
	JSONPath   string
	SkipVerify bool
	// Grant, if there is one, fetches a token for the call.
	Grant *metric.Grant
}

// Provider asks one address.
type Provider struct {
	client  *outbound.Client
	request outbound.Request
	path    *jsonpath.JSONPath
	grant   *metric.Grant
}

// The texts that the API of analyses promises.
var (
	errTwoBodies = errors.New("use either Body or JSONBody; both cannot exists for WebMetric payload")
	errBodyOfGet = errors.New("Body/JSONBody can only be used with POST or PUT WebMetric Method types")
	errNothing   = errors.New("result of web metric produced no value")
)

// New checks the options; it calls nobody.
func New(client *outbound.Client, o Options) (*Provider, error) {
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
		return nil, fmt.Errorf("method %q is none of GET, POST and PUT: correct it", r.Method)
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
	return &Provider{client: client, request: r, path: path, grant: o.Grant}, nil
}

// Measure is what was found, if it is a number.
func (p *Provider) Measure(ctx context.Context, q metric.Query) (float64, error) {
	found, err := p.Find(ctx, q)
	if err != nil {
		return 0, err
	}
	return metric.Single(found)
}

// Find is what the path leads to first, of any type, or a body that is no JSON as text. The query counts for nothing:
// all is in the options.
func (p *Provider) Find(ctx context.Context, _ metric.Query) (metric.Result, error) {
	body, err := p.ask(ctx)
	if err != nil {
		return metric.Result{}, err
	}
	return find(p.path, body)
}

// Online makes the call, which is the only one that is known.
func (p *Provider) Online(ctx context.Context) error {
	_, err := p.ask(ctx)
	return err
}

func (p *Provider) ask(ctx context.Context) ([]byte, error) {
	request := p.request
	if p.grant != nil {
		token, err := p.grant.Token(ctx, p.client)
		if err != nil {
			return nil, err
		}
		request.Header = request.Header.Clone()
		request.Header.Set("Authorization", "Bearer "+token.Reveal())
	}
	return metric.Fetch(ctx, p.client, request, nil)
}

// decoders bounds how many documents are decoded at once: decoded, a hostile one needs twenty times its length. Nothing is waited
// for while one is decoded, so that no namespace can hold the others back.
var decoders = make(chan struct{}, 4)

func find(path *jsonpath.JSONPath, body []byte) (metric.Result, error) {
	decoders <- struct{}{}
	defer func() { <-decoders }()
	var document any
	if json.Unmarshal(body, &document) != nil {
		if len(bytes.TrimSpace(body)) == 0 {
			return metric.Result{}, errNothing
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
	return metric.Result{}, errNothing
}
