package graphite_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/metric"
	"github.com/serin-dev/serin/internal/metric/graphite"
	"github.com/serin-dev/serin/internal/metric/metrictest"
	"github.com/serin-dev/serin/internal/outbound"
)

func TestContract(t *testing.T) {
	metrictest.Run(t, metrictest.Subject{
		Service:     graphite.Service(),
		Credentials: map[string][]byte{"username": []byte("us3r"), "password": []byte("passw0rd")},
		Query:       "target=errors&from=-1m",
		Value:       `[{"datapoints":[[7,1]]},{"target":"errors","datapoints":[[1,1577232000],[1.5,1577232060],[null,1577232120]]}]`,
		NoData:      []string{`[]`, `[{"datapoints":[]}]`, `[{"datapoints":[[7,1]]},{"datapoints":[[null,1577232120]]}]`},
		Invalid:     []string{`[{"datapoints":[[]]}]`, `[{"datapoints":[["one",1]]}]`},
		IsAuthorised: func(r *http.Request) bool {
			username, password, _ := r.BasicAuth()
			return username == "us3r" && password == "passw0rd"
		},
	})
}

func TestRequestMatchesTheRecordedOne(t *testing.T) {
	var lastRequest string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		lastRequest = r.Method + " " + r.URL.Path + "?" + r.URL.Query().Encode()
		_, _ = w.Write([]byte(`[]`))
	}))
	t.Cleanup(server.Close)
	client := outbound.New(outbound.Policy{AllowLoopback: true})
	t.Cleanup(client.Close)
	provider, err := metric.NewRegistry(graphite.Service()).NewProvider(client, "shop", flaggerv1.MetricTemplateProvider{Type: "graphite", Address: server.URL}, nil)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = provider.Measure(t.Context(), metric.Query{Text: "target=sumSeries(errors.shop.cart)\n&from=-1m\n"})
	if want := "GET /render?format=json&from=-1m&target=sumSeries%28errors.shop.cart%29+"; lastRequest != want {
		t.Errorf("requested %s, want %s", lastRequest, want)
	}
	if err := provider.Online(t.Context()); err != nil || lastRequest != "GET /render?format=json&target=test" {
		t.Errorf("online: %v after %s", err, lastRequest)
	}
	if _, err := provider.Measure(t.Context(), metric.Query{Text: "errors"}); err == nil {
		t.Error("a query without target is accepted")
	}
}
