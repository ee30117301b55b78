package analysis_test

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/analysis"
)

func cartRunRequest() analysis.RunRequest {
	return analysis.RunRequest{
		Namespace: "shop", Name: "cart-674d8cf959-2", Templates: []argov1.AnalysisTemplateRef{{TemplateName: "errors"}},
		RunOptions: analysis.RunOptions{Args: []argov1.Argument{{Name: "hash", Value: new("674d8cf959")}, {Name: "stranger", Value: new("x")}}},
		Labels:     map[string]string{argov1.RolloutTypeLabel: argov1.TypeBackground}, Annotations: map[string]string{argov1.RevisionAnnotation: "2"},
		Owner: metav1.OwnerReference{Kind: argov1.RolloutKind, Name: "cart", UID: "u", Controller: new(true)},
	}
}

func errorsTemplate(string, bool) (argov1.AnalysisTemplateSpec, error) {
	return argov1.AnalysisTemplateSpec{
		Metrics: []argov1.Metric{metric("rate")}, Args: []argov1.Argument{{Name: "hash"}, {Name: "service", Value: new("cart")}},
	}, nil
}

func TestNewRunMergesTemplatesAndArguments(t *testing.T) {
	run, err := analysis.NewRun(cartRunRequest(), errorsTemplate)
	if err != nil {
		t.Fatal(err)
	}
	want := argov1.AnalysisRun{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: "cart-674d8cf959-2", Labels: map[string]string{"rollout-type": "Background"},
			Annotations: map[string]string{"rollout.argoproj.io/revision": "2"}, OwnerReferences: []metav1.OwnerReference{cartRunRequest().Owner},
		},
		Spec: argov1.AnalysisRunSpec{
			Metrics: []argov1.Metric{metric("rate")},
			Args:    []argov1.Argument{{Name: "hash", Value: new("674d8cf959")}, {Name: "service", Value: new("cart")}},
		},
	}
	if diff := cmp.Diff(want, *run); diff != "" {
		t.Error(diff)
	}
}

func TestNewRunReportsMissingTemplate(t *testing.T) {
	missing := errors.New("AnalysisTemplate 'errors' not found")
	_, err := analysis.NewRun(cartRunRequest(), func(string, bool) (argov1.AnalysisTemplateSpec, error) {
		return argov1.AnalysisTemplateSpec{}, missing
	})
	if !errors.Is(err, missing) {
		t.Errorf("got %v, want %v", err, missing)
	}
}

func TestNewRunRequiresAllArguments(t *testing.T) {
	order := cartRunRequest()
	order.Args = nil
	if _, err := analysis.NewRun(order, errorsTemplate); err == nil || err.Error() != "args.hash was not resolved" {
		t.Errorf("got %v", err)
	}
}

func TestOnlyAnIncompleteRunWithTheSameOwnerAndMetricsIsReusable(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*argov1.AnalysisRun)
		want   bool
	}{
		"the same":        {func(*argov1.AnalysisRun) {}, true},
		"under way":       {func(r *argov1.AnalysisRun) { r.Status.Phase = argov1.AnalysisPhaseRunning }, true},
		"labelled anew":   {func(r *argov1.AnalysisRun) { r.Labels = nil }, true},
		"terminated":      {func(r *argov1.AnalysisRun) { r.Spec.Terminate = true }, true},
		"over":            {func(r *argov1.AnalysisRun) { r.Status.Phase = argov1.AnalysisPhaseSuccessful }, false},
		"going":           {func(r *argov1.AnalysisRun) { r.DeletionTimestamp = new(metav1.Now()) }, false},
		"another's":       {func(r *argov1.AnalysisRun) { r.OwnerReferences[0].UID = "v" }, false},
		"nobody's":        {func(r *argov1.AnalysisRun) { r.OwnerReferences = nil }, false},
		"another value":   {func(r *argov1.AnalysisRun) { r.Spec.Args[0].Value = new("old") }, false},
		"another metric":  {func(r *argov1.AnalysisRun) { r.Spec.Metrics[0].Interval = "1m" }, false},
		"another dry run": {func(r *argov1.AnalysisRun) { r.Spec.DryRun = []argov1.DryRun{{MetricName: "rate"}} }, false},
	} {
		wanted, err := analysis.NewRun(cartRunRequest(), errorsTemplate)
		if err != nil {
			t.Fatal(err)
		}
		existing := wanted.DeepCopy()
		c.change(existing)
		if got := analysis.IsReusable(existing, wanted); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

func TestRolloutArgumentsAreResolvedFromHashesAndFields(t *testing.T) {
	rollout := map[string]any{
		"metadata": map[string]any{"name": "cart", "labels": map[string]any{"env": "prod"}},
		"status":   map[string]any{"currentStepIndex": int64(2)},
	}
	field := func(name, path string) argov1.AnalysisRunArgument {
		return argov1.AnalysisRunArgument{Name: name, ValueFrom: &argov1.ArgumentValueFrom{FieldRef: &argov1.FieldRef{FieldPath: path}}}
	}
	hash := func(name string, of argov1.PodTemplateHashOf) argov1.AnalysisRunArgument {
		return argov1.AnalysisRunArgument{Name: name, ValueFrom: &argov1.ArgumentValueFrom{PodTemplateHashValue: &of}}
	}
	got, err := analysis.ResolveRolloutArguments([]argov1.AnalysisRunArgument{
		{Name: "literal", Value: "x"},
		{Name: "empty"},
		hash("old", argov1.HashOfStable), hash("new", argov1.HashOfLatest),
		field("env", "metadata.labels['env']"), field("step", "status.currentStepIndex"),
	}, rollout, "stable-hash", "latest-hash")
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"literal": "x", "empty": "", "old": "stable-hash", "new": "latest-hash", "env": "prod", "step": "2"}
	values := map[string]string{}
	for _, arg := range got {
		values[arg.Name] = *arg.Value
	}
	if diff := cmp.Diff(want, values); diff != "" {
		t.Error(diff)
	}
	if _, err := analysis.ResolveRolloutArguments([]argov1.AnalysisRunArgument{field("gone", "spec.nothing")}, rollout, "", ""); err == nil {
		t.Error("a field that is not there is accepted")
	}
}
