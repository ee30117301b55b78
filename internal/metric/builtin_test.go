package metric_test

import (
	"context"
	"errors"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apiserver/pkg/storage/names"
	"pgregory.net/rapid"

	"github.com/serin-dev/serin/internal/metric"
)

func cartVars(kind string) metric.Vars {
	return metric.Vars{
		Name: "cart", Namespace: "shop", Target: "cart", TargetKind: kind,
		Service: "cart-svc", Ingress: "front", Route: "cart-00002", Interval: "30s",
	}
}

// TestBuiltinQueriesEqualTheRecordedOnes compares with queries that were recorded from Flagger 1.44, with other names. Two
// differences are intended: a route that is named after the service is matched by the service's name instead of the target's
// (W32), and the parts of a pod's name by the alphabet and length that Kubernetes uses instead of any word (W71).
func TestBuiltinQueriesEqualTheRecordedOnes(t *testing.T) {
	const pod = `kubernetes_namespace="shop", kubernetes_pod_name=~"cart-[bcdfghjklmnpqrstvwxz2456789]{1,10}-[bcdfghjklmnpqrstvwxz2456789]{5}"`
	const istio = `reporter="destination", destination_workload_namespace="shop", destination_workload=~"cart"`
	rate := func(series, base, ok string) string {
		return `sum( rate( ` + series + `{ ` + base + `, ` + ok + ` }[30s] ) ) / sum( rate( ` + series + `{ ` + base + `, }[30s] ) ) * 100`
	}
	p99 := func(series, base string) string {
		return `histogram_quantile( 0.99, sum( rate( ` + series + `{ ` + base + `, }[30s] ) ) by (le) )`
	}
	mean := func(series, base string) string {
		return `sum(rate(` + series + `_sum{` + base + `}[30s])) / sum(rate(` + series + `_count{` + base + `}[30s])) * 1000`
	}
	for _, c := range []struct{ dialects, rate, duration string }{
		{
			"istio smi:v1alpha1:istio smi:v1alpha2 crossover gatewayapi unknown",
			rate("istio_requests_total", istio, `response_code!~"5.*"`),
			p99("istio_request_duration_milliseconds_bucket", istio),
		},
		{
			"kubernetes gatewayapi:v1 gatewayapi:v1beta1",
			rate("http_request_duration_seconds_count", pod, `status!~"5.*"`),
			p99("http_request_duration_seconds_bucket", pod),
		},
		{
			"appmesh appmesh:v1beta2",
			rate("envoy_cluster_upstream_rq", pod, `envoy_response_code!~"5.*"`),
			p99("envoy_cluster_upstream_rq_time_bucket", pod),
		},
		{
			"contour",
			rate("envoy_cluster_upstream_rq", `envoy_cluster_name=~"shop_cart-svc-canary_[0-9a-zA-Z-]+"`, `envoy_response_code!~"5.*"`),
			p99("envoy_cluster_upstream_rq_time_bucket", `envoy_cluster_name=~"shop_cart-svc-canary_[0-9a-zA-Z-]+"`),
		},
		{
			"gloo",
			rate("envoy_cluster_upstream_rq", `envoy_cluster_name=~"shop-cart-svc-canaryupstream-[0-9a-zA-Z-]+_[0-9a-zA-Z-]+"`, `envoy_response_code!~"5.*"`),
			p99("envoy_cluster_upstream_rq_time_bucket", `envoy_cluster_name=~"shop-cart-svc-canaryupstream-[0-9a-zA-Z-]+_[0-9a-zA-Z-]+"`),
		},
		{
			"knative",
			rate("envoy_cluster_upstream_rq", `envoy_cluster_name=~"shop/cart-00002"`, `envoy_response_code!~"5.*"`),
			p99("envoy_cluster_upstream_rq_time_bucket", `envoy_cluster_name=~"shop/cart-00002"`),
		},
		{
			"kuma",
			rate("envoy_cluster_upstream_rq", `service=~"cart-svc-canary_shop_svc_[0-9a-zA-Z-]+"`, `envoy_response_code!~"5.*"`),
			p99("envoy_cluster_upstream_rq_time_bucket", `service=~"cart-svc-canary_shop_svc_[0-9a-zA-Z-]+"`),
		},
		{
			"linkerd",
			rate("response_total", `namespace="shop", deployment=~"cart", direction="inbound"`, `classification!="failure"`),
			p99("response_latency_ms_bucket", `namespace="shop", deployment=~"cart", direction="inbound"`),
		},
		{
			"osm",
			rate("osm_request_total", `destination_namespace="shop", destination_kind="Deployment", destination_name="cart"`, `response_code!~"5.*"`),
			p99("osm_request_duration_ms_bucket", `destination_namespace="shop", destination_kind="Deployment", destination_name="cart"`),
		},
		{
			"nginx",
			rate("nginx_ingress_controller_requests", `namespace="shop", ingress="front", canary!=""`, `status!~"5.*"`),
			mean("nginx_ingress_controller_response_duration_seconds", `namespace="shop", ingress="front", canary!=""`),
		},
		{
			"skipper",
			rate("skipper_response_duration_seconds_bucket", `route=~"kube(ew)?_shop__front_canary__.*__cart_svc_canary(_[0-9]+)?",le="+Inf"`, `code!~"5.."`),
			mean("skipper_serve_route_duration_seconds", `route=~"kube(ew)?_shop__front_canary__.*__cart_svc_canary(_[0-9]+)?"`),
		},
		{
			"traefik",
			rate("traefik_service_request_duration_seconds_bucket", `service=~"shop-cart-svc-canary-[0-9a-zA-Z-]+@kubernetescrd", le="+Inf"`, `code!~"5.."`),
			p99("traefik_service_request_duration_seconds_bucket", `service=~"shop-cart-svc-canary-[0-9a-zA-Z-]+@kubernetescrd"`) + " * 1000",
		},
		{
			"apisix",
			rate("apisix_http_status", `route=~"shop_cart-00002-cart-svc-canary_.+"`, `code!~"5.."`),
			p99("apisix_http_latency_bucket", `type=~"request", route=~"shop_cart-00002-cart-svc-canary_.+"`),
		},
	} {
		for dialect := range strings.FieldsSeq(c.dialects) {
			for name, want := range map[string]string{metric.RequestSuccessRate: c.rate, metric.RequestDuration: c.duration} {
				got, err := metric.Builtin(dialect, name, cartVars("Deployment"))
				if err != nil || canonicalQuery(got) != canonicalQuery(want) {
					t.Errorf("%s of %s:\n got %s\nwant %s\n%v", name, dialect, canonicalQuery(got), canonicalQuery(want), err)
				}
			}
		}
	}
}

