// Package splunk runs SignalFlow programs in Splunk Observability Cloud.
//
// It knows that API. It must not know where queries come from, or any other provider.
package splunk

import (
	"bytes"
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
const Type = "splunk"

const keyToken = "sf_token_key"

// timeout bounds one request, because a program may have to read a lot of data.
const timeout = 15 * time.Second

// Service serves both APIs. The credentials are sf_token_key; the address, of the API or of its stream, is required. It is in
// the Secret of analyses, so that a token is sent only to the address that its owner has chosen.
func Service() metric.Service {
	return metric.Service{TemplateType: Type, NewProvider: newProvider, AnalysisType: "Splunk", NewMeasurement: newMeasurement}
}

type provider struct {
	client         *outbound.Client
	execute, alive *url.URL
	header         http.Header
	// lookback is the number of intervals in the time range of a program.
	lookback int
}

func newProvider(client *outbound.Client, c metric.Config) (metric.Provider, error) {
	return newSplunk(client, c)
}

func newMeasurement(ctx context.Context, r metric.AnalysisRequest) (metric.Measurement, error) {
	p := r.Metric.Provider.Splunk
	interval, err := metric.DurationOr(p.Interval, metric.DefaultAnalysisInterval)
	if err != nil {
		return metric.Measurement{}, err
	}
	config, err := r.ReadConfig(ctx, Type, p.SecretRef, keyToken)
	if err != nil {
		return metric.Measurement{}, err
	}
	querier, err := newSplunk(r.Restricted, config)
	if err != nil {
		return metric.Measurement{}, err
	}
	querier.lookback = 1
	return metric.Measurement{Provider: metric.AsRaw(querier), Query: metric.Query{Text: p.Query, Interval: interval, Now: r.Now}}, nil
}

func newSplunk(client *outbound.Client, c metric.Config) (*provider, error) {
	api, stream, err := addresses(c.Address)
	if err != nil {
		return nil, err
	}
	token := c.Credentials[keyToken]
	if token == "" {
		return nil, metric.Missing(Type, keyToken)
	}
	return &provider{
		client: client, execute: stream.JoinPath("v2/signalflow/execute"), alive: api.JoinPath("v2/metric"),
		header:   http.Header{"X-Sf-Token": {token.Reveal()}, "Content-Type": {"text/plain"}, "Accept": {"text/event-stream"}},
		lookback: lookback,
	}, nil
}

// addresses returns the addresses of the API and of the stream, which differ only in the first part of their host names.
// Templates may contain either, and that of the stream with the scheme of web sockets. Any other host, such as a proxy,
// serves both.
func addresses(given string) (api, stream *url.URL, err error) {
	scheme, rest, _ := strings.Cut(strings.TrimSpace(given), "://")
	switch scheme {
	case "wss":
		given = "https://" + rest
	case "ws":
		given = "http://" + rest
	}
	address, err := outbound.ParseURL(given)
	if err != nil {
		return nil, nil, err
	}
	// Some addresses already contain the path of the stream.
	address.Path, address.RawPath, address.RawQuery = strings.TrimSuffix(strings.TrimSuffix(address.Path, "/"), "/v2/signalflow"), "", ""
	one, other := *address, *address
	if rest, ok := strings.CutPrefix(address.Host, "stream."); ok {
		one.Host = "api." + rest
	}
	if rest, ok := strings.CutPrefix(address.Host, "api."); ok {
		other.Host = "stream." + rest
	}
	return &one, &other, nil
}

// lookback is the number of intervals in the time range of the program of a MetricTemplate.
const lookback = 10

// Measure returns the newest value of the only time series that the program publishes, unless it is too old.
func (p *provider) Measure(ctx context.Context, q metric.Query) (float64, error) {
	address := *p.execute
	address.RawQuery = url.Values{
		"start":     {strconv.FormatInt(q.Now.Add(-time.Duration(p.lookback)*q.Interval).UnixMilli(), 10)},
		"stop":      {strconv.FormatInt(q.Now.UnixMilli(), 10)},
		"immediate": {"true"},
	}.Encode()
	program := strings.TrimSpace(q.Text)
	if program == "" {
		return 0, errors.New("the query is empty: write a SignalFlow program that publishes one time series")
	}
	body, err := metric.Fetch(ctx, p.client, outbound.Request{
		Method: http.MethodPost, URL: address.String(), Header: p.header, Body: []byte(program), Timeout: timeout,
	}, nil)
	if err != nil {
		return 0, err
	}
	return parse(body, q)
}

// Online requests the name of one metric.
func (p *provider) Online(ctx context.Context) error {
	address := *p.alive
	address.RawQuery = url.Values{"limit": {"1"}}.Encode()
	_, err := metric.Fetch(ctx, p.client, outbound.Request{URL: address.String(), Header: p.header}, nil)
	return err
}

var (
	errAborted        = errors.New("SignalFlow could not complete the program: correct the query")
	errMultipleSeries = errors.New("query returned multiple values: aggregate to one time series, for example with sum() or mean()")
)

// streamState is the state of reading a stream.
type streamState struct {
	series string
	value  float64
	// start is the beginning of the period of the value. The period is zero if the stream does not report it.
	start  time.Time
	period time.Duration
	found  bool
	ended  bool
}

// parse reads a stream of server-sent events, in which data points are in chronological order.
func parse(body []byte, q metric.Query) (float64, error) {
	state := &streamState{}
	for event := range bytes.SplitSeq(bytes.ReplaceAll(body, []byte("\r\n"), []byte("\n")), []byte("\n\n")) {
		kind, data := eventFields(event)
		if len(data) == 0 {
			continue
		}
		if err := state.handleEvent(kind, data); err != nil {
			return 0, err
		}
	}
	switch {
	case !state.ended: // the stream is truncated, so the newest value may be missing
		return 0, metric.Unexpected("SignalFlow")
	case !state.found, !q.IsCurrent(state.start.Add(state.period), state.period):
		return 0, metric.ErrNoData
	default:
		return state.value, nil
	}
}

// eventFields returns the kind and the data of an event. Data may consist of several lines.
func eventFields(event []byte) (kind string, data []byte) {
	for line := range bytes.SplitSeq(event, []byte("\n")) {
		name, value, _ := bytes.Cut(line, []byte(":"))
		switch string(name) {
		case "event":
			kind = string(bytes.TrimSpace(value))
		case "data":
			data = append(append(data, value...), '\n')
		}
	}
	return kind, bytes.TrimSpace(data)
}

func (state *streamState) handleEvent(kind string, data []byte) error {
	switch kind {
	case "control-message":
		var control struct {
			Event string `json:"event"`
		}
		if json.Unmarshal(data, &control) != nil {
			return metric.Unexpected("SignalFlow")
		}
		if control.Event == "CHANNEL_ABORT" {
			return errAborted
		}
		state.ended = state.ended || control.Event == "END_OF_CHANNEL"
		return nil
	case "error":
		return errAborted
	case "data":
		return state.addPoints(data)
	case "metadata":
		var metadata struct {
			Properties struct {
				Resolution int64 `json:"sf_resolutionMs"`
			} `json:"properties"`
		}
		_ = json.Unmarshal(data, &metadata) // other properties depend on the metric
		state.period = max(state.period, time.Duration(metadata.Properties.Resolution)*time.Millisecond)
		return nil
	default: // messages about the computation
		return nil
	}
}

func (state *streamState) addPoints(data []byte) error {
	var points struct {
		Data []struct {
			Series string   `json:"tsId"`
			Value  *float64 `json:"value"`
		} `json:"data"`
		Timestamp *int64 `json:"logicalTimestampMs"`
	}
	if json.Unmarshal(data, &points) != nil || points.Timestamp == nil {
		return metric.Unexpected("SignalFlow")
	}
	for _, point := range points.Data {
		switch {
		case point.Value == nil || math.IsNaN(*point.Value):
			continue
		case state.found && state.series != point.Series:
			return errMultipleSeries
		}
		state.series, state.value, state.start, state.found = point.Series, *point.Value, time.UnixMilli(*points.Timestamp), true
	}
	return nil
}
