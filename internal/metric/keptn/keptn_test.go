package keptn

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/metric"
	"github.com/serin-dev/serin/internal/metric/metrictest"
	"github.com/serin-dev/serin/internal/outbound"
	"github.com/serin-dev/serin/internal/release"
)

func keptnMetric(status string) string {
	return `{"apiVersion":"metrics.keptn.sh/v1beta1","kind":"KeptnMetric","metadata":{"name":"errors","namespace":"shop"},"spec":{"fetchIntervalSeconds":5},"status":` + status + `}`
}

func TestContract(t *testing.T) {
	metrictest.Run(t, metrictest.Subject{
		Cluster: func(c metric.Cluster) metric.Service { return Service(c, clock.RealClock{}) },
		Query:   "keptnmetric/shop/errors",
		Value:   keptnMetric(`{"value":"1.5","lastUpdated":"2026-01-02T03:04:00Z"}`),
		NoData:  []string{keptnMetric(`{}`), keptnMetric(`{"value":""}`), keptnMetric(`{"value":"NaN"}`), keptnMetric(`null`)},
		Invalid: []string{keptnMetric(`{"value":"one"}`), keptnMetric(`{"value":1.5}`), `{"kind":"Analysis","status":{"value":"1.5"}}`},
	})
}

// fakeKeptn is an API server with Keptn. It reports an Analysis as completed after completesAfter requests.
type fakeKeptn struct {
	*httptest.Server
	mu             sync.Mutex
	calls          []string
	created        map[string]any
	gets           int
	completesAfter int
	pass           bool
	requested      chan struct{}
	errorStatus    int
}

func (k *fakeKeptn) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.calls = append(k.calls, r.Method+" "+r.URL.Path)
	switch r.Method {
	case http.MethodPost:
		if k.errorStatus > 0 {
			w.WriteHeader(k.errorStatus)
			_, _ = w.Write([]byte(`{"kind":"Status","reason":"Forbidden","message":"cannot create secret things"}`))
			return
		}
		body, _ := io.ReadAll(r.Body)
		_ = json.Unmarshal(body, &k.created)
		w.WriteHeader(http.StatusCreated)
		_, _ = w.Write(body)
	case http.MethodGet:
		k.gets++
		status := `{"state":"Progressing"}`
		if k.gets > k.completesAfter {
			status = `{"state":"Completed"}`
			if k.pass {
				status = `{"state":"Completed","pass":true,"raw":"{}"}`
			}
		}
		_, _ = w.Write([]byte(`{"kind":"Analysis","status":` + status + `}`))
		select {
		case k.requested <- struct{}{}:
		default:
		}
	default:
		_, _ = w.Write([]byte(`{}`))
	}
}

func startKeptn(t *testing.T, k *fakeKeptn, clk clock.Clock) metric.Provider {
	t.Helper()
	k.Server = httptest.NewServer(k)
	k.requested = make(chan struct{}, 64)
	t.Cleanup(k.Close)
	client := outbound.New(outbound.Policy{AllowLoopback: true})
	t.Cleanup(client.Close)
	service := Service(metric.Cluster{Address: k.URL, Own: client}, clk)
	provider, err := metric.NewRegistry(service).NewProvider(nil, "shop", flaggerv1.MetricTemplateProvider{Type: Type}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return provider
}

// instantClock is a clock that advances by the duration of each wait instead of waiting.
type instantClock struct{ *clocktesting.FakeClock }

func (c instantClock) After(d time.Duration) <-chan time.Time {
	c.Step(d)
	done := make(chan time.Time, 1)
	done <- c.Now()
	return done
}

func TestAnalysisIsCreatedAwaitedAndDeleted(t *testing.T) {
	for _, pass := range []bool{true, false} {
		k := &fakeKeptn{completesAfter: 3, pass: pass}
		provider := startKeptn(t, k, instantClock{clocktesting.NewFakeClock(metrictest.Now)})
		query := metric.Query{Text: "Analysis/shop/errors/5m/app=Cart;env=prod", Now: metrictest.Now}
		value, err := provider.Measure(t.Context(), query)
		if err != nil || (value == 1) != pass || (value == 0) == pass {
			t.Errorf("%v, %v", value, err)
		}
		name := analysisName(parsedQuery{namespace: "shop", name: "errors"}, "shop", metrictest.Now)
		want := map[string]any{
			"apiVersion": "metrics.keptn.sh/v1beta1", "kind": "Analysis",
			"metadata": map[string]any{"name": name, "namespace": "shop", "labels": map[string]any{"app.kubernetes.io/managed-by": "serin"}},
			"spec": map[string]any{
				"timeframe": map[string]any{"recent": "5m"}, "args": map[string]any{"app": "Cart", "env": "prod"},
				"analysisDefinition": map[string]any{"name": "errors", "namespace": "shop"},
			},
		}
		if diff := cmp.Diff(want, k.created); diff != "" {
			t.Errorf("created (-want +got):\n%s", diff)
		}
		const at = "/apis/metrics.keptn.sh/v1beta1/namespaces/shop/analyses"
		calls := []string{"POST " + at}
		for range 4 {
			calls = append(calls, "GET "+at+"/"+name)
		}
		if diff := cmp.Diff(append(calls, "DELETE "+at+"/"+name), k.calls); diff != "" {
			t.Errorf("calls (-want +got):\n%s", diff)
		}
	}
}

func TestAnalysisWithoutOutcomeIsTransient(t *testing.T) {
	k := &fakeKeptn{completesAfter: 1000}
	_, err := startKeptn(t, k, instantClock{clocktesting.NewFakeClock(metrictest.Now)}).Measure(t.Context(), metric.Query{Text: "analysis/shop/errors", Now: metrictest.Now})
	if metric.OutcomeOf(err) != release.Unreachable || k.gets != 10 || !strings.HasPrefix(k.calls[len(k.calls)-1], "DELETE ") {
		t.Errorf("%v after %d requests and %v", err, k.gets, k.calls[len(k.calls)-1])
	}
}

func TestAnalysisIsDeletedWhenTheContextEnds(t *testing.T) {
	k := &fakeKeptn{completesAfter: 1000}
	provider := startKeptn(t, k, clocktesting.NewFakeClock(metrictest.Now)) // the clock does not advance
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-k.requested
		cancel()
	}()
	_, err := provider.Measure(ctx, metric.Query{Text: "analysis/shop/errors", Now: metrictest.Now})
	if metric.OutcomeOf(err) != release.Unreachable || !strings.HasPrefix(k.calls[len(k.calls)-1], "DELETE ") {
		t.Errorf("%v after %v", err, k.calls)
	}
}

