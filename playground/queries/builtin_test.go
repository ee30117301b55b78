//go:build linux

package queries

import (
	"errors"
	"math"
	"testing"
	"time"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/metric"
	"github.com/serin-dev/serin/internal/metric/prometheus"
	"github.com/serin-dev/serin/internal/outbound"
)

// dialect is a provider whose metrics the built-in queries read.
type dialect struct {
	name  string
	shape shape
	// kind of the target, Deployment by default.
	kind string
	// isMean reports whether the duration is the mean and not the 99th percentile.
	isMean bool
	// excluded returns series of the canary that a query must not include.
	excluded func(s shape, canary subject) []series
}

func dialects() []dialect {
	return []dialect{
		{name: "istio", shape: istioShape(), excluded: sourceSeries},
		{name: "smi:v1alpha2:istio", shape: istioShape()},
		{name: "crossover", shape: istioShape()},
		{name: "linkerd", shape: linkerdShape(), excluded: outboundSeries},
		{name: "kubernetes", shape: podShape()},
		{name: "kubernetes", shape: podShape(), kind: "DaemonSet"},
		{name: "gatewayapi:v1", shape: podShape()},
		{name: "appmesh:v1beta2", shape: appmeshShape()},
		{name: "contour", shape: contourShape()},
		{name: "gloo", shape: glooShape()},
		{name: "knative", shape: knativeShape()},
		{name: "kuma", shape: kumaShape()},
		{name: "osm", shape: osmShape()},
		{name: "nginx", shape: nginxShape(), isMean: true},
		{name: "skipper", shape: skipperShape(), isMean: true},
		{name: "traefik", shape: traefikShape()},
		{name: "apisix", shape: apisixShape(), excluded: apisixInternalLatency},
	}
}

// sourceSeries returns the series of the same requests that the proxies of the clients export. They would be counted twice.
func sourceSeries(s shape, canary subject) []series {
	all := s.export(canary, broken)
	for i := range all {
		all[i].labels["reporter"] = "source"
	}
	return all
}

// outboundSeries returns the series of requests that the canary sends.
func outboundSeries(s shape, canary subject) []series {
	all := s.export(canary, broken)
	for i := range all {
		all[i].labels["direction"] = "outbound"
	}
	return all
}

// apisixInternalLatency returns the series with the latency of the gateway and of the upstream, which are parts of the total.
func apisixInternalLatency(s shape, canary subject) []series {
	var out []series
	for _, kind := range []string{"apisix", "upstream"} {
		for _, one := range s.export(canary, broken) {
			if _, latency := one.labels["type"]; latency {
				one.labels["type"] = kind
				out = append(out, one)
			}
		}
	}
	return out
}

var (
	// good is the traffic of the canary: of ten requests one fails and two have status 404. Half of them take up to 50 ms,
	// all up to 100 ms, 80 ms on average.
	good = traffic{codes: map[string]float64{"200": 7, "404": 2, "503": 1}, buckets: map[float64]float64{50: 5, 100: 10, 250: 10}, sum: 800}
	// broken is the traffic of all other workloads, ten times as much.
	broken = traffic{codes: map[string]float64{"503": 100}, buckets: map[float64]float64{50: 0, 100: 0, 250: 100}, sum: 20_000}
	silent = traffic{codes: map[string]float64{"200": 0, "503": 0}, buckets: map[float64]float64{50: 0, 100: 0, 250: 0}}
)

const (
	goodRate = 90.0
	// The 99th percentile is at 9.9 of 10 requests: at 4.9 of the 5 requests between 50 and 100 ms.
	goodPercentile = 50 + 50*4.9/5
	goodMean       = 80.0
)

// scenario is a canary and other workloads that export series.
type scenario struct {
	canary subject
	others []subject
}

// newScenario returns a release of cart in a namespace, and workloads with similar names.
func newScenario(namespace, kind string) scenario {
	pod := func(workload string) string {
		if kind == "DaemonSet" {
			return workload + "-x2x4z"
		}
		return workload + "-7d9f8c6b5-x2x4z"
	}
	newSubject := func(namespace, workload, service, ingress, route string, canary bool) subject {
		return subject{namespace: namespace, workload: workload, pod: pod(workload), service: service, ingress: ingress, route: route, canary: canary}
	}
	return scenario{
		canary: newSubject(namespace, "cart", "cart-svc-canary", "front", "cart-00002", true),
		others: []subject{
			newSubject(namespace, "cart-primary", "cart-svc-primary", "front", "cart-00001", false),
			newSubject(namespace, "pay", "pay-canary", "pay", "pay-00002", true),
			newSubject(namespace, "cart2", "cart2-canary", "front2", "cart2-00002", true),
			newSubject(namespace, "my-cart", "my-cart-svc-canary", "my-front", "my-cart-00002", true),
			// Workloads whose pods have names with as many parts as those of cart.
			{namespace: namespace, workload: "cart-db", pod: "cart-db-0", service: "cart-db-canary", ingress: "front-db", route: "cart-db-00002", canary: true},
			{namespace: namespace, workload: "cart-node", pod: "cart-node-x2x4z", service: "cart-node-canary", ingress: "front-node", route: "cart-node-00002", canary: true},
			{namespace: namespace, workload: "cart-api", pod: "cart-api-7d9f8c6b5-x2x4z", service: "cart-api-canary", ingress: "front-api", route: "cart-api-00002", canary: true},
			newSubject("other-"+namespace, "cart", "cart-svc-canary", "front", "cart-00002", true),
		},
	}
}

