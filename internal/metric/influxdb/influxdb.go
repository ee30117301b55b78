// Package influxdb asks servers with the query API of InfluxDB 2, in Flux.
//
// It knows that API and nothing of where queries come from, and no other provider.
package influxdb

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"io"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/serin-dev/serin/internal/metric"
	"github.com/serin-dev/serin/internal/outbound"
)

// Type is the provider's name in a MetricTemplate.
const Type = "influxdb"

// Flux may have to read a lot before it answers.
const timeout = 15 * time.Second

// Factory makes providers of this type. The credentials have token and org; the address is needed.
func Factory() metric.Factory { return metric.Factory{Type: Type, New: newProvider} }

type provider struct {
	client   *outbound.Client
	endpoint *url.URL
	header   http.Header
}

func newProvider(client *outbound.Client, c metric.Config) (metric.Provider, error) {
	address, err := outbound.ParseURL(c.Address)
	if err != nil {
		return nil, err
	}
	endpoint := address.JoinPath("api/v2/query")
	header := http.Header{"Content-Type": {"application/json"}, "Accept": {"application/csv"}}
	if c.Credentials != nil {
		token, org := c.Credentials["token"], c.Credentials["org"]
		if token == "" || org == "" {
			return nil, metric.Missing(Type, "token", "org")
		}
		header.Set("Authorization", "Token "+token.Reveal())
		endpoint.RawQuery = url.Values{"org": {org.Reveal()}}.Encode()
	}
	return &provider{client: client, endpoint: endpoint, header: header}, nil
}

// Measure is the _value of the first record.
func (p *provider) Measure(ctx context.Context, q metric.Query) (float64, error) {
	body, err := p.ask(ctx, q.Text)
	if err != nil {
		return 0, err
	}
	return parse(body)
}

// Online asks for the name of a bucket: any token may see those it can read, and none need exist.
func (p *provider) Online(ctx context.Context) error {
	_, err := p.ask(ctx, "buckets() |> limit(n: 1)")
	return err
}

func (p *provider) ask(ctx context.Context, query string) ([]byte, error) {
	type dialect struct {
		Annotations []string `json:"annotations"`
		Header      bool     `json:"header"`
	}
	body, err := json.Marshal(struct {
		Query   string  `json:"query"`
		Type    string  `json:"type"`
		Dialect dialect `json:"dialect"`
	}{query, "flux", dialect{Annotations: []string{"datatype"}, Header: true}})
	if err != nil {
		return nil, err
	}
	request := outbound.Request{Method: http.MethodPost, URL: p.endpoint.String(), Header: p.header, Body: body, Timeout: timeout}
	return metric.Fetch(ctx, p.client, request, classify)
}

// errorCodes are the words of the API for what went wrong; the sentence beside them is not repeated.
var errorCodes = []string{"internal error", "not found", "conflict", "invalid", "unprocessable entity", "empty value", "unavailable", "forbidden", "too many requests", "unauthorized", "method not allowed", "request too large"}

func classify(body []byte) string {
	var answer struct {
		Code string `json:"code"`
	}
	if json.Unmarshal(body, &answer) != nil || !slices.Contains(errorCodes, answer.Code) {
		return ""
	}
	return answer.Code
}

// parse reads annotated CSV: a row that begins with #datatype, one with the names of columns, then records.
func parse(body []byte) (float64, error) {
	rows := csv.NewReader(bytes.NewReader(body))
	rows.FieldsPerRecord = -1 // tables follow each other, each with its own columns
	var types, names []string
	for {
		row, err := rows.Read()
		switch {
		case errors.Is(err, io.EOF) && (names != nil || len(body) == 0 || len(bytes.TrimSpace(body)) == 0):
			return 0, metric.ErrNoData
		case err != nil:
			return 0, metric.Unexpected("InfluxDB")
		case row[0] == "#datatype":
			types, names = row, nil
		case types == nil:
			return 0, metric.Unexpected("InfluxDB")
		case names == nil:
			if names = row; slices.Contains(names, "error") {
				return 0, errors.New("InfluxDB could not run the query to its end: correct the query")
			}
		case body[rows.InputOffset()-1] != '\n': // the end of the record may be missing, and with it digits
			return 0, metric.Unexpected("InfluxDB")
		default:
			return value(types, names, row)
		}
	}
}

func value(types, names, row []string) (float64, error) {
	column := slices.Index(names, "_value")
	switch {
	case column < 0:
		return 0, errors.New("the records have no _value: end the query with one, for example with map or rename")
	case column >= len(row) || column >= len(types):
		return 0, metric.Unexpected("InfluxDB")
	case row[column] == "":
		return 0, metric.ErrNoData
	case !slices.Contains([]string{"double", "long", "unsignedLong"}, types[column]):
		return 0, errors.New("_value is not a number: make it one in the query, for example with float(v: r._value)")
	}
	v, err := strconv.ParseFloat(row[column], 64)
	switch {
	case err != nil:
		return 0, metric.Unexpected("InfluxDB")
	case math.IsNaN(v):
		return 0, metric.ErrNoData
	default:
		return v, nil
	}
}