// canonicalQuery returns a query without spaces, with sorted matchers and no trailing comma.
func canonicalQuery(query string) string {
	query = strings.Join(strings.Fields(query), "")
	return regexp.MustCompile(`\{(?:[^{}"]|"[^"]*")*\}`).ReplaceAllStringFunc(query, func(s string) string {
		matchers := regexp.MustCompile(`\w+[!=~]+"[^"]*"`).FindAllString(s, -1)
		slices.Sort(matchers)
		return "{" + strings.Join(matchers, ",") + "}"
	})
}

func TestScaleConvertsDurationsToMilliseconds(t *testing.T) {
	for dialect, want := range map[string]float64{"kubernetes": 1000, "gatewayapi:v1": 1000, "istio": 1, "nginx": 1, "traefik": 1} {
		if got := metric.Scale(dialect, metric.RequestDuration); got != want {
			t.Errorf("duration of %s: %v, want %v", dialect, got, want)
		}
		if got := metric.Scale(dialect, metric.RequestSuccessRate); got != 1 {
			t.Errorf("rate of %s: %v, want 1", dialect, got)
		}
	}
}

func TestDialect(t *testing.T) {
	for _, c := range []struct{ spec, global, want string }{
		{"", "istio", "istio"},
		{"kubernetes", "istio", "kubernetes"},
		{"gatewayapi:v1", "", "gatewayapi:v1"},
		{"", "appmesh:crossover", "crossover"},
		{"nginx", "crossover", "nginx"},
		{"nginx", "linkerd", "linkerd"},
		{"", "linkerd", "linkerd"},
	} {
		if got := metric.Dialect(c.spec, c.global); got != c.want {
			t.Errorf("Dialect(%q, %q) = %q, want %q", c.spec, c.global, got, c.want)
		}
	}
}

