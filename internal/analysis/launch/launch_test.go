package launch_test

import (
	"errors"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/analysis"
	"github.com/serin-dev/serin/internal/analysis/launch"
)

func order() analysis.RunRequest {
	return analysis.RunRequest{
		Namespace: "shop", Name: "cart-1", Templates: []argov1.AnalysisTemplateRef{{TemplateName: "errors"}, {TemplateName: "latency", ClusterScope: new(true)}},
		Owner: metav1.OwnerReference{APIVersion: "argoproj.io/v1alpha1", Kind: argov1.RolloutKind, Name: "cart", UID: "u", Controller: new(true)},
	}
}

func spec(metric string) argov1.AnalysisTemplateSpec {
	return argov1.AnalysisTemplateSpec{Metrics: []argov1.Metric{{Name: metric, Provider: argov1.MetricProvider{Web: &argov1.WebMetric{URL: "http://x"}}}}}
}

// launcher returns a Launcher with two templates with these labels.
func launcher(t *testing.T, instance string, labels map[string]string) (*launch.Launcher, client.Client) {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := argov1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(
		&argov1.AnalysisTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "errors", Labels: labels}, Spec: spec("rate")},
		&argov1.ClusterAnalysisTemplate{ObjectMeta: metav1.ObjectMeta{Name: "latency", Labels: labels}, Spec: spec("p99")},
	).Build()
	return &launch.Launcher{Client: c, ClusterTemplates: c, APIReader: c, InstanceID: instance}, c
}

func TestStartRunCombinesAllTemplates(t *testing.T) {
	l, c := launcher(t, "", nil)
	for range 2 { // the second time as after a crash, before the name was recorded
		run, err := l.StartRun(t.Context(), order())
		if err != nil {
			t.Fatal(err)
		}
		if run.Name != "cart-1" || len(run.Spec.Metrics) != 2 || run.Spec.Metrics[1].Name != "p99" {
			t.Errorf("got %s with %v", run.Name, run.Spec.Metrics)
		}
	}
	runs := &argov1.AnalysisRunList{}
	if err := c.List(t.Context(), runs); err != nil || len(runs.Items) != 1 {
		t.Errorf("%d runs, %v", len(runs.Items), err)
	}
}

func TestStartRunNumbersConflictingNames(t *testing.T) {
	l, c := launcher(t, "", nil)
	for _, want := range []string{"cart-1", "cart-1.1", "cart-1.2"} {
		run, err := l.StartRun(t.Context(), order())
		if err != nil {
			t.Fatal(err)
		}
		if run.Name != want {
			t.Errorf("got %s, want %s", run.Name, want)
		}
		run.Status.Phase = argov1.AnalysisPhaseFailed
		if err := c.Update(t.Context(), run); err != nil {
			t.Fatal(err)
		}
	}
}

func TestStartRunIgnoresTemplatesOfOtherInstances(t *testing.T) {
	mine := map[string]string{argov1.InstanceIDLabel: "blue"}
	for _, c := range []struct {
		instance string
		labels   map[string]string
		found    bool
	}{{"", nil, true}, {"blue", mine, true}, {"", mine, false}, {"blue", nil, false}, {"green", mine, false}} {
		l, _ := launcher(t, c.instance, c.labels)
		run, err := l.StartRun(t.Context(), order())
		missing, _ := errors.AsType[*launch.TemplateNotFoundError](err)
		switch {
		case c.found && err != nil:
			t.Errorf("%q: %v", c.instance, err)
		case c.found && run.Labels[argov1.InstanceIDLabel] != c.instance:
			t.Errorf("%q: the run has labels %v", c.instance, run.Labels)
		case !c.found && (missing == nil || missing.Error() != "AnalysisTemplate 'errors' not found"):
			t.Errorf("%q: got %v", c.instance, err)
		}
	}
}

func TestStartRunReportsMissingClusterTemplate(t *testing.T) {
	l, _ := launcher(t, "", nil)
	o := order()
	o.Templates[1].TemplateName = "gone"
	if _, err := l.StartRun(t.Context(), o); err == nil || err.Error() != "ClusterAnalysisTemplate 'gone' not found" {
		t.Errorf("got %v", err)
	}
}
