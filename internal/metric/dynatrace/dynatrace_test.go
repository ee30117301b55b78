package dynatrace_test

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/metric"
	"github.com/serin-dev/serin/internal/metric/dynatrace"
	"github.com/serin-dev/serin/internal/metric/metrictest"
	"github.com/serin-dev/serin/internal/outbound"
)

func TestContract(t *testing.T) {
	metrictest.Run(t, metrictest.Subject{
		Service:     dynatrace.Service(),
		Credentials: map[string][]byte{"dynatrace_token": []byte("tok3n-value")},
		Query:       "builtin:errors:avg",
		Value:       `{"result":[{"data":[{"values":[9]},{"values":[1.5,2]}]}]}`,
		NoData:      []string{`{}`, `{"result":[]}`, `{"result":[{"data":[]}]}`, `{"result":[{"data":[{"values":[]}]}]}`, `{"result":[{"data":[{"values":[null]}]}]}`},
		Invalid:     []string{`{"result":[{"data":[{"values":["1"]}]}]}`},
		IsAuthorised: func(r *http.Request) bool {
			return r.Header.Get("Authorization") == "Api-Token tok3n-value"
		},
	})
}

func TestRequests(t *testing.T) {
	var lastRequest string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		lastRequest = r.URL.Path + "?" + r.URL.Query().Encode()
		_, _ = w.Write([]byte(`{}`))
	}))
	t.Cleanup(server.Close)
	client := outbound.New(outbound.Policy{AllowLoopback: true})
	t.Cleanup(client.Close)
	spec := flaggerv1.MetricTemplateProvider{Type: "dynatrace", Address: server.URL, SecretRef: &flaggerv1.SecretReference{Name: "dt"}}
	provider, err := metric.NewRegistry(dynatrace.Service()).NewProvider(client, "shop", spec, map[string][]byte{"dynatrace_token": []byte("t")})
	if err != nil {
		t.Fatal(err)
	}
	_, _ = provider.Measure(t.Context(), metric.Query{Text: "errors", Interval: time.Minute, Now: time.Unix(10_000, 0)})
	if want := "/api/v2/metrics/query?from=9400000&metricSelector=errors&resolution=Inf&to=10000000"; lastRequest != want {
		t.Errorf("requested %s, want %s", lastRequest, want)
	}
	if err := provider.Online(t.Context()); err != nil || lastRequest != "/api/v2/metrics?pageSize=1" {
		t.Errorf("online: %v after %s", err, lastRequest)
	}
}
