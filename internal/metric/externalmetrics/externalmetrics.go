// Package externalmetrics queries the external metrics API of Kubernetes, which adapters of many services serve.
//
// It knows that API and the syntax of its queries. It must not know where queries come from, or any other provider.
package externalmetrics

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/metric"
	"github.com/serin-dev/serin/internal/outbound"
)

// Type is the provider's name in a MetricTemplate.
const Type = "externalmetrics"

const root = "apis/external.metrics.k8s.io/v1beta1"

const keyToken = "token"

// defaultNamespace is the namespace of a query of a MetricTemplate that names none.
const defaultNamespace = "default"

// Service serves both APIs. Without an address, they query the API server of the cluster, with the token of their
// credentials or, without one, with that of the controller. With an address, they query that server, with the token of their
// credentials or none: the controller's token is for its own API server only.
func Service(cluster metric.Cluster) metric.Service {
	return metric.Service{
		TemplateType: Type, NewProvider: func(client *outbound.Client, c metric.Config) (metric.Provider, error) {
			return newProvider(cluster, client, c)
		},
		AnalysisType: "ExternalMetrics", NewMeasurement: func(ctx context.Context, r metric.AnalysisRequest) (metric.Measurement, error) {
			return newMeasurement(ctx, r, cluster)
		},
	}
}

// newMeasurement queries for an analysis. Unlike the author of a MetricTemplate, that of an analysis may query other
// namespaces only with a token of their own: the permissions of the controller reach further than those of the author.
func newMeasurement(ctx context.Context, r metric.AnalysisRequest, cluster metric.Cluster) (metric.Measurement, error) {
	p := r.Metric.Provider.ExternalMetrics
	config := metric.Config{Namespace: r.Run.Namespace}
	if p.SecretRef != (argov1.SecretRef{}) {
		credentials, err := r.ReadSecret(ctx, Type, p.SecretRef)
		if err != nil {
			return metric.Measurement{}, err
		}
		r.Hide(credentials[keyToken])
		config.Address, config.Credentials = credentials[metric.KeyAddress].Reveal(), credentials
	}
	cluster.OneNamespace = cluster.OneNamespace || !p.SecretRef.Namespaced
	querier, err := newProvider(cluster, r.Restricted, config)
	if err != nil {
		return metric.Measurement{}, err
	}
	querier.byDefault = r.Run.Namespace
	return metric.Measurement{Provider: metric.AsRaw(querier), Query: metric.Query{Text: p.Query, Now: r.Now}}, nil
}

type provider struct {
	cluster  metric.Cluster
	template string
	// byDefault is the namespace of a query that names none.
	byDefault  string
	client     *outbound.Client
	root       *url.URL
	header     http.Header
	skipVerify bool
}

func newProvider(cluster metric.Cluster, client *outbound.Client, c metric.Config) (*provider, error) {
	p := &provider{
		cluster: cluster, template: c.Namespace, byDefault: defaultNamespace, client: cluster.Own,
		header: http.Header{"Accept": {"application/json"}}, skipVerify: c.SkipVerify,
	}
	if c.Credentials != nil {
		token := c.Credentials[keyToken]
		if token == "" {
			return nil, metric.Missing(Type, keyToken)
		}
		p.client = cluster.Anonymous
		p.header.Set("Authorization", "Bearer "+token.Reveal())
	}
	address := cluster.Address
	if c.Address != "" {
		address, p.client = c.Address, client
	}
	server, err := outbound.ParseURL(address)
	if err != nil {
		return nil, err
	}
	p.root = server.JoinPath(root)
	return p, nil
}

// Measure returns the first of the matching values.
func (p *provider) Measure(ctx context.Context, q metric.Query) (float64, error) {
	namespace, name, selector, err := parseQuery(q.Text, p.byDefault)
	if err != nil {
		return 0, err
	}
	if err := p.cluster.CheckNamespace(p.template, namespace); err != nil {
		return 0, err
	}
	body, err := p.query(ctx, namespace, name, selector)
	if err != nil {
		return 0, err
	}
	return parse(body)
}

// Online requests a metric that does not need to exist.
func (p *provider) Online(ctx context.Context) error {
	_, err := p.query(ctx, "kube-system", "dummy-metric", "")
	if status, ok := errors.AsType[*metric.StatusError](err); ok && status.Code == http.StatusNotFound && status.Class == "NotFound" {
		return nil // the API is served, and has no such metric
	}
	return err
}

func (p *provider) query(ctx context.Context, namespace, name, selector string) ([]byte, error) {
	address := p.root.JoinPath("namespaces", namespace, name)
	if selector != "" {
		address.RawQuery = url.Values{"labelSelector": {selector}}.Encode()
	}
	return metric.Fetch(ctx, p.client, outbound.Request{URL: address.String(), Header: p.header, SkipVerify: p.skipVerify}, metric.Reason)
}

// namePattern matches names that are a single part of a path.
var namePattern = regexp.MustCompile(`^[a-zA-Z0-9]([-a-zA-Z0-9_.:|]*[a-zA-Z0-9])?$`)

// parseQuery parses a query: [<namespace>/]<metric>[?labelSelector=<urlencoded>].
func parseQuery(query, byDefault string) (namespace, name, selector string, err error) {
	path, parameters, _ := strings.Cut(strings.TrimSpace(query), "?")
	namespace, name, named := strings.Cut(path, "/")
	if !named {
		namespace, name = byDefault, path
	}
	values, err := url.ParseQuery(parameters)
	switch {
	case err != nil:
		return "", "", "", errors.New("the part of the query after ? is not valid: write it like labelSelector=app%3Dcart")
	case len(validation.IsDNS1123Label(namespace)) > 0 || !namePattern.MatchString(name):
		return "", "", "", errors.New("the query is not the name of a metric: write it like namespace/metric?labelSelector=app%3Dcart")
	default:
		return namespace, name, values.Get("labelSelector"), nil
	}
}

// quantityPattern matches quantities that can be parsed fast: for 1e999999999, the library would compute all digits.
var quantityPattern = regexp.MustCompile(`^[+-]?[0-9.]{1,40}([eE][+-]?[0-9]{1,2}|[numkMGTPE]|[KMGTPE]i)?$`)

func parse(body []byte) (float64, error) {
	var list struct {
		Kind  string `json:"kind"`
		Items []struct {
			Value string `json:"value"`
		} `json:"items"`
	}
	if json.Unmarshal(body, &list) != nil || list.Kind != "ExternalMetricValueList" {
		return 0, metric.Unexpected("external metrics")
	}
	if len(list.Items) == 0 {
		return 0, metric.ErrNoData
	}
	text := list.Items[0].Value
	if !quantityPattern.MatchString(text) {
		return 0, metric.Unexpected("external metrics")
	}
	value, err := resource.ParseQuantity(text)
	if err != nil {
		return 0, metric.Unexpected("external metrics")
	}
	return value.AsApproximateFloat64(), nil
}
