//go:build linux

package e2e_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var traefikServices = schema.GroupVersionResource{Group: "traefik.io", Version: "v1alpha1", Resource: "traefikservices"}

// catalog contains an IngressRoute of the user that names the TraefikService that Serin creates.
const catalog = `
apiVersion: traefik.io/v1alpha1
kind: IngressRoute
metadata: {name: catalog}
spec:
  entryPoints: [web]
  routes:
  - kind: Rule
    match: Host(` + "`catalog.test`" + `)
    services: [{kind: TraefikService, name: catalog}]
---
apiVersion: flagger.app/v1beta1
kind: Canary
metadata: {name: catalog}
spec:
  provider: traefik
  targetRef: {apiVersion: apps/v1, kind: Deployment, name: catalog}
  service: {port: 80, targetPort: http}
  analysis:
    interval: 3s
    threshold: 2
    stepWeights: [20, 50]
    metrics:
    - {name: request-success-rate, interval: 5s, thresholdRange: {min: 99}}
    - {name: request-duration, interval: 5s, thresholdRange: {max: 5000}} # a good version may be slow on a busy machine
`

// TestTraefikSharesRequestsByATraefikService releases a good and a bad version with Traefik's own API and Traefik's metrics.
// It runs alone, like all tests that count shares.
func TestTraefikSharesRequestsByATraefikService(t *testing.T) {
	a := loadedEnvironment{environment: startEnvironment(t, "traefik")}
	r := a.follow("catalog")
	a.apply(deployment(t, "catalog", 2) + catalog)
	r.waitForPhase("Initialized")
	a.waitForPodsDeleted("app=catalog")
	a.gateway, a.service = a.startLoad("catalog.test", 80), a.startServiceLoad("catalog", 80, 10)
	route := recordHistory[traefikService](t, traefikServices, a.namespace)

	promoted := a.follow("catalog")
	a.checkNoRequestLostDuring("", func() {
		a.deployVersion("catalog", "v2")
		promoted.waitForEnd("Succeeded")
		a.waitForPodsDeleted("app=catalog")
	})
	var weights []int
	for _, w := range promoted.windows() {
		weights = append(weights, w.weight)
		a.checkShare(w, "v2")
	}
	if diff := cmp.Diff([]int{20, 50}, weights); diff != "" {
		t.Errorf("weights of the windows (-want +got):\n%s", diff)
	}
	var shares []string
	states, _ := route.statesFrom(0)
	for _, s := range states {
		if now := s.object.shares(); len(shares) == 0 || shares[len(shares)-1] != now {
			shares = append(shares, now)
		}
	}
	want := []string{"catalog-primary=100", "catalog-primary=80 catalog-canary=20", "catalog-primary=50 catalog-canary=50", "catalog-primary=100"}
	if diff := cmp.Diff(want, shares); diff != "" {
		t.Errorf("weights of the TraefikService (-want +got):\n%s", diff)
	}

	failed := a.follow("catalog")
	a.checkNoRequestLostDuring("v3", func() {
		a.deployVersion("catalog", "v3", "ERROR_PERCENT", "20")
		failed.waitForEnd("Failed")
		a.waitForPodsDeleted("app=catalog")
	})
	failed.waitForEvent("Canary failed! Scaling down catalog.traefik")
	if eventTexts := strings.Join(failed.eventMessages(), "\n"); !strings.Contains(eventTexts, "Halt catalog.traefik advancement success rate") {
		t.Errorf("no event reports that too many requests failed:\n%s", eventTexts)
	}
	after := waitForRequests(t, a.gateway, 40)
	if answered := after.ByVersion["v2"].Requests; answered != after.Requests {
		t.Errorf("after the rollback v2 answered %d of %d requests: %s", answered, after.Requests, after)
	}
}

// traefikService contains the fields of a TraefikService that the tests use.
type traefikService struct {
	Spec struct {
		Weighted struct {
			Services []struct {
				Name   string `json:"name"`
				Weight int    `json:"weight"`
			} `json:"services"`
		} `json:"weighted"`
	} `json:"spec"`
}

// shares returns the services and weights as name=weight, in order.
func (s traefikService) shares() string {
	var parts []string
	for _, entry := range s.Spec.Weighted.Services {
		parts = append(parts, fmt.Sprintf("%s=%d", entry.Name, entry.Weight))
	}
	return strings.Join(parts, " ")
}
