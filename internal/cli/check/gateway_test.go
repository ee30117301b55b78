package check

import (
	"testing"

	"k8s.io/apimachinery/pkg/labels"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/yaml"
)

// TestListenersAcceptRoutes has the rules of the Gateway API about listeners and routes; see Listener and AllowedRoutes there.
func TestListenersAcceptRoutes(t *testing.T) {
	for _, c := range []struct{ name, listener, parent, want string }{
		{"default", `{name: http, port: 80, protocol: HTTP}`, `{}`, ""},
		{"HTTPS", `{name: https, port: 443, protocol: HTTPS}`, `{}`, ""},
		{"protocol", `{name: tcp, port: 80, protocol: TCP}`, `{}`, "it has protocol TCP"},
		{"custom protocol", `{name: x, port: 80, protocol: example.com/http}`, `{}`, ""},
		{"TCPRoute", `{name: tcp, port: 80, protocol: TCP}`, `{RouteKind: TCPRoute}`, ""},
		{"section", `{name: http, port: 80, protocol: HTTP}`, `{Section: https}`, "the route names section https"},
		{"same section", `{name: http, port: 80, protocol: HTTP}`, `{Section: http}`, ""},
		{"port", `{name: http, port: 80, protocol: HTTP}`, `{Port: 81}`, "it has port 80, but the route names port 81"},
		{"other namespace", `{name: http, protocol: HTTP}`, `{Namespace: infra}`, "its allowedRoutes.namespaces.from is Same, and the route is in namespace shop"},
		{"all namespaces", `{name: http, protocol: HTTP, allowedRoutes: {namespaces: {from: All}}}`, `{Namespace: infra}`, ""},
		{"none", `{name: http, protocol: HTTP, allowedRoutes: {namespaces: {from: None}}}`, `{}`, "its allowedRoutes.namespaces.from is None"},
		{"selected namespace", `{name: http, protocol: HTTP, allowedRoutes: {namespaces: {from: Selector, selector: {matchLabels: {team: shop}}}}}`, `{Namespace: infra}`, ""},
		{"other selected namespace", `{name: http, protocol: HTTP, allowedRoutes: {namespaces: {from: Selector, selector: {matchLabels: {team: x}}}}}`, `{Namespace: infra}`, "its allowedRoutes.namespaces.selector does not select namespace shop"},
		{"kind", `{name: http, protocol: HTTP, allowedRoutes: {kinds: [{kind: GRPCRoute}]}}`, `{}`, "its allowedRoutes.kinds do not include HTTPRoute"},
		{"one of the kinds", `{name: http, protocol: HTTP, allowedRoutes: {kinds: [{kind: GRPCRoute}, {group: gateway.networking.k8s.io, kind: HTTPRoute}]}}`, `{}`, ""},
		{"kind of another group", `{name: http, protocol: HTTP, allowedRoutes: {kinds: [{group: example.com, kind: HTTPRoute}]}}`, `{}`, "its allowedRoutes.kinds do not include HTTPRoute"},
		{"route without hostname", `{name: http, protocol: HTTP, hostname: a.example.com}`, `{}`, ""},
		{"same hostname", `{name: http, protocol: HTTP, hostname: a.example.com}`, `{Hostnames: [b.example.com, A.example.com]}`, ""},
		{"other hostname", `{name: http, protocol: HTTP, hostname: a.example.com}`, `{Hostnames: [b.example.com]}`, "its hostname a.example.com matches none of the route (b.example.com)"},
		{"wildcard of the listener", `{name: http, protocol: HTTP, hostname: "*.example.com"}`, `{Hostnames: [a.b.example.com]}`, ""},
		{"wildcard without its parent", `{name: http, protocol: HTTP, hostname: "*.example.com"}`, `{Hostnames: [example.com]}`, "its hostname *.example.com matches none of the route (example.com)"},
		{"wildcard of the route", `{name: http, protocol: HTTP, hostname: a.example.com}`, `{Hostnames: ["*.example.com"]}`, ""},
		{"two wildcards", `{name: http, protocol: HTTP, hostname: "*.example.com"}`, `{Hostnames: ["*.b.example.com"]}`, ""},
	} {
		var listener gatewayv1.Listener
		parent := RouteParent{RouteKind: "HTTPRoute", RouteNamespace: "shop", RouteName: "cart", Namespace: "shop", Name: "public", NamespaceLabels: labels.Set{"team": "shop"}}
		if err := yaml.Unmarshal([]byte(c.listener), &listener); err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		if err := yaml.Unmarshal([]byte(c.parent), &parent); err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		if got := parent.rejection(listener); got != c.want {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
	}
}
