package controller

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/outbound"
)

// plantedSecret marks every secret of the test; no output may contain it.
const plantedSecret = "hunter2"

// TestNoSecretIsShownAnywhere plants secrets in addresses, queries, headers and Secrets, lets servers succeed and fail with
// responses that repeat the requests, and searches logs, events, statuses, metrics and alerts for the secrets.
func TestNoSecretIsShownAnywhere(t *testing.T) {
	codes := []int{http.StatusOK, http.StatusFound, http.StatusUnauthorized, http.StatusInternalServerError, 0}
	var mu sync.Mutex
	var alerts strings.Builder
	chat := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		mu.Lock()
		defer mu.Unlock()
		alerts.Write(body)
	}))
	t.Cleanup(chat.Close)
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	with := func(address string) string {
		return strings.Replace(address, "http://", "http://user:"+plantedSecret+"-user@", 1) + "/?token=" + plantedSecret + "-query"
	}
	provider := &flaggerv1.AlertProvider{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "chat"}}
	provider.Spec = flaggerv1.AlertProviderSpec{Type: "slack", SecretRef: &flaggerv1.SecretReference{Name: "chat"}}
	secret := func(name string, data map[string]string) *corev1.Secret {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}, Data: bytesOf(data)}
	}
	objects := []client.Object{
		provider,
		secret("chat", map[string]string{"address": with(chat.URL), "token": plantedSecret + "-token"}),
		secret("metrics", map[string]string{"token": plantedSecret + "-token"}),
	}
	var all []client.ObjectKey
	for _, code := range codes {
		name := fmt.Sprint("answers-", code)
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if code == http.StatusFound {
				w.Header().Set("Location", "http://elsewhere.example/?token="+plantedSecret)
			}
			w.WriteHeader(max(code, http.StatusOK))
			if code == http.StatusOK {
				_, _ = io.WriteString(w, vector)
				return
			}
			// A page that repeats its address; headers are never part of a message about a hook.
			_, _ = fmt.Fprintf(w, "cannot %s http://%s%s", r.Method, r.Host, r.URL)
		}))
		t.Cleanup(server.Close)
		address := with(server.URL)
		if code == 0 {
			address = with(gone.URL)
		}
		template := &flaggerv1.MetricTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}}
		template.Spec.Query = "errors"
		template.Spec.Provider = flaggerv1.MetricTemplateProvider{
			Type: "prometheus", Address: address, SecretRef: &flaggerv1.SecretReference{Name: "metrics"},
			Headers: map[string][]string{"X-Scope": {plantedSecret + "-header"}},
		}
		c := canaryWithQueries(name, address, address)
		a := c.Spec.Analysis
		a.Metrics[0] = flaggerv1.CanaryMetric{Name: "errors", TemplateRef: &flaggerv1.CrossNamespaceObjectReference{Name: name}, ThresholdRange: a.Metrics[0].ThresholdRange}
		a.Webhooks = append(a.Webhooks, flaggerv1.CanaryWebhook{Name: "audit", Type: flaggerv1.EventHook, URL: address})
		a.Alerts = []flaggerv1.CanaryAlert{{Name: "chat", Severity: "info", ProviderRef: flaggerv1.CrossNamespaceObjectReference{Name: "chat"}}}
		metrics := canaryWithQueries("metrics-"+name, chat.URL, address)
		metrics.Spec.Analysis.Metrics = a.Metrics
		objects = append(objects, template, c, metrics)
		all = append(all, client.ObjectKeyFromObject(c), client.ObjectKeyFromObject(metrics))
	}
	w := newTestCluster(t, outbound.Policy{AllowLoopback: true}, objects...)
	for _, key := range all {
		w.waitForPhase(t, key, flaggerv1.CanaryPhaseInitialized)
		w.workloads.deploy(w.canary(t, key))
	}
	for _, key := range all {
		if strings.HasPrefix(key.Name, "metrics-") && (strings.HasSuffix(key.Name, "-0") || strings.HasSuffix(key.Name, "-500")) {
			w.waitFor(t, key.Name+" says who does not answer", func() (bool, string) {
				status := w.canary(t, key).Status
				return status.Serin != nil && status.Serin.Unreachable != nil, fmt.Sprint(status.Phase)
			})
			continue
		}
		w.waitForPhase(t, key, flaggerv1.CanaryPhaseSucceeded, flaggerv1.CanaryPhaseFailed)
	}
	w.waitFor(t, "alerts of success and failure", func() (bool, string) {
		mu.Lock()
		defer mu.Unlock()
		return strings.Contains(alerts.String(), "Canary analysis completed") && strings.Contains(alerts.String(), "Failed checks threshold reached"), alerts.String()
	})
	seen := w.allOutput(t)
	for _, part := range []string{"event answers-401.", "giving up after 1 attempt(s)", "Dropped message", "serin_probe_duration_seconds"} {
		if !strings.Contains(seen, part) {
			t.Errorf("no output contains %q, so nothing was tested", part)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	for line := range strings.Lines(seen + alerts.String()) {
		if strings.Contains(line, plantedSecret) {
			t.Errorf("a secret is shown: %.600s", line)
		}
	}
}

func bytesOf(data map[string]string) map[string][]byte {
	out := map[string][]byte{}
	for key, value := range data {
		out[key] = []byte(value)
	}
	return out
}
