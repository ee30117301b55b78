package controller

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/alerting"
	"github.com/serin-dev/serin/internal/canary"
	"github.com/serin-dev/serin/internal/hook"
	"github.com/serin-dev/serin/internal/metric"
	prometheusprovider "github.com/serin-dev/serin/internal/metric/prometheus"
	"github.com/serin-dev/serin/internal/outbound"
	"github.com/serin-dev/serin/internal/queryrunner"
	"github.com/serin-dev/serin/internal/queue"
	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/internal/telemetry"
	"github.com/serin-dev/serin/internal/traffic"
	"github.com/serin-dev/serin/internal/traffic/kubernetes"
	"github.com/serin-dev/serin/internal/workload"
)

// maxQueriesPerPool is the maximum number of concurrent webhooks, and of concurrent metric queries, in a test cluster.
const maxQueriesPerPool = 16

// testCluster is many releases with the real reconciler and all its parts: queries and messages use real connections. Only the
// API server and the workloads are in-memory fakes.
type testCluster struct {
	client     client.WithWatch
	workloads  *fakeWorkloads
	reconciler *Reconciler
	queue      workqueue.TypedRateLimitingInterface[reconcile.Request]
	registry   *prometheus.Registry
	ctx        context.Context

	mu   sync.Mutex
	logs bytes.Buffer
}

// newTestCluster starts to reconcile the Canaries among the objects.
func newTestCluster(t *testing.T, policy outbound.Policy, objects ...client.Object) *testCluster {
	t.Helper()
	return newLimitedTestCluster(t, policy, release.ConcurrencyLimits{}, objects...)
}

func newLimitedTestCluster(t *testing.T, policy outbound.Policy, limits release.ConcurrencyLimits, objects ...client.Object) *testCluster {
	t.Helper()
	s := scheme(t)
	cluster := &testCluster{
		client:    fake.NewClientBuilder().WithScheme(s).WithObjects(objects...).WithStatusSubresource(&flaggerv1.Canary{}).Build(),
		workloads: &fakeWorkloads{byCanary: map[types.NamespacedName]*fakeWorkload{}, panicking: map[types.NamespacedName]bool{}},
		queue:     workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](time.Millisecond, time.Second)),
		registry:  prometheus.NewRegistry(),
	}
	cluster.workloads.changed = cluster.enqueue
	logger := cluster.logger()
	ctx, cancel := context.WithCancel(log.IntoContext(t.Context(), logger))
	cluster.ctx = ctx

	clk, out := clock.RealClock{}, outbound.New(policy)
	metrics, registry, hooks := telemetry.New(cluster.registry), metric.NewRegistry(prometheusprovider.Service(nil)), hook.New(out, clk)
	sender := &QuerySender{
		Client: cluster.client, APIReader: cluster.client, Clock: clk, Hooks: hooks, Services: registry, Restricted: out, Unrestricted: out, Provider: canary.ProviderKubernetes, Telemetry: metrics,
	}
	outbox := telemetry.NewOutbox(clk, logger)
	reporter := &Reporter{
		Client: cluster.client, APIReader: cluster.client, Clock: clk, Recorder: telemetry.NewRecorder(cluster.client, outbox, clk, ""), Outbox: outbox, OngoingEvents: &telemetry.OngoingEvents{},
		Hooks: hooks, EventHooks: hooks,
		NewAlertSender: alerting.NewSenders(out, outbound.Policy{AllowLoopback: true}).New, Metrics: metrics,
	}
	releaseQueue := queue.New(limits, "")
	canaries := QueueKind(cluster.client, false)
	canaries.Wake = cluster.enqueue
	releaseQueue.Register(canaries)
	queries := queryrunner.NewPooled(clk, maxQueriesPerPool, Pool, sender.Send, func(key types.NamespacedName, _ bool) { cluster.enqueue(key) })
	cluster.reconciler = New(Parts{
		Observer: Observer{
			Client: cluster.client, Workloads: cluster.workloads, Routers: traffic.Registry{Canary: map[string]traffic.Renderer{"kubernetes": kubernetes.New()}},
			Applier: &traffic.Applier{Client: cluster.client}, MetricTypes: registry.TemplateTypes(),
			EndpointsUnread: "the test cluster has no endpoints", Queue: releaseQueue,
			Settings: canary.Settings{Provider: canary.ProviderKubernetes, NoCrossNamespace: sender.NoCrossNamespace},
		},
		APIReader: cluster.client, Clock: clk, Queries: queries, Reporter: reporter, Metrics: metrics, Watch: func(_, _ []schema.GroupVersionKind) error { return nil },
	})

	var running sync.WaitGroup
	running.Go(func() { _ = queries.Run(ctx) })
	running.Go(func() { _ = outbox.Run(ctx) })
	changes, err := cluster.client.Watch(ctx, &flaggerv1.CanaryList{})
	if err != nil {
		t.Fatal(err)
	}
	running.Go(func() {
		last := map[types.NamespacedName]client.Object{}
		for change := range changes.ResultChan() {
			c, ok := change.Object.(*flaggerv1.Canary)
			if !ok {
				continue
			}
			key := client.ObjectKeyFromObject(c)
			for _, request := range cluster.reconciler.AffectedReleases(ctx, canaryKind, last[key], c) {
				cluster.enqueue(request.NamespacedName)
			}
			last[key] = c
		}
	})
	for range 2 {
		running.Go(func() {
			for cluster.processNext() {
			}
		})
	}
	for _, object := range objects {
		if _, ok := object.(*flaggerv1.Canary); ok {
			cluster.enqueue(client.ObjectKeyFromObject(object))
		}
	}
	t.Cleanup(func() {
		cancel()
		changes.Stop()
		cluster.queue.ShutDown()
		running.Wait()
		out.Close()
	})
	return cluster
}

