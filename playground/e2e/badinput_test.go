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
type mistake struct {
	// name is that of the Canary, and of the Deployment unless deployment says otherwise.
	name, deployment string
	// early is true for one that is there before Serin took anything over. Others come later, together with a change.
	early bool
	// made is applied first. It has the mistake in it, unless spoil makes it.
	made string
	// spoil makes a mistake that shows before a release; mend takes any of them back.
	spoil, mend func(*stage)
	// reason is that of the condition Blocked before a release starts, gate the one that says what is wrong when it
	// runs. Where one of them is empty there is no such thing.
	reason, gate string
	// says is the sentence that people read, in condition or gate, and, where event is empty, in an event.
	says, event string
}

func (m mistake) target() string {
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
func changed(name, patch string) func(*stage) {
	return func(s *stage) { s.patch(canaries, name, patch) }
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
func mistakes(t *testing.T) []mistake {
	_, prometheus := foretell(t, func(query string) float64 {
		if query == "vector(1)" {
			return 1
		}
		return 100
	})
	hooks, silent := listen(t), keepSilent(t)
	hooks.answer("/acceptance", silent.then(http.StatusOK))
	nobody := "http://" + closed()
	return []mistake{
		{
			name: "ghost", early: true, made: cheap("ghost", ""),
			mend:   func(s *stage) { s.apply(deploymentByHand("ghost", 1)) },
			reason: "Target", says: `deployment ghost.bad get query error: deployments.apps "ghost" not found`,
		}, {
			name: "nameless", early: true, made: replaced(t, deploymentByHand("nameless", 1), "{app: nameless}", "{tier: nameless}") + cheap("nameless", ""),
			mend: func(s *stage) {
				s.delete(deployments, "nameless") // its selector cannot be changed
				s.apply(deploymentByHand("nameless", 1))
			},
			reason: "Target", says: "getSelectorLabel failed: deployment nameless.bad spec.selector.matchLabels must contain one of [app name app.kubernetes.io/name]",
		}, {
			name: "template", made: deploymentByHand("template", 1) + rate("good", prometheus) + cheap("template", "    metrics: [{name: rate, templateRef: {name: good}, thresholdRange: {min: 99}}]"),
			spoil:  changed("template", `{"spec":{"analysis":{"metrics":[{"name":"rate","templateRef":{"name":"better"},"thresholdRange":{"min":99}}]}}}`),
			mend:   func(s *stage) { s.apply(rate("better", prometheus)) },
			reason: "References", gate: "rate", says: `Metric template better.bad error: metrictemplate.flagger.app "better" not found`,
		}, {
			name: "port", made: deploymentByHand("port", 1) + weighted("port"),
			spoil:  changed("port", `{"spec":{"service":{"targetPort":"web"}}}`),
			mend:   changed("port", `{"spec":{"service":{"targetPort":"http"}}}`),
			reason: "Target",
			says: `spec.service.targetPort is "web", and no container of Deployment port.bad has a port of that name: ` +
				"name the port there, or give its number in spec.service.targetPort",
		}, {
			name: "weights", made: deploymentByHand("weights", 1) + weighted("weights"),
			spoil:  changed("weights", `{"spec":{"analysis":{"stepWeights":[50,20,80]}}}`),
			mend:   changed("weights", `{"spec":{"analysis":{"stepWeights":[20,50]}}}`),
			reason: "Plan", says: "spec.analysis.stepWeights is [50 20 80], so the release would not advance beyond weight 50: specify increasing weights from 1 to 100",
		}, {
			name: "prometheus",
			made: deploymentByHand("prometheus", 1) + cheap("prometheus", "    metrics: [{name: request-success-rate, interval: 1s, thresholdRange: {min: 99}}]\n  metricsServer: "+nobody),
			mend: changed("prometheus", fmt.Sprintf(`{"spec":{"metricsServer":%q}}`, prometheus)),
			gate: "provider-unreachable", says: "the metrics provider is unreachable", event: "Error checking metric providers: prometheus not avaiable: ",
		}, {
			name: "webhook", made: deploymentByHand("webhook", 1) + cheap("webhook", webhook("pre-rollout", hooks.url("/acceptance"), "1s")),
			mend: func(*stage) { hooks.answer("/acceptance", says(http.StatusOK)) },
			gate: "pre-rollout/pre-rollout", says: "pre-rollout failed POST " + hooks.url("/acceptance") + " giving up after 1 attempt(s): no answer within 1s",
			event: "Halt webhook.bad advancement pre-rollout check pre-rollout failed POST " + hooks.url("/acceptance") + " giving up after 1 attempt(s): no answer within 1s",
		},
	}
}

// TestAMistakeIsToldStopsNothingElseAndLosesNothing makes every mistake beside a healthy release under load. Each is
// told in the status and in an event, the healthy one ends well meanwhile, and once a mistake is mended its release goes
// on with the change that had come in between.
func TestAMistakeIsToldStopsNothingElseAndLosesNothing(t *testing.T) {
	t.Parallel()
	s := enter(t, "bad", "-threadiness", "1")
	s.keepReady(t)
	all := mistakes(t)
	followed := map[string]*release{}
	for _, m := range all {
		followed[m.name] = s.follow(m.name)
		s.apply(m.made)
	}
	healthy, l := sound(s)

	t.Run("told", func(t *testing.T) {
		for _, m := range all {
			t.Run(m.name, func(t *testing.T) {
				t.Parallel()
				m.told(s.in(t), followed)
			})
		}
	})
	healthy.ship("sound", "v2")
	healthy.ends("Succeeded")
	requests(t, l, 10, "v2")
	l.Stop()
	if counts := l.Counts(); counts.Failed() != 0 {
		t.Errorf("the healthy release lost requests: %s", counts)
	}
	t.Run("mended", func(t *testing.T) {
		for _, m := range all {
			t.Run(m.name, func(t *testing.T) {
				t.Parallel()
				m.mended(s.in(t), followed[m.name])
			})
		}
	})
}

// sound takes over a Deployment with nothing wrong, and sends requests to it.
func sound(s *stage) (*release, *load.Load) {
	s.t.Helper()
	r := s.follow("sound")
	s.apply(deployment(s.t, "sound", 1) + weighted("sound"))
	r.reaches("Initialized")
	warm := s.send("sound.test", 10)
	requests(s.t, warm, 1, "v1")
	warm.Stop()
	return s.follow("sound"), s.send("sound.test", 20)
}

// told makes a mistake and waits until it is told in status and event.
func (m mistake) told(s *stage, followed map[string]*release) {
	r := *followed[m.name]
	r.stage = s
	if !m.early {
		r.reaches("Initialized")
		if m.spoil != nil {
			m.spoil(s)
		}
	}
	if m.reason != "" {
		r.until("says what is wrong", m.blocks)
	}
	if !m.early {
		s.ship(m.target(), "v2")
	}
	if m.gate != "" {
		r.until("says what is wrong", m.holds)
	}
	if m.event != "" {
		r.tells(m.event)
	} else {
		r.tells(m.says)
	}
	*followed[m.name] = r
}

// blocks wants the mistake in condition Blocked.
func (m mistake) blocks(c canary) error {
	if blocked := c.condition("Blocked"); blocked.Status != metav1.ConditionTrue || blocked.Reason != m.reason || blocked.Message != m.says {
		return fmt.Errorf("not blocked by %s: %s", m.reason, m.says)
	}
	return nil
}

// holds wants the mistake in the gate that it keeps closed.
func (m mistake) holds(c canary) error {
	for _, g := range c.Status.Serin.Gates {
		if g.Name == m.gate && g.Verdict != "pass" && strings.HasPrefix(g.Message, m.says) {
			return nil
		}
	}
	return fmt.Errorf("gate %s does not say %q, gates are %+v", m.gate, m.says, c.Status.Serin.Gates)
}

// mended wants nothing to have moved, takes the mistake back and wants the release to go on.
func (m mistake) mended(s *stage, followed *release) {
	r := *followed
	r.stage = s
	states := r.states()
	for _, state := range states {
		switch st := state.object.Status; {
		case m.early && st.Phase != "" && st.Phase != "Initializing":
			s.t.Errorf("something was taken over: %s", state.object)
		case st.Phase == "Promoting" || st.Phase == "Finalising" || st.Phase == "Succeeded" || st.Phase == "Failed":
			s.t.Errorf("the release went on: %s", state.object)
		case m.gate == "" && st.Phase == "Progressing":
			s.t.Errorf("the release started: %s", state.object)
		}
	}
	if m.early {
		_, err := shared.Dynamic.Resource(deployments).Namespace(s.namespace).Get(s.t.Context(), m.target()+"-primary", metav1.GetOptions{})
		if !apierrors.IsNotFound(err) {
			s.t.Errorf("a primary was made (%v)", err)
		}
	}
	r.mark = s.canaries.length()
	m.mend(s)
	if m.early {
		r.reaches("Initialized")
		s.ship(m.target(), "v2")
	}
	if c := r.ends("Succeeded"); c.condition("Blocked").Type != "" {
		s.t.Errorf("nothing is wrong any more: %s", c)
	}
	s.runs(m.target()+"-primary", "serin.dev/demo:v2")
}

// runs wants a Deployment to have that image.
func (s *stage) runs(name, image string) {
	s.t.Helper()
	if got := read[appsv1.Deployment](s.t, s.get(deployments, name)).Spec.Template.Spec.Containers[0].Image; got != image {
		s.t.Errorf("Deployment %s runs %s, want %s", name, got, image)
	}
}

// TestTheYoungerOfTwoCanariesOnOneTargetWaitsForTheOlder shows who releases a target that two Canaries name, and that
// the other one does as soon as it is alone.
func TestTheYoungerOfTwoCanariesOnOneTargetWaitsForTheOlder(t *testing.T) {
	t.Parallel()
	s := enter(t, "rivals")
	s.keepReady(t)
	older := s.follow("older")
	s.apply(deploymentByHand("contested", 1) + replaced(t, cheap("older", ""), "kind: Deployment, name: older", "kind: Deployment, name: contested"))
	older.reaches("Initialized") // which takes a second at least, so that their ages differ
	younger := s.follow("younger")
	s.apply(replaced(t, cheap("younger", ""), "kind: Deployment, name: younger", "kind: Deployment, name: contested"))
	rivalry := mistake{
		reason: "Obstacle",
		says:   "Canary older already releases Deployment contested, so younger does nothing: delete one of the two, or point it at another target",
	}
	younger.until("is blocked", rivalry.blocks)
	younger.tells(rivalry.says)

	older = s.follow("older")
	s.ship("contested", "v2")
	older.ends("Succeeded")
	s.runs("contested-primary", "serin.dev/demo:v2")
	for _, state := range younger.states() {
		if phase := state.object.Status.Phase; phase != "" && phase != "Initializing" {
			t.Errorf("the younger one acted: %s", state.object)
		}
	}

	primary := s.get(deployments, "contested-primary").GetUID()
	younger = s.follow("younger")
	s.delete(canaries, "older")
	younger.reaches("Initialized")
	if again := s.get(deployments, "contested-primary").GetUID(); again == primary {
		t.Error("the primary of the older one is still there")
	}
	younger = s.follow("younger")
	s.ship("contested", "v3")
	if c := younger.ends("Succeeded"); c.condition("Blocked").Type != "" {
		t.Errorf("nothing is wrong any more: %s", c)
	}
	s.runs("contested-primary", "serin.dev/demo:v3")
}
