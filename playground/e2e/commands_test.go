//go:build linux

package e2e_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"

	"github.com/serin-dev/serin/playground/network"
)

// The exit codes of the commands, which scripts rely on.
const (
	codeDone        = 0
	codeFailed      = 1
	codeUsage       = 2
	codeUserAction  = 3
	codeTimedOut    = 4
	codeNotFound    = 5
	codeUnreachable = 6
	codeFailedCheck = 7
)

// commandResult contains the output and the exit code of a command.
type commandResult struct {
	command        string
	stdout, stderr string
	code           int
}

func (p commandResult) String() string {
	return fmt.Sprintf("%s ended with %d\nstdout:\n%s\nstderr:\n%s", p.command, p.code, p.stdout, p.stderr)
}

// commandRunner runs commands of Serin as a user does.
type commandRunner struct {
	t          *testing.T
	kubeconfig string
}

// runningCommand is a command that has not ended yet.
type runningCommand struct {
	t       *testing.T
	command *exec.Cmd
	stderr  bytes.Buffer

	mu     sync.Mutex
	stdout bytes.Buffer
	news   chan struct{}
}

// Write stores the output of the command.
func (r *runningCommand) Write(text []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	close(r.news)
	r.news = make(chan struct{})
	return r.stdout.Write(text)
}

func (r *runningCommand) printed() (string, <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.stdout.String(), r.news
}

// start starts a command of Serin, which is killed when the test ends.
func (s commandRunner) start(args ...string) *runningCommand {
	s.t.Helper()
	r := &runningCommand{t: s.t, command: exec.CommandContext(s.t.Context(), serin, args...), news: make(chan struct{})}
	r.command.Env = append(os.Environ(), "KUBECONFIG="+s.kubeconfig)
	r.command.Stdout, r.command.Stderr = r, &r.stderr
	if err := r.command.Start(); err != nil {
		s.t.Fatal(err)
	}
	return r
}

// waitForOutput waits until the command has printed a text.
func (r *runningCommand) waitForOutput(text string) {
	r.t.Helper()
	deadline := time.NewTimer(waitTimeout)
	defer deadline.Stop()
	for {
		soFar, news := r.printed()
		if strings.Contains(soFar, text) {
			return
		}
		select {
		case <-news:
		case <-deadline.C:
			r.t.Fatalf("wait until %s prints %q: it took more than %s; so far:\n%s", r.command, text, waitTimeout, soFar)
		}
	}
}

// wait waits for the end of the command.
func (r *runningCommand) wait() commandResult {
	r.t.Helper()
	kill := time.AfterFunc(waitTimeout, func() { _ = r.command.Process.Kill() })
	defer kill.Stop()
	err := r.command.Wait()
	var exited *exec.ExitError
	if err != nil && !errors.As(err, &exited) {
		r.t.Fatal(err)
	}
	stdout, _ := r.printed()
	return commandResult{"serin " + strings.Join(r.command.Args[1:], " "), stdout, r.stderr.String(), r.command.ProcessState.ExitCode()}
}

// run runs a command of Serin and checks its exit code.
func (s commandRunner) run(code int, args ...string) commandResult {
	s.t.Helper()
	p := s.start(args...).wait()
	if p.code != code {
		s.t.Errorf("want code %d: %s", code, p)
	}
	return p
}

// document contains the fields of the JSON output of commands that are used here.
type document struct {
	Controller struct {
		State   string `json:"state"`
		Message string `json:"message"`
	} `json:"controller"`
	Sentences []string `json:"sentences"`
	Release   shown    `json:"release"`
	Releases  []shown  `json:"releases"`
}

type shown struct {
	Kind      string `json:"kind"`
	Name      string `json:"name"`
	Namespace string `json:"namespace"`
	Phase     string `json:"phase"`
	State     string `json:"state"`
	Result    string `json:"result"`
	Weight    int    `json:"weight"`
	Gates     []struct {
		gate
		Asks  string    `json:"asks"`
		Do    string    `json:"do"`
		Since time.Time `json:"since"`
	} `json:"gates"`
}

