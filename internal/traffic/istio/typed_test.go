package istio_test

import (
	"encoding/json"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	networkingv1beta1 "istio.io/api/networking/v1beta1"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/internal/traffic"
	"github.com/serin-dev/serin/internal/traffic/istio"
	"github.com/serin-dev/serin/internal/traffic/traffictest"
)

// TestIstiosOwnTypesReadEveryField ensures that Istio's own types know every rendered field.
func TestIstiosOwnTypesReadEveryField(t *testing.T) {
	credentials := true
	c := &flaggerv1.Canary{}
	c.Name, c.Namespace, c.UID = "cart", "shop", "uid"
	c.Spec.TargetRef = flaggerv1.TargetReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "cart"}
	c.Spec.Service = flaggerv1.CanaryService{
		Port: 80, Timeout: "5s", Gateways: []string{"shop/public"}, Hosts: []string{"cart.example.com"}, PortDiscovery: true,
		Match:   []flaggerv1.HTTPMatchRequest{{URI: &flaggerv1.StringMatch{Prefix: "/"}, Headers: map[string]flaggerv1.StringMatch{"x-user": {Exact: "me"}}}},
		Rewrite: &flaggerv1.HTTPRewrite{URI: "/"},
		Retries: &flaggerv1.HTTPRetry{Attempts: 3, PerTryTimeout: "1s", RetryOn: "5xx"},
		Headers: &flaggerv1.Headers{Request: &flaggerv1.HeaderOperations{Add: map[string]string{"x-a": "b"}, Remove: []string{"x-c"}}},
		CorsPolicy: &flaggerv1.CorsPolicy{
			AllowOrigin: []string{"example.com"}, AllowMethods: []string{"GET"}, AllowCredentials: &credentials, MaxAge: "86400s",
		},
		TrafficPolicy: policy(`{"tls":{"mode":"ISTIO_MUTUAL"},"outlierDetection":{"consecutive5xxErrors":3}}`),
	}
	renderer, target := istio.New(), traffic.NewCanaryTarget(c, "istio", "app")
	objects, err := renderer.Render(target, release.Route{Canary: 20, Mirror: release.Mirror{Enabled: true, Percent: 50}}, traffictest.Find(renderer, target, release.Route{}, nil))
	if err != nil {
		t.Fatal(err)
	}
	for _, object := range objects {
		var typed proto.Message = &networkingv1beta1.VirtualService{}
		if object.GetKind() == "DestinationRule" {
			typed = &networkingv1beta1.DestinationRule{}
		}
		spec, err := json.Marshal(object.Object["spec"])
		if err != nil {
			t.Fatal(err)
		}
		if err := protojson.Unmarshal(spec, typed); err != nil {
			t.Errorf("%s %s: %v\n%s", object.GetKind(), object.GetName(), err, spec)
		}
	}
}
