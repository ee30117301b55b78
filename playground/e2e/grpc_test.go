//go:build linux

package e2e_test

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/serin-dev/serin/playground/load"
)

var grpcRoutes = schema.GroupVersionResource{Group: "gateway.networking.k8s.io", Version: "v1", Resource: "grpcroutes"}

const grpcCanary = `
apiVersion: flagger.app/v1beta1
kind: Canary
metadata: {name: quotes, annotations: {serin.dev/route-kind: GRPCRoute}}
spec:
  targetRef: {apiVersion: apps/v1, kind: Deployment, name: quotes}
  service:
    port: 80
    targetPort: http
    appProtocol: kubernetes.io/h2c
    hosts: [quotes.test]
    gatewayRefs: [{name: gateway, namespace: playground}]
    match: [{uri: {prefix: /quotes.v1.Quotes/}}]
  analysis:
    interval: 3s
    threshold: 2
    stepWeights: [20, 50]
`

// TestAGRPCRouteDividesRequests: the gateway sends the requests of a gRPC service by HTTP/2, each weight receives its share, and a
// promotion loses none.
//
// It runs alone, because the shares of requests are most accurate when the gateway has no other load.
func TestAGRPCRouteDividesRequests(t *testing.T) {
	a := loadedEnvironment{environment: startEnvironment(t, "grpc")}
	a.apply(deployment(t, "quotes", 1))
	r := a.follow("quotes")
	a.apply(grpcCanary)
	r.waitForPhase("Initialized")
	a.get(grpcRoutes, "quotes") // an HTTPRoute would serve these requests too
	a.gateway = a.loadAfterFirstAnswer(load.Options{
		URL: shared.GatewayURL + "/quotes.v1.Quotes/List", Host: "quotes.test", Method: "POST", HTTP2: true, Rate: 80,
	})
	a.service = a.load(load.Options{URL: a.serviceURL("quotes", 80), HTTP2: true, Rate: 10})

	r = a.follow("quotes")
	a.checkNoRequestLostDuring("", func() {
		a.deployVersion("quotes", "v2")
		r.waitForEnd("Succeeded")
		a.waitForPodsDeleted("app=quotes")
	})
	a.checkPromotion(r.windows(), "v2", 20, 50)
}
