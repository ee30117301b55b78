package controller_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/analysis"
	"github.com/serin-dev/serin/internal/analysis/controller"
	"github.com/serin-dev/serin/internal/analysis/measure"
	"github.com/serin-dev/serin/internal/queryrunner"
	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/internal/telemetry"
)

// TestHangingMeasurementsDoNotDelayOtherNamespaces: all measurements of the maximum number of runs of one namespace hang, and the
// run of another namespace is measured immediately.
func TestHangingMeasurementsDoNotDelayOtherNamespaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const slots, abreast, hostile = 256, 16, 40
		scheme := runtime.NewScheme()
		if err := argov1.AddToScheme(scheme); err != nil {
			t.Fatal(err)
		}
		var metrics []argov1.Metric
		for i := range 2 * abreast {
			metrics = append(metrics, argov1.Metric{Name: fmt.Sprint("m", i), Provider: argov1.MetricProvider{Web: &argov1.WebMetric{URL: "https://metrics.example"}}})
		}
		cluster := fake.NewClientBuilder().WithScheme(scheme).Build()
		create := func(namespace string, i int) types.NamespacedName {
			run := &argov1.AnalysisRun{Spec: argov1.AnalysisRunSpec{Metrics: metrics}}
			run.Namespace, run.Name, run.UID = namespace, fmt.Sprint("run-", i), types.UID(fmt.Sprint(namespace, i))
			if err := cluster.Create(t.Context(), run); err != nil {
				t.Fatal(err)
			}
			return client.ObjectKeyFromObject(run)
		}
		var hanging atomic.Int64
		ask := func(ctx context.Context, key queryrunner.Key, _ release.Query) release.Answer {
			if key.Namespace == "hostile" {
				hanging.Add(1)
				<-ctx.Done()
			}
			return release.Answer{Outcome: release.Measured, Detail: analysis.MeasurementResult{Phase: argov1.AnalysisPhaseSuccessful}}
		}
		clk, metricsRegistry := clock.RealClock{}, telemetry.New(prometheus.NewRegistry())
		queries := queryrunner.NewConcurrent(clk, slots, abreast, ask, func(types.NamespacedName, bool) {})
		reconciler := controller.New(controller.Parts{
			Client: cluster, APIReader: cluster, Clock: clk, Queries: queries, Metrics: metricsRegistry, Jobs: &measure.Jobs{Client: cluster, APIReader: cluster, Clock: clk},
			Recorder: telemetry.NewRecorder(cluster, telemetry.NewOutbox(clk, logr.Discard()), clk, "rollouts-controller"),
		})
		reconcileRun := func(key types.NamespacedName) argov1.AnalysisRunStatus {
			if _, err := reconciler.Reconcile(t.Context(), reconcile.Request{NamespacedName: key}); err != nil {
				t.Fatal(err)
			}
			run := &argov1.AnalysisRun{}
			if err := cluster.Get(t.Context(), key, run); err != nil {
				t.Fatal(err)
			}
			return run.Status
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- queries.Run(ctx) }()

		for i := range hostile {
			reconcileRun(create("hostile", i))
		}
		synctest.Wait()
		if n := hanging.Load(); n < slots/2 {
			t.Errorf("%d measurements hang, want at least half of the %d slots", n, slots)
		}
		began, other := time.Now(), create("shop", 0)
		var status argov1.AnalysisRunStatus
		for range 5 { // each reconciliation processes the answers to the previous queries
			status = reconcileRun(other)
			synctest.Wait()
		}
		if status.Phase != argov1.AnalysisPhaseSuccessful || time.Since(began) > time.Second {
			t.Errorf("the other run is %s after %s beside %d hanging measurements: %+v", status.Phase, time.Since(began), hanging.Load(), status.RunSummary)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
