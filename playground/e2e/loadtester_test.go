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

// loadtesterImage is Serin in a pod, which holds no other program: no shell, and none to send load with.
const loadtesterImage = "serin.dev/serin"

// testerBeside is the port of the load tester beside the pods.
const externalTesterPort = "18090"

// tellGate has a person do something at a gate of the load tester.
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

// TestTheLoadTesterTestsLoadsAndKeepsGates has two load testers: that of config/loadtester in a pod, which sends the load
// of each window by what is built in and keeps the gate, and one beside the pods, on a machine that has a shell, which
// runs the acceptance test.
func TestTheLoadTesterTestsLoadsAndKeepsGates(t *testing.T) {
	t.Parallel()
	s := startEnvironment(t, "loadtester")
	manifest, err := os.ReadFile(filepath.Join(repository, "config", "loadtester", "loadtester.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	s.apply(replaceTexts(t, string(manifest), "image: serin\n", "image: "+loadtesterImage+":e2e\n"))
	s.waitForAvailable("flagger-loadtester", 1)
	argv := []string{serin, "loadtester", "-port", externalTesterPort, "-log-level", "info"}
	if _, err := shared.StartProcess("loadtester", argv, []string{"POD_NAMESPACE=" + s.namespace}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the log of the load tester beside the pods:\n%s\nin the pod:\n%s",
				shared.Tail("loadtester", 30), s.kubectl("", "logs", "deployment/flagger-loadtester"))
		}
		if err := shared.Kill("loadtester"); err != nil {
			t.Error(err)
		}
	})

	canaryURL := "http://cart-canary." + s.namespace + ":8080/"
	pod := "http://flagger-loadtester." + s.namespace
	beside := "http://" + net.JoinHostPort(network.NodeAddress.String(), externalTesterPort) + "/"
	s.apply(deployment(t, "cart", 1) + shortCanary("cart", fmt.Sprintf(`
    webhooks:
    - {name: acceptance, type: pre-rollout, url: %q, timeout: 30s, retries: 3, metadata: {type: bash, cmd: %q}}
    - {name: load, url: %q, timeout: 30s, metadata: {cmd: %q, logCmdOutput: "true"}}
    - {name: sign-off, type: confirm-promotion, url: %q}
`, beside, `hey -n 20 -c 2 `+canaryURL+` | grep '\[200\]'`,
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

	// A test that fails is told of with what it printed, and holds the release where it is.
	s.setGate(pod+"/gate/close", http.StatusAccepted)
	s.patch(canaries, "cart", fmt.Sprintf(`{"spec":{"analysis":{"threshold":1,"webhooks":[
		{"name":"acceptance","type":"pre-rollout","url":%q,"timeout":"30s","metadata":{"type":"bash","cmd":"echo the basket is empty; exit 3"}}]}}}`, beside))
	r = s.follow("cart")
	s.deployVersion("cart", "v3")
	r.waitForPhase("Progressing") // what is written after the end of the release before is no end of this one
	r.waitForEnd("Failed")
	r.waitForEvent("Halt cart." + s.namespace + " advancement pre-rollout check acceptance failed POST " + beside +
		" giving up after 1 attempt(s): command bash failed: the basket is empty: exit status 3")
}
