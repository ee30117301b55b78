package controller_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/notification"
)

// TestSubscribersOfARunReceiveItsResult: the message is sent with the result that the run has after the reconciliation.
func TestSubscribersOfARunReceiveItsResult(t *testing.T) {
	received := make(chan string, 10)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/hook" {
			body, _ := io.ReadAll(r.Body)
			received <- string(body)
			return
		}
		_, _ = io.WriteString(w, `{"errors":7}`)
	}))
	t.Cleanup(server.Close)
	config := &corev1.ConfigMap{Data: map[string]string{
		"service.webhook.hook":           "url: " + server.URL + "/hook",
		"trigger.on-analysis-run-failed": "- send: [failed]",
		"template.failed":                "message: '{{.analysisRun.metadata.name}} is {{.analysisRun.status.phase}}: {{.analysisRun.status.message}}'",
	}}
	config.Namespace, config.Name = "serin-system", notification.ConfigMapName
	run := &argov1.AnalysisRun{Spec: argov1.AnalysisRunSpec{Metrics: []argov1.Metric{{
		Name: "errors", SuccessCondition: "result < 3",
		Provider: argov1.MetricProvider{Web: &argov1.WebMetric{URL: server.URL, JSONPath: "{$.errors}"}},
	}}}}
	run.Namespace, run.Name, run.UID = key.Namespace, key.Name, "uid"
	run.Annotations = map[string]string{"notifications.argoproj.io/subscribe.on-analysis-run-failed.hook": ""}
	o := open(t, "", config, run)
	o.pass()
	o.waitForAnswer()
	o.pass()
	select {
	case got := <-received:
		if want := `run is Failed: Metric "errors" assessed Failed due to failed (1) > failureLimit (0)`; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("no message within ten seconds")
	}
}
