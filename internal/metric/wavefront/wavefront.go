// Package wavefront queries the chart API of Wavefront, now Operations for Applications.
//
// It knows that API. It must not know where queries come from, or any other provider.
package wavefront

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/serin-dev/serin/internal/metric"
	"github.com/serin-dev/serin/internal/outbound"
)

// Type is the provider's name in a MetricTemplate.
const Type = "wavefront"

const keyToken = "token"

// Service serves both APIs. The credentials of MetricTemplates are token, and the address is required. For analyses, the
// Secret wavefront-api-tokens in the controller's namespace contains the token of each address.
func Service() metric.Service {
	return metric.Service{TemplateType: Type, NewProvider: newProvider, AnalysisType: "Wavefront", NewMeasurement: newMeasurement}
}

// provider answers the queries of MetricTemplates.
type provider struct{ *querier }

func newProvider(client *outbound.Client, c metric.Config) (metric.Provider, error) {
	if c.Credentials[keyToken] == "" {
		return nil, metric.Missing(Type, keyToken)
	}
	querier, err := newQuerier(client, c.Address, c.Credentials[keyToken])
	if err != nil {
		return nil, err
	}
	return provider{querier}, nil
}

// Measure returns the current value of the only time series.
func (p provider) Measure(ctx context.Context, q metric.Query) (float64, error) {
	result, err := p.QueryRaw(ctx, q)
	if err != nil {
		return 0, err
	}
	return metric.Single(result)
}

// Online requests the name of one source.
func (p provider) Online(ctx context.Context) error {
	address := p.server.JoinPath("api/v2/source")
	address.RawQuery = url.Values{"limit": {"1"}}.Encode()
	_, err := metric.Fetch(ctx, p.client, outbound.Request{URL: address.String(), Header: p.header}, nil)
	return err
}

func newMeasurement(ctx context.Context, r metric.AnalysisRequest) (metric.Measurement, error) {
	p := r.Metric.Provider.Wavefront
	tokens, err := r.Credentials(ctx, r.ControllerNamespace, "wavefront-api-tokens")
	if err != nil {
		return metric.Measurement{}, err
	}
	r.Hide(tokens[p.Address])
	querier, err := newQuerier(r.Restricted, p.Address, tokens[p.Address])
	return metric.Measurement{
		Provider: querier, Query: metric.Query{Text: p.Query, Now: r.Now}, Format: formatValue,
		NoDataError: errors.New("No TimeSeries found in response from Wavefront"), //nolint:staticcheck // the text is part of the API
	}, err
}

// querier sends queries to one service.
type querier struct {
	client *outbound.Client
	server *url.URL
	header http.Header
}

// newQuerier checks the address, a host or its URL, and the token; it sends no request.
func newQuerier(client *outbound.Client, server string, token outbound.Secret) (*querier, error) {
	if !strings.Contains(server, "://") {
		server = "https://" + server
	}
	address, err := outbound.ParseURL(server)
	if err != nil {
		return nil, err
	}
	if token == "" {
		return nil, errors.New("API token not found") // promised by the API of analyses
	}
	return &querier{client: client, server: address, header: http.Header{"Authorization": {"Bearer " + token.Reveal()}}}, nil
}

// QueryRaw returns the current value of the only time series, or the list of the values of all time series.
func (q *querier) QueryRaw(ctx context.Context, query metric.Query) (metric.Result, error) {
	address := q.server.JoinPath("api/v2/chart/api")
	address.RawQuery = url.Values{
		"q": {strings.TrimSpace(query.Text)}, "s": {strconv.FormatInt(query.Now.UnixMilli(), 10)}, "g": {"s"}, "p": {"1"},
	}.Encode()
	body, err := metric.Fetch(ctx, q.client, outbound.Request{URL: address.String(), Header: q.header}, nil)
	if err != nil {
		return metric.Result{}, err
	}
	return parse(body, query.Now)
}

// formatValue renders numbers as Argo Rollouts renders those of Wavefront.
func formatValue(value any) string {
	switch v := value.(type) {
	case float64:
		return strconv.FormatFloat(v, 'f', 2, 64)
	case []float64:
		return metric.FormatList(v, 2)
	default:
		return metric.FormatValue(value)
	}
}

func parse(body []byte, now time.Time) (metric.Result, error) {
	var answer *struct {
		Series []struct {
			// Points are pairs of seconds and value, which is null if it is not a number.
			Points [][]*float64 `json:"data"`
		} `json:"timeseries"`
		ErrorType string `json:"errorType"`
	}
	if json.Unmarshal(body, &answer) != nil || answer == nil {
		return metric.Result{}, metric.Unexpected("Wavefront")
	}
	if answer.ErrorType != "" {
		return metric.Result{}, errors.New("the query could not be run: correct it")
	}
	var values []float64
	var times, drifts []string
	for _, series := range answer.Series {
		at, value, ok := nearestPoint(series.Points, float64(now.Unix()))
		if !ok {
			return metric.Result{}, metric.Unexpected("Wavefront")
		}
		values = append(values, value)
		times = append(times, strconv.FormatFloat(at, 'f', 0, 64))
		drifts = append(drifts, strconv.FormatFloat(float64(now.Unix())-at, 'f', 0, 64))
	}
	result := metric.Result{Value: values, Metadata: map[string]string{"timestamps": strings.Join(times, ","), "drift": strings.Join(drifts, ",")}}
	switch len(values) {
	case 0:
		return metric.Result{}, metric.ErrNoData
	case 1:
		result.Value = values[0]
	}
	return result, nil
}

// nearestPoint returns the point that is closest to a time.
func nearestPoint(points [][]*float64, moment float64) (at, value float64, ok bool) {
	for _, p := range points {
		if len(p) != 2 || p[0] == nil {
			return 0, 0, false
		}
		if ok && math.Abs(*p[0]-moment) >= math.Abs(at-moment) {
			continue
		}
		at, value, ok = *p[0], math.NaN(), true
		if p[1] != nil {
			value = *p[1]
		}
	}
	return at, value, ok
}
