//go:build linux

package e2e_test

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
)

// slack is the API of a chat, as far as messages need it.
type slack struct {
	t   *testing.T
	url string

	mu sync.Mutex
	// said are the messages that it took, as "channel: text".
	said []string
	// calls are all that came, and dead says how many of the next it does not take.
	calls, dead int
	news        chan struct{}
}

func newSlack(t *testing.T) *slack {
	t.Helper()
	c := &slack{t: t, news: make(chan struct{})}
	c.url = startServer(t, c).URL
	return c
}

func (c *slack) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	defer func() {
		close(c.news)
		c.news = make(chan struct{})
	}()
	c.calls++
	if got := r.Header.Get("Authorization"); got != "Bearer change-me" {
		c.t.Errorf("authorised with %q", got)
	}
	if c.dead > 0 {
		c.dead--
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	c.said = append(c.said, r.FormValue("channel")+": "+strings.TrimSpace(r.FormValue("text")))
	_, _ = w.Write([]byte(`{"ok":true,"channel":"C1","ts":"1.2"}`))
}

// dies lets the chat take none of the next calls, and is how many there were.
func (c *slack) dies(calls int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dead = calls
	return c.calls
}

// until waits for something that a call brings about.
func (c *slack) waitFor(what string, is func() bool) {
	c.t.Helper()
	deadline := time.NewTimer(waitTimeout)
	defer deadline.Stop()
	for {
		c.mu.Lock()
		ok, news, said := is(), c.news, strings.Join(c.said, "\n")
		c.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-news:
		case <-deadline.C:
			c.t.Fatalf("%s: it took more than %s; said so far:\n%s", what, waitTimeout, said)
		}
	}
}

// heard waits for a message, and is how often it was said.
func (c *slack) heard(parts ...string) {
	c.t.Helper()
	c.waitFor("wait for "+strings.Join(parts, ", "), func() bool { return c.count(parts...) > 0 })
}

// count is how many messages have all of these parts; c.mu is held.
func (c *slack) count(parts ...string) (n int) {
	for _, said := range c.said {
		has := true
		for _, part := range parts {
			has = has && strings.Contains(said, part)
		}
		if has {
			n++
		}
	}
	return n
}

// want wants a message to have been said so often.
func (c *slack) want(n int, parts ...string) {
	c.t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	if got := c.count(parts...); got != n {
		c.t.Errorf("%q was said %d times, want %d:\n%s", parts, got, n, strings.Join(c.said, "\n"))
	}
}

// TestThoseWhoAskedAreToldHowAReleaseEnds: by the configuration that the documentation shows. Each end is told once, with
// cause, value and limit; a chat that is dead is tried again; it holds up nothing, nor does a mistake in the configuration.
func TestThoseWhoAskedAreToldHowAReleaseEnds(t *testing.T) {
	t.Parallel()
	s := newEnvironment(t, "announced")
	chat := newSlack(t)
	shown, err := os.ReadFile(filepath.Join(repository, "docs", "examples", "notifications.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	steps := `
        - analysis: {templates: [{templateName: value}]}
  progressDeadlineSeconds: 600
`
	s.apply(replaceTexts(t, string(shown),
		"    token: $slack-token\n", "    token: $slack-token\n    apiURL: "+chat.url+"/api/\n",
		"\n        - setWeight: 50\n        - pause:\n            duration: 1m\n", steps))
	template := func(condition string) string {
		return `
apiVersion: argoproj.io/v1alpha1
kind: AnalysisTemplate
metadata: {name: value}
spec:
  metrics:
  - name: value
    successCondition: ` + condition + `
    provider: {prometheus: {address: ` + shared.PrometheusURL + `, query: 'vector(1)'}}
`
	}
	s.apply(template("result[0] == 2"))
	s.startSerin()
	s.waitForRolloutPhase("announced", argov1.RolloutPhaseHealthy, "")
	chat.heard("releases: announced: Rollout completed update to revision 1")

	chat.dies(2)
	s.releaseVersion("announced", "v2")
	s.waitForRolloutPhase("announced", argov1.RolloutPhaseDegraded, "failed (1) > failureLimit (0)")
	failure := []string{"announced failed: RolloutAborted", `Metric "value" assessed Failed due to failed (1) > failureLimit (0)`, "\nvalue was [1], wanted result[0] == 2"}
	chat.heard(append(failure, "releases: ")...)
	chat.heard(append(failure, "on-call: ")...)

	before := chat.dies(1000)
	s.apply(template("result[0] == 1"))
	s.releaseVersion("announced", "v3")
	s.waitForRolloutPhase("announced", argov1.RolloutPhaseHealthy, "")
	chat.waitFor("a dead chat is tried", func() bool { return chat.calls > before })
	chat.dies(0)
	chat.heard("releases: announced: Rollout completed update to revision 3")

	if err := shared.Kill(s.processName()); err != nil {
		t.Fatal(err)
	}
	if _, err := shared.Restart(s.processName()); err != nil {
		t.Fatal(err)
	}
	s.patch(configMaps, "argo-rollouts-notification-configmap", `{"data":{"template.release-completed":"message: '{{.rollout'"}}`)
	s.releaseVersion("announced", "v4")
	s.waitForRolloutPhase("announced", argov1.RolloutPhaseHealthy, "")
	s.waitForEventOf("Rollout", "announced", "NotificationFailed", `to slack:releases was not sent: key "template.release-completed": template: release-completed:1: unclosed action`)
	chat.want(1, "releases: announced: Rollout completed update to revision 1")
	chat.want(2, failure...)
	chat.want(1, "releases: announced: Rollout completed update to revision 3")
}
