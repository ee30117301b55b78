//go:build linux

package e2e_test

import (
	"cmp"
	"fmt"
	"net/http"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/serin-dev/serin/playground/load"
)

// configurationError is an error in the configuration of a user, and its expected message.
type configurationError struct {
	// name is the name of the Canary, and of the Deployment unless deployment is set.
	name, deployment string
	// initial reports whether the error exists before the Canary is initialized. Others are introduced later, together with a
	// change.
	initial bool
	// manifest is applied first. It contains the error, unless introduce adds it.
	manifest string
	// introduce adds an error that is detected before a release starts; fix corrects the error.
	introduce, fix func(*environment)
	// reason is the reason of the condition Blocked before a release starts, gate the gate with the message during a release.
	// Either may be empty.
	reason, gate string
	// message is the expected message of the condition or the gate. It is also that of the event, unless event or notice is set.
	message, event string
	// notice is the event before a release starts if the error does not prevent it from starting; empty: it does.
	notice string
}

func (m configurationError) target() string {
	if m.deployment != "" {
		return m.deployment
	}
	return m.name
}

// weighted returns a Canary at the gateway whose release takes two short windows.
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

// patchCanary returns a function that applies a merge patch to a Canary.
func patchCanary(name, patch string) func(*environment) {
	return func(s *environment) { s.patch(canaries, name, patch) }
}

// rate returns a MetricTemplate.
func rate(name, prometheus string) string {
	return fmt.Sprintf(`
apiVersion: flagger.app/v1beta1
kind: MetricTemplate
metadata: {name: %s}
spec: {query: "rate", provider: {type: prometheus, address: %q}}
---
`, name, prometheus)
}

