package datadog

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/metric"
	"github.com/serin-dev/serin/internal/outbound"
)

// options are the settings of a query of an analysis.
type options struct {
	// Address is the URL of the service; empty: the public one.
	Address          string
	API, Application outbound.Secret
	// Version is the version of the API, v1 or v2; the default is v1.
	Version string
	// Query is a single query. Queries are several ones by name, which Formula combines; v2 only.
	Query   string
	Queries map[string]string
	Formula string
	// Aggregator reduces many points to one number; v2 only. Empty: last.
	Aggregator string
	// Timeout bounds a request; zero: metric.DefaultTimeout.
	Timeout time.Duration
}

const (
	v1 = "v1"
	v2 = "v2"
	// defaultQueryName is the name of a query that has none.
	defaultQueryName = "query"
)

// The texts that the API of analyses promises.
var (
	errNoKeys                = errors.New("API or App token not found")
	errNoQuery               = errors.New("Must have either a query or queries. Please review the Analysis Template.")                         //nolint:staticcheck // promised
	errQueryAndQueries       = errors.New("Cannot have both a query and queries. Please review the Analysis Template.")                        //nolint:staticcheck // promised
	errNoFormula             = errors.New("When multiple queries are provided you must include a formula.")                                    //nolint:staticcheck // promised
	errFormulaWithoutQueries = errors.New("Formula are only valid when queries are set. Please review the Analysis Template.")                 //nolint:staticcheck // promised
	errAggregatorInVersion1  = errors.New("Aggregator is not supported in v1. Please review the Analysis Template.")                           //nolint:staticcheck // promised
	errQueriesInVersion1     = errors.New("Query is empty. API Version v1 only supports using the query parameter in your Analysis Template.") //nolint:staticcheck // promised
)

// querier sends one query of an analysis.
type querier struct {
	client  *outbound.Client
	address *url.URL
	header  http.Header
	options options
}

// newQuerier checks the options; it sends no request.
func newQuerier(client *outbound.Client, o options) (*querier, error) {
	if o.Address == "" {
		o.Address = publicAddress
	}
	address, err := outbound.ParseURL(o.Address)
	if err != nil {
		return nil, err
	}
	if o.Version == "" {
		o.Version = v1
	}
	switch {
	case o.API == "" || o.Application == "":
		return nil, errNoKeys
	case o.Query != "" && len(o.Queries) > 0:
		return nil, errQueryAndQueries
	case o.Version == v1 && o.Query == "":
		return nil, errQueriesInVersion1
	case o.Query == "" && len(o.Queries) == 0:
		return nil, errNoQuery
	case len(o.Queries) > 1 && o.Formula == "":
		return nil, errNoFormula
	case o.Formula != "" && len(o.Queries) == 0:
		return nil, errFormulaWithoutQueries
	case o.Version == v1 && o.Aggregator != "":
		return nil, errAggregatorInVersion1
	}
	return &querier{
		client: client, address: address, options: o,
		header: http.Header{"Dd-Api-Key": {o.API.Reveal()}, "Dd-Application-Key": {o.Application.Reveal()}},
	}, nil
}

// QueryRaw returns the newest point of the first series, or the list of all groups if a query of v2 has groups. It returns
// ErrNoData if there is no number. The text of query is ignored, because the options contain it.
func (q *querier) QueryRaw(ctx context.Context, query metric.Query) (metric.Result, error) {
	if q.options.Version == v2 {
		return q.scalar(ctx, query)
	}
	address := q.address.JoinPath("api/v1/query")
	address.RawQuery = url.Values{
		"query": {strings.TrimSpace(q.options.Query)},
		"from":  {strconv.FormatInt(query.Now.Add(-query.Interval).Unix(), 10)},
		"to":    {strconv.FormatInt(query.Now.Unix(), 10)},
	}.Encode()
	body, err := metric.Fetch(ctx, q.client, outbound.Request{URL: address.String(), Header: q.header, Timeout: q.options.Timeout}, nil)
	if err != nil {
		return metric.Result{}, err
	}
	return parseNewest(body)
}

