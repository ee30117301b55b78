package alb_test

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"pgregory.net/rapid"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/traffic"
	"github.com/serin-dev/serin/internal/traffic/alb"
	"github.com/serin-dev/serin/internal/traffic/traffictest"
)

func TestRolloutContract(t *testing.T) {
	for name, routing := range map[string]argov1.ALBTrafficRouting{
		"one": {Ingress: "shop", ServicePort: 80},
		"several": {
			Ingresses: []string{"shop", "intranet"}, ServicePort: 443, RootService: "root", AnnotationPrefix: "alb.example.com",
			StickinessConfig: &argov1.StickinessConfig{Enabled: true, DurationSeconds: 300},
		},
	} {
		t.Run(name, func(t *testing.T) {
			traffictest.Run(t, alb.NewRollout(alb.Options{}), traffictest.Options{
				Provider: "alb", Admission: traffictest.IngressAdmission(), ExactOnly: true,
				Rollout: func(_ *rapid.T, ro *argov1.Rollout) { ro.Spec.Strategy.Canary.TrafficRouting.ALB = &routing },
				Given:   func(t traffic.Target) []*unstructured.Unstructured { return usersIngresses(t, routing) },
			})
		})
	}
}

// usersIngresses are those of a user who wrote the action that is valid before a release.
func usersIngresses(t traffic.Target, routing argov1.ALBTrafficRouting) []*unstructured.Unstructured {
	annotations := map[string]string{
		"alb.ingress.kubernetes.io/scheme":               "internal",
		"alb.ingress.kubernetes.io/actions.cart-stable":  `{"Type":"forward","ForwardConfig":{"TargetGroups":[{"ServiceName":"cart-stable","ServicePort":"80","Weight":100}]}}`,
		"alb.example.com/actions.root":                   `{"Type":"forward","ForwardConfig":{"TargetGroups":[{"ServiceName":"root","ServicePort":"443","Weight":100}]}}`,
		"rollouts.argoproj.io/managed-alb-annotations":   `{"basket":["alb.ingress.kubernetes.io/actions.basket"]}`,
		"alb.ingress.kubernetes.io/actions.their-action": "{}",
	}
	service := t.StableService
	if routing.RootService != "" {
		service = routing.RootService
	}
	var out []*unstructured.Unstructured
	for _, name := range traffic.UniqueNames(routing.Ingress, routing.Ingresses) {
		out = append(out, traffictest.UsersIngress("web", name, service, map[string]any{"name": "use-annotation"}, annotations))
	}
	return out
}

func TestRolloutGolden(t *testing.T) {
	traffictest.Golden(t, alb.NewRollout(alb.Options{}), "alb", "testdata/rollout")
}
