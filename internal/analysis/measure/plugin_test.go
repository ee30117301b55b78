package measure_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/analysis"
	"github.com/serin-dev/serin/internal/plugin/testhost"
)

func TestMain(m *testing.M) { os.Exit(testhost.Main(m)) }

// TestMetricPlugins: a plugin with Argo's interface decides about each measurement.
func TestMetricPlugins(t *testing.T) {
	host := testhost.New(t, 5*time.Second)
	running := &argov1.Measurement{Phase: argov1.AnalysisPhaseRunning, StartedAt: new(metav1.NewTime(noon)), Metadata: map[string]string{"operation": "Run"}}
	for _, test := range []struct {
		name, plugin, config string
		request              analysis.MeasurementRequest
		want                 analysis.MeasurementResult
	}{
		{name: "successful", config: `{"phase":"Successful","value":"1","message":"fine"}`, want: analysis.MeasurementResult{
			Phase: argov1.AnalysisPhaseSuccessful, Value: "1", Message: "fine", Metadata: map[string]string{"operation": "Run"}, MetricMetadata: map[string]string{"metric": "m"},
		}},
		{name: "inconclusive", config: `{"phase":"Inconclusive"}`, want: analysis.MeasurementResult{
			Phase: argov1.AnalysisPhaseInconclusive, Metadata: map[string]string{"operation": "Run"}, MetricMetadata: map[string]string{"metric": "m"},
		}},
		{name: "resumed", config: `{"phase":"Failed","requeue":"1m"}`, request: analysis.MeasurementRequest{InProgress: running}, want: analysis.MeasurementResult{
			Phase: argov1.AnalysisPhaseFailed, Metadata: map[string]string{"operation": "Resume", "before": "Run"},
		}},
		{name: "terminated", config: `{"phase":"Successful","requeue":"1m"}`, request: analysis.MeasurementRequest{InProgress: running, Terminate: true}, want: analysis.MeasurementResult{
			Phase: argov1.AnalysisPhaseSuccessful, Metadata: map[string]string{"operation": "Terminate"},
		}},
		{name: "not terminated", config: `{"phase":"Running"}`, request: analysis.MeasurementRequest{InProgress: running, Terminate: true}, want: analysis.MeasurementResult{
			Phase: argov1.AnalysisPhaseError, Message: `metric plugin acme/test did not terminate the measurement: it returned the phase "Running"`, Metadata: map[string]string{"operation": "Terminate"},
		}},
		{name: "error", config: `{"behavior":"error"}`, want: analysis.MeasurementResult{
			Phase: argov1.AnalysisPhaseError, Message: "failed to run via plugin: the test requires an error", MetricMetadata: map[string]string{"metric": "m"},
		}},
		{name: "nonsense", config: `{"behavior":"nonsense"}`, want: analysis.MeasurementResult{
			Phase: argov1.AnalysisPhaseError, Message: `metric plugin acme/test returned the phase "Purple", which is not valid`, Metadata: map[string]string{"operation": "Run"},
		}},
		{name: "hanging", config: `{"behavior":"hang"}`, want: analysis.MeasurementResult{Phase: argov1.AnalysisPhaseError, Message: "Run rpc call error: no answer within 5s"}},
		{name: "not configured", plugin: "acme/none", config: `{}`, want: analysis.MeasurementResult{
			Phase: argov1.AnalysisPhaseError, Message: "metric plugin acme/none: not configured: add it to metricProviderPlugins of the ConfigMap argo-rollouts-config",
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			b := newHarness(t, http.NotFound)
			b.measurer.Plugins = host
			name := test.plugin
			if name == "" {
				name = "acme/test"
			}
			got := b.measure(argov1.Metric{Provider: argov1.MetricProvider{Plugin: map[string]json.RawMessage{name: json.RawMessage(test.config)}}}, test.request)
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestMetricPluginInProgress: the plugin decides when a measurement is checked again.
func TestMetricPluginInProgress(t *testing.T) {
	b := newHarness(t, http.NotFound)
	b.measurer.Plugins = testhost.New(t, time.Minute)
	before := time.Now()
	got := b.measure(argov1.Metric{Provider: argov1.MetricProvider{Plugin: map[string]json.RawMessage{"acme/test": json.RawMessage(`{"requeue":"1h"}`)}}}, analysis.MeasurementRequest{})
	if got.Phase != argov1.AnalysisPhaseRunning || got.ResumeAt.Before(before.Add(time.Hour)) {
		t.Errorf("got %+v", got)
	}
}

// TestMetricPluginGarbage: the plugin is called to delete what belongs to earlier measurements, also if the size of the status allows
// fewer than the retention.
func TestMetricPluginGarbage(t *testing.T) {
	journal := filepath.Join(t.TempDir(), "journal")
	m := argov1.Metric{Name: "m", Provider: argov1.MetricProvider{Plugin: map[string]json.RawMessage{"acme/test": json.RawMessage(fmt.Sprintf(`{"phase":"Successful","journal":%q}`, journal))}}}
	run := &argov1.AnalysisRun{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "run", UID: runUID}, Spec: argov1.AnalysisRunSpec{Metrics: []argov1.Metric{m}}}
	run.Spec.MeasurementRetention = []argov1.MeasurementRetention{{MetricName: "m", Limit: 2}}
	run.Status.MetricResults = []argov1.MetricResult{{Name: "m", Count: 1, Error: 1, Measurements: make([]argov1.Measurement, 1)}}
	b := newHarness(t, http.NotFound, run)
	b.measurer.Plugins = testhost.New(t, time.Minute)
	if got := b.measure(m, analysis.MeasurementRequest{}); got.Phase != argov1.AnalysisPhaseSuccessful {
		t.Fatalf("got %+v", got)
	}
	text, err := os.ReadFile(journal)
	if err != nil {
		t.Fatal(err)
	}
	if want := "Run run\nGarbageCollect 2\n"; string(text) != want {
		t.Errorf("the plugin was called with\n%swant\n%s", text, want)
	}
}
