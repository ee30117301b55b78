package cluster

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
)

func TestServiceHosts(t *testing.T) {
	for host, want := range map[string]string{
		"prometheus":                              "prometheus.serin-system",
		"prometheus.monitoring":                   "prometheus.monitoring",
		"prometheus.monitoring.svc":               "prometheus.monitoring",
		"prometheus.monitoring.svc.cluster.local": "prometheus.monitoring",
		"prometheus.monitoring.svc.":              "prometheus.monitoring",
		"prometheus.example.com":                  "",
		"10.0.0.1":                                "",
		"::1":                                     "",
		"localhost":                               "",
		"a_b.monitoring":                          "",
		"":                                        "",
	} {
		service, ok, err := parseServiceHost(host, "serin-system")
		if err != nil || ok != (want != "") || ok && service.String() != want {
			t.Errorf("%q: got %v, %t, %v, want %q", host, service, ok, err, want)
		}
	}
	if _, ok, err := parseServiceHost("prometheus", ""); ok || !errors.Is(err, errUnknownNamespace) {
		t.Errorf("a short name without a namespace: got %t, %v", ok, err)
	}
}

// A query of a template is the text of a tenant, but its request has the credentials of the user: it reaches nothing but the proxy of
// the Service that it names.
func TestARequestReachesOnlyItsService(t *testing.T) {
	const proxy = "/base/api/v1/namespaces/monitoring/services/http:prometheus:9090/proxy/"
	var got *http.Request
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = r
		_, _ = io.WriteString(w, "{}")
	}))
	defer server.Close()
	address, err := url.Parse(server.URL + "/base")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{
		"/api/v1/query", "/../../../../../secrets", "/%2e%2e/%2e%2e/secrets", "/%252e%252e/%252e%252e/secrets", "/a%2f..%2f..%2f..%2fsecrets", "/a/./../..//b",
	} {
		transport := &serviceTransport{api: &APIServer{URL: address, Transport: http.DefaultTransport}}
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://prometheus.monitoring:9090"+path+"?query=up", nil)
		if err != nil {
			t.Fatal(err)
		}
		for name, value := range map[string]string{"Authorization": "Bearer of-the-tenant", "Impersonate-User": "admin", "Impersonate-Group": "system:masters", "X-Remote-User": "admin"} {
			request.Header.Set(name, value)
		}
		got = nil
		response, err := transport.RoundTrip(request)
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		if err := response.Body.Close(); err != nil {
			t.Fatal(err)
		}
		if transport.service != "prometheus.monitoring" {
			t.Errorf("%s: sent to Service %q", path, transport.service)
		}
		if got == nil || !strings.HasPrefix(got.URL.Path, proxy) || strings.Contains(got.URL.Path, "..") && !strings.Contains(path, "%25") || got.URL.RawQuery != "query=up" {
			t.Errorf("%s: got a request for %v, want one below %s", path, got.URL, proxy)
		}
		for _, name := range []string{"Authorization", "Impersonate-User", "Impersonate-Group", "X-Remote-User"} {
			if value := got.Header.Get(name); value != "" {
				t.Errorf("%s: got header %s: %s", path, name, value)
			}
		}
	}
}

func TestOtherRequestsAreNotSent(t *testing.T) {
	address := &url.URL{Scheme: "https", Host: "cluster.example"}
	for name, request := range map[string]struct{ method, url, want string }{
		"another host":     {http.MethodGet, "http://169.254.169.254/latest", "169.254.169.254 is not a Service"},
		"loopback":         {http.MethodGet, "http://localhost:10250/", "localhost:10250 is not a Service"},
		"another method":   {http.MethodPost, "http://prometheus.monitoring/", "only the controller"},
		"unknown resolver": {http.MethodGet, "http://prometheus:9090/", "namespace of the controller is unknown"},
	} {
		transport := &serviceTransport{api: &APIServer{URL: address, Transport: refusing{t}}, direct: refusing{t}}
		r, err := http.NewRequestWithContext(t.Context(), request.method, request.url, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := transport.RoundTrip(r); err == nil || !strings.Contains(transport.notSent, request.want) { //nolint:bodyclose // there is none
			t.Errorf("%s: got %v, reason %q, want %q", name, err, transport.notSent, request.want)
		}
	}
}

// refusing fails the test when a request is sent.
type refusing struct{ t *testing.T }

func (r refusing) RoundTrip(request *http.Request) (*http.Response, error) {
	r.t.Errorf("a request to %s was sent", request.URL)
	return nil, errors.New("refused")
}

func TestQueriesAreAnsweredByAnotherServer(t *testing.T) {
	var got string
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got = r.URL.String() }))
	defer server.Close()
	address, err := url.Parse(server.URL + "/prom/")
	if err != nil {
		t.Fatal(err)
	}
	transport := &serviceTransport{instead: address, direct: http.DefaultTransport}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://prometheus:9090/api/v1/query?query=up", nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := transport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if want := "/prom/api/v1/query?query=up"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
