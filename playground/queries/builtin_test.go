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

// dialect is one system whose metrics the builtin queries read.
type dialect struct {
	name  string
	shape shape
	// kind of the target; Deployment without it.
	kind string
	// mean: its duration is the mean and not the 99th percentile.
	mean bool
	// also are series of the canary itself that must not count.
	also func(s shape, canary subject) []series
}

func dialects() []dialect {
	return []dialect{
		{name: "istio", shape: istioShape(), also: fromTheSource},
		{name: "smi:v1alpha2:istio", shape: istioShape()},
		{name: "crossover", shape: istioShape()},
		{name: "linkerd", shape: linkerdShape(), also: outgoing},
		{name: "kubernetes", shape: podShape()},
		{name: "kubernetes", shape: podShape(), kind: "DaemonSet"},
		{name: "gatewayapi:v1", shape: podShape()},
		{name: "appmesh:v1beta2", shape: appmeshShape()},
		{name: "contour", shape: contourShape()},
		{name: "gloo", shape: glooShape()},
		{name: "knative", shape: knativeShape()},
		{name: "kuma", shape: kumaShape()},
		{name: "osm", shape: osmShape()},
		{name: "nginx", shape: nginxShape(), mean: true},
		{name: "skipper", shape: skipperShape(), mean: true},
		{name: "traefik", shape: traefikShape()},
		{name: "apisix", shape: apisixShape(), also: insideApisix},
	}
}

// fromTheSource is what the callers tell of the same requests: counted twice, they would weigh twice.
func fromTheSource(s shape, canary subject) []series {
	all := s.export(canary, broken)
	for i := range all {
		all[i].labels["reporter"] = "source"
	}
	return all
}

// outgoing is what the canary asks of others.
func outgoing(s shape, canary subject) []series {
	all := s.export(canary, broken)
	for i := range all {
		all[i].labels["direction"] = "outbound"
	}
	return all
}

// insideApisix is the part of the time that the gateway itself took, and that of the upstream.
func insideApisix(s shape, canary subject) []series {
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
	// good is the canary's: one request in ten fails, two ask for what is not there. Half of them take up to 50 ms, all up
	// to 100 ms, 80 ms on average.
	good = traffic{codes: map[string]float64{"200": 7, "404": 2, "503": 1}, buckets: map[float64]float64{50: 5, 100: 10, 250: 10}, sum: 800}
	// broken is everybody else's, and ten times as much of it.
	broken = traffic{codes: map[string]float64{"503": 100}, buckets: map[float64]float64{50: 0, 100: 0, 250: 100}, sum: 20_000}
	silent = traffic{codes: map[string]float64{"200": 0, "503": 0}, buckets: map[float64]float64{50: 0, 100: 0, 250: 0}}
)

const (
	goodRate = 90.0
	// The 99th percentile is 9.9 requests up: 4.9 of the 5 between 50 and 100 ms.
	goodPercentile = 50 + 50*4.9/5
	goodMean       = 80.0
)

// world is who has series beside a canary, by name.
type world struct {
	canary    subject
	strangers []subject
}

// newWorld has a release of cart in a namespace, and others with names that are nearly the same.
func newWorld(namespace, kind string) world {
	pod := func(workload string) string {
		if kind == "DaemonSet" {
			return workload + "-x2x4z"
		}
		return workload + "-7d9f8c6b5-x2x4z"
	}
	who := func(namespace, workload, service, ingress, route string, canary bool) subject {
		return subject{namespace: namespace, workload: workload, pod: pod(workload), service: service, ingress: ingress, route: route, canary: canary}
	}
	return world{
		canary: who(namespace, "cart", "cart-svc-canary", "front", "cart-00002", true),
		strangers: []subject{
			who(namespace, "cart-primary", "cart-svc-primary", "front", "cart-00001", false),
			who(namespace, "pay", "pay-canary", "pay", "pay-00002", true),
			who(namespace, "cart2", "cart2-canary", "front2", "cart2-00002", true),
			who(namespace, "my-cart", "my-cart-svc-canary", "my-front", "my-cart-00002", true),
			// Workloads of other kinds, whose pods have names with as many parts.
			{namespace: namespace, workload: "cart-db", pod: "cart-db-0", service: "cart-db-canary", ingress: "front-db", route: "cart-db-00002", canary: true},
			{namespace: namespace, workload: "cart-node", pod: "cart-node-x2x4z", service: "cart-node-canary", ingress: "front-node", route: "cart-node-00002", canary: true},
			{namespace: namespace, workload: "cart-api", pod: "cart-api-7d9f8c6b5-x2x4z", service: "cart-api-canary", ingress: "front-api", route: "cart-api-00002", canary: true},
			who("other-"+namespace, "cart", "cart-svc-canary", "front", "cart-00002", true),
		},
	}
}

func (w world) vars(kind string) metric.Vars {
	return metric.Vars{
		Name: "cart", Namespace: w.canary.namespace, Target: "cart", TargetKind: kind, Service: "cart-svc", Ingress: "front",
		Route: "cart-00002", Interval: "1m",
	}
}

// asker asks builtin queries of a server as a release does.
type asker struct {
	t        *testing.T
	provider metric.Provider
}

