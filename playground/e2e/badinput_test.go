//go:build linux

package e2e_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/serin-dev/serin/playground/load"
)

// mistake is something that people get wrong, and what they read about it.
type configurationError struct {
	// name is that of the Canary, and of the Deployment unless deployment says otherwise.
	name, deployment string
	// early is true for one that is there before Serin took anything over. Others come later, together with a change.
	initial bool
	// made is applied first. It has the mistake in it, unless spoil makes it.
	manifest string
	// spoil makes a mistake that shows before a release; mend takes any of them back.
	introduce, fix func(*environment)
	// reason is that of the condition Blocked before a release starts, gate the one that says what is wrong when it
	// runs. Where one of them is empty there is no such thing.
	reason, gate string
	// says is the sentence that people read, in condition or gate, and, where event is empty, in an event.
	message, event string
}

func (m configurationError) target() string {
	if m.deployment != "" {
		return m.deployment
	}
	return m.name
}

// weighted is a Canary at the gateway whose release takes two short windows.
func weighted(name string) string {
	return fmt.Sprintf(`
apiVersion: flagger.app/v1beta1
kind: Canary
metadata: {name: %[1]s}
spec:
  provider: gatewayapi:v1
  targetRef: {apiVersion: apps/v1, kind: Deployment, name: %[1]s}
  service: {port: 8080, targetPort: http, hosts: [%[1]s.test], gatewayRefs: [{name: gateway, namespace: playground}]}
  analysis:
    interval: 1s
    threshold: 10000
    stepWeights: [20, 50]
---
`, name)
}

// changed is a function that changes the Canary of that name by a merge patch.
func patchCanary(name, patch string) func(*environment) {
	return func(s *environment) { s.patch(canaries, name, patch) }
}

// rate is a template of a metric that is always good.
func rate(name, prometheus string) string {
	return fmt.Sprintf(`
apiVersion: flagger.app/v1beta1
kind: MetricTemplate
metadata: {name: %s}
spec: {query: "rate", provider: {type: prometheus, address: %q}}
---
`, name, prometheus)
}

// mistakes are those of the namespace bad.
func configurationErrors(t *testing.T) []configurationError {
	_, prometheus := startFakePrometheus(t, func(query string) float64 {
		if query == "vector(1)" {
			return 1
		}
		return 100
	})
	hooks, silent := startReceiver(t), newSilence(t)
	hooks.setAnswer("/acceptance", silent.then(http.StatusOK))
	nobody := "http://" + closedAddress()
	return []configurationError{
		{
			name: "ghost", initial: true, manifest: shortCanary("ghost", ""),
			fix:    func(s *environment) { s.apply(deploymentByHand("ghost", 1)) },
			reason: "Target", message: `deployment ghost.bad get query error: deployments.apps "ghost" not found`,
		}, {
			name: "nameless", initial: true, manifest: replaceTexts(t, deploymentByHand("nameless", 1), "{app: nameless}", "{tier: nameless}") + shortCanary("nameless", ""),
			fix: func(s *environment) {
				s.delete(deployments, "nameless") // its selector cannot be changed
				s.apply(deploymentByHand("nameless", 1))
			},
			reason: "Target", message: "getSelectorLabel failed: deployment nameless.bad spec.selector.matchLabels must contain one of [app name app.kubernetes.io/name]",
		}, {
			name: "template", manifest: deploymentByHand("template", 1) + rate("good", prometheus) + shortCanary("template", "    metrics: [{name: rate, templateRef: {name: good}, thresholdRange: {min: 99}}]"),
			introduce: patchCanary("template", `{"spec":{"analysis":{"metrics":[{"name":"rate","templateRef":{"name":"better"},"thresholdRange":{"min":99}}]}}}`),
			fix:       func(s *environment) { s.apply(rate("better", prometheus)) },
			reason:    "References", gate: "rate", message: `Metric template better.bad error: metrictemplate.flagger.app "better" not found`,
		}, {
			name: "port", manifest: deploymentByHand("port", 1) + weighted("port"),
			introduce: patchCanary("port", `{"spec":{"service":{"targetPort":"web"}}}`),
			fix:       patchCanary("port", `{"spec":{"service":{"targetPort":"http"}}}`),
			reason:    "Target",
			message: `spec.service.targetPort is "web", and no container of Deployment port.bad has a port of that name: ` +
				"name the port there, or give its number in spec.service.targetPort",
		}, {
			name: "weights", manifest: deploymentByHand("weights", 1) + weighted("weights"),
			introduce: patchCanary("weights", `{"spec":{"analysis":{"stepWeights":[50,20,80]}}}`),
			fix:       patchCanary("weights", `{"spec":{"analysis":{"stepWeights":[20,50]}}}`),
			reason:    "Plan", message: "spec.analysis.stepWeights is [50 20 80], so the release would not advance beyond weight 50: specify increasing weights from 1 to 100",
		}, {
			name:     "prometheus",
			manifest: deploymentByHand("prometheus", 1) + shortCanary("prometheus", "    metrics: [{name: request-success-rate, interval: 1s, thresholdRange: {min: 99}}]\n  metricsServer: "+nobody),
			fix:      patchCanary("prometheus", fmt.Sprintf(`{"spec":{"metricsServer":%q}}`, prometheus)),
			gate:     "provider-unreachable", message: "the metrics provider is unreachable", event: "Error checking metric providers: prometheus not avaiable: ",
		}, {
			name: "webhook", manifest: deploymentByHand("webhook", 1) + shortCanary("webhook", webhook("pre-rollout", hooks.url("/acceptance"), "1s")),
			fix:  func(*environment) { hooks.setAnswer("/acceptance", answerWith(http.StatusOK)) },
			gate: "pre-rollout/pre-rollout", message: "pre-rollout failed POST " + hooks.url("/acceptance") + " giving up after 1 attempt(s): no answer within 1s",
			event: "Halt webhook.bad advancement pre-rollout check pre-rollout failed POST " + hooks.url("/acceptance") + " giving up after 1 attempt(s): no answer within 1s",
		},
	}
}