func TestForbiddenAnalysisIsAnError(t *testing.T) {
	k := &fakeKeptn{errorStatus: http.StatusForbidden}
	_, err := startKeptn(t, k, clock.RealClock{}).Measure(t.Context(), metric.Query{Text: "analysis/shop/errors", Now: metrictest.Now})
	if metric.OutcomeOf(err) != release.Broken || err.Error() != "error response: Status 403 Forbidden: Forbidden" || len(k.calls) != 1 {
		t.Errorf("%v after %v", err, k.calls)
	}
}

func TestParseQuery(t *testing.T) {
	for query, want := range map[string]*parsedQuery{
		"keptnmetric/shop/errors":         {namespace: "shop", name: "errors", timeframe: "1m"},
		" KeptnMetrics/Shop/Errors\n":     {namespace: "shop", name: "errors", timeframe: "1m"},
		"analysis/shop/errors":            {analysis: true, namespace: "shop", name: "errors", timeframe: "1m"},
		"analyses/shop/errors/10M":        {analysis: true, namespace: "shop", name: "errors", timeframe: "10m"},
		"analysis/shop/errors/1m/a=b;c=/": {analysis: true, namespace: "shop", name: "errors", timeframe: "1m", args: map[string]string{"a": "b", "c": "/"}},
		"":                                nil,
		"keptnmetric":                     nil,
		"keptnmetric/errors":              nil,
		"keptnmetric/shop/errors/1m":      nil,
		"secret/shop/errors":              nil,
		"keptnmetric/../errors":           nil,
		"keptnmetric/shop/..":             nil,
		"keptnmetric/shop/a?b":            nil,
		"analysis/shop/errors/soon":       nil,
		"analysis/shop/errors/1m/a":       nil,
		"analysis/shop/errors/1m/=b":      nil,
	} {
		got, err := parseQuery(query)
		if want == nil {
			if err == nil {
				t.Errorf("%q is accepted: %+v", query, got)
			}
			continue
		}
		if diff := cmp.Diff(*want, got, cmp.AllowUnexported(parsedQuery{})); diff != "" || err != nil {
			t.Errorf("%q: %v (-want +got):\n%s", query, err, diff)
		}
	}
}

func TestNamesOfAnalysesAreBounded(t *testing.T) {
	name := analysisName(parsedQuery{namespace: "shop", name: strings.Repeat("a", 253)}, "shop", metrictest.Now)
	if len(name) != 253 {
		t.Errorf("the name has %d characters, want 253", len(name))
	}
}

func TestQueriesOfOtherNamespacesAreRefused(t *testing.T) {
	service := Service(metric.Cluster{Address: "http://127.0.0.1:9", OneNamespace: true, Own: outbound.New(outbound.Policy{})}, clock.RealClock{})
	provider, err := metric.NewRegistry(service).NewProvider(nil, "shop", flaggerv1.MetricTemplateProvider{Type: Type}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for query, allowed := range map[string]bool{"keptnmetric/shop/errors": true, "keptnmetric/bank/errors": false, "analysis/bank/errors": false} {
		_, err := provider.Measure(t.Context(), metric.Query{Text: query})
		if blocked := err != nil && strings.Contains(err.Error(), "cross-namespace"); blocked == allowed {
			t.Errorf("%s: %v", query, err)
		}
	}
}
