//go:build linux

package e2e_test

import (
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
)

// orders returns what the user orders in an object, and where a command would be recorded: all of it but the status and what the
// API server maintains.
func (s *environment) orders(object map[string]any) string {
	s.t.Helper()
	metadata, _ := object["metadata"].(map[string]any)
	return toJSON(s.t, map[string]any{"spec": object["spec"], "annotations": metadata["annotations"], "generation": metadata["generation"]})
}

// countUserActions returns the number of events that record commands of users.
func (s *environment) countUserActions() int {
	s.t.Helper()
	list, err := shared.Client.CoreV1().Events(s.namespace).List(s.t.Context(), metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("reason", "UserAction").String()})
	if err != nil {
		s.t.Fatal(err)
	}
	return len(list.Items)
}

// TestDryRunsOfCommandsChangeNothing runs commands with --dry-run for a Rollout and a Canary that wait for the user.
func TestDryRunsOfCommandsChangeNothing(t *testing.T) {
	t.Parallel()
	const namespace = "dry-runs"
	s := startEnvironment(t, namespace)
	s.keepPodsReady(t)
	sh := commandRunner{t, shared.Kubeconfig}
	dryRun := func(command string, more ...string) commandResult {
		t.Helper()
		args := slices.Concat([]string{command, "-n", namespace, "--dry-run"}, more)
		p := sh.run(codeDone, args...)
		if !strings.HasSuffix(p.stdout, " (dry run)\n") {
			t.Errorf("the output does not mention the dry run: %s", p)
		}
		return p
	}
	_, url := startFakePrometheus(t, always(100))
	hooks := startReceiver(t)
	hooks.setAnswer("/sign-off", answerWith(http.StatusForbidden))
	r := s.follow("cart")
	s.apply(rolloutManifest(t, "web", 2, `{canary: {steps: [{setWeight: 50}, {pause: {}}, {setWeight: 100}]}}`))
	s.apply(deploymentByHand("cart", 1) + canaryWithSignOff(url, hooks.url("/sign-off")))
	s.waitForRolloutPhase("web", argov1.RolloutPhaseHealthy, "")
	r.waitForPhase("Initialized")
	r = s.follow("cart")
	s.releaseVersion("web", "v2")
	s.deployVersion("cart", "v2")
	s.waitForRolloutPhase("web", argov1.RolloutPhasePaused, "CanaryPauseStep")
	r.waitForPhase("WaitingPromotion")

	rollout, canary := s.get(rollouts, "web"), s.get(canaries, "cart")
	sh.checkOutput(dryRun("promote", "web"), "rollout.argoproj.io/web is continued")
	dryRun("promote", "web", "--full")
	dryRun("approve", "web", "pause")
	dryRun("deny", "web", "pause", "--reason", "not tested")
	dryRun("abort", "web")
	dryRun("pause", "web")
	// Nothing else changes a Rollout that waits for the user, so it is the same version.
	if diff := cmp.Diff(rollout.Object, s.get(rollouts, "web").Object); diff != "" {
		t.Errorf("a dry run changed the Rollout (-before +after):\n%s", diff)
	}
	const gate = "confirm-promotion/sign-off"
	sh.checkOutput(dryRun("promote", "cart"), "canary.flagger.app/cart will take the next step when its checks pass")
	dryRun("promote", "cart", "--full")
	dryRun("approve", "cart", gate)
	dryRun("deny", "cart", gate)
	dryRun("pause", "cart")
	// The controller evaluates the checks of the Canary once a second, and writes the results to its status.
	now := s.get(canaries, "cart")
	if diff := cmp.Diff(s.orders(canary.Object), s.orders(now.Object)); diff != "" {
		t.Errorf("a dry run changed the Canary (-before +after):\n%s", diff)
	}
	if n := s.countUserActions(); n != 0 {
		t.Errorf("%d dry runs were recorded in events", n)
	}

	// The same commands without --dry-run do change it, so the comparisons above can fail.
	sh.run(codeDone, "approve", "-n", namespace, "web", "pause", "--wait")
	s.waitForRolloutPhase("web", argov1.RolloutPhaseHealthy, "")
	sh.run(codeDone, "approve", "-n", namespace, "cart", gate)
	r.waitForPhase("Succeeded")
	if n := s.countUserActions(); n != 2 {
		t.Errorf("%d of 2 commands are recorded in events", n)
	}
}