func newAsker(t *testing.T, s *server) asker {
	t.Helper()
	client := outbound.New(outbound.Policy{AllowLoopback: true})
	t.Cleanup(client.Close)
	provider, err := metric.NewRegistry(prometheus.Service(nil)).NewProvider(client, "shop", flaggerv1.MetricTemplateProvider{Type: prometheus.Type, Address: s.url}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return asker{t: t, provider: provider}
}

func (a asker) measure(dialect, name string, v metric.Vars) (float64, error) {
	a.t.Helper()
	text, err := metric.Builtin(dialect, name, v)
	if err != nil {
		a.t.Fatal(err)
	}
	provider := a.provider
	if name == metric.RequestSuccessRate {
		complement, err := metric.Complement(dialect, v)
		if err != nil {
			a.t.Fatal(err)
		}
		provider = metric.OrElse(provider, complement)
	}
	value, err := provider.Measure(a.t.Context(), metric.Query{Text: text, Interval: time.Minute, Now: time.Now()})
	if err != nil && !errors.Is(err, metric.ErrNoData) {
		a.t.Fatalf("%s: %v", text, err)
	}
	return value * metric.Scale(dialect, name), err
}

func (a asker) want(dialect, name string, v metric.Vars, want float64) {
	a.t.Helper()
	got, err := a.measure(dialect, name, v)
	if err != nil || math.Abs(got-want) > 1e-6*max(want, 1) {
		text, _ := metric.Builtin(dialect, name, v)
		a.t.Errorf("%s is %v (%v), want %v, of %s", name, got, err, want, text)
	}
}

func (a asker) wantNoData(dialect, name string, v metric.Vars) {
	a.t.Helper()
	if got, err := a.measure(dialect, name, v); err == nil {
		a.t.Errorf("%s is %v, want no data", name, got)
	}
}

// TestBuiltinQueriesSeeTheCanaryAlone: for each provider, the value is what the canary's series say, whatever those of
// its primary, of its namesakes and of its neighbours say.
func TestBuiltinQueriesSeeTheCanaryAlone(t *testing.T) {
	prometheus := start(t)
	for i, d := range dialects() {
		if d.kind == "" {
			d.kind = "Deployment"
		}
		t.Run(d.name+" "+d.kind, func(t *testing.T) {
			ask := newAsker(t, prometheus)
			w := newWorld("shop-"+string(rune('a'+i)), d.kind)
			duration := goodPercentile
			if d.mean {
				duration = goodMean
			}
			v := w.vars(d.kind)
			for _, name := range []string{metric.RequestSuccessRate, metric.RequestDuration} {
				ask.wantNoData(d.name, name, v)
			}
			for _, stranger := range w.strangers {
				prometheus.write(t, d.shape.export(stranger, broken))
			}
			if d.also != nil {
				prometheus.write(t, d.also(d.shape, w.canary))
			}
			for _, name := range []string{metric.RequestSuccessRate, metric.RequestDuration} {
				ask.wantNoData(d.name, name, v)
			}
			prometheus.write(t, d.shape.export(w.canary, good))
			ask.want(d.name, metric.RequestSuccessRate, v, goodRate)
			ask.want(d.name, metric.RequestDuration, v, duration)
		})
	}
}

// TestBuiltinQueriesOfACanaryThatAnswersNothingButErrors: where no request ever succeeded there is no series of
// successes, and yet the rate is 0 and not unknown.
func TestBuiltinQueriesOfACanaryThatAnswersNothingButErrors(t *testing.T) {
	prometheus := start(t)
	ask := newAsker(t, prometheus)
	for i, d := range dialects() {
		w := newWorld("lost-"+string(rune('a'+i)), d.kind)
		prometheus.write(t, d.shape.export(w.canary, broken))
		ask.want(d.name, metric.RequestSuccessRate, w.vars(d.kind), 0)
	}
}

// TestBuiltinQueriesOfACanaryWithoutFaults: nor is there a series of failures where there are none.
func TestBuiltinQueriesOfACanaryWithoutFaults(t *testing.T) {
	prometheus := start(t)
	ask := newAsker(t, prometheus)
	for i, d := range dialects() {
		w := newWorld("sound-"+string(rune('a'+i)), d.kind)
		prometheus.write(t, d.shape.export(w.canary, traffic{codes: map[string]float64{"200": 5}, buckets: map[float64]float64{50: 5}, sum: 100}))
		ask.want(d.name, metric.RequestSuccessRate, w.vars(d.kind), 100)
	}
}

// TestBuiltinQueriesOfACanaryWithoutRequests: counters that stand still are no data, not a rate of 0 or of 100.
func TestBuiltinQueriesOfACanaryWithoutRequests(t *testing.T) {
	prometheus := start(t)
	ask := newAsker(t, prometheus)
	for i, d := range dialects() {
		w := newWorld("idle-"+string(rune('a'+i)), d.kind)
		prometheus.write(t, d.shape.export(w.canary, silent))
		for _, name := range []string{metric.RequestSuccessRate, metric.RequestDuration} {
			ask.wantNoData(d.name, name, w.vars(d.kind))
		}
	}
}
