package explain_test

import (
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/cli/explain"
)

// TestTheNewestFailedAnalysisIsTheCauseOfAFailure: a retry of a release has the failed runs of its earlier attempts, and a metric
// of a dry run fails without consequences.
func TestTheNewestFailedAnalysisIsTheCauseOfAFailure(t *testing.T) {
	began := time.Unix(1_800_000_000, 0)
	labels := map[string]string{argov1.PodTemplateHashLabel: "b"}
	failedRun := func(name string, after time.Duration, failed ...string) argov1.AnalysisRun {
		run := argov1.AnalysisRun{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels, CreationTimestamp: metav1.NewTime(began.Add(after))}}
		run.Status.Phase, run.Status.Message = argov1.AnalysisPhaseFailed, name+" failed"
		for i, metric := range failed {
			run.Spec.Metrics = append(run.Spec.Metrics, argov1.Metric{Name: metric})
			run.Status.MetricResults = append(run.Status.MetricResults, argov1.MetricResult{Name: metric, Phase: argov1.AnalysisPhaseFailed, DryRun: i < len(failed)-1})
		}
		return run
	}
	sets := []appsv1.ReplicaSet{{ObjectMeta: metav1.ObjectMeta{Name: "cart-b", Labels: labels, Annotations: map[string]string{argov1.RevisionAnnotation: "2"}}}}
	runs := []argov1.AnalysisRun{failedRun("first", 0, "errors"), failedRun("third", 2*time.Minute, "experimental", "latency"), failedRun("second", time.Minute, "errors")}
	object := &argov1.Rollout{Status: argov1.RolloutStatus{StableRS: "a", CurrentPodHash: "b"}}

	if got := explain.RolloutHistory(object, sets, runs).Releases[0]; got.Result != explain.InProgress || got.Cause != nil {
		t.Errorf("retried, the release is %s: %+v", got.Result, got.Cause)
	}
	object.Status.Abort = true
	if got := explain.RolloutHistory(object, sets, runs).Releases[0]; got.Cause == nil || got.Cause.Gate != "latency" || got.Cause.Message != "third failed" {
		t.Errorf("aborted, the cause of the release is %+v", got.Cause)
	}
}