func (w scenario) vars(kind string) metric.Vars {
	return metric.Vars{
		Name: "cart", Namespace: w.canary.namespace, Target: "cart", TargetKind: kind, Service: "cart-svc", Ingress: "front",
		Route: "cart-00002", Interval: "1m",
	}
}

// queryRunner runs built-in queries on a server as a release does.
type queryRunner struct {
	t        *testing.T
	provider metric.Provider
}

func newQueryRunner(t *testing.T, s *server) queryRunner {
	t.Helper()
	client := outbound.New(outbound.Policy{AllowLoopback: true})
	t.Cleanup(client.Close)
	provider, err := metric.NewRegistry(prometheus.Service(nil)).NewProvider(client, "shop", flaggerv1.MetricTemplateProvider{Type: prometheus.Type, Address: s.url}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return queryRunner{t: t, provider: provider}
}

func (r queryRunner) measure(dialect, name string, v metric.Vars) (float64, error) {
	r.t.Helper()
	text, err := metric.Builtin(dialect, name, v)
	if err != nil {
		r.t.Fatal(err)
	}
	provider := r.provider
	if name == metric.RequestSuccessRate {
		complement, err := metric.Complement(dialect, v)
		if err != nil {
			r.t.Fatal(err)
		}
		provider = metric.OrElse(provider, complement)
	}
	value, err := provider.Measure(r.t.Context(), metric.Query{Text: text, Interval: time.Minute, Now: time.Now()})
	if err != nil && !errors.Is(err, metric.ErrNoData) {
		r.t.Fatalf("%s: %v", text, err)
	}
	return value * metric.Scale(dialect, name), err
}

func (r queryRunner) wantValue(dialect, name string, v metric.Vars, want float64) {
	r.t.Helper()
	got, err := r.measure(dialect, name, v)
	if err != nil || math.Abs(got-want) > 1e-6*max(want, 1) {
		text, _ := metric.Builtin(dialect, name, v)
		r.t.Errorf("%s is %v (%v), want %v, of %s", name, got, err, want, text)
	}
}

func (r queryRunner) wantNoData(dialect, name string, v metric.Vars) {
	r.t.Helper()
	if got, err := r.measure(dialect, name, v); err == nil {
		r.t.Errorf("%s is %v, want no data", name, got)
	}
}

// TestBuiltinQueriesIncludeOnlyTheCanary checks for each provider that the value depends only on the canary's series, and not
// on those of its primary and of workloads with the same or a similar name.
func TestBuiltinQueriesIncludeOnlyTheCanary(t *testing.T) {
	prometheus := startServer(t)
	for i, d := range dialects() {
		if d.kind == "" {
			d.kind = "Deployment"
		}
		t.Run(d.name+" "+d.kind, func(t *testing.T) {
			queries := newQueryRunner(t, prometheus)
			w := newScenario("shop-"+string(rune('a'+i)), d.kind)
			duration := goodPercentile
			if d.isMean {
				duration = goodMean
			}
			v := w.vars(d.kind)
			for _, name := range []string{metric.RequestSuccessRate, metric.RequestDuration} {
				queries.wantNoData(d.name, name, v)
			}
			for _, other := range w.others {
				prometheus.write(t, d.shape.export(other, broken))
			}
			if d.excluded != nil {
				prometheus.write(t, d.excluded(d.shape, w.canary))
			}
			for _, name := range []string{metric.RequestSuccessRate, metric.RequestDuration} {
				queries.wantNoData(d.name, name, v)
			}
			prometheus.write(t, d.shape.export(w.canary, good))
			queries.wantValue(d.name, metric.RequestSuccessRate, v, goodRate)
			queries.wantValue(d.name, metric.RequestDuration, v, duration)
		})
	}
}

// TestBuiltinQueriesOfACanaryThatAnswersNothingButErrors covers a canary without a series of successful requests: its success
// rate is 0 and not unknown.
func TestBuiltinQueriesOfACanaryThatAnswersNothingButErrors(t *testing.T) {
	prometheus := startServer(t)
	queries := newQueryRunner(t, prometheus)
	for i, d := range dialects() {
		w := newScenario("failing-"+string(rune('a'+i)), d.kind)
		prometheus.write(t, d.shape.export(w.canary, broken))
		queries.wantValue(d.name, metric.RequestSuccessRate, w.vars(d.kind), 0)
	}
}

// TestBuiltinQueriesOfACanaryWithoutErrors covers a canary without a series of failed requests: its success rate is 100.
func TestBuiltinQueriesOfACanaryWithoutErrors(t *testing.T) {
	prometheus := startServer(t)
	queries := newQueryRunner(t, prometheus)
	for i, d := range dialects() {
		w := newScenario("good-"+string(rune('a'+i)), d.kind)
		prometheus.write(t, d.shape.export(w.canary, traffic{codes: map[string]float64{"200": 5}, buckets: map[float64]float64{50: 5}, sum: 100}))
		queries.wantValue(d.name, metric.RequestSuccessRate, w.vars(d.kind), 100)
	}
}

// TestBuiltinQueriesOfACanaryWithoutRequests checks that constant counters are no data, and not a rate of 0 or 100.
func TestBuiltinQueriesOfACanaryWithoutRequests(t *testing.T) {
	prometheus := startServer(t)
	queries := newQueryRunner(t, prometheus)
	for i, d := range dialects() {
		w := newScenario("idle-"+string(rune('a'+i)), d.kind)
		prometheus.write(t, d.shape.export(w.canary, silent))
		for _, name := range []string{metric.RequestSuccessRate, metric.RequestDuration} {
			queries.wantNoData(d.name, name, w.vars(d.kind))
		}
	}
}
