package measure_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/analysis"
	"github.com/serin-dev/serin/internal/metric"
	"github.com/serin-dev/serin/internal/outbound"
)

// TestAnalysesUseThePermissionsOfTheControllerInTheirNamespaceOnly queries the API server as the controller does.
func TestAnalysesUseThePermissionsOfTheControllerInTheirNamespaceOnly(t *testing.T) {
	var requested []string
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requested = append(requested, r.URL.Path)
		if strings.Contains(r.URL.Path, "keptn") {
			_, _ = io.WriteString(w, `{"kind":"KeptnMetric","status":{"value":"2.5"}}`)
			return
		}
		_, _ = io.WriteString(w, `{"kind":"ExternalMetricValueList","items":[{"value":"7"}]}`)
	}))
	t.Cleanup(api.Close)
	own := outbound.New(outbound.Policy{AllowLoopback: true})
	t.Cleanup(own.Close)
	external := func(query string) argov1.MetricProvider {
		return argov1.MetricProvider{ExternalMetrics: &argov1.ExternalMetric{Query: query}}
	}
	keptn := func(query string) argov1.MetricProvider {
		return argov1.MetricProvider{Keptn: &argov1.KeptnMetric{Query: query}}
	}
	for _, c := range []struct {
		provider         argov1.MetricProvider
		requested, value string
	}{
		{external("queue"), "/apis/external.metrics.k8s.io/v1beta1/namespaces/shop/queue", "7"},
		{external("shop/queue"), "/apis/external.metrics.k8s.io/v1beta1/namespaces/shop/queue", "7"},
		{external("bank/queue"), "", ""},
		{keptn("keptnmetric/shop/errors"), "/apis/metrics.keptn.sh/v1beta1/namespaces/shop/keptnmetrics/errors", "2.5"},
		{keptn("keptnmetric/bank/errors"), "", ""},
		{keptn("analysis/bank/quality"), "", ""},
	} {
		requested = nil
		b := newHarness(t, http.NotFound)
		b.measurer.Services = services(metric.Cluster{Address: api.URL, Own: own, Anonymous: own})
		got := b.measure(argov1.Metric{Provider: c.provider}, analysis.MeasurementRequest{})
		switch refused := c.requested == ""; {
		case refused && (got.Phase != argov1.AnalysisPhaseError || !strings.Contains(got.Message, "bank, cross-namespace references are blocked") || len(requested) > 0):
			t.Errorf("another namespace: %+v after %v", got, requested)
		case !refused && (got.Value != c.value || strings.Join(requested, " ") != c.requested):
			t.Errorf("got %+v after %v, want %s", got, requested, c.requested)
		}
	}
}
