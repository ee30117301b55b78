//go:build linux

package e2e_test

import (
	"net"
	"strconv"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/serin-dev/serin/playground/gateway"
	"github.com/serin-dev/serin/playground/load"
	"github.com/serin-dev/serin/playground/network"
)

var (
	grpcRoutes = schema.GroupVersionResource{Group: "gateway.networking.k8s.io", Version: "v1", Resource: "grpcroutes"}
	tcpRoutes  = schema.GroupVersionResource{Group: "gateway.networking.k8s.io", Version: "v1alpha2", Resource: "tcproutes"}
)

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
	a.promote("quotes", "v2", 20, 50)
}

const tcpCanary = `
apiVersion: flagger.app/v1beta1
kind: Canary
metadata: {name: ledger, annotations: {serin.dev/route-kind: TCPRoute}}
spec:
  targetRef: {apiVersion: apps/v1, kind: Deployment, name: ledger}
  service:
    port: 5432
    portName: tcp
    targetPort: http
    gatewayRefs: [{name: gateway, namespace: playground, sectionName: tcp}]
  analysis:
    interval: 3s
    threshold: 2
    stepWeights: [20, 50]
`

// TestATCPRouteDividesConnections: each weight receives its share of the new connections through a TCP listener, and a promotion
// loses none. The load opens a connection for each request.
//
// It runs alone, because the shares of connections are most accurate when the gateway has no other load.
func TestATCPRouteDividesConnections(t *testing.T) {
	a := loadedEnvironment{environment: startEnvironment(t, "tcp")}
	a.apply(deployment(t, "ledger", 1))
	r := a.follow("ledger")
	a.apply(tcpCanary)
	r.waitForPhase("Initialized")
	a.get(tcpRoutes, "ledger")
	listener := net.JoinHostPort(network.NodeAddress.String(), strconv.Itoa(gateway.TCPPort))
	a.gateway = a.loadAfterFirstAnswer(load.Options{URL: "http://" + listener, Rate: 80})
	a.service = a.startServiceLoad("ledger", 5432, 10)
	a.promote("ledger", "v2", 20, 50)
}
