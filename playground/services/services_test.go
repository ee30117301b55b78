//go:build linux

package services_test

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/serin-dev/serin/playground/services"
)

func newService(ip string, ports ...corev1.ServicePort) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "cart", Namespace: "shop"},
		Spec:       corev1.ServiceSpec{ClusterIP: ip, Ports: ports},
	}
}

func endpointSlice(owner, portName string, port int32, endpoints ...discoveryv1.Endpoint) *discoveryv1.EndpointSlice {
	return &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: "shop", Labels: map[string]string{discoveryv1.LabelServiceName: owner}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: &portName, Port: &port}},
		Endpoints:   endpoints,
	}
}

func readyEndpoint(ip string) discoveryv1.Endpoint {
	return discoveryv1.Endpoint{Addresses: []string{ip}}
}

func terminatingEndpoint(ip string) discoveryv1.Endpoint {
	return discoveryv1.Endpoint{Addresses: []string{ip}, Conditions: discoveryv1.EndpointConditions{
		Ready: new(false), Serving: new(true), Terminating: new(true),
	}}
}

func startingEndpoint(ip string) discoveryv1.Endpoint {
	return discoveryv1.Endpoint{Addresses: []string{ip}, Conditions: discoveryv1.EndpointConditions{
		Ready: new(false), Serving: new(false), Terminating: new(false),
	}}
}

func TestPlanRules(t *testing.T) {
	http := corev1.ServicePort{Name: "http", Port: 80}
	address := netip.MustParseAddr
	at := netip.MustParseAddrPort
	for _, c := range []struct {
		name     string
		service  *corev1.Service
		slices   []*discoveryv1.EndpointSlice
		forwards []services.Forward
		table    services.Table
	}{
		{
			name: "no endpoints", service: newService("10.96.0.7", http),
			forwards: []services.Forward{{Service: at("10.96.0.7:80"), Protocol: services.TCP}},
			table:    services.Table{"cart.shop": {address("10.96.0.7")}},
		},
		{
			name: "ready endpoints of all slices, each once", service: newService("10.96.0.7", http),
			slices: []*discoveryv1.EndpointSlice{
				endpointSlice("cart", "http", 8080, readyEndpoint("10.244.0.3"), startingEndpoint("10.244.0.4"), terminatingEndpoint("10.244.0.5")),
				endpointSlice("cart", "http", 8080, readyEndpoint("10.244.0.2"), readyEndpoint("10.244.0.3")),
				endpointSlice("other", "http", 8080, readyEndpoint("10.244.0.9")),
			},
			forwards: []services.Forward{{
				Service: at("10.96.0.7:80"), Protocol: services.TCP, Backends: []netip.AddrPort{at("10.244.0.2:8080"), at("10.244.0.3:8080")},
			}},
			table: services.Table{"cart.shop": {address("10.96.0.7")}},
		},
		{
			name: "terminating endpoints if none is ready", service: newService("10.96.0.7", http),
			slices: []*discoveryv1.EndpointSlice{endpointSlice("cart", "http", 8080, terminatingEndpoint("10.244.0.5"), startingEndpoint("10.244.0.4"))},
			forwards: []services.Forward{{
				Service: at("10.96.0.7:80"), Protocol: services.TCP, Backends: []netip.AddrPort{at("10.244.0.5:8080")},
			}},
			table: services.Table{"cart.shop": {address("10.96.0.7")}},
		},
		{
			name:    "ports by name and protocol",
			service: newService("10.96.0.7", corev1.ServicePort{Name: "dns", Port: 53, Protocol: corev1.ProtocolUDP}, http),
			slices: []*discoveryv1.EndpointSlice{
				endpointSlice("cart", "http", 8080, readyEndpoint("10.244.0.2")), endpointSlice("cart", "dns", 5353, readyEndpoint("10.244.0.2")),
			},
			forwards: []services.Forward{
				{Service: at("10.96.0.7:53"), Protocol: services.UDP, Backends: []netip.AddrPort{at("10.244.0.2:5353")}},
				{Service: at("10.96.0.7:80"), Protocol: services.TCP, Backends: []netip.AddrPort{at("10.244.0.2:8080")}},
			},
			table: services.Table{"cart.shop": {address("10.96.0.7")}},
		},
		{
			name: "headless", service: newService(corev1.ClusterIPNone, http),
			slices: []*discoveryv1.EndpointSlice{endpointSlice("cart", "http", 8080, readyEndpoint("10.244.0.2"), startingEndpoint("10.244.0.4"))},
			table:  services.Table{"cart.shop": {address("10.244.0.2")}},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			forwards, table := services.PlanRules([]*corev1.Service{c.service}, c.slices)
			comparable := cmp.Comparer(func(a, b netip.Addr) bool { return a == b })
			ports := cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b })
			if diff := cmp.Diff(c.forwards, forwards, comparable, ports); diff != "" {
				t.Errorf("forwards (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(c.table, table, comparable); diff != "" {
				t.Errorf("names (-want +got):\n%s", diff)
			}
		})
	}
}
