package controller_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/analysis"
	"github.com/serin-dev/serin/internal/analysis/controller"
	"github.com/serin-dev/serin/internal/analysis/measure"
	"github.com/serin-dev/serin/internal/queryrunner"
	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/internal/telemetry"
)

// errRefusedByEtcd is the response of the API server if etcd refuses an object.
var errRefusedByEtcd = &apierrors.StatusError{ErrStatus: metav1.Status{
	Status: metav1.StatusFailure, Code: http.StatusInternalServerError, Message: "etcdserver: request is too large",
}}

// measureWithLimit reconciles a run with 40 metrics for five minutes. Each value has 4 KiB, and the phase that phaseAfter returns. The
// store refuses writes of more than maxBytes with the error refusal. It returns the run and the number of refused writes.
func measureWithLimit(t *testing.T, maxBytes int, refusal error, phaseAfter func(time.Duration) argov1.AnalysisPhase) (*argov1.AnalysisRun, int) {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := argov1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	refused := 0
	cluster := fake.NewClientBuilder().WithScheme(scheme).WithInterceptorFuncs(interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, object client.Object, patch client.Patch, options ...client.PatchOption) error {
			text, err := patch.Data(object)
			if err == nil && len(text) > maxBytes {
				refused++
				return refusal
			}
			return c.Patch(ctx, object, patch, options...)
		},
	}).Build()
	run := &argov1.AnalysisRun{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "run", UID: "u"}}
	for i := range 40 {
		run.Spec.Metrics = append(run.Spec.Metrics, argov1.Metric{
			Name: fmt.Sprint("m", i), Interval: "5s", Count: new(intstr.FromInt32(100)), Provider: argov1.MetricProvider{Web: &argov1.WebMetric{URL: "https://metrics.example"}},
		})
	}
	if err := cluster.Create(t.Context(), run); err != nil {
		t.Fatal(err)
	}
	clk, began := clock.RealClock{}, time.Now()
	queries := queryrunner.NewConcurrent(clk, 256, 16, func(context.Context, queryrunner.Key, release.Query) release.Answer {
		return release.Answer{Outcome: release.Measured, Detail: analysis.MeasurementResult{Phase: phaseAfter(time.Since(began)), Value: strings.Repeat("1", 4096)}}
	}, func(types.NamespacedName, bool) {})
	reconciler := controller.New(controller.Parts{
		Client: cluster, APIReader: cluster, Clock: clk, Queries: queries, Metrics: telemetry.New(prometheus.NewRegistry()), Jobs: &measure.Jobs{Client: cluster, APIReader: cluster, Clock: clk},
		Recorder: telemetry.NewRecorder(cluster, telemetry.NewOutbox(clk, logr.Discard()), clk, "rollouts-controller"),
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- queries.Run(ctx) }()
	for time.Since(began) < 5*time.Minute && !run.Status.Phase.Completed() {
		if _, err := reconciler.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(run)}); err != nil && !errors.Is(err, refusal) {
			t.Fatal(err)
		}
		synctest.Wait()
		if err := cluster.Get(t.Context(), client.ObjectKeyFromObject(run), run); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second) // of the virtual clock
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	return run, refused
}

func failAfterAMinute(elapsed time.Duration) argov1.AnalysisPhase {
	if elapsed < time.Minute {
		return argov1.AnalysisPhaseSuccessful
	}
	return argov1.AnalysisPhaseFailed
}

// TestLongValuesDoNotHideAFailure: etcd stores no object of more than 1.5 MiB.
func TestLongValuesDoNotHideAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		run, refused := measureWithLimit(t, 3<<19, errRefusedByEtcd, failAfterAMinute)
		if run.Status.Phase != argov1.AnalysisPhaseFailed || refused > 0 || run.Status.RunSummary.Failed == 0 {
			t.Errorf("got %s after %d refused writes: %+v", run.Status.Phase, refused, run.Status.RunSummary)
		}
		for _, result := range run.Status.MetricResults {
			if len(result.Measurements) == 0 {
				t.Errorf("%s has no measurement", result.Name)
			}
		}
	})
}

// TestRefusedStatusEndsTheRun: whatever is too large, the release that depends on the run learns that it has ended.
func TestRefusedStatusEndsTheRun(t *testing.T) {
	const omitted = "The results of the metrics are not stored"
	for name, c := range map[string]struct {
		refusal    error
		phaseAfter func(time.Duration) argov1.AnalysisPhase
		maxBytes   int
		want       argov1.AnalysisPhase
		message    string
	}{
		"by etcd, a failure": {errRefusedByEtcd, func(time.Duration) argov1.AnalysisPhase { return argov1.AnalysisPhaseFailed }, 16 << 10, argov1.AnalysisPhaseFailed, `Metric "m`},
		"by etcd, measurements": {
			errRefusedByEtcd, func(time.Duration) argov1.AnalysisPhase { return argov1.AnalysisPhaseSuccessful }, 256 << 10, argov1.AnalysisPhaseError, omitted,
		},
		"by the API server": {
			apierrors.NewRequestEntityTooLargeError("limit is 3145728"), failAfterAMinute, 256 << 10, argov1.AnalysisPhaseError, omitted,
		},
		"by the client of etcd": {
			apierrors.NewInternalError(errors.New("rpc error: code = ResourceExhausted desc = trying to send message larger than max (2097200 vs. 2097152)")), failAfterAMinute, 256 << 10, argov1.AnalysisPhaseError, omitted,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				run, refused := measureWithLimit(t, c.maxBytes, c.refusal, c.phaseAfter)
				status := run.Status
				if status.Phase != c.want || status.CompletedAt == nil || refused != 1 || status.RunSummary.Count != 40 {
					t.Errorf("got %s after %d refused writes: %+v", status.Phase, refused, status.RunSummary)
				}
				if !strings.HasPrefix(status.Message, c.message) || !strings.Contains(status.Message, omitted) {
					t.Errorf("got the message %q", status.Message)
				}
			})
		})
	}
}