// enqueue requeues a release.
func (cluster *testCluster) enqueue(key types.NamespacedName) {
	cluster.queue.Add(reconcile.Request{NamespacedName: key})
}

func (cluster *testCluster) logger() logr.Logger {
	return funcr.New(func(prefix, args string) {
		cluster.mu.Lock()
		defer cluster.mu.Unlock()
		fmt.Fprintln(&cluster.logs, prefix, args)
	}, funcr.Options{Verbosity: 9})
}

// processNext is a worker of the queue.
func (cluster *testCluster) processNext() bool {
	request, ended := cluster.queue.Get()
	if ended {
		return false
	}
	defer cluster.queue.Done(request)
	switch result, err := cluster.reconciler.Reconcile(cluster.ctx, request); {
	case err != nil:
		log.FromContext(cluster.ctx).Error(err, "Reconciler error", "canary", request.String())
		cluster.queue.AddRateLimited(request)
	case result.RequeueAfter > 0:
		cluster.queue.Forget(request)
		cluster.queue.AddAfter(request, result.RequeueAfter)
	default:
		cluster.queue.Forget(request)
	}
	return true
}

// waitFor waits for a condition.
func (cluster *testCluster) waitFor(t *testing.T, condition string, check func() (bool, string)) {
	t.Helper()
	deadline := time.Now().Add(3 * time.Minute) // far longer than needed; its failure prints the last observed state
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		done, state := check()
		if done {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("timed out: %s; last state: %s", condition, state)
		}
		<-tick.C
	}
}

func (cluster *testCluster) canary(t *testing.T, key types.NamespacedName) *flaggerv1.Canary {
	t.Helper()
	c := &flaggerv1.Canary{}
	if err := cluster.client.Get(cluster.ctx, key, c); err != nil {
		t.Fatal(err)
	}
	return c
}

// waitForPhase waits for one release.
func (cluster *testCluster) waitForPhase(t *testing.T, key types.NamespacedName, phases ...flaggerv1.CanaryPhase) {
	t.Helper()
	cluster.waitFor(t, fmt.Sprintf("%s in %v", key, phases), func() (bool, string) {
		c := cluster.canary(t, key)
		if slices.Contains(phases, c.Status.Phase) {
			return true, ""
		}
		status, _ := json.Marshal(c.Status)
		return false, string(status)
	})
}

// allOutput are all outputs of Serin, as one text.
func (cluster *testCluster) allOutput(t *testing.T) string {
	t.Helper()
	var all strings.Builder
	cluster.mu.Lock()
	all.Write(cluster.logs.Bytes())
	cluster.mu.Unlock()
	var events corev1.EventList
	var canaries flaggerv1.CanaryList
	for _, list := range []client.ObjectList{&events, &canaries} {
		if err := cluster.client.List(cluster.ctx, list); err != nil {
			t.Fatal(err)
		}
	}
	for _, event := range events.Items {
		fmt.Fprintln(&all, "event", event.Name, event.Message)
	}
	for _, c := range canaries.Items {
		status, err := json.Marshal(c.Status)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintln(&all, "status", c.Name, string(status))
	}
	families, err := cluster.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if _, err := expfmt.MetricFamilyToText(&all, family); err != nil {
			t.Fatal(err)
		}
	}
	return all.String()
}

// fakeWorkloads are fake workloads that reach the desired state at once.
type fakeWorkloads struct {
	mu        sync.Mutex
	byCanary  map[types.NamespacedName]*fakeWorkload
	panicking map[types.NamespacedName]bool // workloads whose observation panics
	// changed is called for every change, as a watch would be.
	changed func(types.NamespacedName)
}

type fakeWorkload struct {
	target, primary, id string
	replicas            int32
}

func (f *fakeWorkloads) update(c *flaggerv1.Canary, do func(*fakeWorkload)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	key := client.ObjectKeyFromObject(c)
	if f.byCanary[key] == nil {
		f.byCanary[key] = &fakeWorkload{target: "v1", replicas: 1}
	}
	before := *f.byCanary[key]
	do(f.byCanary[key])
	if *f.byCanary[key] != before {
		f.changed(key)
	}
}