// configurationErrors returns the configuration errors of the namespace bad.
func configurationErrors(t *testing.T) []configurationError {
	_, prometheus := startFakePrometheus(t, func(query string) float64 {
		if query == "vector(1)" {
			return 1
		}
		return 100
	})
	hooks, silent := startReceiver(t), newSilence(t)
	hooks.setAnswer("/acceptance", silent.then(http.StatusOK))
	unreachable := "http://" + closedAddress()
	return []configurationError{
		{
			name: "ghost", initial: true, manifest: shortCanary("ghost", ""),
			fix:    func(s *environment) { s.apply(deploymentByHand("ghost", 1)) },
			reason: "Target", message: `deployment ghost.bad get query error: deployments.apps "ghost" not found`,
		}, {
			name: "nameless", initial: true, manifest: replaceTexts(t, deploymentByHand("nameless", 1), "{app: nameless}", "{tier: nameless}") + shortCanary("nameless", ""),
			fix: func(s *environment) {
				s.delete(deployments, "nameless") // the selector is immutable
				s.apply(deploymentByHand("nameless", 1))
			},
			reason: "Target", message: "getSelectorLabel failed: deployment nameless.bad spec.selector.matchLabels must contain one of [app name app.kubernetes.io/name]: add one of these labels to the selector and to the pods, or add a label of the selector to the controller's flag -selector-labels",
		}, {
			name: "template", manifest: deploymentByHand("template", 1) + rate("good", prometheus) + shortCanary("template", "    metrics: [{name: rate, templateRef: {name: good}, thresholdRange: {min: 99}}]"),
			introduce: patchCanary("template", `{"spec":{"analysis":{"metrics":[{"name":"rate","templateRef":{"name":"better"},"thresholdRange":{"min":99}}]}}}`),
			fix:       func(s *environment) { s.apply(rate("better", prometheus)) },
			notice:    `A release would fail its checks: Metric template better.bad error: metrictemplate.flagger.app "better" not found. Create it, or correct spec.analysis.metrics`,
			gate:      "rate", message: `Metric template better.bad error: metrictemplate.flagger.app "better" not found`,
		}, {
			name: "port", manifest: deploymentByHand("port", 1) + weighted("port"),
			introduce: patchCanary("port", `{"spec":{"service":{"targetPort":"web"}}}`),
			fix:       patchCanary("port", `{"spec":{"service":{"targetPort":"http"}}}`),
			reason:    "Target",
			message: `spec.service.targetPort is "web", and no container of Deployment port.bad has a port of that name: ` +
				"set the name of the port there, or its number in spec.service.targetPort",
		}, {
			name: "weights", manifest: deploymentByHand("weights", 1) + weighted("weights"),
			introduce: patchCanary("weights", `{"spec":{"analysis":{"stepWeights":[50,20,80]}}}`),
			fix:       patchCanary("weights", `{"spec":{"analysis":{"stepWeights":[20,50]}}}`),
			reason:    "Plan", message: "spec.analysis.stepWeights is [50 20 80], so the release would not advance beyond weight 50: specify increasing weights from 1 to 100",
		}, {
			name:     "prometheus",
			manifest: deploymentByHand("prometheus", 1) + shortCanary("prometheus", "    metrics: [{name: request-success-rate, interval: 1s, thresholdRange: {min: 99}}]\n  metricsServer: "+unreachable),
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

// TestConfigurationErrorsAreReportedAndDoNotAffectOtherReleases introduces every error next to a healthy release under load.
// Each error is reported in the status and in an event, the healthy release is promoted meanwhile, and once an error is
// fixed, its release continues with the change that was made in the meantime.
func TestConfigurationErrorsAreReportedAndDoNotAffectOtherReleases(t *testing.T) {
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

	t.Run("reported", func(t *testing.T) {
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
	t.Run("fixed", func(t *testing.T) {
		for _, m := range all {
			t.Run(m.name, func(t *testing.T) {
				t.Parallel()
				m.checkFixed(s.in(t), followed[m.name])
			})
		}
	})
}

// startHealthyRelease initializes a Canary without errors and starts a load on it.
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

// checkReported introduces the error and waits until it is reported in the status and in an event.
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
		r.waitFor("reports the error", m.checkBlocked)
	}
	if m.notice != "" {
		r.waitForEvent(m.notice)
	}
	if !m.initial {
		s.deployVersion(m.target(), "v2")
	}
	if m.gate != "" {
		r.waitFor("reports the error", m.checkGate)
	}
	if m.notice == "" {
		r.waitForEvent(cmp.Or(m.event, m.message))
	}
	*followed[m.name] = r
}

// checkBlocked checks that condition Blocked reports the error.
func (m configurationError) checkBlocked(c canary) error {
	if blocked := c.condition("Blocked"); blocked.Status != metav1.ConditionTrue || blocked.Reason != m.reason || blocked.Message != m.message {
		return fmt.Errorf("not blocked by %s: %s", m.reason, m.message)
	}
	return nil
}

// checkGate checks that the gate reports the error.
func (m configurationError) checkGate(c canary) error {
	for _, g := range c.Status.Serin.Gates {
		if g.Name == m.gate && g.Verdict != "pass" && strings.HasPrefix(g.Message, m.message) {
			return nil
		}
	}
	return fmt.Errorf("gate %s does not report %q; the gates are %+v", m.gate, m.message, c.Status.Serin.Gates)
}

// checkFixed checks that nothing has changed, fixes the error and checks that the release continues.
func (m configurationError) checkFixed(s *environment, followed *release) {
	r := *followed
	r.environment = s
	states := r.states()
	for _, state := range states {
		switch st := state.object.Status; {
		case m.initial && st.Phase != "" && st.Phase != "Initializing":
			s.t.Errorf("the Canary was initialized: %s", state.object)
		case st.Phase == "Promoting" || st.Phase == "Finalising" || st.Phase == "Succeeded" || st.Phase == "Failed":
			s.t.Errorf("the release continued: %s", state.object)
		case m.gate == "" && st.Phase == "Progressing":
			s.t.Errorf("the release started: %s", state.object)
		}
	}
	if m.initial {
		_, err := shared.Dynamic.Resource(deployments).Namespace(s.namespace).Get(s.t.Context(), m.target()+"-primary", metav1.GetOptions{})
		if !apierrors.IsNotFound(err) {
			s.t.Errorf("a primary was created (%v)", err)
		}
	}
	r.next = s.canaries.length()
	m.fix(s)
	if m.initial {
		r.waitForPhase("Initialized")
		s.deployVersion(m.target(), "v2")
	}
	if c := r.waitForEnd("Succeeded"); c.condition("Blocked").Type != "" {
		s.t.Errorf("condition Blocked was not removed: %s", c)
	}
	s.checkImage(m.target()+"-primary", "serin.dev/demo:v2")
}

// checkImage checks the image of a Deployment.
func (s *environment) checkImage(name, image string) {
	s.t.Helper()
	if got := convert[appsv1.Deployment](s.t, s.get(deployments, name)).Spec.Template.Spec.Containers[0].Image; got != image {
		s.t.Errorf("Deployment %s runs %s, want %s", name, got, image)
	}
}

// TestAGatewayThatNobodyServesIsReported: whether the Gateway of a route exists is part of the report, and neither delays a
// release, because a router may route requests without a report.
func TestAGatewayThatNobodyServesIsReported(t *testing.T) {
	t.Parallel()
	s := startEnvironment(t, "lost")
	s.apply(`
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: unserved}
spec: {gatewayClassName: nobody, listeners: [{name: http, port: 80, protocol: HTTP}]}
---
`)
	for gateway, message := range map[string]string{
		"absent": "Gateway absent.lost does not exist, so HTTPRoute absent.lost routes no requests from it: " +
			"create it, or correct spec.service.gatewayRefs",
		"unserved": "no controller has reported on HTTPRoute unserved.lost for Gateway unserved.lost, which exists: does the controller of its class run?",
	} {
		r := s.follow(gateway)
		s.apply(deployment(t, gateway, 1) + replaceTexts(t, weighted(gateway), "name: gateway, namespace: playground", "name: "+gateway))
		r.waitForPhase("Initialized")
		r.waitFor("reports the Gateway", func(c canary) error {
			for _, notice := range c.Status.Serin.Gates {
				if notice.Name == "route" && notice.Message == message {
					return nil
				}
			}
			return fmt.Errorf("the gates are %+v, want %q", c.Status.Serin.Gates, message)
		})
		r.waitForEvent(message)
	}
}

// TestTheYoungerOfTwoCanariesOnOneTargetWaitsForTheOlder checks that the older one of two Canaries with the same target
// releases it, and that the other one does when the older one is deleted.
func TestTheYoungerOfTwoCanariesOnOneTargetWaitsForTheOlder(t *testing.T) {
	t.Parallel()
	s := startEnvironment(t, "rivals")
	s.keepPodsReady(t)
	older := s.follow("older")
	s.apply(deploymentByHand("contested", 1) + replaceTexts(t, shortCanary("older", ""), "kind: Deployment, name: older", "kind: Deployment, name: contested"))
	older.waitForPhase("Initialized") // takes at least a second, so that the ages differ
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
			t.Errorf("the younger Canary was initialized: %s", state.object)
		}
	}

	primary := s.get(deployments, "contested-primary").GetUID()
	younger = s.follow("younger")
	s.delete(canaries, "older")
	younger.waitForPhase("Initialized")
	if again := s.get(deployments, "contested-primary").GetUID(); again == primary {
		t.Error("the primary of the older Canary still exists")
	}
	younger = s.follow("younger")
	s.deployVersion("contested", "v3")
	if c := younger.waitForEnd("Succeeded"); c.condition("Blocked").Type != "" {
		t.Errorf("condition Blocked was not removed: %s", c)
	}
	s.checkImage("contested-primary", "serin.dev/demo:v3")
}
