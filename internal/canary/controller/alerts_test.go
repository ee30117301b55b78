package controller

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/canary"
	"github.com/serin-dev/serin/internal/outbound"
	"github.com/serin-dev/serin/internal/release"
)

// chatServer records the alerts that it is sent, and rejects the first of each.
type chatServer struct {
	mu       sync.Mutex
	tries    map[string]int
	received []string
}

func (c *chatServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var message struct {
		Attachments []struct {
			Author string `json:"author_name"`
			Text   string `json:"text"`
			Fields []struct{ Title, Value string }
		}
	}
	body, err := io.ReadAll(r.Body)
	if err != nil || json.Unmarshal(body, &message) != nil || len(message.Attachments) != 1 {
		http.Error(w, "no", http.StatusBadRequest)
		return
	}
	alert := message.Attachments[0]
	text := alert.Text
	for _, field := range alert.Fields {
		text += fmt.Sprintf(" | %s: %s", field.Title, field.Value)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.tries[text]++; c.tries[text] == 1 {
		w.Header().Set("Retry-After", "0")
		w.WriteHeader(http.StatusTooManyRequests)
		return
	}
	c.received = append(c.received, text)
}

func (c *chatServer) messages() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]string(nil), c.received...)
}

// attempts counts how often each message was received.
func (c *chatServer) attempts() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return fmt.Sprint(c.tries)
}

// TestAlertsNameTheCauseAndAreRetried: an alert contains the failed check, with value and limit; a chat service that was too busy
// receives each alert later, once, in the order of the events, while the release continues.
func TestAlertsNameTheCauseAndAreRetried(t *testing.T) {
	c := &chatServer{tries: map[string]int{}}
	server := httptest.NewServer(c)
	t.Cleanup(server.Close)
	bad := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"value":[1,"7.5"]}]}}`)
	}))
	t.Cleanup(bad.Close)
	provider := &flaggerv1.AlertProvider{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "chat"}}
	provider.Spec = flaggerv1.AlertProviderSpec{Type: "slack", Address: server.URL}
	cart := canaryWithQueries("cart", server.URL, bad.URL)
	cart.Spec.Analysis.Webhooks = nil
	cart.Spec.Analysis.Alerts = []flaggerv1.CanaryAlert{{Name: "chat", Severity: "error", ProviderRef: flaggerv1.CrossNamespaceObjectReference{Name: "chat"}}}
	w := newTestCluster(t, outbound.Policy{AllowLoopback: true}, provider, cart)
	key := client.ObjectKeyFromObject(cart)
	w.waitForPhase(t, key, flaggerv1.CanaryPhaseInitialized)
	w.workloads.deploy(w.canary(t, key))
	w.waitForPhase(t, key, flaggerv1.CanaryPhaseFailed)
	w.waitFor(t, "an alert", func() (bool, string) { return len(c.messages()) > 0, c.attempts() })
	want := []string{"Failed checks threshold reached 1 | Cause: errors 7.50 > 1 | Severity: error"}
	if diff := cmp.Diff(want, c.messages()); diff != "" {
		t.Errorf("alerts (-want +got):\n%s", diff)
	}
}

// TestAMissingAlertProviderIsReportedOnceAndBlocksNothing: in an event and, half a minute later, in the status.
func TestAMissingAlertProviderIsReportedOnceAndBlocksNothing(t *testing.T) {
	cart := canaryWithQueries("cart", "http://127.0.0.1:1", "http://127.0.0.1:1")
	cart.Spec.Analysis.Webhooks, cart.Spec.Analysis.Metrics = nil, nil
	cart.Spec.Analysis.Alerts = []flaggerv1.CanaryAlert{{Name: "on-call", Severity: "error", ProviderRef: flaggerv1.CrossNamespaceObjectReference{Name: "slack"}}}
	w := newTestCluster(t, outbound.Policy{AllowLoopback: true}, cart)
	key := client.ObjectKeyFromObject(cart)
	w.waitForPhase(t, key, flaggerv1.CanaryPhaseInitialized)
	w.workloads.deploy(w.canary(t, key))
	w.waitForPhase(t, key, flaggerv1.CanaryPhaseSucceeded)
	const warning = `alert provider slack.shop does not exist, so the alerts of "on-call" are not sent: create it, or correct spec.analysis.alerts[0].providerRef`
	var reported []corev1.Event
	w.waitFor(t, "the event", func() (bool, string) {
		events := &corev1.EventList{}
		if err := w.client.List(t.Context(), events); err != nil {
			t.Fatal(err)
		}
		reported = slices.DeleteFunc(events.Items, func(e corev1.Event) bool { return e.Message != warning })
		return len(reported) > 0, ""
	})
	if len(reported) != 1 || reported[0].Count != 1 || reported[0].Type != corev1.EventTypeWarning {
		t.Errorf("got %d events, %+v", len(reported), reported)
	}
	for _, c := range w.canary(t, key).Status.Conditions {
		if c.Type == flaggerv1.ConditionBlocked {
			t.Errorf("the Canary is blocked: %s", c.Message)
		}
	}
	s, err := w.reconciler.Snapshot(t.Context(), w.canary(t, key), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	view := canary.View(s)
	i := slices.IndexFunc(view.Gates, func(g release.GateView) bool { return g.IsNotice() })
	if view.State != release.Idle || i < 0 || view.Gates[i].Name != "references" || view.Gates[i].Message != warning {
		t.Errorf("the view shows %s %+v", view.State, view.Gates)
	}
}

// TestAServiceOfNotificationsReceivesAlerts: its options are in the Secret of the AlertProvider.
func TestAServiceOfNotificationsReceivesAlerts(t *testing.T) {
	received := make(chan string, 10)
	pager := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		received <- r.URL.Path + " " + string(body)
	}))
	t.Cleanup(pager.Close)
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "pager"}, Data: map[string][]byte{
		"key": []byte("K"), "options": []byte("{serviceKeys: {on-call: $key}, apiURL: '" + pager.URL + "'}"),
	}}
	provider := &flaggerv1.AlertProvider{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "pager"}}
	provider.Spec = flaggerv1.AlertProviderSpec{Type: "pagerdutyv2", Channel: "on-call", SecretRef: &flaggerv1.SecretReference{Name: "pager"}}
	cart := canaryWithQueries("cart", pager.URL, pager.URL)
	cart.Spec.Analysis.Webhooks, cart.Spec.Analysis.Metrics = nil, nil
	cart.Spec.Analysis.Alerts = []flaggerv1.CanaryAlert{{Name: "pager", ProviderRef: flaggerv1.CrossNamespaceObjectReference{Name: "pager"}}}
	w := newTestCluster(t, outbound.Policy{AllowLoopback: true}, secret, provider, cart)
	w.waitForPhase(t, client.ObjectKeyFromObject(cart), flaggerv1.CanaryPhaseInitialized)
	last := ""
	w.waitFor(t, "an alert", func() (bool, string) {
		select {
		case last = <-received:
		default:
		}
		return last != "", "no request yet"
	})
	for _, want := range []string{"/v2/enqueue ", `"routing_key":"K"`, `"severity":"info"`, `"source":"cart.shop"`, "initialization completed"} {
		if !strings.Contains(last, want) {
			t.Errorf("the request does not contain %s: %s", want, last)
		}
	}
}
