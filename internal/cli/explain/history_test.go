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

// TestTheLimitOfAFailedAnalysisIsResolved: the user knows the values of the arguments, not their names in a template.
func TestTheLimitOfAFailedAnalysisIsResolved(t *testing.T) {
	labels := map[string]string{argov1.PodTemplateHashLabel: "b"}
	run := argov1.AnalysisRun{ObjectMeta: metav1.ObjectMeta{Name: "run", Labels: labels}}
	run.Spec.Args = []argov1.Argument{{Name: "min", Value: new("0.95")}}
	run.Spec.Metrics = []argov1.Metric{{Name: "success-rate", SuccessCondition: "result[0] >= {{args.min}}"}}
	run.Status.Phase = argov1.AnalysisPhaseFailed
	run.Status.MetricResults = []argov1.MetricResult{{Name: "success-rate", Phase: argov1.AnalysisPhaseFailed}}
	sets := []appsv1.ReplicaSet{{ObjectMeta: metav1.ObjectMeta{Labels: labels}}}
	object := &argov1.Rollout{Status: argov1.RolloutStatus{StableRS: "a", CurrentPodHash: "b", Abort: true}}
	if got := explain.RolloutHistory(object, sets, []argov1.AnalysisRun{run}).Releases[0].Cause; got == nil || got.Limit != "result[0] >= 0.95" {
		t.Errorf("got the cause %+v, want the limit result[0] >= 0.95", got)
	}
}

// TestTheStatusRecordsTheDurationOfTheCurrentRevision: after an undo, its ReplicaSet is older than the release.
func TestTheStatusRecordsTheDurationOfTheCurrentRevision(t *testing.T) {
	created := time.Unix(1_800_000_000, 0).UTC()
	started, finished := metav1.NewTime(created.Add(time.Hour)), metav1.NewTime(created.Add(2*time.Hour))
	for _, tc := range []struct {
		name       string
		duration   argov1.RolloutDuration
		start, end time.Time
	}{
		{"in progress", argov1.RolloutDuration{RolloutStartedAt: &started}, started.UTC(), time.Time{}},
		{"promoted", argov1.RolloutDuration{RolloutStartedAt: &started, FinishedAt: &finished, CompletionStatus: new(argov1.CompletionPromoted)}, started.UTC(), finished.UTC()},
		{"returned during a release", argov1.RolloutDuration{RolloutStartedAt: &started, FinishedAt: &finished, CompletionStatus: new(argov1.CompletionFastRolledBack)}, finished.UTC(), time.Time{}},
		{"returned after an abort", argov1.RolloutDuration{RolloutStartedAt: &started, FinishedAt: &finished, CompletionStatus: new(argov1.CompletionAborted)}, created, time.Time{}},
		{"no record", argov1.RolloutDuration{}, created, time.Time{}},
	} {
		sets := []appsv1.ReplicaSet{{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(created), Labels: map[string]string{argov1.PodTemplateHashLabel: "a"}}}}
		object := &argov1.Rollout{Status: argov1.RolloutStatus{StableRS: "a", CurrentPodHash: "a", Duration: &tc.duration}}
		if got := explain.RolloutHistory(object, sets, nil).Releases[0]; !got.Start.Equal(tc.start) || !got.End.Equal(tc.end) {
			t.Errorf("%s: got %s to %s, want %s to %s", tc.name, got.Start, got.End, tc.start, tc.end)
		}
	}
}
