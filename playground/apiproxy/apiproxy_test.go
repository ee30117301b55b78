package apiproxy_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/rest"

	"github.com/serin-dev/serin/playground/apiproxy"
)

func TestClassify(t *testing.T) {
	for _, c := range []struct{ method, path, want string }{
		{"GET", "/api/v1/pods", "list pods"},
		{"GET", "/api/v1/namespaces", "list namespaces"},
		{"GET", "/api/v1/namespaces/shop", "get namespaces"},
		{"PUT", "/api/v1/namespaces/shop/finalize", "update namespaces/finalize"},
		{"GET", "/api/v1/namespaces/shop/pods?watch=true", "watch pods"},
		{"GET", "/api/v1/namespaces/shop/pods/a", "get pods"},
		{"POST", "/api/v1/namespaces/shop/events", "create events"},
		{"PATCH", "/apis/flagger.app/v1beta1/namespaces/shop/canaries/cart/status", "patch canaries.flagger.app/status"},
		{"PUT", "/apis/apps/v1/namespaces/shop/deployments/cart/scale", "update deployments.apps/scale"},
		{"DELETE", "/apis/apps/v1/namespaces/shop/deployments/cart", "delete deployments.apps"},
		{"GET", "/apis", "get /apis"},
		{"GET", "/readyz", "get /readyz"},
	} {
		got := apiproxy.Classify(httptest.NewRequest(c.method, c.path, nil)).String()
		if got != c.want {
			t.Errorf("%s %s is %q, want %q", c.method, c.path, got, c.want)
		}
	}
}

func TestProxyForwardsAsItsOwnUserAndCounts(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, r.Header.Get("Authorization"))
	}))
	defer server.Close()
	proxy, err := apiproxy.Start(t.Context(), &rest.Config{Host: server.URL, BearerToken: "ours"})
	if err != nil {
		t.Fatal(err)
	}
	get := func(path string) (int, string) {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, proxy.URL+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Authorization", "Bearer theirs")
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		var body [64]byte
		n, _ := response.Body.Read(body[:])
		return response.StatusCode, string(body[:n])
	}
	if _, got := get("/api/v1/pods"); got != "Bearer ours" {
		t.Errorf("the API server received Authorization %q, want %q", got, "Bearer ours")
	}
	before := proxy.Counts()
	proxy.SetFault(func(w http.ResponseWriter, _ *http.Request, kind apiproxy.Request) bool {
		if kind.Resource != "secrets" {
			return false
		}
		w.WriteHeader(http.StatusConflict)
		return true
	})
	if status, _ := get("/api/v1/secrets"); status != http.StatusConflict {
		t.Errorf("status with the fault is %d, want %d", status, http.StatusConflict)
	}
	if status, _ := get("/api/v1/pods"); status != http.StatusOK {
		t.Errorf("status of another resource is %d, want %d", status, http.StatusOK)
	}
	want := apiproxy.Counts{{Verb: "list", Resource: "pods"}: 1, {Verb: "list", Resource: "secrets"}: 1}
	if diff := cmp.Diff(want, proxy.Counts().Since(before)); diff != "" {
		t.Errorf("counts (-want +got):\n%s", diff)
	}
	if got := proxy.Counts().Total(); got != 3 {
		t.Errorf("Total() = %d, want 3", got)
	}
	if err := proxy.Close(); err != nil {
		t.Error(err)
	}
}
