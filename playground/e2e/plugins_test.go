//go:build linux

package e2e_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/plugin/plugintest"
)

// TestPluginsExecuteStepsAndMeasure: real plugins, built with the interfaces of Argo Rollouts, execute a step and measure a metric.
// The step continues where it was after Serin was killed. A plugin that hangs, or that is
// refused, delays only its own release.
func TestPluginsExecuteStepsAndMeasure(t *testing.T) {
	t.Parallel()
	s := newEnvironment(t, "plugged")
	path, journal := plugintest.Build(t), filepath.Join(t.TempDir(), "journal")
	s.apply(fmt.Sprintf(`
apiVersion: v1
kind: ConfigMap
metadata: {name: argo-rollouts-config}
data:
  stepPlugins: |
    - {name: acme/step, location: "file://%[1]s", args: [step]}
    - {name: acme/plain, location: "http://example.com/a"}
  metricProviderPlugins: |
    - {name: acme/metric, location: "file://%[1]s", args: [metricprovider]}
---
apiVersion: argoproj.io/v1alpha1
kind: AnalysisTemplate
metadata: {name: measured}
spec:
  metrics:
  - name: cost
    provider: {plugin: {acme/metric: {phase: Successful, value: "7"}}}
`, path))
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
