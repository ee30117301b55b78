//go:build linux

package e2e_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/clientcmd"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/plugin/plugintest"
	"github.com/serin-dev/serin/internal/waittest"
)

// pluginConfig returns the ConfigMap that lists the plugins, and the separator of another manifest.
func pluginConfig(t *testing.T, lists map[string]string) string {
	t.Helper()
	return "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: argo-rollouts-config}\ndata: " + toJSON(t, lists) + "\n---\n"
}

// TestPluginsExecuteStepsAndMeasure: real plugins, built with the interfaces of Argo Rollouts, execute a step and measure a metric.
// The step continues where it was after Serin was killed. A plugin that hangs, or that is
// refused, delays only its own release.
func TestPluginsExecuteStepsAndMeasure(t *testing.T) {
	t.Parallel()
	s := newEnvironment(t, "plugged")
	path, journal := plugintest.Build(t), filepath.Join(t.TempDir(), "journal")
	s.apply(pluginConfig(t, map[string]string{
		"stepPlugins":           fmt.Sprintf(`[{name: acme/step, location: "file://%s", args: [step]}, {name: acme/plain, location: "http://example.com/a"}]`, path),
		"metricProviderPlugins": fmt.Sprintf(`[{name: acme/metric, location: "file://%s", args: [metricprovider]}]`, path),
	}) + `
apiVersion: argoproj.io/v1alpha1
kind: AnalysisTemplate
metadata: {name: measured}
spec:
  metrics:
  - name: cost
    provider: {plugin: {acme/metric: {phase: Successful, value: "7"}}}
`)
	steps := fmt.Sprintf(`{canary: {steps: [{plugin: {name: acme/step, config: {phase: Running, requeue: 11s, value: twice, journal: %q}}}, {analysis: {templates: [{templateName: measured}]}}]}}`, journal)
	s.apply(rolloutManifest(t, "plugged", 1, steps))
	s.apply(rolloutManifest(t, "hanging", 1, fmt.Sprintf(`{canary: {steps: [{plugin: {name: acme/step, config: {behavior: hang, journal: %q}}}]}}`, journal+"-hanging")))
	s.apply(rolloutManifest(t, "refused", 1, `{canary: {steps: [{plugin: {name: acme/plain}}]}}`))
	s.startSerin("-allow-plugins", "-plugin-timeout", "5s", "-plugin-dir", t.TempDir())
	for _, name := range []string{"plugged", "hanging", "refused"} {
		s.waitForRolloutPhase(name, argov1.RolloutPhaseHealthy, "")
	}
	s.releaseVersion("hanging", "v2")
	s.waitForStepPlugin("hanging", argov1.StepPluginRun, argov1.StepPluginError, "Run rpc call error: no answer within 5s")
	s.releaseVersion("refused", "v2")
	s.waitForEventOf("Rollout", "refused", "ReconciliationError", "acme/plain: its location is http://, where the file could be replaced on its way")
	s.releaseVersion("plugged", "v2")
	first := s.waitForStepPlugin("plugged", argov1.StepPluginRun, argov1.StepPluginRunning, "") // after the first answer
	if err := shared.Kill(s.processName()); err != nil {
		t.Fatal(err)
	}
	if _, err := shared.Restart(s.processName()); err != nil {
		t.Fatal(err)
	}
	s.waitForRolloutPhase("plugged", argov1.RolloutPhaseHealthy, "")
	last := s.waitForStepPlugin("plugged", argov1.StepPluginRun, argov1.StepPluginSuccessful, "")
	if !last.StartedAt.Equal(first.StartedAt) || last.Executions != 2 {
		t.Errorf("the step was executed %d times since %s, and began at %s", last.Executions, last.StartedAt, first.StartedAt)
	}
	if text, err := os.ReadFile(journal); err != nil || string(text) != "Run plugged \nRun plugged {\"calls\":1}\n" {
		t.Errorf("the plugin was called with %q, %v", text, err)
	}
	s.waitForStepPlugin("refused", "", "", "")
}

// pluginRoute are the Services and the HTTPRoute of a router plugin, and the permission to write it. The route has no weights yet.
const pluginRoute = stableAndCanaryServices + `
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: cart}
spec:
  parentRefs: [{name: gateway, namespace: playground}]
  hostnames: [plugin-routed.test]
  rules: [{backendRefs: [{name: cart-stable, port: 80}]}]
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: edge}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: edge}
rules:
- {apiGroups: [gateway.networking.k8s.io], resources: [httproutes], verbs: [patch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: edge}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: edge}
subjects: [{kind: ServiceAccount, name: edge, namespace: plugin-routed}]
---
`

