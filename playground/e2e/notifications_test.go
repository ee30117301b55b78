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

// slack is a fake of the part of the Slack API that sends messages.
type slack struct {
	t   *testing.T
	url string

	mu sync.Mutex
	// messages are the received messages, as "channel: text".
	messages []string
	// calls is the number of requests, and dead the number of following requests that fail.
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
	c.messages = append(c.messages, r.FormValue("channel")+": "+strings.TrimSpace(r.FormValue("text")))
	_, _ = w.Write([]byte(`{"ok":true,"channel":"C1","ts":"1.2"}`))
}

// failNext fails the following requests, and returns the number of requests so far.
func (c *slack) failNext(calls int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dead = calls
	return c.calls
}

// waitFor waits until a condition on the requests is true.
func (c *slack) waitFor(what string, is func() bool) {
	c.t.Helper()
	deadline := time.NewTimer(waitTimeout)
	defer deadline.Stop()
	for {
		c.mu.Lock()
		ok, news, messages := is(), c.news, strings.Join(c.messages, "\n")
		c.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-news:
		case <-deadline.C:
			c.t.Fatalf("%s: it took more than %s; messages so far:\n%s", what, waitTimeout, messages)
		}
	}
}

// waitForMessage waits for a message.
func (c *slack) waitForMessage(parts ...string) {
	c.t.Helper()
	c.waitFor("wait for "+strings.Join(parts, ", "), func() bool { return c.count(parts...) > 0 })
}

// count returns the number of messages with all of these parts. The caller must hold c.mu.
func (c *slack) count(parts ...string) (n int) {
	for _, message := range c.messages {
		has := true
		for _, part := range parts {
			has = has && strings.Contains(message, part)
		}
		if has {
			n++
		}
	}
	return n
}

// checkCount checks the number of messages with all of these parts.
func (c *slack) checkCount(n int, parts ...string) {
	c.t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	if got := c.count(parts...); got != n {
		c.t.Errorf("%q was sent %d times, want %d:\n%s", parts, got, n, strings.Join(c.messages, "\n"))
	}
}

// TestNotificationsReportTheEndOfARelease uses the configuration in the documentation. Each end is reported once, with its
// cause, value and limit. Failed requests are retried. Neither they nor an error in the configuration delay a release.
func TestNotificationsReportTheEndOfARelease(t *testing.T) {
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
	chat.waitForMessage("releases: announced: Rollout completed update to revision 1")

	chat.failNext(2)
	s.releaseVersion("announced", "v2")
	s.waitForRolloutPhase("announced", argov1.RolloutPhaseDegraded, "failed (1) > failureLimit (0)")
	failure := []string{"announced failed: RolloutAborted", `Metric "value" assessed Failed due to failed (1) > failureLimit (0)`, "\nvalue was [1], wanted result[0] == 2"}
	chat.waitForMessage(append(failure, "releases: ")...)
	chat.waitForMessage(append(failure, "on-call: ")...)

	before := chat.failNext(1000)
	s.apply(template("result[0] == 1"))
	s.releaseVersion("announced", "v3")
	s.waitForRolloutPhase("announced", argov1.RolloutPhaseHealthy, "")
	chat.waitFor("the failing chat receives a request", func() bool { return chat.calls > before })
	chat.failNext(0)
	chat.waitForMessage("releases: announced: Rollout completed update to revision 3")

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
	chat.checkCount(1, "releases: announced: Rollout completed update to revision 1")
	chat.checkCount(2, failure...)
	chat.checkCount(1, "releases: announced: Rollout completed update to revision 3")
}