// TestAMistakeIsToldStopsNothingElseAndLosesNothing makes every mistake beside a healthy release under load. Each is
// told in the status and in an event, the healthy one ends well meanwhile, and once a mistake is mended its release goes
// on with the change that had come in between.
func TestAMistakeIsToldStopsNothingElseAndLosesNothing(t *testing.T) {
	t.Parallel()
	s := startEnvironment(t, "bad", "-threadiness", "1")
	s.keepPodsReady(t)
	all := configurationErrors(t)
	followed := map[string]*release{}
	for _, m := range all {
		followed[m.name] = s.follow(m.name)
		s.apply(m.manifest)
	}
	healthy, l := startHealthyRelease(s)

	t.Run("told", func(t *testing.T) {
		for _, m := range all {
			t.Run(m.name, func(t *testing.T) {
				t.Parallel()
				m.checkReported(s.in(t), followed)
			})
		}
	})
	healthy.deployVersion("sound", "v2")
	healthy.waitForEnd("Succeeded")
	waitForRequests(t, l, 10, "v2")
	l.Stop()
	if counts := l.Counts(); counts.Failed() != 0 {
		t.Errorf("the healthy release lost requests: %s", counts)
	}
	t.Run("mended", func(t *testing.T) {
		for _, m := range all {
			t.Run(m.name, func(t *testing.T) {
				t.Parallel()
				m.checkFixed(s.in(t), followed[m.name])
			})
		}
	})
}

// sound takes over a Deployment with nothing wrong, and sends requests to it.
func startHealthyRelease(s *environment) (*release, *load.Load) {
	s.t.Helper()
	r := s.follow("sound")
	s.apply(deployment(s.t, "sound", 1) + weighted("sound"))
	r.waitForPhase("Initialized")
	warm := s.startLoad("sound.test", 10)
	waitForRequests(s.t, warm, 1, "v1")
	warm.Stop()
	return s.follow("sound"), s.startLoad("sound.test", 20)
}

// told makes a mistake and waits until it is told in status and event.
func (m configurationError) checkReported(s *environment, followed map[string]*release) {
	r := *followed[m.name]
	r.environment = s
	if !m.initial {
		r.waitForPhase("Initialized")
		if m.introduce != nil {
			m.introduce(s)
		}
	}
	if m.reason != "" {
		r.waitFor("says what is wrong", m.checkBlocked)
	}
	if !m.initial {
		s.deployVersion(m.target(), "v2")
	}
	if m.gate != "" {
		r.waitFor("says what is wrong", m.checkGate)
	}
	if m.event != "" {
		r.waitForEvent(m.event)
	} else {
		r.waitForEvent(m.message)
	}
	*followed[m.name] = r
}

// blocks wants the mistake in condition Blocked.
func (m configurationError) checkBlocked(c canary) error {
	if blocked := c.condition("Blocked"); blocked.Status != metav1.ConditionTrue || blocked.Reason != m.reason || blocked.Message != m.message {
		return fmt.Errorf("not blocked by %s: %s", m.reason, m.message)
	}
	return nil
}