// unexported lets cmp compare the types of this package.
var unexported = cmp.Exporter(func(reflect.Type) bool { return true })

// parseDocument parses output in JSON or YAML.
func (s commandRunner) parseDocument(p commandResult) document {
	s.t.Helper()
	var d document
	if err := yaml.Unmarshal([]byte(p.stdout), &d); err != nil {
		s.t.Fatalf("%v: %s", err, p)
	}
	return d
}

// checkOutput checks that the output of a command contains the texts.
func (s commandRunner) checkOutput(p commandResult, texts ...string) {
	s.t.Helper()
	for _, text := range texts {
		if !strings.Contains(p.stdout, text) {
			s.t.Errorf("%q is missing: %s", text, p)
		}
	}
}

// canaryWithSignOff returns a Canary whose release requires a successful metric check and a sign-off of the user.
func canaryWithSignOff(prometheus, hook string) string {
	return fmt.Sprintf(`
apiVersion: flagger.app/v1beta1
kind: Canary
metadata: {name: cart}
spec:
  metricsServer: %q
  targetRef: {apiVersion: apps/v1, kind: Deployment, name: cart}
  service: {port: 8080, hosts: [told.test], gatewayRefs: [{name: gateway, namespace: playground}]}
  analysis:
    interval: 1s
    threshold: 2
    stepWeights: [30]
    metrics: [{name: request-success-rate, thresholdRange: {min: 99}, interval: 1s}]
    webhooks: [{name: sign-off, type: confirm-promotion, url: %q}]
`, prometheus, hook)
}

