package telemetry

import (
	"errors"
	"net/http"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

func TestRequestsAreNamedAsTheAPIServerNamesThem(t *testing.T) {
	const canaries = "https://10.0.0.1/apis/flagger.app/v1beta1/"
	for _, test := range []struct{ method, url, want string }{
		{"GET", "https://10.0.0.1/api/v1/namespaces/shop/services/cart", "get services"},
		{"GET", "https://10.0.0.1/api/v1/namespaces/shop/services", "list services"},
		{"GET", "https://10.0.0.1/api/v1/services?watch=true&resourceVersion=1", "watch services"},
		{"GET", "https://10.0.0.1/api/v1/namespaces/shop", "get namespaces"},
		{"GET", "https://10.0.0.1/api/v1/namespaces", "list namespaces"},
		{"PUT", "https://10.0.0.1/api/v1/namespaces/shop/status", "update namespaces/status"},
		{"GET", canaries + "canaries?watch=1", "watch canaries"},
		{"PUT", canaries + "namespaces/shop/canaries/cart/status", "update canaries/status"},
		{"PATCH", canaries + "namespaces/shop/canaries/cart", "patch canaries"},
		{"POST", "https://10.0.0.1/api/v1/namespaces/shop/events", "create events"},
		{"DELETE", canaries + "namespaces/shop/canaries/cart", "delete canaries"},
		{"DELETE", canaries + "namespaces/shop/canaries", "deletecollection canaries"},
		{"GET", canaries + "namespaces/apis/canaries/api", "get canaries"},
		{"GET", "https://proxy.example/clusters/one/api/v1/pods", "list pods"},
		{"GET", "https://10.0.0.1/apis", "get none"},
		{"GET", "https://10.0.0.1/apis/apps/v1", "get none"},
		{"GET", "https://10.0.0.1/api/v1/", "get none"},
		{"GET", "https://10.0.0.1/version", "get none"},
		{"GET", "https://10.0.0.1", "get none"},
	} {
		request, err := http.NewRequestWithContext(t.Context(), test.method, test.url, nil)
		if err != nil {
			t.Fatal(err)
		}
		verb, resource := verbAndResource(request)
		expect(t, test.method+" "+test.url, verb+" "+resource, test.want)
	}
}

type transport func(*http.Request) (*http.Response, error)

func (t transport) RoundTrip(r *http.Request) (*http.Response, error) { return t(r) }

func TestRequestsAreCountedWithTheirResponseCode(t *testing.T) {
	registry := prometheus.NewRegistry()
	m := New(registry)
	cause := errors.New("connection refused")
	for _, test := range []struct {
		response *http.Response
		err      error
	}{
		{&http.Response{StatusCode: http.StatusConflict, Body: http.NoBody}, nil},
		{nil, cause},
	} {
		request, err := http.NewRequestWithContext(t.Context(), "GET", "https://10.0.0.1/api/v1/pods", nil)
		if err != nil {
			t.Fatal(err)
		}
		next := transport(func(*http.Request) (*http.Response, error) { return test.response, test.err })
		response, err := m.CountRequests(next).RoundTrip(request)
		if response != test.response || !errors.Is(err, test.err) {
			t.Errorf("got %v, %v; want the result of the transport: %v, %v", response, err, test.response, test.err)
		}
		if response != nil {
			_ = response.Body.Close()
		}
	}
	expect(t, "series", series(t, registry), []string{
		`serin_api_requests_total{code="409",resource="pods",verb="list"} 1`,
		`serin_api_requests_total{code="none",resource="pods",verb="list"} 1`,
	})
}
