package nginx_test

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"pgregory.net/rapid"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/traffic"
	"github.com/serin-dev/serin/internal/traffic/nginx"
	"github.com/serin-dev/serin/internal/traffic/traffictest"
)

var rolloutRouters = traffic.RolloutRenderers{Nginx: nginx.NewRollout()}

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
			traffictest.RunRollout(t, traffictest.RolloutOptions{
				Routers: rolloutRouters, Admission: traffictest.IngressAdmission(), Copies: true,
				Rollout: func(_ *rapid.T, ro *argov1.Rollout) { ro.Spec.Strategy.Canary.TrafficRouting.Nginx = &routing },
				Given: func(t traffic.RolloutTarget) []*unstructured.Unstructured {
					var out []*unstructured.Unstructured
					for _, name := range traffic.OneOrSeveral(routing.StableIngress, routing.StableIngresses) {
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
	traffictest.GoldenRollout(t, rolloutRouters, "testdata/rollout")
}