// TestCommandsReportTheStateOfAReleaseAndItsExitCode covers the states of one release: absent, idle, waiting for the user,
// promoted, in progress, failed.
func TestCommandsReportTheStateOfAReleaseAndItsExitCode(t *testing.T) {
	t.Parallel()
	const namespace = "commands"
	s := startEnvironment(t, namespace)
	s.keepPodsReady(t)
	sh := commandRunner{t, shared.Kubeconfig}
	// Controllers of other tests are not considered.
	of := func(command string, more ...string) []string {
		return slices.Concat([]string{command, "-n", namespace, "--controller-flags=-namespace=commands -mesh-provider=gatewayapi:v1 -min-analysis-interval=1s -drain-delay=1s"}, more)
	}
	watch := func(more ...string) []string { return of("watch", append([]string{"cart", "--plain"}, more...)...) }

	if p := sh.run(codeDone, of("get")...); !strings.Contains(p.stderr, "No releases were found") {
		t.Errorf("an empty namespace is not reported: %s", p)
	}
	for _, args := range [][]string{of("get", "cart"), of("why", "cart"), watch("--until", "done")} {
		if p := sh.run(codeNotFound, args...); !strings.Contains(p.stderr, "there is no Canary or Rollout cart in namespace commands: ") {
			t.Errorf("the missing release is not named: %s", p)
		}
	}

	prometheus, url := startFakePrometheus(t, always(100))
	hooks := startReceiver(t)
	hooks.setAnswer("/sign-off", answerWith(http.StatusForbidden))
	r := s.follow("cart")
	s.apply(deploymentByHand("cart", 1) + canaryWithSignOff(url, hooks.url("/sign-off")))
	r.waitForPhase("Initialized")
	t.Run("idle", func(t *testing.T) {
		idle := commandRunner{t, sh.kubeconfig}
		checkIdleRelease(idle, of)
		checkChecks(idle, of, prometheus, url)
	})

	// A watch that starts before Serin has observed the new version waits for the release of that version.
	r = s.follow("cart")
	s.deployVersion("cart", "v2")
	watching := sh.start(watch("--until", "done")...)
	r.waitForPhase("WaitingPromotion")
	t.Run("waiting for the user", func(t *testing.T) {
		checkReleaseWaitingForUser(commandRunner{t, sh.kubeconfig}, of, hooks.url("/sign-off"))
	})
	watching.waitForOutput("commands/cart WaitingPromotion")
	hooks.setAnswer("/sign-off", answerWith(http.StatusOK))
	p := watching.wait()
	if p.code != codeDone {
		t.Errorf("the release was promoted: %s", p)
	}
	sh.checkOutput(p, "weight=30", "waits=confirm-promotion/sign-off opener=person", "event normal Copying cart.commands template spec to cart-primary.commands", "commands/cart Succeeded")
	for i, line := range strings.Split(strings.TrimSpace(p.stdout), "\n") {
		if strings.Contains(line, "\x1b") || !regexp.MustCompile(`^\d\d:\d\d:\d\dZ `).MatchString(line) {
			t.Errorf("line %d is no plain line with its time: %q", i+1, line)
		}
	}
	sh.checkOutput(sh.run(codeDone, of("why", "cart")...), "The last release was promoted")
	sh.run(codeDone, watch("--until", "promoted")...)

	// A release that continues after the timeout of the watch.
	r = s.follow("cart")
	s.patch(canaries, "cart", `{"spec":{"analysis":{"interval":"10m"}}}`)
	s.deployVersion("cart", "v3")
	r.waitFor("has weight 30", func(c canary) error {
		if c.Status.CanaryWeight != 30 {
			return errors.New("another weight")
		}
		return nil
	})
	p = sh.run(codeTimedOut, watch("--until", "done", "--timeout", "1s")...)
	sh.checkOutput(p, "weight=30", "waits=window")
	sh.checkOutput(sh.run(codeDone, of("why", "cart")...), "the canary receives 30% of the traffic", "It waits for window", "Continues automatically")

	// A release that fails.
	watching = sh.start(watch("--until", "promoted")...)
	watching.waitForOutput("weight=30")
	prometheus.setValue(always(12))
	s.patch(canaries, "cart", `{"spec":{"analysis":{"interval":"1s"}}}`)
	p = watching.wait()
	if p.code != codeFailed {
		t.Errorf("the release was rolled back: %s", p)
	}
	sh.checkOutput(p, "event warning Rolling back cart.commands failed checks threshold reached 2", "commands/cart Failed")
	sh.checkOutput(sh.run(codeFailed, of("why", "cart")...), "The last release failed: cart-primary serves the previous revision.", "Halt cart.commands advancement success rate 12.00% < 99%")
	sh.run(codeFailed, watch("--until", "done")...)
	sh.run(codeDone, watch("--until", "failed")...)
	sh.run(codeDone, watch("--until", "rest")...)
	sh.run(codeDone, of("get", "cart")...)
}

