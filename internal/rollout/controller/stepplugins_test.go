package controller

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/plugin/testhost"
	"github.com/serin-dev/serin/internal/waittest"
)

func TestMain(m *testing.M) { os.Exit(testhost.Main(m)) }

// withPluginStep returns a manifest of a Rollout whose first step is a plugin.
func withPluginStep(name, config string) string {
	return strings.Replace(cart, "{setWeight: 50}", fmt.Sprintf("{plugin: {name: %s, config: %s}}", name, config), 1)
}

// TestStepPluginsAreCalledOutsideTheWorkers: a real plugin is called until it is successful, and receives the Rollout as it is
// stored.
func TestStepPluginsAreCalledOutsideTheWorkers(t *testing.T) {
	journal := filepath.Join(t.TempDir(), "journal")
	p := newFakeCluster(t, withPluginStep("acme/test", fmt.Sprintf(`{phase: Running, requeue: 20s, value: twice, journal: %q}`, journal)), cartService)
	answered := make(chan struct{}, 10)
	plugins := NewStepPlugins(testhost.New(t, time.Minute), p.clock, func(types.NamespacedName, bool) { answered <- struct{}{} })
	go func() { _ = plugins.Calls.Run(t.Context()) }()
	p.reconciler.StepPlugins = plugins
	p.settle()
	p.edit(withImage("cart:2"))
	p.settle()
	waittest.Receive(t, "the plugin answers", answered)
	p.settle()
	first := p.rollout().Status.Canary.StepPluginStatuses
	if len(first) != 1 || first[0].Phase != argov1.StepPluginRunning || first[0].Executions != 1 || first[0].Backoff != "20s" || string(first[0].Status) != `{"calls":1}` {
		t.Fatalf("after the first call: %+v", first)
	}
	p.clock.Step(21 * time.Second)
	p.settle()
	waittest.Receive(t, "the plugin answers again", answered)
	p.settle()
	status := p.rollout().Status
	second := status.Canary.StepPluginStatuses
	if len(second) != 1 || second[0].Phase != argov1.StepPluginSuccessful || second[0].Executions != 2 || *status.CurrentStepIndex != 1 {
		t.Errorf("after the second call, at step %d: %+v", *status.CurrentStepIndex, second)
	}
	text, err := os.ReadFile(journal)
	if err != nil {
		t.Fatal(err)
	}
	if want := "Run cart \nRun cart {\"calls\":1}\n"; string(text) != want {
		t.Errorf("the plugin was called with\n%swant\n%s", text, want)
	}
}

// TestStepPluginsThatCannotBeCalled: the gate explains why.
func TestStepPluginsThatCannotBeCalled(t *testing.T) {
	for _, test := range []struct {
		name string
		on   bool
		want string
	}{
		{"acme/test", false, "acme/test: plugins are off: start the controller with --allow-plugins, see docs/plugins.md"},
		{"acme/none", true, "acme/none: not configured: add it to stepPlugins of the ConfigMap argo-rollouts-config"},
		{"acme/off", true, ""},
	} {
		p := newFakeCluster(t, withPluginStep(test.name, "{}"), cartService)
		if test.on {
			p.reconciler.StepPlugins = NewStepPlugins(testhost.New(t, time.Minute), p.clock, func(types.NamespacedName, bool) {})
		}
		p.settle()
		p.edit(withImage("cart:2"))
		p.settle()
		got := ""
		s, err := p.reconciler.observe(t.Context(), p.rollout(), p.clock.Now())
		if err != nil {
			t.Fatal(err)
		}
		if gate := p.reconciler.decide(s).Gates.Named("plugin"); gate != nil {
			got = gate.Message
		}
		if got != test.want {
			t.Errorf("%s: the gate reports %q, want %q", test.name, got, test.want)
		}
	}
}
