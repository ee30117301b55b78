package datadog_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/metric"
	"github.com/serin-dev/serin/internal/metric/datadog"
	"github.com/serin-dev/serin/internal/metric/metrictest"
	"github.com/serin-dev/serin/internal/outbound"
)

// series returns a response whose points have a duration of 20 s and begin the given number of seconds before Now.
func series(points ...[2]any) string {
	list := ""
	for i, p := range points {
		if i > 0 {
			list += ","
		}
		list += fmt.Sprintf("[%d.0,%v]", metrictest.Now.Unix()*1000-int64(p[0].(int))*1000, p[1])
	}
	return fmt.Sprintf(`{"status":"ok","series":[{"interval":20,"pointlist":[%s]},{"interval":1,"pointlist":[]}]}`, list)
}

func TestContract(t *testing.T) {
	metrictest.Run(t, metrictest.Subject{
		Service:     datadog.Service(),
		Credentials: map[string][]byte{"datadog_api_key": []byte("ap1-key"), "datadog_application_key": []byte("app-k3y")},
		Query:       "avg:errors{*}",
		// Oldest first: too old, valid, unknown, and not complete yet.
		Value: series([2]any{500, 9}, [2]any{60, 1.5}, [2]any{40, "null"}, [2]any{10, 8}),
		NoData: []string{
			`{"status":"ok","series":[]}`, series(), series([2]any{500, 9}), series([2]any{40, "null"}), series([2]any{10, 8}),
		},
		Invalid: []string{`{"status":"error","error":"x"}`, `{"status":"ok","series":[{"pointlist":[[1]]}]}`, `{"status":"ok","series":[{"pointlist":[[null,1]]}]}`},
		IsAuthorised: func(r *http.Request) bool {
			return r.Header.Get("DD-API-KEY") == "ap1-key" && r.Header.Get("DD-APPLICATION-KEY") == "app-k3y"
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
	spec := flaggerv1.MetricTemplateProvider{Type: "datadog", Address: server.URL, SecretRef: &flaggerv1.SecretReference{Name: "dd"}}
	provider, err := metric.NewRegistry(datadog.Service()).NewProvider(client, "shop", spec, map[string][]byte{
		"datadog_api_key": []byte("a"), "datadog_application_key": []byte("b"),
	})
	if err != nil {
		t.Fatal(err)
	}
	_, _ = provider.Measure(t.Context(), metric.Query{Text: "avg:errors{*}", Interval: time.Minute, Now: time.Unix(10_000, 0)})
	if want := "/api/v1/query?from=9400&query=avg%3Aerrors%7B%2A%7D&to=10000"; lastRequest != want {
		t.Errorf("requested %s, want %s", lastRequest, want)
	}
	if err := provider.Online(t.Context()); err != nil || lastRequest != "/api/v1/validate?" {
		t.Errorf("online: %v after %s", err, lastRequest)
	}
}