const analysisTimeout = 10 * time.Second

func newMeasurement(ctx context.Context, r metric.AnalysisRequest) (metric.Measurement, error) {
	p := *r.Metric.Provider.Datadog
	interval, err := metric.DurationOr(p.Interval, metric.DefaultAnalysisInterval)
	if err != nil {
		return metric.Measurement{}, err
	}
	timeout, err := metric.DurationOr(p.RequestTimeout, analysisTimeout)
	if err != nil {
		return metric.Measurement{}, err
	}
	o, err := findKeys(ctx, r, p.SecretRef)
	if err != nil {
		return metric.Measurement{}, err
	}
	r.Hide(o.API, o.Application)
	o.Version, o.Query, o.Queries, o.Formula, o.Aggregator, o.Timeout = p.ApiVersion, p.Query, p.Queries, p.Formula, p.Aggregator, timeout
	querier, err := newQuerier(r.Restricted, o)
	return metric.Measurement{
		Provider: querier, Query: metric.Query{Interval: interval, Now: r.Now}, Format: formatValue, ConvertError: convertError,
	}, err
}

// findKeys reads the Secret that the metric names, Secret datadog of the controller, or the environment of the controller.
func findKeys(ctx context.Context, r metric.AnalysisRequest, ref argov1.SecretRef) (options, error) {
	credentials, err := r.ReadSecret(ctx, Type, ref)
	if err != nil {
		return options{}, err
	}
	o := options{Address: credentials["address"].Reveal(), API: credentials["api-key"], Application: credentials["app-key"]}
	if o.API == "" && o.Application == "" && ref.Name == "" {
		o = options{
			Address: r.Environment("DD_ADDRESS"), API: outbound.Secret(r.Environment("DD_API_KEY")), Application: outbound.Secret(r.Environment("DD_APP_KEY")),
		}
	}
	return o, nil
}

func formatValue(value any) string {
	if value == nil {
		return "[]"
	}
	return metric.FormatValue(value)
}

func convertError(err error) error {
	status, ok := errors.AsType[*metric.StatusError](err)
	switch {
	case !ok:
		return err
	case status.Code == http.StatusUnauthorized || status.Code == http.StatusForbidden:
		return metric.WithText(err, fmt.Sprintf("received authentication error response code: %d %s", status.Code, http.StatusText(status.Code)))
	default:
		return metric.WithText(err, fmt.Sprintf("received non 2xx response code: %d %s", status.Code, http.StatusText(status.Code)))
	}
}

// parseNewest returns the last point of the first series.
func parseNewest(body []byte) (metric.Result, error) {
	answer, err := readSeries(body)
	if err != nil {
		return metric.Result{}, err
	}
	if len(answer.Series) == 0 {
		return metric.Result{}, metric.ErrNoData
	}
	for _, point := range slices.Backward(answer.Series[0].Points) {
		if len(point) != 2 {
			return metric.Result{}, metric.Unexpected("Datadog")
		}
		if point[1] == nil {
			break
		}
		return metric.Result{Value: *point[1]}, nil
	}
	return metric.Result{}, metric.ErrNoData
}

// scalar queries version 2 of the API.
func (q *querier) scalar(ctx context.Context, query metric.Query) (metric.Result, error) {
	body, err := json.Marshal(q.request(query))
	if err != nil {
		return metric.Result{}, err
	}
	header := q.header.Clone()
	header.Set("Content-Type", "application/json")
	answer, err := metric.Fetch(ctx, q.client, outbound.Request{
		Method: http.MethodPost, URL: q.address.JoinPath("api/v2/query/scalar").String(), Header: header, Body: body, Timeout: q.options.Timeout,
	}, nil)
	if err != nil {
		return metric.Result{}, err
	}
	return parseScalar(answer)
}

