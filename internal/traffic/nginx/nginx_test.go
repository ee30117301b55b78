package nginx_test

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"pgregory.net/rapid"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/internal/traffic"
	"github.com/serin-dev/serin/internal/traffic/nginx"
	"github.com/serin-dev/serin/internal/traffic/traffictest"
)

func TestContract(t *testing.T) {
	for _, prefix := range []string{"", "ingress.example.com"} {
		t.Run(prefix, func(t *testing.T) {
			traffictest.Run(t, nginx.New(prefix), traffictest.Options{
				Provider: "nginx", Admission: traffictest.IngressAdmission(),
				Canary: traffictest.IngressRef, Given: traffictest.GivenIngress, Route: supportedMatches, Copies: true,
			})
		})
	}
}

// supportedMatches draws matches that the controller supports: all matching requests or none, by one header and one cookie.
func supportedMatches(t *rapid.T, r *release.Route) {
	if len(r.Matches) == 0 {
		return
	}
	r.Canary = rapid.SampledFrom([]int{0, 100}).Draw(t, "all or none")
	header := map[string]release.StringMatch{"x-canary": rapid.SampledFrom([]release.StringMatch{
		{Exact: "insider"}, {Regex: "in.*"}, {Prefix: "in."}, {Suffix: "@example.com"},
	}).Draw(t, "header")}
	cookie := map[string]release.StringMatch{"Cookie": {Exact: "canary"}}
	r.Matches = rapid.SampledFrom([][]release.Match{
		{{Headers: header}}, {{Headers: cookie}}, {{Headers: header}, {Headers: cookie}},
	}).Draw(t, "supported matches")
}

func TestGolden(t *testing.T) {
	traffictest.Golden(t, nginx.New(""), "nginx", "testdata/golden")
	traffictest.Golden(t, nginx.New("ingress.example.com"), "nginx", "testdata/golden-prefix")
}

// TestRecorded compares with Ingresses that Flagger wrote.
func TestRecorded(t *testing.T) { traffictest.Recorded(t, nginx.New(""), "nginx", 20, nil) }

func TestRolloutContract(t *testing.T) {
	for name, routing := range map[string]argov1.NginxTrafficRouting{
		"one": {StableIngress: "shop"},
		"several": {
			StableIngresses: []string{"shop", "intranet"}, AnnotationPrefix: "ingress.example.com",
			AdditionalIngressAnnotations: map[string]string{"canary-by-header": "x-tester", "ingress.example.com/canary-weight": "77"},
			CanaryIngressAnnotations:     map[string]string{"example.com/note": "ours"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			traffictest.Run(t, nginx.NewRollout(), traffictest.Options{
				Provider: "nginx", Admission: traffictest.IngressAdmission(), Copies: true,
				Rollout: func(_ *rapid.T, ro *argov1.Rollout) { ro.Spec.Strategy.Canary.TrafficRouting.Nginx = &routing },
				Given: func(t traffic.Target) []*unstructured.Unstructured {
					var out []*unstructured.Unstructured
					for _, name := range traffic.UniqueNames(routing.StableIngress, routing.StableIngresses) {
						out = append(out, traffictest.UsersIngress("web", name, t.StableService, map[string]any{"number": int64(80)},
							map[string]string{"kubernetes.io/ingress.class": "nginx", "nginx.ingress.kubernetes.io/proxy-body-size": "8m"}))
					}
					return out
				},
			})
		})
	}
}

func TestRolloutGolden(t *testing.T) {
	traffictest.Golden(t, nginx.NewRollout(), "nginx", "testdata/rollout")
}
