//go:build linux

package e2e_test

import (
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"
)

// unanswered is a release with a query that is not answered.
type unanswered struct {
	name string
	// analysis is the part of the analysis with the query.
	analysis string
	// phases and iterations limit the progress of the release without the answer.
	phases     []string
	iterations int
}

// shortCanary returns a Canary without a mesh whose release takes one short window.
func shortCanary(name, analysis string) string {
	return fmt.Sprintf(`
apiVersion: flagger.app/v1beta1
kind: Canary
metadata: {name: %[1]s}
spec:
  provider: kubernetes
  targetRef: {apiVersion: apps/v1, kind: Deployment, name: %[1]s}
  service: {port: 8080}
  analysis:
    interval: 1s
    threshold: 10000
    iterations: 1
%[2]s
---
`, name, analysis)
}

// webhook returns an analysis with one webhook, whose name is its type.
func webhook(kind, url, timeout string) string {
	return fmt.Sprintf("    webhooks: [{name: %[1]s, type: %[1]s, url: %[2]q, timeout: %[3]s}]", kind, url, timeout)
}

// silence is the behaviour of a server that accepts requests and does not answer them until end is called.
type silence struct {
	over chan struct{}
	once sync.Once
}

func newSilence(t *testing.T) *silence {
	s := &silence{over: make(chan struct{})}
	t.Cleanup(s.end) // a server closes only when its requests have ended
	return s
}

func (s *silence) end() { s.once.Do(func() { close(s.over) }) }

// then answers a webhook after the silence.
func (s *silence) then(status int) func(webhookCall) int {
	return func(webhookCall) int { <-s.over; return status }
}

// TestUnansweredQueriesDoNotDelayOtherReleases has one worker for all releases: a reconciliation that waited for an answer
// would block all of them. The test checks the order: fifty releases end while those without an answer make no progress. It
// runs alone, because fifty concurrent releases delay a control plane on two processors so much that other tests would time
// out.
func TestUnansweredQueriesDoNotDelayOtherReleases(t *testing.T) {
	s := startEnvironment(t, "hang", "-threadiness", "1", "-drain-delay", "0s")
	s.keepPodsReady(t)
	hooks := startReceiver(t)
	silent := newSilence(t)
	hangs := func(kind string) string {
		hooks.setAnswer("/"+kind, silent.then(http.StatusOK))
		return webhook(kind, hooks.url("/"+kind), "10m")
	}
	stuck := []unanswered{
		{name: "start", analysis: hangs("confirm-rollout"), phases: []string{"Initialized"}},
		{name: "acceptance", analysis: hangs("pre-rollout"), phases: []string{"Initialized", "Progressing"}},
		{name: "load", analysis: hangs("rollout"), phases: []string{"Initialized", "Progressing"}, iterations: 1},
		{name: "sign-off", analysis: hangs("confirm-promotion"), phases: []string{"Initialized", "Progressing"}, iterations: 1},
	}
	asked := []string{"/confirm-rollout", "/pre-rollout", "/rollout", "/confirm-promotion"}
	measured := make(chan struct{}, 1)
	_, prometheus := startFakePrometheus(t, func(query string) float64 {
		if query == "vector(1)" {
			return 1 // the provider is reachable when the Canary is initialized
		}
		select {
		case measured <- struct{}{}:
		default:
		}
		<-silent.over
		return 100
	})
	t.Cleanup(silent.end) // the server above waits for its requests, too
	stuck = append(stuck, unanswered{
		name: "checks", phases: []string{"Initialized", "Progressing"}, iterations: 1,
		analysis: "    metrics: [{name: request-success-rate, interval: 1s, thresholdRange: {min: 99}}]\n  metricsServer: " + prometheus,
	})

	manifests := ""
	for _, u := range stuck {
		manifests += deploymentByHand(u.name, 1) + shortCanary(u.name, u.analysis)
	}
	var others []string
	for i := range 50 {
		name := fmt.Sprintf("other-%02d", i)
		others = append(others, name)
		// They call the same server, which answers them.
		manifests += deploymentByHand(name, 1) + shortCanary(name, webhook("rollout", hooks.url("/others"), "10m"))
	}
	waiting, moving := map[string]*release{}, map[string]*release{}
	for _, u := range stuck {
		waiting[u.name] = s.follow(u.name)
	}
	for _, name := range others {
		moving[name] = s.follow(name)
	}
	s.apply(manifests)
	for _, all := range []map[string]*release{waiting, moving} {
		for _, r := range all {
			r.waitForPhase("Initialized")
		}
	}

	for _, u := range stuck {
		waiting[u.name] = s.follow(u.name)
		s.deployVersion(u.name, "v2")
	}
	for _, path := range asked {
		hooks.waitForCall(path, 1)
	}
	deadline := time.NewTimer(waitTimeout)
	defer deadline.Stop()
	select {
	case <-measured:
	case <-deadline.C:
		t.Fatalf("wait for a query: it took more than %s", waitTimeout)
	}
	for _, name := range others {
		moving[name] = s.follow(name)
		s.deployVersion(name, "v2")
	}
	for _, name := range others {
		moving[name].waitForEnd("Succeeded")
	}
	for _, u := range stuck {
		for _, state := range waiting[u.name].states() {
			st := state.object.Status
			if !slices.Contains(u.phases, st.Phase) || st.Iterations > u.iterations {
				t.Errorf("Canary %s progressed without an answer: %s", u.name, state.object)
			}
		}
	}
	for _, path := range asked {
		if calls := hooks.callsTo(path); len(calls) != 1 {
			t.Errorf("webhook %s has not answered and was called %d times", path, len(calls))
		}
	}

	silent.end()
	for _, u := range stuck {
		waiting[u.name].waitForEnd("Succeeded")
	}
}