// request returns the body of a request to version 2, whose times are in milliseconds.
func (q *querier) request(query metric.Query) any {
	type named struct {
		Aggregator string `json:"aggregator"`
		Source     string `json:"data_source"`
		Name       string `json:"name"`
		Query      string `json:"query"`
	}
	aggregator, queries, formula := q.options.Aggregator, q.options.Queries, q.options.Formula
	if aggregator == "" {
		aggregator = "last"
	}
	if len(queries) == 0 {
		queries = map[string]string{defaultQueryName: q.options.Query}
	}
	var list []named
	for name, text := range queries {
		list = append(list, named{Aggregator: aggregator, Source: "metrics", Name: name, Query: text})
	}
	slices.SortFunc(list, func(a, b named) int { return strings.Compare(a.Name, b.Name) })
	if formula == "" {
		formula = list[0].Name
	}
	return map[string]any{"data": map[string]any{"type": "scalar_request", "attributes": map[string]any{
		"from": query.Now.Add(-query.Interval).UnixMilli(), "to": query.Now.UnixMilli(),
		"queries": list, "formulas": []map[string]string{{"formula": formula}},
	}}}
}

// column is a column of a response of version 2: a number for each group, or the names of the groups.
type column struct {
	Type   string          `json:"type"`
	Name   string          `json:"name"`
	Values json.RawMessage `json:"values"`
}

func parseScalar(body []byte) (metric.Result, error) {
	var answer struct {
		Data struct {
			Attributes struct {
				Columns []column `json:"columns"`
			} `json:"attributes"`
		} `json:"data"`
		Errors string `json:"errors"`
	}
	if json.Unmarshal(body, &answer) != nil || answer.Errors != "" {
		return metric.Result{}, metric.Unexpected("Datadog")
	}
	var values []*float64
	var groups [][][]string
	for _, c := range answer.Data.Attributes.Columns {
		into := any(&values)
		if c.Type == "group" {
			groups = append(groups, nil)
			into = &groups[len(groups)-1]
		}
		if json.Unmarshal(c.Values, into) != nil {
			return metric.Result{}, metric.Unexpected("Datadog")
		}
	}
	var numbers []float64
	var names []string
	for i, v := range values {
		if v == nil {
			continue
		}
		numbers = append(numbers, *v)
		names = append(names, groupName(groups, i))
	}
	switch {
	case len(numbers) == 0:
		return metric.Result{}, metric.ErrNoData
	case len(groups) == 0:
		return metric.Result{Value: numbers[0]}, nil
	default:
		return metric.Result{Value: numbers, Metadata: groupMetadata(names, numbers)}, nil
	}
}

// groupName returns the values of all tags of a group, which identify it.
func groupName(groups [][][]string, i int) string {
	var parts []string
	for _, tag := range groups {
		if i < len(tag) {
			parts = append(parts, strings.Join(tag[i], ","))
		}
	}
	return strings.Join(parts, ",")
}

// maxGroups bounds the groups in the metadata; only the smallest and the largest are included.
const maxGroups = 100

// groupMetadata returns metadata with the names and numbers of the groups.
func groupMetadata(names []string, numbers []float64) map[string]string {
	type group struct {
		Name  string  `json:"name"`
		Value float64 `json:"value"`
	}
	all := make([]group, len(names))
	for i := range names {
		all[i] = group{names[i], numbers[i]}
	}
	out := map[string]string{}
	if len(all) > maxGroups {
		slices.SortStableFunc(all, func(a, b group) int {
			switch {
			case a.Value < b.Value:
				return -1
			case a.Value > b.Value:
				return 1
			default:
				return 0
			}
		})
		all = slices.Concat(all[:maxGroups/2], all[len(all)-maxGroups/2:])
		out["groups_truncated"] = "true"
	}
	text, err := json.Marshal(all)
	if err != nil {
		return nil
	}
	out["groups"] = string(text)
	return out
}
