package controller

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/outbound"
)

// TestAnAlertThatFailsIsReportedOnTheCanary: in one event with cause and remedy, and in the metric, without the address, whose path
// is a secret.
func TestAnAlertThatFailsIsReportedOnTheCanary(t *testing.T) {
	gone := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(gone.Close)
	for name, test := range map[string]struct{ address, want string }{
		"refused": {
			gone.URL,
			`An alert was not sent to "on-call" of spec.analysis.alerts: alert provider chat.shop send error: the chat answered 404 Not Found. ` +
				"Correct the AlertProvider or its Secret, and test it with: serin notify test alertprovider/chat -n shop",
		},
		"invalid address": {
			"hooks.example.com",
			`An alert was not sent to "on-call" of spec.analysis.alerts: alert provider chat.shop error: invalid Slack webhook URL: ` +
				"the address must begin with http:// or https://: correct it. Correct the AlertProvider or its Secret, and test it with: serin notify test alertprovider/chat -n shop",
		},
	} {
		t.Run(name, func(t *testing.T) {
			provider := &flaggerv1.AlertProvider{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "chat"}}
			provider.Spec = flaggerv1.AlertProviderSpec{Type: "slack", Address: test.address + "/services/T0/B0/" + plantedSecret}
			cart := canaryWithQueries("cart", gone.URL, gone.URL)
			cart.Spec.Analysis.Webhooks, cart.Spec.Analysis.Metrics = nil, nil
			cart.Spec.Analysis.Alerts = []flaggerv1.CanaryAlert{{Name: "on-call", ProviderRef: flaggerv1.CrossNamespaceObjectReference{Name: "chat"}}}
			w := newTestCluster(t, outbound.Policy{AllowLoopback: true}, provider, cart)
			key := client.ObjectKeyFromObject(cart)
			w.waitForPhase(t, key, flaggerv1.CanaryPhaseInitialized)
			w.workloads.deploy(w.canary(t, key))
			w.waitForPhase(t, key, flaggerv1.CanaryPhaseSucceeded)

			// Initialization, start and promotion of the release are alerts. Their failures are one event.
			const counted = `serin_alerts_total{name="cart",namespace="shop",outcome="failed"} 3`
			output := ""
			w.waitFor(t, "three failed alerts and an event", func() (bool, string) {
				output = w.allOutput(t)
				return strings.Contains(output, counted) && strings.Contains(output, test.want), output
			})
			events := &corev1.EventList{}
			if err := w.client.List(t.Context(), events); err != nil {
				t.Fatal(err)
			}
			failures := slices.DeleteFunc(events.Items, func(e corev1.Event) bool { return e.Reason != reasonAlertFailed })
			if len(failures) != 1 || failures[0].Count != 1 || failures[0].Type != corev1.EventTypeWarning || failures[0].InvolvedObject.Name != "cart" {
				t.Errorf("got %d events of failures, want one: %+v", len(failures), failures)
			}
			if strings.Contains(output, plantedSecret) {
				t.Errorf("the secret is shown: %s", output)
			}
		})
	}
}

func TestFailuresOfAnAlertAreReportedAtMostEveryTenMinutes(t *testing.T) {
	var f alertFailures
	cart, now := types.NamespacedName{Namespace: "shop", Name: "cart"}, time.Unix(1_800_000_000, 0)
	isDue := func(entry string, after time.Duration, want bool) {
		t.Helper()
		if got := f.isDue(cart, entry, now.Add(after)); got != want {
			t.Errorf("%q after %s: %v, want %v", entry, after, got, want)
		}
	}
	isDue("on-call", 0, false) // a deleted Canary
	f.track(cart)
	isDue("on-call", 0, true)
	isDue("on-call", alertFailureInterval-time.Second, false)
	isDue("audit", time.Second, true)
	f.track(cart) // the next alert
	isDue("on-call", alertFailureInterval-time.Second, false)
	isDue("on-call", alertFailureInterval, true)
	f.forget(cart)
	isDue("on-call", time.Hour, false)
	if keys := f.keys(); len(keys) != 0 {
		t.Errorf("remembers %v", keys)
	}
}