// TestARouterPluginDividesRequests: a real plugin writes an HTTPRoute that a real gateway serves. Its process is killed after it has
// written a weight and before it has returned: in a step, and in an abort. Serin is killed after the weight of the promotion has been
// written. No request is lost, and each time the route ends as the release requires.
func TestARouterPluginDividesRequests(t *testing.T) {
	s := newEnvironment(t, "plugin-routed")
	folder := t.TempDir()
	s.apply(pluginRoute + pluginConfig(t, map[string]string{
		"trafficRouterPlugins": fmt.Sprintf(`[{name: acme/edge, location: "file://%s", args: [trafficrouter]}]`, plugintest.Build(t)),
	}))
	route := s.writePluginCredentials(folder, "edge")
	// stallingIn returns the configuration of a plugin that stalls in the first call of a step of the test.
	stallingIn := func(step, call string) string {
		return toJSON(t, map[string]any{"value": "verified", "route": route, "behavior": "stall", "call": call, "once": filepath.Join(folder, step)})
	}
	s.apply(rolloutManifest(t, "cart", 2, fmt.Sprintf(`{canary: {stableService: cart-stable, canaryService: cart-canary, trafficRouting: {plugins: {acme/edge: %s}},
	  steps: [{setWeight: 20}, {pause: {}}]}}`, stallingIn("step", "SetWeight 20 "))))
	s.startSerin("-allow-plugins", "-plugin-dir", t.TempDir())
	s.waitForRolloutPhase("cart", argov1.RolloutPhaseHealthy, "")
	s.waitForWeight(0)
	l := s.startLoad("plugin-routed.test", 40)
	waitForRequests(t, l, 20, "v1")

	s.releaseVersion("cart", "v2")
	pid := s.waitForStall(filepath.Join(folder, "step"))
	s.waitForWeight(20)
	if status := convert[argov1.Rollout](t, s.get(rollouts, "cart")).Status; *status.CurrentStepIndex != 0 {
		t.Errorf("step %d has begun before the plugin has confirmed the weight", *status.CurrentStepIndex)
	}
	killPlugin(t, pid)
	s.waitForEventOf("Rollout", "cart", "TrafficRoutingError", "acme/edge: SetWeight rpc call error")
	s.waitForPausedAt(20)
	waitForRequests(t, l, 5, "v2")

	s.configureRouterPlugin(stallingIn("abort", "SetWeight 0 "))
	s.patchRolloutStatus("cart", `{"abort":true}`)
	pid = s.waitForStall(filepath.Join(folder, "abort"))
	s.waitForWeight(0)
	if got := s.podCounts("cart"); !strings.Contains(got, "v2") {
		t.Errorf("the pods are %s before the plugin has confirmed the route of the abort", got)
	}
	killPlugin(t, pid)
	s.waitForRolloutPhase("cart", argov1.RolloutPhaseDegraded, "RolloutAborted")
	s.waitForConfirmedRoute()
	s.countSettled(l)
	if after := waitForRequests(t, l, 60); after.ByVersion["v2"].Requests > 0 {
		t.Errorf("v2 answers after the abort: %s", after)
	}

	s.patchRolloutStatus("cart", `{"abort":false}`)
	s.waitForPausedAt(20)
	waitForRequests(t, l, 5, "v2")
	s.configureRouterPlugin(stallingIn("promotion", "SetWeight 0 "))
	s.patchRolloutStatus("cart", `{"pauseConditions":null}`)
	s.waitForStall(filepath.Join(folder, "promotion"))
	if err := shared.Kill(s.processName()); err != nil { // the plugin ends with it
		t.Fatal(err)
	}
	if _, err := shared.Restart(s.processName()); err != nil {
		t.Fatal(err)
	}
	promoted := s.waitForRolloutPhase("cart", argov1.RolloutPhaseHealthy, "")
	s.waitForConfirmedRoute()
	s.waitForWeight(0)
	service := convert[corev1.Service](t, s.get(services, "cart-stable"))
	if got := service.Spec.Selector[argov1.PodTemplateHashLabel]; got != promoted.Status.StableRS || promoted.Status.StableRS != promoted.Status.CurrentPodHash {
		t.Errorf("the stable Service selects %s, the stable revision is %s of %s", got, promoted.Status.StableRS, promoted.Status.CurrentPodHash)
	}
	s.waitForPods("cart", "v2=2") // the pods of the previous revision are removed under load, too
	s.countSettled(l)
	if after := waitForRequests(t, l, 60); after.ByVersion["v1"].Requests > 0 {
		t.Errorf("v1 answers after the promotion: %s", after)
	}
	l.Stop()
	s.checkNoRequestLost(l)
	if counts := l.Counts(); counts.Errors > 0 {
		t.Errorf("%d requests failed: %s", counts.Errors, counts)
	}
}