// checkIdleRelease checks all output formats for a Canary that was just initialized.
func checkIdleRelease(sh commandRunner, of func(string, ...string) []string) {
	t := sh.t
	table := sh.run(codeDone, of("get")...)
	sh.checkOutput(table, "NAME", "KIND", "WAITS FOR", "cart", "Canary", "Deployment/cart", "Initialized")
	wide := sh.run(codeDone, of("get", "-o", "wide")...)
	sh.checkOutput(wide, "PROVIDER", "REVISION", "gatewayapi:v1")
	if head, _, _ := strings.Cut(wide.stdout, "\n"); len(strings.Fields(head)) <= len(strings.Fields(strings.SplitN(table.stdout, "\n", 2)[0])) {
		t.Errorf("the wide table has no more columns: %s", wide)
	}
	all := sh.run(codeDone, "get", "-A")
	sh.checkOutput(all, "NAMESPACE")
	if !regexp.MustCompile(`(?m)^commands +cart `).MatchString(all.stdout) {
		t.Errorf("releases of all namespaces have no namespace: %s", all)
	}
	if p := sh.run(codeDone, of("get", "-o", "name")...); p.stdout != "canary.flagger.app/cart\n" {
		t.Errorf("want only the name: %s", p)
	}
	p := sh.run(codeDone, of("get", "cart", "-o", "json")...)
	if !json.Valid([]byte(p.stdout)) {
		t.Errorf("the output is not JSON: %s", p)
	}
	inJSON, inYAML := sh.parseDocument(p), sh.parseDocument(sh.run(codeDone, of("get", "cart", "-o", "yaml")...))
	if diff := cmp.Diff(inJSON, inYAML, unexported); diff != "" {
		t.Errorf("JSON and YAML differ (-json +yaml):\n%s", diff)
	}
	want := []shown{{Kind: "Canary", Name: "cart", Namespace: "commands", Phase: "Initialized", State: "at-rest", Result: "promoted", Gates: inJSON.Releases[0].Gates}}
	if diff := cmp.Diff(want, inJSON.Releases, unexported); diff != "" {
		t.Errorf("the release (-want +got):\n%s", diff)
	}
	if controller := inJSON.Controller; controller.State != "running" || !strings.Contains(controller.Message, "Lease serin.commands is held by ") {
		t.Errorf("the controller, which holds its Lease, is %+v", controller)
	}
	sh.checkOutput(sh.run(codeDone, of("why", "canary/cart")...), "cart.commands is idle (Initialized", "No release has started yet")
}

// checkChecks checks the commands that users run before a release.
func checkChecks(sh commandRunner, of func(string, ...string) []string, prometheus *fakePrometheus, url string) {
	sh.checkOutput(sh.run(codeDone, of("check", "--pre")...), "✓ api-server: Kubernetes v", "✓ definitions: 3 definitions of flagger.app", "✓ access: you, for the installation")
	// The server of the Canary is not a Service of the cluster, so that only the controller queries it.
	sh.checkOutput(sh.run(codeDone, of("check", "cart")...), "✓ spec: valid", "✓ route: ", "✓ primary: cart-primary has 1 available pod", "- metric request-success-rate: ", "use --prometheus")
	sh.checkOutput(sh.run(codeDone, of("check", "cart", "--prometheus", url)...), "✓ metric request-success-rate: the current version has 100.00%, limit >= 99%")
	prometheus.setValue(always(12))
	sh.checkOutput(sh.run(codeDone, of("check", "cart", "--prometheus", url)...), "! metric request-success-rate: the current version has 12.00%, limit >= 99%")
	prometheus.setValue(always(100))
	sh.checkOutput(sh.run(codeFailedCheck, of("check", "cart", "--prometheus", "http://"+closedAddress())...), "✗ metric request-success-rate: ", "connection refused")
	if p := sh.run(codeUsage, of("init", "cart")...); !strings.Contains(p.stderr, "Canary cart") {
		sh.t.Errorf("the Canary of the Deployment is not named: %s", p)
	}
}

