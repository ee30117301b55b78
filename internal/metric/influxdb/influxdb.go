// Package influxdb queries servers with the query API of InfluxDB 2, in Flux.
//
// It knows that API. It must not know where queries come from, or any other provider.
package influxdb

import (
	"bytes"
	"cmp"
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

// The timeouts of queries, which may have to read a lot of data.
const (
	templateTimeout = 15 * time.Second
	analysisTimeout = 30 * time.Second
)

// Service serves both APIs. The credentials of MetricTemplates are token and org, and the address is required. The Secret of
// an AnalysisTemplate, influxdb or its profile, contains address, authToken and org.
func Service() metric.Service {
	return metric.Service{TemplateType: Type, NewProvider: newProvider, AnalysisType: "Influxdb", NewMeasurement: newMeasurement}
}

type provider struct {
	client   *outbound.Client
	endpoint *url.URL
	header   http.Header
	timeout  time.Duration
}

func newProvider(client *outbound.Client, c metric.Config) (metric.Provider, error) {
	return newInfluxDB(client, c)
}

func newMeasurement(ctx context.Context, r metric.AnalysisRequest) (metric.Measurement, error) {
	p := r.Metric.Provider.Influxdb
	credentials, err := r.Credentials(ctx, r.ControllerNamespace, cmp.Or(p.Profile, "influxdb"))
	if err != nil {
		return metric.Measurement{}, err
	}
	r.Hide(credentials["authToken"])
	querier, err := newInfluxDB(r.Restricted, metric.Config{
		Address: credentials["address"].Reveal(), Timeout: analysisTimeout,
		Credentials: map[string]outbound.Secret{"token": credentials["authToken"], "org": credentials["org"]},
	})
	return metric.Measurement{
		Provider: querier, Query: metric.Query{Text: p.Query}, NoDataError: errors.New("no results returned from flux query"),
	}, err
}

func newInfluxDB(client *outbound.Client, c metric.Config) (*provider, error) {
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
	return &provider{client: client, endpoint: endpoint, header: header, timeout: cmp.Or(c.Timeout, templateTimeout)}, nil
}

// Measure returns the _value of the first record.
func (p *provider) Measure(ctx context.Context, q metric.Query) (float64, error) {
	body, err := p.query(ctx, q.Text)
	if err != nil {
		return 0, err
	}
	return parse(body)
}

// QueryRaw returns the list of the values of all records: numbers, strings and booleans.
func (p *provider) QueryRaw(ctx context.Context, q metric.Query) (metric.Result, error) {
	body, err := p.query(ctx, q.Text)
	if err != nil {
		return metric.Result{}, err
	}
	return parseAll(body)
}

// Online requests the name of a bucket: every token may list the buckets that it can read, and none needs to exist.
func (p *provider) Online(ctx context.Context) error {
	_, err := p.query(ctx, "buckets() |> limit(n: 1)")
	return err
}

func (p *provider) query(ctx context.Context, query string) ([]byte, error) {
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
	request := outbound.Request{Method: http.MethodPost, URL: p.endpoint.String(), Header: p.header, Body: body, Timeout: p.timeout}
	return metric.Fetch(ctx, p.client, request, classify)
}

// errorCodes are the error codes of the API. The messages are not repeated.
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

// parse returns the value of the first record.
func parse(body []byte) (float64, error) {
	rows := newRecords(body)
	row, err := rows.next()
	if err != nil {
		return 0, err
	}
	column, err := row.valueColumn()
	switch {
	case err != nil:
		return 0, err
	case row.fields[column] == "":
		return 0, metric.ErrNoData
	case !slices.Contains(numericTypes, row.types[column]):
		return 0, errors.New("_value is not a number: make it one in the query, for example with float(v: r._value)")
	}
	v, err := strconv.ParseFloat(row.fields[column], 64)
	switch {
	case err != nil:
		return 0, metric.Unexpected("InfluxDB")
	case math.IsNaN(v):
		return 0, metric.ErrNoData
	default:
		return v, nil
	}
}

// parseAll returns the values of all records.
func parseAll(body []byte) (metric.Result, error) {
	rows := newRecords(body)
	var values []any
	for {
		row, err := rows.next()
		switch {
		case errors.Is(err, metric.ErrNoData) && len(values) > 0:
			return metric.Result{Value: values}, nil
		case err != nil:
			return metric.Result{}, err
		}
		v, err := row.value()
		if err != nil {
			return metric.Result{}, err
		}
		values = append(values, v)
	}
}

// numericTypes are the types of columns that hold numbers.
var numericTypes = []string{"double", "long", "unsignedLong"}

// records reads annotated CSV: a row that begins with #datatype, one with the names of columns, then records.
type records struct {
	body         []byte
	rows         *csv.Reader
	types, names []string
}

// record is one record, with the types and names of the columns of its table.
type record struct{ types, names, fields []string }

func newRecords(body []byte) *records {
	rows := csv.NewReader(bytes.NewReader(body))
	rows.FieldsPerRecord = -1 // tables follow each other, each with its own columns
	return &records{body: body, rows: rows}
}

// next returns the next record, or ErrNoData after the last.
func (r *records) next() (record, error) {
	for {
		row, err := r.rows.Read()
		switch {
		case errors.Is(err, io.EOF) && (r.names != nil || len(bytes.TrimSpace(r.body)) == 0):
			return record{}, metric.ErrNoData
		case err != nil:
			return record{}, metric.Unexpected("InfluxDB")
		case row[0] == "#datatype":
			r.types, r.names = row, nil
		case r.types == nil:
			return record{}, metric.Unexpected("InfluxDB")
		case r.names == nil:
			if r.names = row; slices.Contains(r.names, "error") {
				return record{}, errors.New("InfluxDB could not complete the query: correct it")
			}
		case r.body[r.rows.InputOffset()-1] != '\n': // the last record may be truncated within a number
			return record{}, metric.Unexpected("InfluxDB")
		default:
			return record{types: r.types, names: r.names, fields: row}, nil
		}
	}
}

// valueColumn returns the index of the column with the value.
func (r record) valueColumn() (int, error) {
	column := slices.Index(r.names, "_value")
	switch {
	case column < 0:
		return 0, errors.New("the records have no _value: end the query with one, for example with map or rename")
	case column >= len(r.fields) || column >= len(r.types):
		return 0, metric.Unexpected("InfluxDB")
	default:
		return column, nil
	}
}

// value returns the value of a record according to its type; nil if the column is empty.
func (r record) value() (any, error) {
	column, err := r.valueColumn()
	if err != nil {
		return nil, err
	}
	field := r.fields[column]
	switch {
	case field == "":
		return nil, nil
	case slices.Contains(numericTypes, r.types[column]):
		v, err := strconv.ParseFloat(field, 64)
		if err != nil {
			return nil, metric.Unexpected("InfluxDB")
		}
		return v, nil
	case r.types[column] == "boolean":
		return field == "true", nil
	default:
		return field, nil
	}
}
