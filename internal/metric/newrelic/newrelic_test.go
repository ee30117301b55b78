package newrelic_test

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/metric"
	"github.com/serin-dev/serin/internal/metric/metrictest"
	"github.com/serin-dev/serin/internal/metric/newrelic"
	"github.com/serin-dev/serin/internal/outbound"
)

func TestContract(t *testing.T) {
	metrictest.Run(t, metrictest.Subject{
		Service:     newrelic.Service(),
		Credentials: map[string][]byte{"newrelic_account_id": []byte("acc0unt"), "newrelic_query_key": []byte("k3y-value")},
		Query:       "SELECT count(*) FROM Errors",
		Value:       `{"results":[{"result":1.5}]}`,
		NoData:      []string{`{}`, `{"results":[]}`, `{"results":[{"result":null}]}`, `{"results":[{"count":1}]}`, `{"results":[{"result":1},{"result":2}]}`},
		Invalid:     []string{`{"results":[{"result":"1"}]}`, `{"results":[{"result":{}}]}`},
		IsAuthorised: func(r *http.Request) bool {
			return r.Header.Get("X-Query-Key") == "k3y-value" && r.URL.Path == "/v1/accounts/acc0unt/query"
		},
	})
}

func TestRequestMatchesTheRecordedOne(t *testing.T) {
	var lastRequest string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		lastRequest = r.Method + " " + r.URL.Path + "?" + r.URL.Query().Encode()
		_, _ = w.Write([]byte(`{}`))
	}))
	t.Cleanup(server.Close)
	client := outbound.New(outbound.Policy{AllowLoopback: true})
	t.Cleanup(client.Close)
	spec := flaggerv1.MetricTemplateProvider{Type: "newrelic", Address: server.URL, SecretRef: &flaggerv1.SecretReference{Name: "nr"}}
	provider, err := metric.NewRegistry(newrelic.Service()).NewProvider(client, "shop", spec, map[string][]byte{
		"newrelic_account_id": []byte("42\n"), "newrelic_query_key": []byte("key1\n"),
	})
	if err != nil {
		t.Fatal(err)
	}
	_, _ = provider.Measure(t.Context(), metric.Query{Text: "SELECT count(*) FROM Errors WHERE ns = 'shop'\n", Interval: time.Minute})
	if want := "GET /v1/accounts/42/query?nrql=SELECT+count%28%2A%29+FROM+Errors+WHERE+ns+%3D+%27shop%27+SINCE+60+seconds+ago"; lastRequest != want {
		t.Errorf("requested %s, want %s", lastRequest, want)
	}
	if err := provider.Online(t.Context()); err != nil || lastRequest != "GET /v1/accounts/42/query?nrql=SELECT+%2A+FROM+Metric+SINCE+60+seconds+ago" {
		t.Errorf("online: %v after %s", err, lastRequest)
	}
}
