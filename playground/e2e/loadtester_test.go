//go:build linux

package e2e_test

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/serin-dev/serin/playground/network"
)

// loadtesterImage is the image of Serin. It contains no other program: no shell and no load generator.
const loadtesterImage = "serin.dev/serin"

// manifestImage is the image of Serin in the manifests of config, which the cluster of make demo has too.
const manifestImage = "serin"

// externalTesterPort is the port of the load tester that runs outside pods.
const externalTesterPort = "18090"

// setGate opens or closes a gate of the load tester, as a user does.
func (s *environment) setGate(url string, want int) {
	s.t.Helper()
	body := fmt.Sprintf(`{"name":"cart","namespace":%q}`, s.namespace)
	response, err := http.Post(url, "application/json", strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	defer response.Body.Close()
	if response.StatusCode != want {
		s.t.Fatalf("%s answered %s, want %d", url, response.Status, want)
	}
}

// TestLoadTesterRunsTestsLoadsAndGates has two load testers: that of config/loadtester in a pod, which sends the load of each
// window with the built-in load generator and has the gate, and one outside pods, on a machine with a shell, which runs the
// acceptance test.
func TestLoadTesterRunsTestsLoadsAndGates(t *testing.T) {
	t.Parallel()
	s := startEnvironment(t, "loadtester")
	manifest, err := os.ReadFile(filepath.Join(repository, "config", "loadtester", "loadtester.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	s.apply(string(manifest))
	s.waitForAvailable("flagger-loadtester", 1)
	argv := []string{serin, "loadtester", "-port", externalTesterPort, "-log-level", "info"}
	if _, err := shared.StartProcess("loadtester", argv, []string{"POD_NAMESPACE=" + s.namespace}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the log of the load tester outside pods:\n%s\nin the pod:\n%s",
				shared.Tail("loadtester", 30), s.kubectl("", "logs", "deployment/flagger-loadtester"))
		}
		if err := shared.Kill("loadtester"); err != nil {
			t.Error(err)
		}
	})

	canaryURL := "http://cart-canary." + s.namespace + ":8080/"
	pod := "http://flagger-loadtester." + s.namespace
	external := "http://" + net.JoinHostPort(network.NodeAddress.String(), externalTesterPort) + "/"
	s.apply(deployment(t, "cart", 1) + shortCanary("cart", fmt.Sprintf(`
    webhooks:
    - {name: acceptance, type: pre-rollout, url: %q, timeout: 30s, retries: 3, metadata: {type: bash, cmd: %q}}
    - {name: load, url: %q, timeout: 30s, metadata: {cmd: %q, logCmdOutput: "true"}}
    - {name: sign-off, type: confirm-promotion, url: %q}
`, external, `hey -n 20 -c 2 `+canaryURL+` | grep '\[200\]'`,
		pod+"/", "hey -z 1s -q 10 -c 2 "+canaryURL,
		pod+"/gate/check")))
	s.follow("cart").waitForPhase("Initialized")

	r := s.follow("cart")
	s.deployVersion("cart", "v2")
	r.waitForPhase("WaitingPromotion")
	s.setGate(pod+"/gate/open", http.StatusAccepted)
	r.waitForEnd("Succeeded")
	r.waitForEvent("Pre-rollout check acceptance passed")
	if log := s.kubectl("", "logs", "deployment/flagger-loadtester"); !strings.Contains(log, `\n  [200]\t`) {
		t.Errorf("no load was answered:\n%s", log)
	}

	// A failed test is reported with its output, and fails the release.
	s.setGate(pod+"/gate/close", http.StatusAccepted)
	s.patch(canaries, "cart", fmt.Sprintf(`{"spec":{"analysis":{"threshold":1,"webhooks":[
		{"name":"acceptance","type":"pre-rollout","url":%q,"timeout":"30s","metadata":{"type":"bash","cmd":"echo the basket is empty; exit 3"}}]}}}`, external))
	r = s.follow("cart")
	s.deployVersion("cart", "v3")
	r.waitForPhase("Progressing") // the status may still be that of the previous release
	r.waitForEnd("Failed")
	r.waitForEvent("Halt cart." + s.namespace + " advancement pre-rollout check acceptance failed POST " + external +
		" giving up after 1 attempt(s): command bash failed: the basket is empty: exit status 3")
}
