package controller

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/outbound"
)

// TestUnverifiedCertificatesAreReportedOnce: for the template with insecureSkipVerify, and for no other.
func TestUnverifiedCertificatesAreReportedOnce(t *testing.T) {
	var objects []client.Object
	for name, skip := range map[string]bool{"trusting": true, "verifying": false} {
		template := &flaggerv1.MetricTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}}
		template.Spec.Query = "errors"
		template.Spec.Provider = flaggerv1.MetricTemplateProvider{Type: "prometheus", Address: "https://127.0.0.1:1", InsecureSkipVerify: skip}
		c := canaryWithQueries(name, "http://127.0.0.1:1", "http://127.0.0.1:1")
		c.Spec.Analysis.Metrics = []flaggerv1.CanaryMetric{{Name: "errors", TemplateRef: &flaggerv1.CrossNamespaceObjectReference{Name: name}, ThresholdRange: &flaggerv1.CanaryThresholdRange{Max: new(1.0)}}}
		c.Spec.Analysis.Webhooks = nil
		objects = append(objects, template, c)
	}
	w := newTestCluster(t, outbound.Policy{AllowLoopback: true}, objects...)
	for _, name := range []string{"trusting", "verifying"} {
		w.waitForPhase(t, client.ObjectKey{Namespace: "shop", Name: name}, flaggerv1.CanaryPhaseInitialized)
	}
	const warning = "metric template trusting.shop disables certificate verification (insecureSkipVerify)"
	events := &corev1.EventList{}
	w.waitFor(t, "an event says so", func() (bool, string) {
		if err := w.client.List(t.Context(), events); err != nil {
			t.Fatal(err)
		}
		for _, event := range events.Items {
			if strings.HasPrefix(event.Message, warning) {
				return true, ""
			}
		}
		return false, ""
	})
	for _, event := range events.Items {
		if strings.Contains(event.Message, "without verifying") && (event.Count != 1 || event.Type != corev1.EventTypeWarning || event.InvolvedObject.Name != "trusting") {
			t.Errorf("%s, %d times, about %s: %s", event.Type, event.Count, event.InvolvedObject.Name, event.Message)
		}
	}
}