// TestCommandsCreateAndTerminateAnalyses creates a template, and runs from it, and terminates one, each first as a dry run.
func TestCommandsCreateAndTerminateAnalyses(t *testing.T) {
	t.Parallel()
	const namespace = "create-analyses"
	s := startEnvironment(t, namespace)
	sh := commandRunner{t, shared.Kubeconfig}
	create := func(code int, more ...string) commandResult {
		t.Helper()
		return sh.run(code, append([]string{"create", "-n", namespace}, more...)...)
	}
	run := func(code int, more ...string) commandResult {
		t.Helper()
		return create(code, append([]string{"analysisrun"}, more...)...)
	}
	file := filepath.Join(t.TempDir(), "template.yaml")
	writeFile(t, file, `
apiVersion: argoproj.io/v1alpha1
kind: AnalysisTemplate
metadata: {name: limit}
spec:
  args: [{name: limit}, {name: minimum, value: "1"}]
  metrics:
  - name: value
    interval: 1s
    successCondition: result[0] >= {{args.minimum}}
    provider: {prometheus: {address: "`+shared.PrometheusURL+`", query: 'vector({{args.limit}})'}}
`)
	sh.checkOutput(create(codeDone, "-f", file, "--dry-run"), "analysistemplate.argoproj.io/limit created (dry run)")
	if all := s.list(analysisTemplates); len(all) != 0 {
		t.Fatalf("a dry run created %d templates", len(all))
	}
	run(codeNotFound, "--from", "limit", "--arg", "limit=5")
	create(codeDone, "-f", file)
	create(codeUsage, "-f", file)

	run(codeUsage, "--from", "limit")
	run(codeUsage, "--from", "limit", "--arg", "limt=5")
	sh.checkOutput(run(codeDone, "--from", "limit", "--arg", "limit=5", "--dry-run", "-o", "yaml"), "generateName: limit-", `value: "5"`)
	run(codeDone, "--from-file", file, "--arg", "limit=5", "--dry-run")
	if all := s.list(analysisRuns); len(all) != 0 {
		t.Fatalf("a dry run created %d AnalysisRuns", len(all))
	}
	if p := run(codeDone, "--from", "limit", "-a", "limit=5"); !strings.HasPrefix(p.stdout, "analysisrun.argoproj.io/limit-") {
		t.Errorf("want a generated name: %s", p)
	}
	run(codeDone, "--from", "limit", "-a", "limit=5", "--name", "five")
	run(codeUsage, "--from", "limit", "-a", "limit=5", "--name", "five")
	s.waitForRun("five", "to run", inRunPhase(argov1.AnalysisPhaseRunning))

	terminate := func(code int, more ...string) commandResult {
		t.Helper()
		return sh.run(code, slices.Concat([]string{"terminate", "-n", namespace, "five"}, more)...)
	}
	sh.checkOutput(terminate(codeDone, "--dry-run"), "analysisrun.argoproj.io/five will be terminated (dry run)")
	if spec := convert[argov1.AnalysisRun](t, s.get(analysisRuns, "five")).Spec; spec.Terminate {
		t.Error("a dry run terminated the AnalysisRun")
	}
	if n := s.countUserActions(); n != 0 {
		t.Errorf("%d dry runs were recorded in events", n)
	}
	sh.checkOutput(terminate(codeDone, "--wait", "--timeout", waitTimeout.String()), "analysisrun.argoproj.io/five is Successful")
	terminate(codeUsage)
	if n := s.countUserActions(); n != 1 {
		t.Errorf("%d of 1 command is recorded in events", n)
	}
}

func writeFile(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
