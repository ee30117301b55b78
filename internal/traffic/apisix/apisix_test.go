package apisix_test

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"pgregory.net/rapid"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/internal/traffic"
	"github.com/serin-dev/serin/internal/traffic/apisix"
	"github.com/serin-dev/serin/internal/traffic/traffictest"
)

func TestContract(t *testing.T) {
	traffictest.Run(t, apisix.New(), traffictest.Options{
		Provider: "apisix", Admission: traffictest.LocalAdmission(t, "testdata/definitions.yaml"), Canary: named, Given: users, Copies: true,
	})
}

func named(_ *rapid.T, c *flaggerv1.Canary) {
	c.Spec.RouteRef = &flaggerv1.RouteReference{APIVersion: "apisix.apache.org/v2", Kind: "ApisixRoute", Name: "shop"}
}

// users is an ApisixRoute of a user.
func users(t traffic.Target) []*unstructured.Unstructured {
	rule := func(name, service string) any {
		return map[string]any{
			"name": name, "match": map[string]any{"paths": []any{"/" + name}, "hosts": []any{"shop.example.com"}},
			"backends": []any{map[string]any{"serviceName": service, "servicePort": "http", "resolveGranularity": "service"}},
		}
	}
	ref := apisix.New().Refs(t, release.Route{}, nil)[0]
	obj := traffictest.NewObject(ref, map[string]any{
		"ingressClassName": "apisix", "http": []any{rule("other", "other"), rule("cart", t.Apex)},
	})
	obj.SetAnnotations(map[string]string{"example.com/owner": "shop", "argocd.argoproj.io/tracking-id": "shop"})
	return []*unstructured.Unstructured{obj}
}

func TestGolden(t *testing.T) { traffictest.Golden(t, apisix.New(), "apisix", "testdata/golden") }