// deploy deploys the second revision of a target.
func (f *fakeWorkloads) deploy(c *flaggerv1.Canary) {
	f.update(c, func(p *fakeWorkload) { p.target = "v2" })
}

func (f *fakeWorkloads) setPanicking(key types.NamespacedName, broken bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.panicking[key] = broken
}

func (f *fakeWorkloads) Observe(_ context.Context, c *flaggerv1.Canary, _ ...workload.ObserveOption) (o workload.Observation, err error) {
	f.update(c, func(p *fakeWorkload) {
		if f.panicking[client.ObjectKeyFromObject(c)] {
			_ = []int{}[len(c.Name)]
		}
		ready := workload.Readiness{Ready: true}
		o.Target = workload.State{Found: true, Revision: p.target, FlaggerHash: p.target, Replicas: p.replicas, Total: p.replicas, Available: p.replicas, Readiness: ready}
		if p.primary != "" {
			o.Primary = workload.State{Found: true, PromotionID: p.id, Replicas: 1, Total: 1, Available: 1, Readiness: ready}
		}
		o.PrimaryUpToDate = p.primary == p.target
	})
	return o, nil
}

func (f *fakeWorkloads) EnsurePrimary(_ context.Context, c *flaggerv1.Canary, _, id string, follow bool) error {
	f.update(c, func(p *fakeWorkload) {
		if p.primary == "" || follow {
			p.primary, p.id = p.target, id
		}
	})
	return nil
}

func (f *fakeWorkloads) CopyTemplate(_ context.Context, c *flaggerv1.Canary, _, id string) error {
	f.update(c, func(p *fakeWorkload) { p.primary, p.id = p.target, id })
	return nil
}

func (f *fakeWorkloads) RestoreTemplate(_ context.Context, c *flaggerv1.Canary, id string) error {
	f.update(c, func(p *fakeWorkload) { p.primary, p.id = "v1", id })
	return nil
}

func (*fakeWorkloads) RestoreConfigs(context.Context, *flaggerv1.Canary, string) error { return nil }

func (f *fakeWorkloads) scale(c *flaggerv1.Canary, replicas int32) error {
	f.update(c, func(p *fakeWorkload) { p.replicas = replicas })
	return nil
}

func (f *fakeWorkloads) UpFromZero(_ context.Context, c *flaggerv1.Canary) error {
	return f.scale(c, 1)
}

func (f *fakeWorkloads) UpToPrimary(_ context.Context, c *flaggerv1.Canary) error {
	return f.scale(c, 1)
}

func (f *fakeWorkloads) DownToZero(_ context.Context, c *flaggerv1.Canary) error {
	return f.scale(c, 0)
}

func (*fakeWorkloads) RecreatePrimary(context.Context, *flaggerv1.Canary, workload.TemplateSource, string, string) error {
	return nil
}
func (*fakeWorkloads) EnsureScaler(context.Context, *flaggerv1.Canary, bool) error   { return nil }
func (*fakeWorkloads) PauseScaler(context.Context, *flaggerv1.Canary) error          { return nil }
func (*fakeWorkloads) ResumeScaler(context.Context, *flaggerv1.Canary) error         { return nil }
func (*fakeWorkloads) EnsureServices(context.Context, *flaggerv1.Canary, bool) error { return nil }
func (*fakeWorkloads) RestoreServices(context.Context, *flaggerv1.Canary) error      { return nil }
func (*fakeWorkloads) HandOverServices(context.Context, *flaggerv1.Canary) error     { return nil }
func (*fakeWorkloads) RestoreTarget(context.Context, *flaggerv1.Canary) error        { return nil }
func (*fakeWorkloads) CollectConfigs(context.Context, *flaggerv1.Canary) error       { return nil }
func (*fakeWorkloads) PrimaryUpFromZero(context.Context, *flaggerv1.Canary) error    { return nil }
func (*fakeWorkloads) Ownership(context.Context, *flaggerv1.Canary) (workload.Ownership, error) {
	return workload.Ownership{}, nil
}

// ScalesTarget: an autoscaler scales the target with its name.
func (*fakeWorkloads) ScalesTarget(_ context.Context, c *flaggerv1.Canary) (bool, error) {
	return c.Spec.AutoscalerRef != nil && c.Spec.AutoscalerRef.Name == c.Spec.TargetRef.Name, nil
}
func (*fakeWorkloads) Forget(types.NamespacedName)                      {}
func (*fakeWorkloads) CachedKeys() []types.NamespacedName               { return nil }
func (*fakeWorkloads) Dependencies(*flaggerv1.Canary) []workload.Object { return nil }
func (f *fakeWorkloads) ForCanary(*flaggerv1.Canary) workload.Workload  { return f }
func (*fakeWorkloads) Pods(context.Context, *flaggerv1.Canary, bool) (workload.Pods, error) {
	return workload.Pods{}, nil
}