// writePluginCredentials writes the credentials of a service account, and returns the configuration of a plugin that writes HTTPRoute
// cart with them.
func (s *environment) writePluginCredentials(folder, account string) map[string]any {
	s.t.Helper()
	token, err := shared.Client.CoreV1().ServiceAccounts(s.namespace).CreateToken(s.t.Context(), account, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	ca := shared.Config.CAData
	if len(ca) == 0 {
		if ca, err = os.ReadFile(shared.Config.CAFile); err != nil {
			s.t.Fatal(err)
		}
	}
	tokenFile, caFile := filepath.Join(folder, "token"), filepath.Join(folder, "ca.crt")
	writeFileWithMode(s.t, tokenFile, []byte(token.Status.Token), 0o600)
	writeFileWithMode(s.t, caFile, ca, 0o644)
	address := shared.Config.Host + "/apis/gateway.networking.k8s.io/v1/namespaces/" + s.namespace + "/httproutes/cart"
	return map[string]any{"url": address, "ca": caFile, "token": tokenFile}
}

// writeFileWithMode writes a file whose permissions do not depend on the umask.
func writeFileWithMode(t *testing.T, name string, content []byte, mode os.FileMode) {
	t.Helper()
	err := os.WriteFile(name, content, mode)
	if err == nil {
		err = os.Chmod(name, mode)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// configureRouterPlugin changes the configuration of the router plugin of Rollout cart.
func (s *environment) configureRouterPlugin(config string) {
	s.t.Helper()
	s.patch(rollouts, "cart", `{"spec":{"strategy":{"canary":{"trafficRouting":{"plugins":{"acme/edge":`+config+`}}}}}}`)
}

// waitForStall waits until a plugin stalls, and returns the ID of its process.
func (s *environment) waitForStall(file string) int {
	s.t.Helper()
	var pid int
	waittest.Until(s.t, "the plugin stalls", func() error {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		_, err = fmt.Sscanf(string(text), "%d\n", &pid)
		return err
	})
	return pid
}

// killPlugin kills the process of a plugin.
func killPlugin(t *testing.T, pid int) {
	t.Helper()
	if err := unix.Kill(pid, unix.SIGKILL); err != nil {
		t.Fatalf("kill the plugin: %v", err)
	}
}

// waitForWeight waits until HTTPRoute cart leads this share of the requests to the canary, and the rest to the stable revision.
func (s *environment) waitForWeight(weight int) {
	s.t.Helper()
	want := fmt.Sprintf("cart-stable=%d cart-canary=%d", 100-weight, weight)
	s.waitForObject("HTTPRoute cart is "+want, httpRoutes, "cart", func(object *unstructured.Unstructured) error {
		if object == nil {
			return errors.New("it does not exist")
		}
		var got []string
		for _, rule := range convert[httpRoute](s.t, object).Spec.Rules {
			for _, backend := range rule.BackendRefs {
				got = append(got, fmt.Sprintf("%s=%d", backend.Name, backend.Weight))
			}
		}
		if text := strings.Join(got, " "); text != want {
			return errors.New(text)
		}
		return nil
	})
}

// waitForConfirmedRoute waits until the router plugin has confirmed the route of Rollout cart.
func (s *environment) waitForConfirmedRoute() {
	s.t.Helper()
	s.waitForObject("the router plugin has confirmed the route", rollouts, "cart", func(object *unstructured.Unstructured) error {
		status := convert[argov1.Rollout](s.t, object).Status
		if status.Serin == nil || status.Serin.RouterPlugins == nil || !status.Serin.RouterPlugins.Confirmed {
			return errors.New(toJSON(s.t, status))
		}
		return nil
	})
}

// pluginUser is the user of plugins in TestPluginsOfAnotherUserCannotReadCredentials.
const pluginUser = 65533

// TestPluginsOfAnotherUserCannotReadCredentials: with -plugin-uid, a plugin runs as that user, and cannot read the token, the kubeconfig
// and the environment of Serin. It can read what all users can.
func TestPluginsOfAnotherUserCannotReadCredentials(t *testing.T) {
	t.Parallel()
	s := newEnvironment(t, "plugin-user")
	folder, err := os.MkdirTemp("", "user") //nolint:usetesting // another user cannot enter the folders of a test
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	if err := os.Chmod(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	program, pluginFile, token, kubeconfig, public := filepath.Join(folder, "serin"), filepath.Join(folder, "plugin"), filepath.Join(folder, "token"), filepath.Join(folder, "kubeconfig"), filepath.Join(folder, "public")
	for from, to := range map[string]string{serin: program, plugintest.Build(t): pluginFile} {
		content, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		writeFileWithMode(t, to, content, 0o755)
	}
	config, err := clientcmd.LoadFromFile(controllerKubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	user := config.AuthInfos["serin"]
	writeFileWithMode(t, token, []byte(user.Token), 0o600) // as Kubernetes mounts it for the user of a pod
	user.Token, user.TokenFile = "", token
	if err := clientcmd.WriteToFile(*config, kubeconfig); err != nil {
		t.Fatal(err)
	}
	writeFileWithMode(t, public, []byte("public"), 0o644)

	read := toJSON(t, []string{token, kubeconfig, "/proc/$PPID/environ", public})
	s.apply(pluginConfig(t, map[string]string{
		"stepPlugins": fmt.Sprintf(`[{name: acme/step, location: "file://%s", args: [step]}]`, pluginFile),
	}) + rolloutManifest(t, "cart", 1, fmt.Sprintf(`{canary: {steps: [
	  {plugin: {name: acme/step, config: {behavior: user}}}, {plugin: {name: acme/step, config: {behavior: read, read: %s}}}, {plugin: {name: acme/step, config: {behavior: environment}}}]}}`, read)))
	s.env = []string{"SLACK_TOKEN=secret-of-serin"}
	s.startProcess(program, s.processName(), "-kubeconfig", kubeconfig, "-allow-plugins", "-plugin-uid", strconv.Itoa(pluginUser), "-plugin-dir", filepath.Join(folder, "plugins"))
	s.waitForRolloutPhase("cart", argov1.RolloutPhaseHealthy, "")
	s.releaseVersion("cart", "v2")
	if err := os.Chown(public, pluginUser, pluginUser); err != nil { // a user namespace may contain one user only
		s.waitForEventOf("Rollout", "cart", "ReconciliationError", "run Serin as root")
		return
	}
	want := map[int32]string{
		0: fmt.Sprintf("%d:%d", pluginUser, pluginUser),
		1: "token: denied\nkubeconfig: denied\nenviron: denied\npublic: readable",
	}
	promoted := s.waitForRolloutPhase("cart", argov1.RolloutPhaseHealthy, "")
	results := 0
	for _, status := range promoted.Status.Canary.StepPluginStatuses {
		results++
		if message, ok := want[status.Index]; ok && status.Message != message {
			t.Errorf("step %d returned %q, want %q", status.Index, status.Message, message)
		}
		if strings.Contains(status.Message, "SLACK_TOKEN") {
			t.Errorf("the environment of the plugin contains a secret: %s", status.Message)
		}
	}
	if results != 3 {
		t.Errorf("got %d results of plugins, want 3: %s", results, toJSON(t, promoted.Status))
	}
}

// waitForStepPlugin waits until an answer of a step plugin has a phase and a message; an empty operation: until there is no status.
func (s *environment) waitForStepPlugin(name string, operation argov1.StepPluginOperation, phase argov1.StepPluginPhase, message string) argov1.StepPluginStatus {
	s.t.Helper()
	var found argov1.StepPluginStatus
	s.waitForObject(fmt.Sprintf("%s of Rollout %s is %s (%s)", operation, name, phase, message), rollouts, name, func(object *unstructured.Unstructured) error {
		if object == nil {
			return errors.New("it does not exist")
		}
		statuses := convert[argov1.Rollout](s.t, object).Status.Canary.StepPluginStatuses
		if operation == "" && len(statuses) == 0 {
			return nil
		}
		for _, status := range statuses {
			if status.Operation == operation && status.Phase == phase && status.Message == message && status.Executions > 0 {
				found = status
				return nil
			}
		}
		return errors.New(toJSON(s.t, statuses))
	})
	return found
}
