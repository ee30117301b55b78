package controller

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/plugin/testhost"
	"github.com/serin-dev/serin/internal/queryrunner"
	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/internal/rollout"
	"github.com/serin-dev/serin/internal/waittest"
)

const canaryService = `
apiVersion: v1
kind: Service
metadata: {name: cart-canary}
spec: {selector: {app: cart}, ports: [{port: 80}]}
`

// routedCluster is a Rollout whose router is a real plugin, which writes its route into a file.
type routedCluster struct {
	*fakeCluster
	journal, state string
}

// newRoutedCluster starts the plugin name with further fields of its configuration. calls have a timeout.
func newRoutedCluster(t *testing.T, name, config string, timeout time.Duration) *routedCluster {
	t.Helper()
	folder := t.TempDir()
	r := &routedCluster{journal: filepath.Join(folder, "journal"), state: filepath.Join(folder, "state")}
	config = fmt.Sprintf("{journal: %q, state: %q, once: %q, %s}", r.journal, r.state, filepath.Join(folder, "once"), config)
	strategy := fmt.Sprintf(`{canary: {stableService: cart, canaryService: cart-canary, abortScaleDownDelaySeconds: 5, scaleDownDelaySeconds: 5,
    trafficRouting: {plugins: {%s: %s}, managedRoutes: [{name: beta}]},
    steps: [{setWeight: 50}, {setHeaderRoute: {name: beta, match: [{headerName: x, headerValue: {exact: "1"}}]}}, {pause: {}}]}}`, name, config)
	r.fakeCluster = newFakeCluster(t, strings.Replace(cart, "{canary: {stableService: cart, steps: [{setWeight: 50}, {pause: {}}]}}", strategy, 1), cartService, canaryService)
	r.useProcess(timeout)
	return r
}

// useProcess starts another host of plugins, as another process of Serin does.
func (r *routedCluster) useProcess(timeout time.Duration) {
	plugins := NewRouterPlugins(testhost.New(r.T, timeout), []string{"a/built-in"}, r.clock, func(types.NamespacedName, bool) {})
	go func() { _ = plugins.Calls.Run(r.Context()) }()
	r.reconciler.RouterPlugins = plugins
	r.restart()
}

// editStatus changes the status of the Rollout as its user does.
func (r *routedCluster) editStatus(how func(*argov1.RolloutStatus)) {
	r.Helper()
	object := r.rollout()
	how(&object.Status)
	if err := r.client.Status().Update(r.Context(), object); err != nil {
		r.Fatal(err)
	}
}

// podsOf returns the number of pods of a revision.
func (r *routedCluster) podsOf(image string) int {
	r.Helper()
	for _, name := range r.replicaSetNames() {
		if number, found := strings.CutPrefix(name, image+"="); found {
			pods, err := strconv.Atoi(number)
			if err != nil {
				r.Fatal(err)
			}
			return pods
		}
	}
	return 0
}

// runUntil reconciles, and lets time pass while no call is in progress, until a condition is true.
func (r *routedCluster) runUntil(what string, condition func(argov1.RolloutStatus) bool) {
	r.Helper()
	waittest.Until(r.T, what, func() error {
		r.settle()
		object := r.rollout()
		if condition(object.Status) {
			return nil
		}
		for _, answer := range r.reconciler.RouterPlugins.Calls.Answers(queryrunner.Key{NamespacedName: key, UID: object.UID}) {
			if answer.Ended.IsZero() {
				return fmt.Errorf("%s is in progress", answer.ID)
			}
		}
		r.clock.Step(5 * time.Second)
		gates, _ := json.Marshal(shownGates(object.Status))
		return fmt.Errorf("phase %s, step %v, weights %+v, gates %s", object.Status.Phase, object.Status.CurrentStepIndex, object.Status.Canary.Weights, gates)
	})
}

// route returns the route that the plugin has written: its weight, and its header routes.
func (r *routedCluster) route() string {
	r.Helper()
	text, err := os.ReadFile(r.state)
	if err != nil {
		r.Fatal(err)
	}
	var state struct {
		Weight         int32
		Canary, Stable string
		Headers        []string
	}
	if err := json.Unmarshal(text, &state); err != nil {
		r.Fatal(err)
	}
	return fmt.Sprintf("%d %v %t", state.Weight, state.Headers, state.Canary == state.Stable)
}

func isPaused(s argov1.RolloutStatus) bool { return s.Phase == argov1.RolloutPhasePaused }

func isIdle(s argov1.RolloutStatus) bool {
	return s.Phase == argov1.RolloutPhaseHealthy && s.StableRS == s.CurrentPodHash && s.Serin != nil && s.Serin.RouterPlugins != nil && s.Serin.RouterPlugins.Confirmed
}

// deploy deploys the first revision, and begins the release of a second one.
func (r *routedCluster) deploy() {
	r.Helper()
	r.runUntil("the first revision is deployed", isIdle)
	r.edit(withImage("cart:2"))
}

// TestRouterPluginServesARelease: each step waits for the plugin, which verifies each weight at its second request, and old pods
// are removed when it has confirmed that they have no traffic.
func TestRouterPluginServesARelease(t *testing.T) {
	r := newRoutedCluster(t, "acme/test", "value: later", time.Minute)
	r.deploy()
	r.runUntil("the release pauses", isPaused)
	if got := r.route(); got != "50 [beta] false" {
		t.Errorf("paused, the route is %s", got)
	}
	if w := r.rollout().Status.Canary.Weights; w == nil || w.Canary.Weight != 50 || w.Verified == nil || !*w.Verified {
		t.Errorf("weights in the status: %+v", w)
	}
	r.editStatus(func(s *argov1.RolloutStatus) { s.PauseConditions = nil })
	r.runUntil("the release is promoted", isIdle)
	r.runUntil("the old pods are removed", func(argov1.RolloutStatus) bool { return r.podsOf("cart:1") == 0 })
	if got := r.route(); got != "0 [] true" {
		t.Errorf("promoted, the route is %s", got)
	}
	text, err := os.ReadFile(r.journal)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), "SetHeaderRoute beta 1\n") || strings.Count(string(text), "VerifyWeight 50\n") != 4 {
		t.Errorf("calls:\n%s", text)
	}
}