// checkReleaseWaitingForUser checks the output for a release whose last gate the user must open.
func checkReleaseWaitingForUser(sh commandRunner, of func(string, ...string) []string, hook string) {
	t := sh.t
	if p := sh.run(codeUsage, of("approve", "cart", "window")...); !strings.Contains(p.stderr, "it waits for confirm-promotion/sign-off") {
		t.Errorf("the gate that waits is not named: %s", p)
	}
	p := sh.run(codeUserAction, of("why", "cart")...)
	sh.checkOutput(p, "cart.commands is WaitingPromotion", "confirm-promotion/sign-off", hook)
	if !strings.Contains(p.stderr, "cart.commands waits for user action") {
		t.Errorf("the reason for the exit code is not reported: %s", p)
	}
	d := sh.parseDocument(sh.run(codeUserAction, of("why", "cart", "-o", "json")...))
	if d.Release.State != "waits-for-person" || d.Release.Phase != "WaitingPromotion" || d.Release.Weight != 30 || len(d.Sentences) == 0 {
		t.Errorf("the release is reported as %+v", d)
	}
	seen := map[string]bool{}
	for _, g := range d.Release.Gates {
		seen[g.Name] = true
		switch g.Name {
		case "request-success-rate":
			if g.Value != "100.00%" || g.Limit != ">= 99%" || !strings.Contains(g.Query, "commands") || strings.Contains(g.Query, "{{") {
				t.Errorf("the check needs its value, limit and resolved query: %+v", g)
			}
		case "confirm-promotion/sign-off":
			if g.Opener != "person" || g.Asks == "" || g.Do == "" || g.Since.IsZero() {
				t.Errorf("the gate needs its opener, whom it asks, what to do, and since when: %+v", g)
			}
		}
	}
	if !seen["request-success-rate"] || !seen["confirm-promotion/sign-off"] {
		t.Errorf("gates are missing: %+v", d.Release.Gates)
	}
	if p := sh.run(codeUserAction, of("watch", "cart", "--plain", "--until", "done", "--timeout", "1s")...); !strings.Contains(p.stderr, "cart.commands waits for user action") {
		t.Errorf("the reason for the exit code is not reported: %s", p)
	}
	sh.checkOutput(sh.run(codeDone, of("get")...), "WaitingPromotion", "confirm-promotion/sign-off")
}

func TestInvalidCommandsEndWithTheUsageCode(t *testing.T) {
	t.Parallel()
	sh := commandRunner{t, shared.Kubeconfig}
	for _, args := range [][]string{
		{"gett"},
		{"get", "--nonsense"},
		{"get", "-o", "xml"},
		{"get", "deployment/cart"},
		{"get", "cart", "-A"},
		{"get", "cart", "-l", "team=shop"},
		{"get", "--context", "nowhere"},
		{"why"},
		{"why", "one", "two"},
		{"why", "cart", "-o", "wide"},
		{"watch", "--until", "lunch"},
		{"watch", "--timeout", "1s"},
		{"watch", "--until", "done", "--timeout", "-1s"},
	} {
		if p := sh.run(codeUsage, args...); p.stdout != "" || !strings.HasPrefix(p.stderr, "serin: ") {
			t.Errorf("want only an error message on stderr: %s", p)
		}
	}
}

func TestCommandsWithoutAClusterOrPermissionsEndWithTheUnreachableCode(t *testing.T) {
	t.Parallel()
	const namespace = "forbidden"
	_, err := shared.Client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := shared.Client.CoreV1().Namespaces().Delete(context.Background(), namespace, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	accounts := shared.Client.CoreV1().ServiceAccounts(namespace)
	if _, err := accounts.Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "nobody"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	token, err := accounts.CreateToken(t.Context(), "nobody", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	config := kubeconfigWithToken(t, token.Status.Token)
	write := func(name string) string {
		file := filepath.Join(t.TempDir(), name)
		if err := clientcmd.WriteToFile(*config, file); err != nil {
			t.Fatal(err)
		}
		return file
	}
	kubeconfigs := map[string]string{"access denied": write("without-permissions")}
	for _, cluster := range config.Clusters {
		cluster.Server = "https://" + closedAddress()
	}
	kubeconfigs["connection refused"] = write("without-a-cluster")
	for why, kubeconfig := range kubeconfigs {
		sh := commandRunner{t, kubeconfig}
		for _, args := range [][]string{
			{"get"}, {"get", "-A"}, {"why", "cart", "-n", namespace}, {"watch", "cart", "-n", namespace, "--plain", "--until", "done"}, {"check", "cart", "-n", namespace},
		} {
			if p := sh.run(codeUnreachable, args...); !strings.Contains(p.stderr, why) {
				t.Errorf("want %q among the reasons: %s", why, p)
			}
		}
	}
}

// closedAddress returns an address outside pods that refuses connections.
func closedAddress() string { return net.JoinHostPort(network.NodeAddress.String(), "1") }
