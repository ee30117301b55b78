// Package keptn reads KeptnMetrics and creates Analyses, which Keptn runs, through the API server.
//
// It knows these resources and the syntax of its queries. It must not know where queries come from, or any other provider.
package keptn

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/clock"

	"github.com/serin-dev/serin/internal/metric"
	"github.com/serin-dev/serin/internal/outbound"
)

// Type is the provider's name in a MetricTemplate.
const Type = "keptn"

const (
	group   = "metrics.keptn.sh"
	version = group + "/v1beta1"
)

const (
	pollInterval = time.Second
	pollTimeout  = 10 * time.Second
)

// Service serves both APIs. They need no credentials; the controller needs RBAC permissions for the resources. Analyses may
// name their own namespace only, because the permissions of the controller reach further than those of their authors.
func Service(cluster metric.Cluster, clk clock.Clock) metric.Service {
	newProvider := func(cluster metric.Cluster, namespace string) (metric.Provider, error) {
		server, err := outbound.ParseURL(cluster.Address)
		if err != nil {
			return nil, err
		}
		return &provider{cluster: cluster, clock: clk, template: namespace, api: server.JoinPath("apis")}, nil
	}
	return metric.Service{
		TemplateType: Type, NewProvider: func(_ *outbound.Client, c metric.Config) (metric.Provider, error) {
			return newProvider(cluster, c.Namespace)
		},
		AnalysisType: "Keptn", NewMeasurement: func(_ context.Context, r metric.AnalysisRequest) (metric.Measurement, error) {
			own := cluster
			own.OneNamespace = true
			querier, err := newProvider(own, r.Run.Namespace)
			if err != nil {
				return metric.Measurement{}, err
			}
			return metric.Measurement{Provider: metric.AsRaw(querier), Query: metric.Query{Text: r.Metric.Provider.Keptn.Query, Now: r.Now}}, nil
		},
	}
}

type provider struct {
	cluster  metric.Cluster
	clock    clock.Clock
	template string
	api      *url.URL
}

// Measure returns the value of a KeptnMetric, or for an Analysis 1 if it passed and 0 if not.
func (p *provider) Measure(ctx context.Context, q metric.Query) (float64, error) {
	query, err := parseQuery(q.Text)
	if err != nil {
		return 0, err
	}
	if err := p.cluster.CheckNamespace(p.template, query.namespace); err != nil {
		return 0, err
	}
	if query.analysis {
		return p.runAnalysis(ctx, query, q.Now)
	}
	body, err := p.call(ctx, http.MethodGet, p.path("keptnmetrics", query.namespace, query.name), nil)
	if err != nil {
		return 0, err
	}
	return parse(body)
}

// Online checks that the API server serves the resources. It does not check the providers of Keptn.
func (p *provider) Online(ctx context.Context) error {
	_, err := p.call(ctx, http.MethodGet, p.api.JoinPath(version), nil)
	return err
}

func (p *provider) path(resource string, parts ...string) *url.URL {
	return p.api.JoinPath(append([]string{version, "namespaces", parts[0], resource}, parts[1:]...)...)
}

func (p *provider) call(ctx context.Context, method string, address *url.URL, body []byte) ([]byte, error) {
	header := http.Header{"Accept": {"application/json"}}
	if body != nil {
		header.Set("Content-Type", "application/json")
	}
	return metric.Fetch(ctx, p.cluster.Own, outbound.Request{Method: method, URL: address.String(), Header: header, Body: body}, metric.Reason)
}

// parsedQuery is a parsed query.
type parsedQuery struct {
	analysis        bool
	namespace, name string
	timeframe       string
	args            map[string]string
}

var errInvalidQuery = errors.New("the query is neither keptnmetric/<namespace>/<name> nor analysis/<namespace>/<name>[/<duration>[/<key>=<value>;...]]: correct it")

