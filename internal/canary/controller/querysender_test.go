package controller

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/canary"
	"github.com/serin-dev/serin/internal/hook"
	"github.com/serin-dev/serin/internal/metric"
	prometheusprovider "github.com/serin-dev/serin/internal/metric/prometheus"
	"github.com/serin-dev/serin/internal/outbound"
	"github.com/serin-dev/serin/internal/queryrunner"
	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/internal/telemetry"
)

// externalServer responds to webhooks and metric queries, and records the requests.
type externalServer struct {
	*httptest.Server
	status int
	body   string

	mu       sync.Mutex
	requests []string
}

func newExternalServer(t *testing.T, status int, body string) *externalServer {
	t.Helper()
	o := &externalServer{status: status, body: body}
	o.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		payload, _ := io.ReadAll(r.Body)
		o.mu.Lock()
		o.requests = append(o.requests, strings.TrimSpace(r.Header.Get("Serin-Key")+" "+r.Header.Get("Authorization")+" "+r.URL.Query().Get("query")+string(payload)))
		o.mu.Unlock()
		w.WriteHeader(o.status)
		_, _ = io.WriteString(w, o.body)
	}))
	t.Cleanup(o.Close)
	return o
}

func (o *externalServer) lastRequest() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.requests) == 0 {
		return ""
	}
	return o.requests[len(o.requests)-1]
}

func scheme(t *testing.T) *runtime.Scheme {
	t.Helper()
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, flaggerv1.AddToScheme} {
		if err := add(s); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

func newQuerySender(t *testing.T, server string, objects ...client.Object) *QuerySender {
	t.Helper()
	c := fake.NewClientBuilder().WithScheme(scheme(t)).WithObjects(objects...).Build()
	out := outbound.New(outbound.Policy{AllowLoopback: true})
	t.Cleanup(out.Close)
	registry := metric.NewRegistry(prometheusprovider.Service(nil))
	return &QuerySender{
		Client: c, APIReader: c, Clock: clock.RealClock{}, Hooks: hook.New(out, clock.RealClock{}), Services: registry, Restricted: out, Unrestricted: out,
		MetricsServer: server, Provider: "istio", Telemetry: telemetry.New(prometheus.NewRegistry()),
	}
}

func cartCanary() *flaggerv1.Canary {
	c := &flaggerv1.Canary{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "cart", UID: "uid"}}
	c.Spec.TargetRef = flaggerv1.TargetReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "cart"}
	return c
}

func (s *QuerySender) send(ctx context.Context, request any) release.Answer {
	return s.Send(ctx, queryrunner.Key{NamespacedName: cart, UID: "uid"}, release.Query{ID: "id", Request: request})
}

const vector = `{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"value":[1,"0.25"]}]}}`

func TestBuiltinDurationIsEvaluatedInMilliseconds(t *testing.T) {
	prom := newExternalServer(t, http.StatusOK, vector)
	c := cartCanary()
	c.Spec.Provider = "gatewayapi:v1" // its histogram is in seconds
	answer := newQuerySender(t, prom.URL, c).send(t.Context(), canary.MetricQuery{
		Check: canary.Check{Source: canary.Builtin, Canonical: canary.Duration, Interval: "1m", Metric: flaggerv1.CanaryMetric{Name: canary.Duration}},
	})
	if answer.Outcome != release.Measured || answer.Value != 250 {
		t.Errorf("got %+v, want 250 ms", answer)
	}
	if !strings.Contains(prom.lastRequest(), `kubernetes_namespace="shop"`) || answer.Query == "" {
		t.Errorf("sent %q, answered with query %q", prom.lastRequest(), answer.Query)
	}
}

func TestHookSendsPayloadAndKey(t *testing.T) {
	gate := newExternalServer(t, http.StatusNoContent, "")
	answer := newQuerySender(t, "", cartCanary()).send(t.Context(), canary.HookQuery{
		Hook:  canary.Hook{CanaryWebhook: flaggerv1.CanaryWebhook{Name: "gate", URL: gate.URL, Metadata: map[string]string{"who": "me"}}},
		Phase: flaggerv1.CanaryPhaseProgressing, Key: "the-key",
	})
	if answer.Outcome != release.Yes {
		t.Errorf("got %+v, want yes: any 2xx approves", answer)
	}
	for _, part := range []string{"the-key", `"name":"cart"`, `"namespace":"shop"`, `"phase":"Progressing"`, `"metadata":{"who":"me"}`} {
		if !strings.Contains(gate.lastRequest(), part) {
			t.Errorf("sent %s, which lacks %s", gate.lastRequest(), part)
		}
	}
}

func TestTemplateReadsItsSecretInItsOwnNamespace(t *testing.T) {
	prom := newExternalServer(t, http.StatusOK, vector)
	template := &flaggerv1.MetricTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: "shared", Name: "errors"}}
	template.Spec.Query = `errors{app="{{ target }}"}`
	template.Spec.Provider = flaggerv1.MetricTemplateProvider{Type: "prometheus", Address: prom.URL, SecretRef: &flaggerv1.SecretReference{Name: "token"}}
	right := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "shared", Name: "token"}, Data: map[string][]byte{"token": []byte("right")}}
	wrong := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "token"}, Data: map[string][]byte{"token": []byte("wrong")}}
	request := canary.MetricQuery{Check: canary.Check{Source: canary.Template, Interval: "1m", Metric: flaggerv1.CanaryMetric{
		Name: "errors", TemplateRef: &flaggerv1.CrossNamespaceObjectReference{Name: "errors", Namespace: "shared"},
	}}}
	sender := newQuerySender(t, "", cartCanary(), template, right, wrong)
	if answer := sender.send(t.Context(), request); answer.Outcome != release.Measured || answer.Value != 0.25 {
		t.Errorf("got %+v", answer)
	}
	if !strings.Contains(prom.lastRequest(), "Bearer right") || !strings.Contains(prom.lastRequest(), `errors{app="cart"}`) {
		t.Errorf("sent %q", prom.lastRequest())
	}

	sender.NoCrossNamespace = true
	if answer := sender.send(t.Context(), request); answer.Outcome != release.Broken || !strings.Contains(answer.Text, "cross-namespace references are blocked") {
		t.Errorf("with references blocked: got %+v", answer)
	}
}

