package web

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/metric"
	"github.com/serin-dev/serin/internal/metric/metrictest"
	"github.com/serin-dev/serin/internal/outbound"
	"github.com/serin-dev/serin/internal/release"
)

func TestContractOfMetricTemplates(t *testing.T) {
	metrictest.Run(t, metrictest.Subject{
		Service: Service(metric.Cluster{}), Credentials: map[string][]byte{"token": []byte("t0ken-value")}, Headers: map[string][]string{"X-Tenant": {"shop"}},
		Query:         "path: /errors?app=cart\njsonPath: '{$.data.value}'",
		Value:         `{"data":{"value":1.5}}`,
		NoData:        []string{`{"data":{"value":null}}`, `{"data":{"value":"NaN"}}`},
		Invalid:       []string{`{"data":{}}`, `{"data":{"value":"much"}}`, `{"data":{"value":[1]}}`, `{"data":{"value":{}}}`, `{"data":[]}`},
		OnlineIgnores: noPageStatuses,
		IsAuthorised: func(r *http.Request) bool {
			return r.Header.Get("Authorization") == "Bearer t0ken-value" && r.Header.Get("X-Tenant") == "shop"
		},
	})
}

func TestQueriesOfMetricTemplates(t *testing.T) {
	var lastRequest string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		lastRequest = r.Method + " " + r.URL.String() + " " + string(body)
		_, _ = io.WriteString(w, `{"rate":"2.5","up":true,"down":false}`)
	}))
	t.Cleanup(server.Close)
	client := outbound.New(outbound.Policy{AllowLoopback: true})
	t.Cleanup(client.Close)
	spec := flaggerv1.MetricTemplateProvider{Type: Type, Address: server.URL + "/api?tenant=shop"}
	provider, err := metric.NewRegistry(Service(metric.Cluster{})).NewProvider(client, "shop", spec, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		query, request string
		value          float64
	}{
		{"path: /errors?app=cart\njsonPath: '{$.rate}'", "GET /api/errors?tenant=shop&app=cart ", 2.5},
		{"path: errors\nmethod: post\nbody: '{\"a\":1}'\njsonPath: '{$.up}'", `POST /api/errors?tenant=shop {"a":1}`, 1},
		{"jsonPath: '{$.down}'", "GET /api?tenant=shop ", 0},
	} {
		value, err := provider.Measure(t.Context(), metric.Query{Text: c.query})
		if err != nil || value != c.value || lastRequest != c.request {
			t.Errorf("%s: %v, %v; requested %s, want %s", c.query, value, err, lastRequest, c.request)
		}
	}
	lastRequest = ""
	for query, want := range map[string]string{
		"path: https://elsewhere.example/errors": "is not a path",
		"path: //elsewhere.example/errors":       "is not a path",
		"path: '@elsewhere.example'":             "",
		"path: /../admin":                        "is not a path",
		"path: /%2e%2e/admin":                    "is not a path",
		"url: /errors":                           "the query is not YAML with the fields path, method, body and jsonPath",
		"/errors {$.rate}":                       "the query is not YAML",
		"path: /errors\nmethod: DELETE":          "is not GET, POST or PUT",
		"path: /errors\nbody: x":                 "can only be used with POST or PUT",
		"path: /errors\njsonPath: '{$.rate'":     "the JSONPath cannot be read",
	} {
		if want == "" { // a path on the same server, although it looks like the part of a URL in front of a host
			if _, _ = provider.Measure(t.Context(), metric.Query{Text: query}); !strings.HasPrefix(lastRequest, "GET /api/@elsewhere") {
				t.Errorf("%s: requested %s", query, lastRequest)
			}
			continue
		}
		_, err := provider.Measure(t.Context(), metric.Query{Text: query})
		if err == nil || !strings.Contains(err.Error(), want) || metric.OutcomeOf(err) != release.Broken {
			t.Errorf("%s: got %v, want %q", query, err, want)
		}
	}
}

// FuzzTemplateAnswer parses arbitrary responses to a MetricTemplate.
func FuzzTemplateAnswer(f *testing.F) {
	path, err := parsePath("{$.data.value}")
	if err != nil {
		f.Fatal(err)
	}
	read := func(answer []byte) (float64, error) {
		found, err := find(path, answer)
		if err != nil {
			return 0, err
		}
		return numberOf(found)
	}
	metrictest.Fuzz(f, read, `{"data":{"value":"1.5"}}`, `{"data":{"value":"NaN"}}`, `{"data":{"value":true}}`)
}
