package controller_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
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
	"github.com/serin-dev/serin/internal/analysis/controller"
	"github.com/serin-dev/serin/internal/analysis/measure"
	"github.com/serin-dev/serin/internal/metric"
	metricweb "github.com/serin-dev/serin/internal/metric/web"
	"github.com/serin-dev/serin/internal/notification/dispatch"
	"github.com/serin-dev/serin/internal/othercontroller"
	"github.com/serin-dev/serin/internal/outbound"
	"github.com/serin-dev/serin/internal/queryrunner"
	"github.com/serin-dev/serin/internal/reconciler"
	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/internal/sharding"
	"github.com/serin-dev/serin/internal/telemetry"
	"github.com/serin-dev/serin/internal/waittest"
)

var key = types.NamespacedName{Namespace: "shop", Name: "run"}

// office is one AnalysisRun with its reconciler and all dependencies; only the API server is replaced by one in memory.
type office struct {
	t          *testing.T
	client     client.Client
	reconciler *controller.Reconciler
	registry   *prometheus.Registry
	answered   chan struct{}
	conflicts  atomic.Int32 // status writes that are to fail
	writes     atomic.Int32 // successful status writes
	parts      controller.Parts
	stale      *argov1.AnalysisRun // what the cache returns; nil: the stored run
	liveReads  atomic.Int32        // reads of runs from the API server
}

func open(t *testing.T, instance string, objects ...client.Object) *office {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, batchv1.AddToScheme, argov1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	o := &office{t: t, registry: prometheus.NewRegistry(), answered: make(chan struct{}, 100)}
	o.client = fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithStatusSubresource(&batchv1.Job{}).WithInterceptorFuncs(interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, object client.Object, patch client.Patch, options ...client.PatchOption) error {
			if _, ok := object.(*argov1.AnalysisRun); ok {
				if o.conflicts.Add(-1) >= 0 {
					return apierrors.NewConflict(argov1.Resource("analysisruns"), object.GetName(), errors.New("somebody was faster"))
				}
				o.writes.Add(1)
			}
			return c.Patch(ctx, object, patch, options...)
		},
	}).Build()
	clk, out := clock.RealClock{}, outbound.New(outbound.Policy{AllowLoopback: true})
	shown, outbox := telemetry.New(o.registry), telemetry.NewOutbox(clk, logr.Discard())
	jobs := &measure.Jobs{Client: o.client, APIReader: o.client, Clock: clk}
	measurer := &measure.Measurer{
		Client: o.client, Secrets: o.client, Clock: clk, Restricted: out, Unrestricted: out, Services: metric.NewRegistry(metricweb.Service(metric.Cluster{})), Namespace: "serin-system", Environment: func(string) string { return "" },
		Jobs: jobs, Telemetry: shown,
	}
	cached := interceptor.NewClient(o.client.(client.WithWatch), interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
			if run, ok := object.(*argov1.AnalysisRun); ok && o.stale != nil {
				o.stale.DeepCopyInto(run)
				return nil
			}
			return c.Get(ctx, key, object, options...)
		},
	})
	asking := queryrunner.NewConcurrent(clk, 10, 4, measurer.Measure, func(types.NamespacedName, bool) { o.answered <- struct{}{} })
	live := interceptor.NewClient(o.client.(client.WithWatch), interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
			o.liveReads.Add(1)
			return c.Get(ctx, key, object, options...)
		},
	})
	o.parts = controller.Parts{
		Client: cached, APIReader: live, Clock: clk, Queries: asking, Recorder: telemetry.NewRecorder(o.client, outbox, clk, "rollouts-controller"), Jobs: jobs,
		Metrics: shown, InstanceID: instance,
		Notifications: dispatch.New(dispatch.Parts{
			Client: o.client, Clock: clk, Outbox: outbox, Metrics: shown, Services: out, Policy: outbound.Policy{AllowLoopback: true}, Namespace: "serin-system",
			RecordEvent: func(_ context.Context, object client.Object, event release.Event) {
				t.Errorf("%s: %s", object.GetName(), event.Message)
			},
		}),
	}
	o.reconciler = controller.New(o.parts)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = asking.Run(ctx) })
	running.Go(func() { _ = outbox.Run(ctx) })
	t.Cleanup(func() { cancel(); running.Wait(); out.Close() })
	return o
}

