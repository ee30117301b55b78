package plugin

import (
	"errors"
	"fmt"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/telemetry"
)

// TestUnknownNamesLeaveNothingBehind: users choose the names of plugins in their templates, and any number of them. Only those that
// the administrator has configured have state and series.
func TestUnknownNamesLeaveNothingBehind(t *testing.T) {
	const invalid = "- {name: acme/invalid, location: 'http://example.com'}"
	for name, c := range map[string]struct {
		metricPlugins string
		called        []string // next to a thousand unknown names
		wantSeries    []string
	}{
		"no configuration":  {"", nil, []string{"unknown"}},
		"an invalid list":   {"{", nil, []string{"unknown"}},
		"an invalid plugin": {invalid, []string{"acme/invalid"}, []string{"acme/invalid", "unknown"}},
	} {
		t.Run(name, func(t *testing.T) {
			registry := prometheus.NewRegistry()
			h := newTestHost(t, func(o *Options) { o.Metrics = telemetry.New(registry) })
			h.Configure(ParseConfig(map[string]string{string(Metric): c.metricPlugins}))
			called := c.called
			for i := range 1000 {
				called = append(called, fmt.Sprint("mallory/", i))
			}
			for _, plugin := range append(called, "") {
				_, err := h.CallMetric(t.Context(), MetricCall{Plugin: plugin, Run: &argov1.AnalysisRun{ObjectMeta: metav1.ObjectMeta{Namespace: "mallory"}}})
				if _, refused := errors.AsType[*RefusedError](err); !refused {
					t.Fatalf("%s: got %v", plugin, err)
				}
			}
			if len(h.plugins) > 0 {
				t.Errorf("%d plugins have state", len(h.plugins))
			}
			series := map[string]uint64{}
			families, err := registry.Gather()
			if err != nil {
				t.Fatal(err)
			}
			for _, family := range families {
				for _, m := range family.GetMetric() {
					for _, label := range m.GetLabel() {
						if label.GetName() == "plugin" {
							series[label.GetValue()] += m.GetHistogram().GetSampleCount()
						}
					}
				}
			}
			if len(series) != len(c.wantSeries) || series["unknown"] != 1001 {
				t.Errorf("%d plugins have series, and %d calls are those of unknown ones", len(series), series["unknown"])
			}
			for _, want := range c.wantSeries {
				if series[want] == 0 {
					t.Errorf("there is no call of %s", want)
				}
			}
		})
	}
}
