//go:build linux

package e2e_test

import (
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// searchManifests returns Deployments of two versions, a Service that selects the pods of the first one, and a Canary that
// releases the Service. Kubernetes allocates a node port for the Service, which its copies cannot have as well.
func searchManifests(t *testing.T) string {
	t.Helper()
	first := replaceTexts(t, deployment(t, "search-v1", 2), `"app":"search-v1"`, `"app":"search","version":"v1"`)
	second := replaceTexts(t, deployment(t, "search-v2", 2), `"app":"search-v2"`, `"app":"search","version":"v2"`, "serin.dev/demo:v1", "serin.dev/demo:v2")
	return first + second + `
apiVersion: v1
kind: Service
metadata: {name: search}
spec: {type: NodePort, selector: {app: search, version: v1}, ports: [{name: http, port: 8080}]}
---
apiVersion: flagger.app/v1beta1
kind: Canary
metadata: {name: search}
spec:
  provider: gatewayapi:v1
  targetRef: {apiVersion: v1, kind: Service, name: search}
  service:
    port: 8080
    gatewayRefs: [{name: gateway, namespace: playground}]
    hosts: [search.example.com]
  analysis: {interval: 2s, threshold: 2, stepWeight: 50, maxWeight: 50}
`
}

func TestServiceIsReleasedByItsSelector(t *testing.T) {
	t.Parallel()
	s := startEnvironment(t, "service")
	r := s.follow("search")
	s.apply(searchManifests(t))
	s.waitForAvailable("search-v1", 2)
	s.waitForAvailable("search-v2", 2)
	r.waitForPhase("Initialized")
	l := s.startLoad("search.example.com", 20)
	waitForRequests(t, l, 10, "v1")
	if counts := l.Counts(); len(counts.ByVersion) != 1 {
		t.Errorf("before the release not only v1 answers: %s", counts)
	}

	r = s.follow("search")
	s.patch(services, "search", `{"spec":{"selector":{"version":"v2"}}}`)
	r.waitFor("has weight 50", func(c canary) error {
		if c.Status.CanaryWeight != 50 {
			return errors.New("another weight")
		}
		return nil
	})
	waitForRequests(t, l, 1, "v2")
	r.waitForEnd("Succeeded")
	r.waitForEvent("Promotion completed!")
	waitForRequests(t, l, 40, "v2")
	if counts := l.Counts(); counts.Failed() != 0 {
		t.Errorf("requests failed: %s", counts)
	}
	addresses := map[string]string{}
	for _, name := range []string{"search", "search-primary", "search-canary"} {
		service := convert[corev1.Service](t, s.get(services, name))
		if other, exists := addresses[service.Spec.ClusterIP]; exists || service.Spec.ClusterIP == "" {
			t.Errorf("Service %s has the address %q, which Service %q has as well", name, service.Spec.ClusterIP, other)
		}
		addresses[service.Spec.ClusterIP] = name
		if service.Spec.Selector["version"] != "v2" {
			t.Errorf("Service %s selects %v, want the pods of v2", name, service.Spec.Selector)
		}
	}
}
