// Package wavefront asks the chart API of Wavefront, now Operations for Applications.
//
// It knows that API and nothing of where queries come from, and no other provider.
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

// Options are what an analysis says about the service.
type Options struct {
	// Address is a host, or its URL.
	Address string
	Token   outbound.Secret
}

// Provider asks one service.
type Provider struct {
	client   *outbound.Client
	endpoint *url.URL
	header   http.Header
}

// New checks the options; it calls nobody.
func New(client *outbound.Client, o Options) (*Provider, error) {
	if !strings.Contains(o.Address, "://") {
		o.Address = "https://" + o.Address
	}
	address, err := outbound.ParseURL(o.Address)
	if err != nil {
		return nil, err
	}
	if o.Token == "" {
		return nil, errors.New("API token not found") // promised by the API of analyses
	}
	return &Provider{client: client, endpoint: address.JoinPath("api/v2/chart/api"), header: http.Header{"Authorization": {"Bearer " + o.Token.Reveal()}}}, nil
}

// Measure is the value of the only time series, now.
func (p *Provider) Measure(ctx context.Context, q metric.Query) (float64, error) {
	found, err := p.Find(ctx, q)
	if err != nil {
		return 0, err
	}
	return metric.Single(found)
}

// Find is the value of the only time series, or the list of those of all, now.
func (p *Provider) Find(ctx context.Context, q metric.Query) (metric.Result, error) {
	body, err := p.ask(ctx, strings.TrimSpace(q.Text), q.Now)
	if err != nil {
		return metric.Result{}, err
	}
	return parse(body, q.Now)
}

// Online asks for a constant.
func (p *Provider) Online(ctx context.Context) error {
	_, err := p.ask(ctx, "1", time.Unix(0, 0))
	return err
}

func (p *Provider) ask(ctx context.Context, query string, now time.Time) ([]byte, error) {
	address := *p.endpoint
	address.RawQuery = url.Values{"q": {query}, "s": {strconv.FormatInt(now.UnixMilli(), 10)}, "g": {"s"}, "p": {"1"}}.Encode()
	return metric.Fetch(ctx, p.client, outbound.Request{URL: address.String(), Header: p.header}, nil)
}

func parse(body []byte, now time.Time) (metric.Result, error) {
	var answer *struct {
		Series []struct {
			// Points are pairs of seconds and value, which is null if it is no number.
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
		at, value, ok := nearest(series.Points, float64(now.Unix()))
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

// nearest is the point that is closest to a moment.
func nearest(points [][]*float64, moment float64) (at, value float64, ok bool) {
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