// holds wants the mistake in the gate that it keeps closed.
func (m configurationError) checkGate(c canary) error {
	for _, g := range c.Status.Serin.Gates {
		if g.Name == m.gate && g.Verdict != "pass" && strings.HasPrefix(g.Message, m.message) {
			return nil
		}
	}
	return fmt.Errorf("gate %s does not say %q, gates are %+v", m.gate, m.message, c.Status.Serin.Gates)
}

// mended wants nothing to have moved, takes the mistake back and wants the release to go on.
func (m configurationError) checkFixed(s *environment, followed *release) {
	r := *followed
	r.environment = s
	states := r.states()
	for _, state := range states {
		switch st := state.object.Status; {
		case m.initial && st.Phase != "" && st.Phase != "Initializing":
			s.t.Errorf("something was taken over: %s", state.object)
		case st.Phase == "Promoting" || st.Phase == "Finalising" || st.Phase == "Succeeded" || st.Phase == "Failed":
			s.t.Errorf("the release went on: %s", state.object)
		case m.gate == "" && st.Phase == "Progressing":
			s.t.Errorf("the release started: %s", state.object)
		}
	}
	if m.initial {
		_, err := shared.Dynamic.Resource(deployments).Namespace(s.namespace).Get(s.t.Context(), m.target()+"-primary", metav1.GetOptions{})
		if !apierrors.IsNotFound(err) {
			s.t.Errorf("a primary was made (%v)", err)
		}
	}
	r.mark = s.canaries.length()
	m.fix(s)
	if m.initial {
		r.waitForPhase("Initialized")
		s.deployVersion(m.target(), "v2")
	}
	if c := r.waitForEnd("Succeeded"); c.condition("Blocked").Type != "" {
		s.t.Errorf("nothing is wrong any more: %s", c)
	}
	s.checkImage(m.target()+"-primary", "serin.dev/demo:v2")
}

// runs wants a Deployment to have that image.
func (s *environment) checkImage(name, image string) {
	s.t.Helper()
	if got := convert[appsv1.Deployment](s.t, s.get(deployments, name)).Spec.Template.Spec.Containers[0].Image; got != image {
		s.t.Errorf("Deployment %s runs %s, want %s", name, got, image)
	}
}

// TestTheYoungerOfTwoCanariesOnOneTargetWaitsForTheOlder shows who releases a target that two Canaries name, and that
// the other one does as soon as it is alone.
func TestTheYoungerOfTwoCanariesOnOneTargetWaitsForTheOlder(t *testing.T) {
	t.Parallel()
	s := startEnvironment(t, "rivals")
	s.keepPodsReady(t)
	older := s.follow("older")
	s.apply(deploymentByHand("contested", 1) + replaceTexts(t, shortCanary("older", ""), "kind: Deployment, name: older", "kind: Deployment, name: contested"))
	older.waitForPhase("Initialized") // which takes a second at least, so that their ages differ
	younger := s.follow("younger")
	s.apply(replaceTexts(t, shortCanary("younger", ""), "kind: Deployment, name: younger", "kind: Deployment, name: contested"))
	rivalry := configurationError{
		reason:  "Obstacle",
		message: "Canary older already releases Deployment contested, so younger does nothing: delete one of the two, or point it at another target",
	}
	younger.waitFor("is blocked", rivalry.checkBlocked)
	younger.waitForEvent(rivalry.message)

	older = s.follow("older")
	s.deployVersion("contested", "v2")
	older.waitForEnd("Succeeded")
	s.checkImage("contested-primary", "serin.dev/demo:v2")
	for _, state := range younger.states() {
		if phase := state.object.Status.Phase; phase != "" && phase != "Initializing" {
			t.Errorf("the younger one acted: %s", state.object)
		}
	}

	primary := s.get(deployments, "contested-primary").GetUID()
	younger = s.follow("younger")
	s.delete(canaries, "older")
	younger.waitForPhase("Initialized")
	if again := s.get(deployments, "contested-primary").GetUID(); again == primary {
		t.Error("the primary of the older one is still there")
	}
	younger = s.follow("younger")
	s.deployVersion("contested", "v3")
	if c := younger.waitForEnd("Succeeded"); c.condition("Blocked").Type != "" {
		t.Errorf("nothing is wrong any more: %s", c)
	}
	s.checkImage("contested-primary", "serin.dev/demo:v3")
}
