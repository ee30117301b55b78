//go:build linux

package e2e_test

import (
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
)

func TestBlueGreenWithoutAMeshWaitsForItsAcceptanceTestAndLosesNoRequest(t *testing.T) {
	t.Parallel()
	s := startEnvironment(t, "bluegreen")
	hooks := startReceiver(t)
	var calls atomic.Int32
	served := make(chan struct{})                // closed once requests to Service worker-canary are answered
	hooks.setAnswer("/", func(webhookCall) int { // refuses once, then does as the command in the manifest does
		if calls.Add(1) == 1 {
			return http.StatusForbidden
		}
		select {
		case <-served:
		case <-t.Context().Done():
			return http.StatusServiceUnavailable
		}
		response, err := http.Get(s.serviceURL("worker-canary", 8080) + "/ready")
		if err != nil {
			t.Error(err)
			return http.StatusServiceUnavailable
		}
		defer response.Body.Close()
		if version := response.Header.Get("X-Version"); version != "v2" {
			t.Errorf("Service worker-canary leads to version %q, want v2", version)
		}
		return response.StatusCode
	})
	s.apply(deployment(t, "worker", 2) + `
apiVersion: v1
kind: Service
metadata: {name: worker}
spec: {selector: {app: worker}, ports: [{name: http, port: 8080}]}
`)
	s.waitForAvailable("worker", 2)
	l := s.startServiceLoad("worker", 8080, 40)
	waitForRequests(t, l, 1, "v1")

	r := s.follow("worker")
	s.apply(readExample(t, "canary-bluegreen", "interval: 30s", "interval: 1s", "http://loadtester.shop/", hooks.url("/")))
	r.waitForPhase("Initialized")
	s.waitForPodsDeleted("app=worker")
	waitForRequests(t, l, 20, "v1")

	r = s.follow("worker")
	s.deployVersion("worker", "v2")
	r.waitFor("counts the refused acceptance test", func(c canary) error {
		if c.Status.FailedChecks != 1 {
			return errors.New("not yet")
		}
		if c.Status.Iterations != 0 {
			t.Error("an iteration began before the acceptance test passed")
		}
		return nil
	})
	first := s.startServiceLoad("worker-canary", 8080, 10)
	waitForRequests(t, first, 1, "v2")
	first.Stop()
	close(served)
	r.waitForEnd("Succeeded")
	s.waitForPodsDeleted("app=worker")
	r.waitForEvent("Promotion completed!")
	const want = `New revision detected! Scaling up worker.bluegreen
Starting canary analysis for worker.bluegreen
Halt worker.bluegreen advancement pre-rollout check acceptance failed Forbidden
Pre-rollout check acceptance passed
Advance worker.bluegreen canary iteration 1/5
Advance worker.bluegreen canary iteration 2/5
Advance worker.bluegreen canary iteration 3/5
Advance worker.bluegreen canary iteration 4/5
Advance worker.bluegreen canary iteration 5/5
Copying worker.bluegreen template spec to worker-primary.bluegreen
Promotion completed! Scaling down worker.bluegreen`
	var eventTexts []string
	for _, message := range r.eventMessages() {
		if len(eventTexts) == 0 || eventTexts[len(eventTexts)-1] != message {
			eventTexts = append(eventTexts, message)
		}
	}
	if diff := cmp.Diff(want, strings.Join(eventTexts, "\n")); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	for _, c := range hooks.callsTo("/") {
		if c.Metadata["cmd"] != "curl -sf http://worker-canary.shop:8080/ready" {
			t.Errorf("the acceptance test was asked with %v", c.Metadata)
		}
	}
	primary := convert[appsv1.Deployment](t, s.get(deployments, "worker-primary"))
	if image := primary.Spec.Template.Spec.Containers[0].Image; image != "serin.dev/demo:v2" {
		t.Errorf("the primary runs %s after the promotion", image)
	}
	waitForRequests(t, l, 20, "v2")
	l.Stop()
	if counts := l.Counts(); counts.Failed() != 0 {
		t.Errorf("requests were lost: %s", counts)
	}
}
