package clitest

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/serin-dev/serin/config/crd"
	"github.com/serin-dev/serin/internal/cli/cluster"
)

// PublicGateway is the Gateway of the routes of Canary cart and Rollout web, to be appended to other manifests. Its listener accepts
// their namespace.
const PublicGateway = `
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: public, namespace: shop}
spec:
  gatewayClassName: example
  listeners:
  - {name: admin, port: 9000, protocol: HTTP, allowedRoutes: {namespaces: {from: None}}}
  - {name: http, port: 80, protocol: HTTP}`

// ClosedGateway is the same Gateway without a listener for the routes.
const ClosedGateway = `
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: public, namespace: shop}
spec:
  gatewayClassName: example
  listeners:
  - {name: admin, port: 9000, protocol: HTTP, allowedRoutes: {namespaces: {from: None}}}
  - {name: tcp, port: 5432, protocol: TCP}`

// WebScaling contains autoscalers and disruption budgets around Rollout web, of which one each concerns its pods, to be appended to
// other manifests.
const WebScaling = `
---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: web, namespace: shop}
spec: {maxReplicas: 4, scaleTargetRef: {apiVersion: argoproj.io/v1alpha1, kind: Rollout, name: web}}
---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: web-old, namespace: shop}
spec: {maxReplicas: 4, scaleTargetRef: {apiVersion: apps/v1, kind: Rollout, name: web}}
---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: cart, namespace: shop}
spec: {maxReplicas: 4, scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: cart}}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: web, namespace: shop}
spec: {maxUnavailable: 1, selector: {matchLabels: {app: web}}}`

// StableBudget is a disruption budget of the stable revision of Rollout web, to be appended to other manifests.
const StableBudget = `
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: web-stable, namespace: shop}
spec: {maxUnavailable: 1, selector: {matchLabels: {app: web, rollouts-pod-template-hash: old}}}`

// Deny denies the user and all service accounts a request in access reviews, such as "patch canaries".
func (w *FakeCluster) Deny(requests ...string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.denied = append(w.denied, requests...)
}

// isDenied reports whether an access review denies a request.
func (w *FakeCluster) isDenied(verb, resource string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Contains(w.denied, verb+" "+resource)
}

// InstallDefinitions creates the definitions of an API group.
func (w *FakeCluster) InstallDefinitions(group string) {
	w.t.Helper()
	files, err := crd.Files(group)
	if err != nil {
		w.t.Fatal(err)
	}
	for name, text := range files {
		object := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(text, &object.Object); err != nil {
			w.t.Fatalf("read %s: %v", name, err)
		}
		if err := w.Admin.Create(w.t.Context(), object); err != nil {
			w.t.Fatalf("create %s: %v", name, err)
		}
	}
}

// ServeAPI lets the API server answer requests for its version and to Service prometheus.monitoring, whose query results have
// that value; empty: no data. Instead of a value, "forbidden" and "broken" are errors.
func (w *FakeCluster) ServeAPI(value string) {
	address, err := url.Parse("https://cluster.example:6443")
	if err != nil {
		w.t.Fatal(err)
	}
	w.Session.API = &cluster.APIServer{URL: address, Transport: fakeAPI(value)}
}

// fakeAPI answers with the value of its queries.
type fakeAPI string

// RoundTrip implements http.RoundTripper.
func (f fakeAPI) RoundTrip(r *http.Request) (*http.Response, error) {
	service, path, proxied := strings.Cut(strings.TrimPrefix(r.URL.Path, "/api/v1/namespaces/"), "/proxy/")
	status := func(code int, reason, message string) (*http.Response, error) {
		return answer(code, fmt.Sprintf(`{"kind":"Status","apiVersion":"v1","reason":%q,"message":%q}`, reason, message))
	}
	switch {
	case r.URL.Path == "/version":
		return answer(http.StatusOK, `{"gitVersion":"v1.37.0"}`)
	case !proxied:
		return nil, fmt.Errorf("unexpected request %s %s", r.Method, r.URL)
	case f == "forbidden":
		return status(http.StatusForbidden, "Forbidden", "services is forbidden")
	case service != "monitoring/services/http:prometheus:9090":
		return status(http.StatusNotFound, "NotFound", "services not found")
	case path != "api/v1/query":
		return nil, fmt.Errorf("unexpected request %s %s", r.Method, r.URL)
	case f == "broken":
		return answer(http.StatusBadRequest, `{"status":"error","errorType":"bad_data","error":"parse error"}`)
	case f == "":
		return answer(http.StatusOK, `{"status":"success","data":{"resultType":"vector","result":[]}}`)
	default:
		return answer(http.StatusOK, fmt.Sprintf(`{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"value":[1,%q]}]}}`, string(f)))
	}
}

func answer(code int, body string) (*http.Response, error) {
	return &http.Response{
		StatusCode: code, Status: fmt.Sprint(code), Header: http.Header{"Content-Type": {"application/json"}},
		Body: io.NopCloser(bytes.NewBufferString(body)), ContentLength: int64(len(body)),
	}, nil
}
