package prometheus_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/metric"
	"github.com/serin-dev/serin/internal/metric/metrictest"
	"github.com/serin-dev/serin/internal/metric/prometheus"
	"github.com/serin-dev/serin/internal/outbound"
)

func vector(elements string) string {
	return `{"status":"success","data":{"resultType":"vector","result":[` + elements + `]}}`
}

var invalidResponses = []string{
	`{"status":"error","errorType":"bad_data","error":"parse error"}`,
	`{"status":"success","data":{"resultType":"matrix","result":[{"metric":{},"values":[[1,"1"]]}]}}`,
	`{"status":"success","data":{"resultType":"string","result":[1,"x"]}}`,
	vector(`{"metric":{},"values":[[1,"1"]]}`),
	vector(`{"metric":{}}`),
	vector(`{"metric":{},"value":null}`),
	vector(`{"metric":{},"value":[]}`),
	vector(`{"metric":{},"value":[1]}`),
	vector(`{"metric":{},"value":[1,2]}`),
	vector(`{"metric":{},"value":[1,"one"]}`),
	vector(`{"metric":{},"value":{"a":1}}`),
}

func TestContract(t *testing.T) {
	for name, c := range map[string]struct {
		credentials map[string][]byte
		authorised  func(r *http.Request) bool
	}{
		"token": {
			map[string][]byte{"token": []byte("tok3n-value")},
			func(r *http.Request) bool {
				return r.Header.Get("Authorization") == "Bearer tok3n-value" && len(r.Header["Authorization"]) == 1 &&
					r.Header.Get("X-Scope-OrgID") == "shop"
			},
		},
		"basic": {
			map[string][]byte{"username": []byte("us3r"), "password": []byte("passw0rd")},
			func(r *http.Request) bool {
				username, password, _ := r.BasicAuth()
				return username == "us3r" && password == "passw0rd"
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			metrictest.Run(t, metrictest.Subject{
				Service:      prometheus.Service(nil),
				Credentials:  c.credentials,
				Headers:      map[string][]string{"X-Scope-OrgID": {"shop"}, "Authorization": {"Bearer other"}},
				Query:        "sum(errors_total)",
				Value:        vector(`{"metric":{},"value":[1,"7"]},{"metric":{},"value":[1767323045.1,"1.5"]}`),
				NoData:       []string{vector(""), vector(`{"metric":{},"value":[1,"NaN"]}`), `{"status":"success","data":{"resultType":"scalar","result":[1,"NaN"]}}`},
				Invalid:      invalidResponses,
				IsAuthorised: c.authorised,
			})
		})
	}
}

func TestRequestMatchesTheAPI(t *testing.T) {
	var lastRequest *http.Request
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		lastRequest = r
		_, _ = w.Write([]byte(`{"status":"success","data":{"resultType":"scalar","result":[1,"1"]}}`))
	}))
	t.Cleanup(server.Close)
	client := outbound.New(outbound.Policy{AllowLoopback: true})
	t.Cleanup(client.Close)
	spec := flaggerv1.MetricTemplateProvider{Type: "prometheus", Address: server.URL + "/prom/?tenant=a"}
	provider, err := metric.NewRegistry(prometheus.Service(nil)).NewProvider(client, "shop", spec, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := provider.Measure(t.Context(), metric.Query{Text: "\n up{a=\"b\"} # alive\n + 0\n"}); err != nil {
		t.Fatal(err)
	}
	if lastRequest.Method != "GET" || lastRequest.URL.Path != "/prom/api/v1/query" || lastRequest.URL.Query().Get("tenant") != "a" ||
		lastRequest.URL.Query().Get("query") != "up{a=\"b\"} # alive\n + 0" || lastRequest.Header.Get("Authorization") != "" {
		t.Errorf("requested %s %s", lastRequest.Method, lastRequest.URL)
	}
	if err := provider.Online(t.Context()); err != nil || lastRequest.URL.Query().Get("query") != "vector(1)" {
		t.Errorf("online: %v after %s", err, lastRequest.URL)
	}
}

func TestOnlineRequiresTheValueOne(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(vector(`{"metric":{},"value":[1,"2"]}`)))
	}))
	t.Cleanup(server.Close)
	client := outbound.New(outbound.Policy{AllowLoopback: true})
	t.Cleanup(client.Close)
	provider, err := metric.NewRegistry(prometheus.Service(nil)).NewProvider(client, "shop", flaggerv1.MetricTemplateProvider{Type: "prometheus", Address: server.URL}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := provider.Online(t.Context()); err == nil {
		t.Error("the value 2 is accepted as the answer to vector(1)")
	}
}

func TestErrorsContainOnlyStatusAndCode(t *testing.T) {
	for body, want := range map[string]string{
		`{"status":"error","errorType":"bad_data","error":"secret page"}`: "error response: Status 400 Bad Request: bad_data",
		`{"status":"error","errorType":"secret page"}`:                    "error response: Status 400 Bad Request",
		`secret page`: "error response: Status 400 Bad Request",
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusBadRequest)
			_, _ = w.Write([]byte(body))
		}))
		t.Cleanup(server.Close)
		client := outbound.New(outbound.Policy{AllowLoopback: true})
		t.Cleanup(client.Close)
		provider, err := metric.NewRegistry(prometheus.Service(nil)).NewProvider(client, "shop", flaggerv1.MetricTemplateProvider{Type: "prometheus", Address: server.URL}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := provider.Measure(t.Context(), metric.Query{Text: "up"}); err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

func TestInsecureSkipVerify(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(vector(`{"metric":{},"value":[1,"1"]}`)))
	}))
	t.Cleanup(server.Close)
	client := outbound.New(outbound.Policy{AllowLoopback: true})
	t.Cleanup(client.Close)
	for _, skip := range []bool{true, false} {
		spec := flaggerv1.MetricTemplateProvider{Type: "prometheus", Address: server.URL, InsecureSkipVerify: skip}
		provider, err := metric.NewRegistry(prometheus.Service(nil)).NewProvider(client, "shop", spec, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := provider.Online(t.Context()); (err == nil) != skip {
			t.Errorf("insecureSkipVerify %t: %v", skip, err)
		}
	}
}

func TestBasicAuthRequiresUsernameAndPassword(t *testing.T) {
	spec := flaggerv1.MetricTemplateProvider{Type: "prometheus", Address: "http://prom", SecretRef: &flaggerv1.SecretReference{Name: "s"}}
	_, err := metric.NewRegistry(prometheus.Service(nil)).NewProvider(outbound.New(outbound.Policy{}), "shop", spec, map[string][]byte{"username": []byte("u")})
	if err == nil || !strings.Contains(err.Error(), "credentials does not contain") {
		t.Errorf("got %v", err)
	}
}
