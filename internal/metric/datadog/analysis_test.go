package datadog

import (
	"net/http"
	"testing"

	"github.com/serin-dev/serin/internal/metric"
	"github.com/serin-dev/serin/internal/metric/metrictest"
	"github.com/serin-dev/serin/internal/outbound"
)

func TestContractOfAnalyses(t *testing.T) {
	for version, c := range map[string]struct {
		value         string
		noData, wrong []string
	}{
		v1: {
			`{"status":"ok","series":[{"interval":60,"pointlist":[[1,9],[2,1.5]]}]}`,
			[]string{`{"status":"ok","series":[]}`, `{"status":"ok","series":[{"pointlist":[]}]}`, `{"series":[{"pointlist":[[1,null]]}]}`, "{}"},
			[]string{`{"status":"error","error":"x"}`, `{"series":[{"pointlist":[[1]]}]}`, `{"series":"x"}`},
		},
		v2: {
			`{"data":{"attributes":{"columns":[{"type":"number","name":"a","values":[1.5]}]}}}`,
			[]string{`{"data":{"attributes":{"columns":[]}}}`, `{"data":{"attributes":{"columns":[{"type":"number","values":[null]}]}}}`, "{}"},
			[]string{`{"errors":"x"}`, `{"data":{"attributes":{"columns":[{"type":"number","values":["x"]}]}}}`, `{"data":{"attributes":{"columns":[{"type":"number","values":[1,2]},{"type":"group","values":[["a"],["b"]]}]}}}`},
		},
	} {
		t.Run(version, func(t *testing.T) {
			metrictest.Run(t, metrictest.Subject{
				Querier: func(client *outbound.Client, c metric.Config) (metric.RawQuerier, error) {
					return newQuerier(client, options{
						Address: c.Address, API: c.Credentials["api-key"], Application: c.Credentials["app-key"], Version: version, Query: "avg:errors{*}",
					})
				},
				Credentials: map[string][]byte{"api-key": []byte("hidden-api"), "app-key": []byte("hidden-app")},
				Value:       c.value, NoData: c.noData, Invalid: c.wrong,
				IsAuthorised: func(r *http.Request) bool {
					return r.Header.Get("DD-API-KEY") == "hidden-api" && r.Header.Get("DD-APPLICATION-KEY") == "hidden-app"
				},
			})
		})
	}
}

func TestOptionsOfAnalysesAreChecked(t *testing.T) {
	for want, o := range map[string]options{
		"API or App token not found": {Query: "x", API: "a"},
		"Must have either a query or queries. Please review the Analysis Template.":         {Version: v2},
		"Cannot have both a query and queries. Please review the Analysis Template.":        {Version: v2, Query: "x", Queries: map[string]string{"a": "x"}},
		"When multiple queries are provided you must include a formula.":                    {Version: v2, Queries: map[string]string{"a": "x", "b": "y"}},
		"Formula are only valid when queries are set. Please review the Analysis Template.": {Version: v2, Query: "x", Formula: "a"},
		"Aggregator is not supported in v1. Please review the Analysis Template.":           {Query: "x", Aggregator: "avg"},
	} {
		if want != errNoKeys.Error() {
			o.API, o.Application = "a", "b"
		}
		if _, err := newQuerier(outbound.New(outbound.Policy{}), o); err == nil || err.Error() != want {
			t.Errorf("%+v: got %v, want %s", o, err, want)
		}
	}
}

// FuzzNewest parses arbitrary responses of version 1 of the API.
func FuzzNewest(f *testing.F) {
	metrictest.Fuzz(f, func(answer []byte) (float64, error) { return single(parseNewest(answer)) }, `{"series":[{"pointlist":[[1,1.5]]}]}`)
}

// FuzzScalar parses arbitrary responses of version 2 of the API.
func FuzzScalar(f *testing.F) {
	metrictest.Fuzz(f, func(answer []byte) (float64, error) { return single(parseScalar(answer)) },
		`{"data":{"attributes":{"columns":[{"type":"group","values":[["a"],["b"]]},{"type":"number","values":[1,2]}]}}}`)
}

func single(r metric.Result, err error) (float64, error) {
	if err != nil {
		return 0, err
	}
	return metric.Single(r)
}