// replaceProcess replaces the process by one whose queries are not sent.
func (o *office) replaceProcess() {
	o.parts.Queries = queryrunner.NewConcurrent(o.parts.Clock, 10, 4, nil, func(types.NamespacedName, bool) {})
	o.reconciler = controller.New(o.parts)
}

// pass reconciles once.
func (o *office) pass() reconcile.Result {
	o.t.Helper()
	result, err := o.reconciler.Reconcile(o.t.Context(), reconcile.Request{NamespacedName: key})
	if err != nil {
		o.t.Fatal(err)
	}
	return result
}

// waitForAnswer waits until a query is answered.
func (o *office) waitForAnswer() {
	o.t.Helper()
	waittest.Receive(o.t, "a query is answered", o.answered)
}

func (o *office) run() *argov1.AnalysisRun {
	o.t.Helper()
	run := &argov1.AnalysisRun{}
	if err := o.client.Get(o.t.Context(), key, run); err != nil {
		o.t.Fatal(err)
	}
	return run
}

// until reconciles when answers and wake times require it, until the run has a phase.
func (o *office) until(phase argov1.AnalysisPhase) argov1.AnalysisRunStatus {
	o.t.Helper()
	deadline := time.NewTimer(waittest.Timeout)
	defer deadline.Stop()
	for {
		result := o.pass()
		status := o.run().Status
		if status.Phase == phase {
			return status
		}
		wake := make(<-chan time.Time)
		if result.RequeueAfter > 0 {
			timer := time.NewTimer(result.RequeueAfter)
			defer timer.Stop()
			wake = timer.C
		}
		select {
		case <-o.answered:
		case <-wake:
		case <-deadline.C:
			o.t.Fatalf("wait until the run is %s: it took more than %s; last state: %+v", phase, waittest.Timeout, status)
		}
	}
}

func analysisRun(metrics ...argov1.Metric) *argov1.AnalysisRun {
	return &argov1.AnalysisRun{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, UID: "u"}, Spec: argov1.AnalysisRunSpec{Metrics: metrics}}
}

func web(t *testing.T, name string, answer http.HandlerFunc) argov1.Metric {
	t.Helper()
	server := httptest.NewServer(answer)
	t.Cleanup(server.Close)
	return argov1.Metric{Name: name, SuccessCondition: "result == 1", Provider: argov1.MetricProvider{Web: &argov1.WebMetric{URL: server.URL}}}
}

func TestMeasurementDoesNotBlockWorker(t *testing.T) {
	release, calls := make(chan struct{}), atomic.Int32{}
	o := open(t, "", analysisRun(
		web(t, "slow", func(w http.ResponseWriter, _ *http.Request) { calls.Add(1); <-release; fmt.Fprint(w, "1") }),
		web(t, "quick", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "1") }),
	))
	for range 5 { // reconciliations continue while the slow measurement is in progress
		o.pass()
	}
	o.waitForAnswer()
	o.pass()
	if results := o.run().Status.MetricResults; len(results) != 2 || results[1].Phase != argov1.AnalysisPhaseSuccessful || results[0].Phase.Completed() {
		t.Errorf("got %+v", results)
	}
	close(release)
	status := o.until(argov1.AnalysisPhaseSuccessful)
	if status.RunSummary.Successful != 2 || calls.Load() != 1 {
		t.Errorf("got %+v after %d calls", status.RunSummary, calls.Load())
	}
}

// TestMeasurementSurvivesStatusConflict: a later reconciliation writes the result, without another measurement.
func TestMeasurementSurvivesStatusConflict(t *testing.T) {
	calls := atomic.Int32{}
	o := open(t, "", analysisRun(web(t, "m", func(w http.ResponseWriter, _ *http.Request) { calls.Add(1); fmt.Fprint(w, "1") })))
	o.pass()
	o.waitForAnswer()
	o.conflicts.Store(2)
	for range 2 {
		if result := o.pass(); result.RequeueAfter == 0 {
			t.Error("nothing brings the run back after a conflict")
		}
		if o.run().Status.Phase == argov1.AnalysisPhaseSuccessful {
			t.Fatal("the test has no conflict")
		}
	}
	o.until(argov1.AnalysisPhaseSuccessful)
	if calls.Load() != 1 {
		t.Errorf("asked %d times", calls.Load())
	}
}