func podPattern(t rapid.TB, v metric.Vars) *regexp.Regexp {
	t.Helper()
	query, err := metric.Builtin("kubernetes", metric.RequestSuccessRate, v)
	if err != nil {
		t.Fatal(err)
	}
	quoted := regexp.MustCompile(`kubernetes_pod_name=~("(?:[^"\\]|\\.)*")`).FindStringSubmatch(query)
	return regexp.MustCompile("^(?:" + strings.ReplaceAll(strings.Trim(quoted[1], `"`), `\\`, `\`) + ")$")
}

func TestPodsOfTheCanaryAreMatchedByKind(t *testing.T) {
	for _, c := range []struct {
		kind, pod string
		match     bool
	}{
		{"Deployment", "cart-6c9dbdd48d-x7k2p", true},
		{"Deployment", "cart-primary-6c9dbdd48d-x7k2p", false},
		{"Deployment", "cart-x7k2p", false},
		{"Deployment", "my-cart-6c9dbdd48d-x7k2p", false},
		{"Deployment", "cart-db-0", false},
		{"Deployment", "cart-db-12", false},
		{"Deployment", "cart-node-x7k2p", false},
		{"DaemonSet", "cart-x7k2p", true},
		{"DaemonSet", "cart-0", false},
		{"DaemonSet", "cart-primary-x7k2p", false},
		{"DaemonSet", "cart-6c9dbdd48d-x7k2p", false},
	} {
		if got := podPattern(t, cartVars(c.kind)).MatchString(c.pod); got != c.match {
			t.Errorf("%s cart: pod %s matches %t, want %t", c.kind, c.pod, got, c.match)
		}
	}
}

// TestTruncatedPodNamesAreMatched covers long names, which Kubernetes truncates.
func TestTruncatedPodNamesAreMatched(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := cartVars("Deployment")
		v.Target = "a" + rapid.StringMatching("[a-z0-9]{0,53}").Draw(t, "target")
		hash := rand.SafeEncodeString(strconv.FormatUint(uint64(rapid.Uint32().Draw(t, "hash")), 10))
		pattern := podPattern(t, v)
		if pod := names.SimpleNameGenerator.GenerateName(v.Target + "-" + hash + "-"); !pattern.MatchString(pod) {
			t.Errorf("%s does not match %s", pattern, pod)
		}
		if pod := names.SimpleNameGenerator.GenerateName(v.Target + "-primary-" + hash + "-"); pattern.MatchString(pod) {
			t.Errorf("%s matches %s", pattern, pod)
		}
	})
}

func TestComplementIsComputedFromFailures(t *testing.T) {
	got, err := metric.Complement("istio", cartVars("Deployment"))
	const istio = `reporter="destination",destination_workload_namespace="shop",destination_workload=~"cart"`
	want := `100 - sum(rate(istio_requests_total{` + istio + `,response_code=~"5.*"}[30s])) / sum(rate(istio_requests_total{` + istio + `}[30s])) * 100`
	if err != nil || got != want {
		t.Errorf("got %s, %v, want %s", got, err, want)
	}
	v := cartVars("Deployment")
	v.Interval = "soon"
	if _, err := metric.Complement("istio", v); err == nil {
		t.Error("an invalid interval is accepted")
	}
}

// scriptedProvider returns the error that belongs to the text of the query, and the length of the text as the value.
type scriptedProvider map[string]error

func (s scriptedProvider) Measure(_ context.Context, q metric.Query) (float64, error) {
	return float64(len(q.Text)), s[q.Text]
}
func (scriptedProvider) Online(context.Context) error { return nil }

func TestOrElseSendsTheSecondQueryOnlyWithoutData(t *testing.T) {
	outage := errors.New("outage")
	for _, c := range []struct {
		first, second error
		value         float64
		err           error
	}{
		{nil, outage, 1, nil},
		{metric.ErrNoData, nil, 2, nil},
		{metric.ErrNoData, metric.ErrNoData, 2, metric.ErrNoData},
		{metric.ErrNoData, outage, 2, outage},
		{outage, nil, 1, outage},
	} {
		value, err := metric.OrElse(scriptedProvider{"a": c.first, "bb": c.second}, "bb").Measure(t.Context(), metric.Query{Text: "a"})
		if value != c.value || !errors.Is(err, c.err) {
			t.Errorf("%v, %v: got %v, %v, want %v, %v", c.first, c.second, value, err, c.value, c.err)
		}
	}
}

func TestDotInANameMatchesADotOnly(t *testing.T) {
	v := cartVars("Deployment")
	v.Target = "cart.v2"
	if p := podPattern(t, v); !p.MatchString("cart.v2-6c9dbdd48d-x7k2p") || p.MatchString("cart-v2-6c9dbdd48d-x7k2p") {
		t.Errorf("%s does not match exactly the pods of cart.v2", p)
	}
}

func TestNamesAreQuoted(t *testing.T) {
	dialects := []string{"istio", "kubernetes", "appmesh", "contour", "gloo", "knative", "kuma", "linkerd", "osm", "nginx", "skipper", "traefik", "apisix"}
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.StringOfN(rapid.SampledFrom([]rune("a\"\\{}\n,=~.*+)('`é")), 1, 8, -1)
		v := metric.Vars{
			Namespace: name.Draw(t, "namespace"), Target: name.Draw(t, "target"), Service: name.Draw(t, "service"),
			Ingress: name.Draw(t, "ingress"), Route: name.Draw(t, "route"),
		}
		dialect := rapid.SampledFrom(dialects).Draw(t, "dialect")
		for _, metricName := range []string{metric.RequestSuccessRate, metric.RequestDuration} {
			query, err := metric.Builtin(dialect, metricName, v)
			plain, plainErr := metric.Builtin(dialect, metricName, metric.Vars{Namespace: "a", Target: "a", Service: "a", Ingress: "a", Route: "a"})
			if err != nil || plainErr != nil {
				t.Fatal(err, plainErr)
			}
			literal := regexp.MustCompile(`"(?:[^"\\\n]|\\.)*"`)
			if got, want := literal.ReplaceAllString(query, `""`), literal.ReplaceAllString(plain, `""`); got != want {
				t.Fatalf("names changed the query around them:\n%s\n%s", got, want)
			}
		}
	})
}

func TestIntervalsOfBuiltinQueries(t *testing.T) {
	for in, want := range map[string]string{
		"": "[1m]", "1m": "[1m]", "1h30m": "[1h30m]", "90s": "[90s]", "1.5m": "[90000ms]", "30s1m": "[90000ms]", "2d": "[2d]",
		"1m] or vector(1": "", "-1m": "", "0.1us": "", "soon": "",
	} {
		v := cartVars("Deployment")
		v.Interval = in
		got, err := metric.Builtin("istio", metric.RequestDuration, v)
		if want == "" {
			if err == nil {
				t.Errorf("%q is accepted: %s", in, got)
			}
		} else if err != nil || !strings.Contains(got, want) {
			t.Errorf("%q gives %s, %v, want %s", in, got, err, want)
		}
	}
}

func TestUnknownBuiltinMetricIsRefused(t *testing.T) {
	if _, err := metric.Builtin("istio", "errors", cartVars("Deployment")); err == nil || !strings.Contains(err.Error(), "templateRef") {
		t.Errorf("got %v", err)
	}
}
