package operator

import (
	"encoding/json"
	"errors"
	"testing"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/traffic"
)

// TestRoutesInOtherNamespacesAreRefused with -no-cross-namespace-refs, for each router whose configuration can name a namespace.
func TestRoutesInOtherNamespacesAreRefused(t *testing.T) {
	const why = "cross-namespace references are blocked (-no-cross-namespace-refs): use a "
	for _, tt := range []struct{ routing, refused string }{
		{`{"istio":{"virtualService":{"name":"cart.bank"}}}`, "can't access VirtualService cart.bank, " + why + "VirtualService in namespace shop"},
		{`{"istio":{"virtualServices":[{"name":"cart.shop.svc.cluster.local"},{"name":"cart.bank.svc.cluster.local"}]}}`, "can't access VirtualService cart.bank, " + why + "VirtualService in namespace shop"},
		{`{"istio":{"virtualServices":[{"name":"cart"},{"name":"cart.shop"}]}}`, ""},
		{`{"plugins":{"argoproj-labs/gatewayAPI":{"httpRoute":"cart","namespace":"bank"}}}`, "can't access HTTPRoute cart.bank, " + why + "HTTPRoute in namespace shop"},
		{`{"plugins":{"argoproj-labs/gatewayAPI":{"grpcRoutes":[{"name":"cart"}],"namespace":"shop"}}}`, ""},
		{`{"plugins":{"argoproj-labs/gatewayAPI":{"tcpRouteSelector":{"matchLabels":{"app":"cart"}},"namespace":"bank"}}}`, "can't access the TCPRoutes with labels app=cart in namespace bank, " + why + "TCPRoute in namespace shop"},
		{`{"plugins":{"argoproj-labs/openshift":{"routes":["cart","bank/cart"]}}}`, "can't access Route cart.bank, " + why + "Route in namespace shop"},
		{`{"plugins":{"argoproj-labs/openshift":{"routes":["cart","shop/other"]}}}`, ""},
		{`{"plugins":{"solo-io/glooedge":{"virtualService":{"name":"cart","namespace":"bank"}}}}`, "can't access VirtualService cart.bank, " + why + "VirtualService in namespace shop"},
		{`{"plugins":{"solo-io/glooedge":{"routeTable":{"labels":{"app":"cart"},"namespace":"bank"}}}}`, "can't access the RouteTables with labels app=cart in namespace bank, " + why + "RouteTable in namespace shop"},
		{`{"plugins":{"solo-io/glooedge":{"routeTable":{"name":"cart"}}}}`, ""},
		{`{"nginx":{"stableIngress":"bank/cart"},"alb":{"ingress":"bank/cart","servicePort":80},"smi":{"trafficSplitName":"cart"},"traefik":{"weightedTraefikServiceName":"bank-cart"},
			"ambassador":{"mappings":["bank/cart"]},"apisix":{"route":{"name":"cart"}},
			"plugins":{"argoproj-labs/contour":{"httpProxies":["cart"]},"hashicorp/consul":{"serviceName":"cart","stableSubsetName":"stable","canarySubsetName":"canary"}}}`, ""}, // these names contain no namespace
	} {
		ro := &argov1.Rollout{}
		ro.Name, ro.Namespace = "cart", "shop"
		ro.Spec.Strategy.Canary = &argov1.CanaryStrategy{CanaryService: "cart-canary", StableService: "cart", TrafficRouting: &argov1.RolloutTrafficRouting{}}
		if err := json.Unmarshal([]byte(tt.routing), ro.Spec.Strategy.Canary.TrafficRouting); err != nil {
			t.Fatal(err)
		}
		flags := &Flags{}
		if err := flags.Routers().CheckRouting(ro); err != nil {
			t.Errorf("%s without the flag: %v", tt.routing, err)
		}
		flags.NoCrossNamespaceRefs = true
		switch err := flags.Routers().CheckRouting(ro); {
		case tt.refused == "" && err != nil:
			t.Errorf("%s: %v", tt.routing, err)
		case tt.refused != "" && (!errors.Is(err, traffic.ErrCrossNamespace) || err.Error() != tt.refused):
			t.Errorf("%s: %v, want %s", tt.routing, err, tt.refused)
		}
	}
}