func TestIdleRunIsNotWritten(t *testing.T) {
	o := open(t, "", analysisRun(web(t, "m", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "2") })))
	o.until(argov1.AnalysisPhaseFailed)
	before := o.writes.Load()
	for range 3 {
		o.pass()
	}
	if o.writes.Load() != before {
		t.Errorf("%d writes at rest", o.writes.Load()-before)
	}
}

func TestRunOfAnotherInstanceIsIgnored(t *testing.T) {
	for instance, label := range map[string]string{"": "blue", "blue": ""} {
		run := analysisRun(web(t, "m", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "1") }))
		if label != "" {
			run.Labels = map[string]string{argov1.InstanceIDLabel: label}
		}
		o := open(t, instance, run)
		o.pass()
		if o.writes.Load() != 0 {
			t.Errorf("instance %q wrote to a run of %q", instance, label)
		}
	}
}

// TestARunIsLeftToArgoRollouts: otherwise, each controller would count the measurements of both.
func TestARunIsLeftToArgoRollouts(t *testing.T) {
	var queries atomic.Int32
	o := open(t, "", analysisRun(web(t, "m", func(w http.ResponseWriter, _ *http.Request) {
		queries.Add(1)
		fmt.Fprint(w, "1")
	})))
	sign := othercontroller.Sign{Text: "a Deployment of Argo Rollouts has ready pods"}
	o.reconciler.OtherController = func(_ context.Context, namespace string, _ time.Time) (othercontroller.Sign, error) {
		if namespace != key.Namespace {
			t.Errorf("the namespace is %s", namespace)
		}
		return sign, nil
	}
	if result := o.pass(); o.writes.Load() != 0 || result.RequeueAfter <= 0 {
		t.Errorf("while Argo Rollouts is running: %d writes, requeued after %s", o.writes.Load(), result.RequeueAfter)
	}
	if n := queries.Load(); n != 0 {
		t.Errorf("while Argo Rollouts is running: %d queries", n)
	}
	sign = othercontroller.Sign{}
	if status := o.until(argov1.AnalysisPhaseSuccessful); len(status.MetricResults) != 1 || queries.Load() != 1 {
		t.Errorf("after that: %d queries, %+v", queries.Load(), status)
	}
}

func TestRunIsDeletedAfterItsTTL(t *testing.T) {
	run := analysisRun(web(t, "m", nil))
	run.Spec.TTLStrategy = &argov1.TTLStrategy{SecondsAfterCompletion: new(int32(60))}
	run.Status = argov1.AnalysisRunStatus{Phase: argov1.AnalysisPhaseFailed, CompletedAt: new(metav1.NewTime(time.Now().Add(-time.Hour)))}
	o := open(t, "", run)
	o.pass()
	if err := o.client.Get(t.Context(), key, &argov1.AnalysisRun{}); !apierrors.IsNotFound(err) {
		t.Errorf("got %v", err)
	}
}

// TestEndOfJobIsProcessedImmediately: whenever the next check was due; remaining Jobs are deleted.
func TestEndOfJobIsProcessedImmediately(t *testing.T) {
	stray := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "u.job.9", Labels: map[string]string{measure.RunUIDLabel: "u"}}}
	o := open(t, "", stray, analysisRun(argov1.Metric{Name: "job", Provider: argov1.MetricProvider{Job: &argov1.JobMetric{}}}))
	o.pass()
	o.waitForAnswer() // creates the Job
	o.pass()          // and checks it
	o.waitForAnswer()
	o.pass()
	job := &batchv1.Job{}
	if err := o.client.Get(t.Context(), client.ObjectKey{Namespace: "shop", Name: "u.job.1"}, job); err != nil {
		t.Fatal(err)
	}
	run := o.run()
	run.Status.MetricResults[0].Measurements[0].ResumeAt = new(metav1.NewTime(time.Now().Add(time.Hour)))
	if err := o.client.Update(t.Context(), run); err != nil {
		t.Fatal(err)
	}
	o.pass()
	job.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobComplete, Status: corev1.ConditionTrue}}
	if err := o.client.Status().Update(t.Context(), job); err != nil {
		t.Fatal(err)
	}
	o.until(argov1.AnalysisPhaseSuccessful)
	if err := o.client.Get(t.Context(), client.ObjectKeyFromObject(stray), &batchv1.Job{}); !apierrors.IsNotFound(err) {
		t.Errorf("a Job whose creation nobody heard of goes on: %v", err)
	}
	stray.ResourceVersion = "" // its creation was in progress when the run ended
	if err := o.client.Create(t.Context(), stray); err != nil {
		t.Fatal(err)
	}
	o.pass()
	if err := o.client.Get(t.Context(), client.ObjectKeyFromObject(stray), &batchv1.Job{}); !apierrors.IsNotFound(err) {
		t.Errorf("a Job goes on whose run is over: %v", err)
	}
}