// parseQuery parses a query. The case of arguments is preserved; everything else is lower case in Kubernetes.
func parseQuery(query string) (parsedQuery, error) {
	parts := strings.SplitN(strings.TrimSpace(query), "/", 5)
	if len(parts) < 3 {
		return parsedQuery{}, errInvalidQuery
	}
	q := parsedQuery{namespace: strings.ToLower(parts[1]), name: strings.ToLower(parts[2]), timeframe: "1m"}
	switch strings.ToLower(parts[0]) {
	case "keptnmetric", "keptnmetrics":
		if len(parts) > 3 {
			return parsedQuery{}, errInvalidQuery
		}
	case "analysis", "analyses":
		q.analysis = true
	default:
		return parsedQuery{}, errInvalidQuery
	}
	if len(validation.IsDNS1123Label(q.namespace)) > 0 || len(validation.IsDNS1123Subdomain(q.name)) > 0 {
		return parsedQuery{}, errInvalidQuery
	}
	if len(parts) > 3 {
		q.timeframe = strings.ToLower(parts[3])
		if _, err := time.ParseDuration(q.timeframe); err != nil {
			return parsedQuery{}, errInvalidQuery
		}
	}
	if len(parts) > 4 {
		q.args = map[string]string{}
		for pair := range strings.SplitSeq(parts[4], ";") {
			key, value, ok := strings.Cut(pair, "=")
			if !ok || key == "" {
				return parsedQuery{}, errInvalidQuery
			}
			q.args[key] = value
		}
	}
	return q, nil
}

func parse(body []byte) (float64, error) {
	var object struct {
		Kind   string `json:"kind"`
		Status struct {
			Value string `json:"value"`
		} `json:"status"`
	}
	if json.Unmarshal(body, &object) != nil || object.Kind != "KeptnMetric" {
		return 0, metric.Unexpected("Keptn")
	}
	if object.Status.Value == "" { // not measured yet
		return 0, metric.ErrNoData
	}
	value, err := strconv.ParseFloat(object.Status.Value, 64)
	if err != nil {
		return 0, metric.Unexpected("Keptn")
	}
	return metric.Number(value)
}

// runAnalysis creates an Analysis, waits for its outcome and deletes it, also if the context ends before.
func (p *provider) runAnalysis(ctx context.Context, query parsedQuery, now time.Time) (float64, error) {
	name := analysisName(query, p.template, now)
	body, err := json.Marshal(newAnalysis(query, name))
	if err != nil {
		return 0, err
	}
	if _, err := p.call(ctx, http.MethodPost, p.path("analyses", query.namespace), body); err != nil {
		return 0, err
	}
	address := p.path("analyses", query.namespace, name)
	defer func() {
		// The Analysis is deleted even if ctx has ended.
		_, _ = p.call(context.WithoutCancel(ctx), http.MethodDelete, address, nil)
	}()
	for deadline := p.clock.Now().Add(pollTimeout); ; {
		body, err := p.call(ctx, http.MethodGet, address, nil)
		if err != nil {
			return 0, err
		}
		passed, over, err := parseOutcome(body)
		switch {
		case err != nil:
			return 0, err
		case over && passed:
			return 1, nil
		case over:
			return 0, nil
		case !p.clock.Now().Add(pollInterval).Before(deadline):
			return 0, outbound.NewUnreachableError(errors.New("the Analysis has no outcome within " + pollTimeout.String()))
		}
		metric.ReleaseSlot(ctx)
		select {
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-p.clock.After(pollInterval):
		}
	}
}

// analysisName returns the name of an Analysis for one query at one time. It contains a hash of both, so that names differ.
func analysisName(query parsedQuery, template string, now time.Time) string {
	sum := sha256.Sum256([]byte(strings.Join([]string{template, query.namespace, query.name, now.Format(time.RFC3339Nano)}, "/")))
	const suffix = 6
	return query.name[:min(len(query.name), validation.DNS1123SubdomainMaxLength-suffix-1)] + "-" + hex.EncodeToString(sum[:])[:suffix]
}

func newAnalysis(query parsedQuery, name string) any {
	type object = map[string]any
	spec := object{"timeframe": object{"recent": query.timeframe}, "analysisDefinition": object{"name": query.name, "namespace": query.namespace}}
	if len(query.args) > 0 {
		spec["args"] = query.args
	}
	return object{
		"apiVersion": version, "kind": "Analysis",
		"metadata": object{"name": name, "namespace": query.namespace, "labels": object{"app.kubernetes.io/managed-by": "serin"}},
		"spec":     spec,
	}
}

// parseOutcome reports whether an Analysis is completed, and whether it passed. Keptn omits the field pass if it did not.
func parseOutcome(body []byte) (passed, over bool, err error) {
	var object struct {
		Kind   string `json:"kind"`
		Status struct {
			State string `json:"state"`
			Pass  bool   `json:"pass"`
		} `json:"status"`
	}
	if json.Unmarshal(body, &object) != nil || object.Kind != "Analysis" {
		return false, false, metric.Unexpected("Keptn")
	}
	return object.Status.Pass, object.Status.State == "Completed", nil
}