func TestQueriesThatCannotBeSentNameTheReason(t *testing.T) {
	template := &flaggerv1.MetricTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "broken"}}
	template.Spec.Query = `errors{{ variables.missing }}`
	template.Spec.Provider = flaggerv1.MetricTemplateProvider{Type: "prometheus", Address: "http://127.0.0.1:1"}
	for name, c := range map[string]struct {
		metric flaggerv1.CanaryMetric
		source canary.Source
		want   string
	}{
		"missing template": {
			flaggerv1.CanaryMetric{Name: "m", TemplateRef: &flaggerv1.CrossNamespaceObjectReference{Name: "nowhere"}},
			canary.Template,
			`Metric template nowhere.shop error: metrictemplate.flagger.app "nowhere" not found`,
		},
		"broken query": {
			flaggerv1.CanaryMetric{Name: "m", TemplateRef: &flaggerv1.CrossNamespaceObjectReference{Name: "broken"}},
			canary.Template,
			"Metric template broken.shop query render error:",
		},
		"broken inline query": {flaggerv1.CanaryMetric{Name: "m", Query: "{{ nonsense }}"}, canary.Inline, "nonsense"},
	} {
		answer := newQuerySender(t, "http://127.0.0.1:1", cartCanary(), template).send(t.Context(), canary.MetricQuery{
			Check: canary.Check{Source: c.source, Interval: "1m", Metric: c.metric},
		})
		if answer.Outcome != release.Broken || !strings.Contains(answer.Text, c.want) {
			t.Errorf("%s: got %+v, want %q", name, answer, c.want)
		}
	}
}

func TestSourcesNameTheUnavailableOne(t *testing.T) {
	c := cartCanary()
	c.Spec.MetricsServer = "http://user:secret@127.0.0.1:1/?token=secret"
	answer := newQuerySender(t, "", c).send(t.Context(), canary.SourcesQuery{Checks: []canary.Check{
		{Source: canary.Builtin, Canonical: canary.SuccessRate},
		{Source: canary.Template, Metric: flaggerv1.CanaryMetric{Name: "m", TemplateRef: &flaggerv1.CrossNamespaceObjectReference{Name: "nowhere"}}},
	}})
	if answer.Outcome != release.No || !strings.Contains(answer.Text, "prometheus not avaiable: ") || !strings.Contains(answer.Text, "metric template nowhere.shop error") {
		t.Errorf("got %+v", answer)
	}
	if strings.Contains(answer.Text, "secret") {
		t.Errorf("the text shows a secret: %s", answer.Text)
	}
}

// impatientClock does not wait between the attempts of a query without data.
type impatientClock struct{ clock.RealClock }

func (impatientClock) After(time.Duration) <-chan time.Time {
	now := make(chan time.Time, 1)
	now <- time.Time{}
	return now
}

// TestAQueryWithoutDataIsSentForThePrimaryOnce: users then know whether the canary lacks traffic, or the application its metrics.
func TestAQueryWithoutDataIsSentForThePrimaryOnce(t *testing.T) {
	const empty = `{"status":"success","data":{"resultType":"vector","result":[]}}`
	template := &flaggerv1.MetricTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "errors"}}
	for _, test := range []struct {
		name, query string // empty: the builtin metric
		body        string // the response to a query for the primary
		sent        bool
		want        any
	}{
		{"builtin", "", vector, true, canary.PrimaryHasData},
		{"builtin without data", "", empty, true, canary.PrimaryHasNoData},
		{"template", `errors{app="{{ target }}"}`, vector, true, canary.PrimaryHasData},
		{"template without the target", `errors{app="basket"}`, vector, false, nil},
		{"template with the Service of the canary", `errors{service="{{ target }}-canary"}`, vector, false, nil},
		{"no answer", `errors{app="{{ target }}"}`, "", true, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			sent := 0
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				body := empty
				if strings.Contains(r.FormValue("query"), "cart-primary") {
					sent++
					body = test.body
				}
				_, _ = io.WriteString(w, body)
			}))
			t.Cleanup(server.Close)
			check := canary.Check{Source: canary.Builtin, Canonical: canary.Duration, Interval: "1m", Metric: flaggerv1.CanaryMetric{Name: canary.Duration}}
			if test.query != "" {
				template.Spec.Query = test.query
				template.Spec.Provider = flaggerv1.MetricTemplateProvider{Type: "prometheus", Address: server.URL}
				check = canary.Check{Source: canary.Template, Interval: "1m", Metric: flaggerv1.CanaryMetric{Name: "errors", TemplateRef: &flaggerv1.CrossNamespaceObjectReference{Name: "errors"}}}
			}
			a := newQuerySender(t, server.URL, cartCanary(), template.DeepCopy())
			a.Clock = impatientClock{}
			answer := a.send(t.Context(), canary.MetricQuery{Check: check})
			if answer.Outcome != release.NoData || answer.Detail != test.want || (sent == 1) != test.sent || sent > 1 {
				t.Errorf("got %+v with %d queries for the primary, want %v", answer, sent, test.want)
			}
			if strings.Contains(answer.Query, "cart-primary") {
				t.Errorf("the answer shows the query of the primary: %s", answer.Query)
			}
		})
	}
}