func TestEventsHaveTheReasonsOfTheAPI(t *testing.T) {
	o := open(t, "", analysisRun(web(t, "m", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "2") })))
	o.until(argov1.AnalysisPhaseFailed)
	wanted := map[string]string{"MetricFailed": "Metric 'm' Completed. Result: Failed", "AnalysisRunFailed": "Analysis Completed. Result: Failed"}
	waittest.Until(t, "the events are recorded", func() error {
		events := &corev1.EventList{}
		if err := o.client.List(t.Context(), events); err != nil {
			t.Fatal(err)
		}
		for _, e := range events.Items {
			if wanted[e.Reason] == e.Message && e.Type == corev1.EventTypeWarning && e.Source.Component == "rollouts-controller" {
				delete(wanted, e.Reason)
			}
		}
		if len(wanted) > 0 {
			return fmt.Errorf("there is no %v", wanted)
		}
		return nil
	})
}

func TestReadSeries(t *testing.T) {
	run := analysisRun(argov1.Metric{Name: "{{args.service}}-m", Provider: argov1.MetricProvider{Web: &argov1.WebMetric{URL: "http://x"}}})
	run.Spec.Args = []argov1.Argument{{Name: "service", Value: new("cart")}}
	run.Status = argov1.AnalysisRunStatus{Phase: argov1.AnalysisPhaseFailed, MetricResults: []argov1.MetricResult{{Name: "cart-m", Phase: argov1.AnalysisPhaseFailed, DryRun: true}}}
	twice := []argov1.Metric{{Name: "a"}, {Name: "a"}}
	o := open(t, "", run,
		&argov1.AnalysisTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "errors"}, Spec: argov1.AnalysisTemplateSpec{Metrics: twice}},
		&argov1.Experiment{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "e"}, Status: argov1.ExperimentStatus{Phase: argov1.AnalysisPhaseRunning}})
	registry := prometheus.NewRegistry()
	telemetry.New(registry).RegisterAnalyses(controller.ReadSeries(t.Context(), o.client, nil))
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for _, family := range families {
		for _, m := range family.GetMetric() {
			fmt.Fprintln(&all, family.GetName(), m.String())
		}
	}
	for _, want := range []string{
		`analysis_run_info label:{name:"name"  value:"run"}  label:{name:"namespace"  value:"shop"}  label:{name:"phase"  value:"Failed"}  gauge:{value:1}`,
		`analysis_run_metric_type label:{name:"metric"  value:"cart-m"}`, `value:"Web"`, `label:{name:"dry_run"  value:"true"}`,
		`analysis_template_metric_info label:{name:"metric"  value:"a"}`, `experiment_info label:{name:"name"  value:"e"}`,
	} {
		if !strings.Contains(strings.ReplaceAll(all.String(), " ", ""), strings.ReplaceAll(want, " ", "")) {
			t.Errorf("%s is not in\n%s", want, all.String())
		}
	}
}

// TestSeriesOfOtherShardsAreOmitted: each object has its series in one replica.
func TestSeriesOfOtherShardsAreOmitted(t *testing.T) {
	meta := metav1.ObjectMeta{Namespace: "shop", Name: "a"}
	o := open(t, "", analysisRun(), &argov1.AnalysisTemplate{ObjectMeta: meta}, &argov1.Experiment{ObjectMeta: meta})
	shards := sharding.NewHeld(sharding.LeaseNames("serin", 1))
	read := controller.ReadSeries(t.Context(), o.client, shards)
	if got := read(); len(got.Runs)+len(got.Experiments)+len(got.Templates) > 0 {
		t.Errorf("of another shard: %+v", got)
	}
	shards.Acquire(0)
	if got := read(); len(got.Runs) != 1 || len(got.Experiments) != 1 || len(got.Templates) != 1 {
		t.Errorf("of a held shard: %+v", got)
	}
}