// TestRouterPluginFailsInTheMiddle: whatever happens to the process, the whole sequence of calls is repeated.
func TestRouterPluginFailsInTheMiddle(t *testing.T) {
	for _, behavior := range []string{"crash", "hang", "error"} {
		t.Run(behavior, func(t *testing.T) {
			r := newRoutedCluster(t, "acme/test", "value: verified, behavior: "+behavior+", call: SetWeight 50", 2*time.Second)
			r.deploy()
			r.runUntil("a call fails", func(argov1.RolloutStatus) bool { return r.hasFailedCall() })
			if status := r.rollout().Status; *status.CurrentStepIndex != 0 || status.Canary.Weights.Verified == nil || *status.Canary.Weights.Verified {
				t.Errorf("after the failure: step %d, weights %+v", *status.CurrentStepIndex, status.Canary.Weights)
			}
			r.runUntil("the release pauses", isPaused)
			if got := r.route(); got != "50 [beta] false" {
				t.Errorf("the route is %s", got)
			}
			if text, _ := os.ReadFile(r.journal); strings.Count(string(text), "RemoveManagedRoutes\nUpdateHash") < 2 {
				t.Errorf("the sequence is not repeated from its beginning:\n%s", text)
			}
		})
	}
}

// TestAbortWithoutRouterPlugin: the abort is recorded at once, and the pods remain until another process reaches the plugin.
func TestAbortWithoutRouterPlugin(t *testing.T) {
	r := newRoutedCluster(t, "acme/test", "value: verified", time.Minute)
	r.deploy()
	r.runUntil("the release pauses", isPaused)
	r.reconciler.RouterPlugins = nil // as after a restart without the flag
	r.editStatus(func(s *argov1.RolloutStatus) { s.Abort = true })
	r.settle()
	for range 60 {
		r.clock.Step(10 * time.Second)
		r.settle()
	}
	status := r.rollout().Status
	if status.Phase != argov1.RolloutPhaseDegraded || r.podsOf("cart:2") == 0 || r.route() != "50 [beta] false" {
		t.Errorf("without the plugin: %s, %d pods, the route is %s", status.Phase, r.podsOf("cart:2"), r.route())
	}
	r.useProcess(time.Minute)
	r.runUntil("the pods are removed", func(argov1.RolloutStatus) bool { return r.podsOf("cart:2") == 0 })
	if got := r.route(); got != "0 [] false" {
		t.Errorf("the route is %s", got)
	}
}

// TestRouterPluginsAreAppliedByEachProcess: a process that takes over repeats the calls once, and the release does not wait for
// them.
func TestRouterPluginsAreAppliedByEachProcess(t *testing.T) {
	r := newRoutedCluster(t, "acme/test", "value: verified", time.Minute)
	r.deploy()
	r.runUntil("the release pauses", isPaused)
	before := r.rollout()
	if err := os.Remove(r.state); err != nil { // changed by hand
		t.Fatal(err)
	}
	r.useProcess(time.Minute)
	r.runUntil("the route is set again", func(argov1.RolloutStatus) bool {
		_, err := os.Stat(r.state)
		return err == nil && r.route() == "50 [beta] false"
	})
	if diff := cmp.Diff(before.Status.Canary.Weights, r.rollout().Status.Canary.Weights); diff != "" {
		t.Errorf("the weights change meanwhile:\n%s", diff)
	}
}

// TestRouterPluginsThatCannotBeCalled: the gate explains why.
func TestRouterPluginsThatCannotBeCalled(t *testing.T) {
	for _, test := range []struct {
		name string
		on   bool
		want string
	}{
		{"acme/test", false, "acme/test: plugins are off: start the controller with --allow-plugins, see docs/plugins.md"},
		{"acme/none", true, "acme/none: not configured: add it to trafficRouterPlugins of the ConfigMap argo-rollouts-config, or use a router that is built in: a/built-in"},
		{"acme/off", true, "acme/off: disabled: remove disabled from trafficRouterPlugins of the ConfigMap argo-rollouts-config, or remove the plugin from spec.strategy.canary.trafficRouting"},
	} {
		r := newRoutedCluster(t, test.name, "", time.Minute)
		if !test.on {
			r.reconciler.RouterPlugins = nil
		}
		r.settle()
		r.edit(withImage("cart:2"))
		r.settle()
		s, err := r.reconciler.observe(t.Context(), r.rollout(), r.clock.Now())
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		if gate := r.reconciler.decide(s).Gates.Named(rollout.GateRouterPlugin); gate != nil {
			got = gate.Message
		}
		if got != test.want {
			t.Errorf("%s: the gate reports %q, want %q", test.name, got, test.want)
		}
	}
}

// hasFailedCall reports whether the last answer of a plugin is an error.
func (r *routedCluster) hasFailedCall() bool {
	for _, answer := range r.reconciler.RouterPlugins.Calls.Answers(queryrunner.Key{NamespacedName: key, UID: r.rollout().UID}) {
		if answer.Outcome == release.Unreachable {
			return true
		}
	}
	return false
}