func TestAPanicIsToldOnTheRun(t *testing.T) {
	o := open(t, "", analysisRun(web(t, "m", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "1") })))
	prober := o.reconciler.Queries
	o.reconciler.Queries = nil // which every reconciliation trips over
	for range 3 {
		if result := o.pass(); result.RequeueAfter <= 0 || result.RequeueAfter > reconciler.InitialBackoff {
			t.Errorf("next in %s", result.RequeueAfter)
		}
	}
	status := o.run().Status
	if !strings.HasPrefix(status.Message, "Fault: Serin could not reconcile this AnalysisRun because of a defect in Serin (panic: ") || status.Phase != "" || o.writes.Load() != 1 {
		t.Errorf("got %s %q after %d writes", status.Phase, status.Message, o.writes.Load())
	}
	o.reconciler.Queries = prober
	if status := o.until(argov1.AnalysisPhaseSuccessful); status.Message != "" {
		t.Errorf("mended, and still %q", status.Message)
	}
}

// TestStatusWritesOfARunAreBounded: whatever changes its status; its completion is written immediately.
func TestStatusWritesOfARunAreBounded(t *testing.T) {
	o := open(t, "", analysisRun(argov1.Metric{Name: "m", InitialDelay: "1h", Provider: argov1.MetricProvider{Web: &argov1.WebMetric{URL: "http://127.0.0.1:1"}}}))
	began := time.Now()
	var last reconcile.Result
	for i := range 200 {
		run := o.run()
		run.Status.Message = fmt.Sprint("Fault: ", i) // each decision removes it again
		if err := o.client.Update(t.Context(), run); err != nil {
			t.Fatal(err)
		}
		last = o.pass()
	}
	if most := int32(11 + time.Since(began)/time.Second); o.writes.Load() > most {
		t.Errorf("%d writes, want at most %d", o.writes.Load(), most)
	}
	if last.RequeueAfter <= 0 || last.RequeueAfter > time.Second {
		t.Errorf("the last reconciliation comes back after %s", last.RequeueAfter)
	}
	run := o.run()
	run.Spec.Terminate = true
	if err := o.client.Update(t.Context(), run); err != nil {
		t.Fatal(err)
	}
	o.pass()
	if phase := o.run().Status.Phase; phase != argov1.AnalysisPhaseSuccessful {
		t.Errorf("after the termination: %s", phase)
	}
}

// TestATakeoverRepeatsNoMeasurement: a process that takes over a run with an old status has nothing to write before the measurement,
// so that nothing else would reveal that the status is old. In the steady state, the verification costs no request.
func TestATakeoverRepeatsNoMeasurement(t *testing.T) {
	calls := atomic.Int32{}
	metric := web(t, "m", func(w http.ResponseWriter, _ *http.Request) { calls.Add(1); fmt.Fprint(w, "1") })
	metric.Count, metric.Interval = new(intstr.FromInt32(2)), "1h"
	o := open(t, "", analysisRun(metric))
	o.pass()
	old := o.run() // the measurement is in progress
	o.waitForAnswer()
	o.pass()
	if status := o.run().Status; status.MetricResults[0].Count != 1 || calls.Load() != 1 || o.liveReads.Load() != 0 {
		t.Fatalf("got %+v after %d calls and %d reads from the API server", status, calls.Load(), o.liveReads.Load())
	}

	o.replaceProcess()
	submitted := func() bool { _, waits := o.parts.Queries.NextWaiting(key); return waits }
	o.stale = old
	if result := o.pass(); result.RequeueAfter == 0 || submitted() {
		t.Errorf("a run with an old status: %+v, and a measurement is submitted: %v", result, submitted())
	}
	o.stale = nil
	for range 3 {
		o.pass()
	}
	if submitted() || o.liveReads.Load() != 1 {
		t.Errorf("%d reads from the API server, and a measurement before its time is submitted: %v", o.liveReads.Load(), submitted())
	}
}
