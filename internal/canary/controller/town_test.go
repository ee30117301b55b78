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

// inTown is the maximum number of concurrent webhooks, and of concurrent metric queries, in a town.
const inTown = 16

// town is many releases with the real reconciler and all its parts: queries and messages use real connections. Only the API
// server and the workloads are in-memory fakes.
type town struct {
	client     client.WithWatch
	kind       *pocketKind
	reconciler *Reconciler
	queue      workqueue.TypedRateLimitingInterface[reconcile.Request]
	registry   *prometheus.Registry
	ctx        context.Context

	mu   sync.Mutex
	logs bytes.Buffer
}

// newTown starts to reconcile the Canaries among the objects.
func newTown(t *testing.T, policy outbound.Policy, objects ...client.Object) *town {
	t.Helper()
	return newTownWith(t, policy, release.ConcurrencyLimits{}, objects...)
}

func newTownWith(t *testing.T, policy outbound.Policy, limits release.ConcurrencyLimits, objects ...client.Object) *town {
	t.Helper()
	s := scheme(t)
	w := &town{
		client:   fake.NewClientBuilder().WithScheme(s).WithObjects(objects...).WithStatusSubresource(&flaggerv1.Canary{}).Build(),
		kind:     &pocketKind{of: map[types.NamespacedName]*pocket{}, broken: map[types.NamespacedName]bool{}},
		queue:    workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](time.Millisecond, time.Second)),
		registry: prometheus.NewRegistry(),
	}
	w.kind.changed = w.look
	logger := w.logger()
	ctx, cancel := context.WithCancel(log.IntoContext(t.Context(), logger))
	w.ctx = ctx

	clk, out := clock.RealClock{}, outbound.New(policy)
	shown, registry, hooks := telemetry.New(w.registry), metric.NewRegistry(prometheusprovider.Service(nil)), hook.New(out, clk)
	asker := &Asker{
		Client: w.client, Reader: w.client, Clock: clk, Hooks: hooks, Services: registry, Restricted: out, Unrestricted: out, Provider: canary.ProviderKubernetes, Telemetry: shown,
	}
	outbox := telemetry.NewOutbox(clk, logger)
	reporter := &Reporter{
		Client: w.client, Reader: w.client, Clock: clk, Recorder: telemetry.NewRecorder(w.client, outbox, clk, ""), Outbox: outbox, Standing: &telemetry.OngoingEvents{},
		Hooks: hooks, EventHooks: hooks,
		NewAlertSender: func(of string, o alerting.Options) (alerting.Sender, error) { return alerting.New(out, of, o) },
	}
	line := queue.New(limits, "")
	joined := Queued(w.client, false)
	joined.Wake = w.look
	line.Register(joined)
	asking := queryrunner.NewPooled(clk, inTown, Pool, asker.Ask, w.look)
	w.reconciler = New(Parts{
		Observer: Observer{
			Client: w.client, Workloads: w.kind, Routers: traffic.Registry{Canary: map[string]traffic.Renderer{"kubernetes": kubernetes.New()}},
			Applier: &traffic.Applier{Client: w.client}, MetricTypes: registry.TemplateTypes(),
			EndpointsUnread: "a town has no endpoints", Queue: line,
			Settings: canary.Settings{Provider: canary.ProviderKubernetes, NoCrossNamespace: asker.NoCrossNamespace},
		},
		Reader: w.client, Clock: clk, Queries: asking, Reporter: reporter, Metrics: shown, Watch: func(_, _ []schema.GroupVersionKind) error { return nil },
	})

	var running sync.WaitGroup
	running.Go(func() { _ = asking.Run(ctx) })
	running.Go(func() { _ = outbox.Run(ctx) })
	changes, err := w.client.Watch(ctx, &flaggerv1.CanaryList{})
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
			for _, request := range w.reconciler.Touched(ctx, schema.GroupKind{}, last[key], c) {
				w.look(request.NamespacedName)
			}
			last[key] = c
		}
	})
	for range 2 {
		running.Go(func() {
			for w.work() {
			}
		})
	}
	for _, object := range objects {
		if _, ok := object.(*flaggerv1.Canary); ok {
			w.look(client.ObjectKeyFromObject(object))
		}
	}
	t.Cleanup(func() {
		cancel()
		changes.Stop()
		w.queue.ShutDown()
		running.Wait()
		out.Close()
	})
	return w
}

// look requeues a release.
func (w *town) look(key types.NamespacedName) { w.queue.Add(reconcile.Request{NamespacedName: key}) }

func (w *town) logger() logr.Logger {
	return funcr.New(func(prefix, args string) {
		w.mu.Lock()
		defer w.mu.Unlock()
		fmt.Fprintln(&w.logs, prefix, args)
	}, funcr.Options{Verbosity: 9})
}

// work is a worker of the queue.
func (w *town) work() bool {
	request, ended := w.queue.Get()
	if ended {
		return false
	}
	defer w.queue.Done(request)
	switch result, err := w.reconciler.Reconcile(w.ctx, request); {
	case err != nil:
		log.FromContext(w.ctx).Error(err, "Reconciler error", "canary", request.String())
		w.queue.AddRateLimited(request)
	case result.RequeueAfter > 0:
		w.queue.Forget(request)
		w.queue.AddAfter(request, result.RequeueAfter)
	default:
		w.queue.Forget(request)
	}
	return true
}

// until waits for a condition.
func (w *town) until(t *testing.T, what string, holds func() (bool, string)) {
	t.Helper()
	deadline := time.Now().Add(3 * time.Minute) // far longer than needed; its failure prints the last observed state
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		done, seen := holds()
		if done {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("never: %s; last seen: %s", what, seen)
		}
		<-tick.C
	}
}

func (w *town) canary(t *testing.T, key types.NamespacedName) *flaggerv1.Canary {
	t.Helper()
	c := &flaggerv1.Canary{}
	if err := w.client.Get(w.ctx, key, c); err != nil {
		t.Fatal(err)
	}
	return c
}

// untilPhase waits for one release.
func (w *town) untilPhase(t *testing.T, key types.NamespacedName, phases ...flaggerv1.CanaryPhase) {
	t.Helper()
	w.until(t, fmt.Sprintf("%s in %v", key, phases), func() (bool, string) {
		c := w.canary(t, key)
		if slices.Contains(phases, c.Status.Phase) {
			return true, ""
		}
		status, _ := json.Marshal(c.Status)
		return false, string(status)
	})
}

// sinks are all outputs of Serin, as one text.
func (w *town) sinks(t *testing.T) string {
	t.Helper()
	var all strings.Builder
	w.mu.Lock()
	all.Write(w.logs.Bytes())
	w.mu.Unlock()
	var events corev1.EventList
	var canaries flaggerv1.CanaryList
	for _, list := range []client.ObjectList{&events, &canaries} {
		if err := w.client.List(w.ctx, list); err != nil {
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
	families, err := w.registry.Gather()
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

// pocketKind are fake workloads that reach the desired state at once.
type pocketKind struct {
	mu     sync.Mutex
	of     map[types.NamespacedName]*pocket
	broken map[types.NamespacedName]bool // workloads whose observation panics
	// changed is called for every change, as a watch would be.
	changed func(types.NamespacedName)
}

type pocket struct {
	target, primary, id string
	replicas            int32
}

func (k *pocketKind) with(c *flaggerv1.Canary, do func(*pocket)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	key := client.ObjectKeyFromObject(c)
	if k.of[key] == nil {
		k.of[key] = &pocket{target: "v1", replicas: 1}
	}
	before := *k.of[key]
	do(k.of[key])
	if *k.of[key] != before {
		k.changed(key)
	}
}

// deploy deploys the second revision of a target.
func (k *pocketKind) deploy(c *flaggerv1.Canary) { k.with(c, func(p *pocket) { p.target = "v2" }) }

func (k *pocketKind) breaks(key types.NamespacedName, broken bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.broken[key] = broken
}

func (k *pocketKind) Observe(_ context.Context, c *flaggerv1.Canary, _ ...workload.ObserveOption) (o workload.Observation, err error) {
	k.with(c, func(p *pocket) {
		if k.broken[client.ObjectKeyFromObject(c)] {
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

func (k *pocketKind) EnsurePrimary(_ context.Context, c *flaggerv1.Canary, _, id string, follow bool) error {
	k.with(c, func(p *pocket) {
		if p.primary == "" || follow {
			p.primary, p.id = p.target, id
		}
	})
	return nil
}

func (k *pocketKind) CopyTemplate(_ context.Context, c *flaggerv1.Canary, _, id string) error {
	k.with(c, func(p *pocket) { p.primary, p.id = p.target, id })
	return nil
}

func (k *pocketKind) RestoreTemplate(_ context.Context, c *flaggerv1.Canary, id string) error {
	k.with(c, func(p *pocket) { p.primary, p.id = "v1", id })
	return nil
}

func (*pocketKind) RestoreConfigs(context.Context, *flaggerv1.Canary, string) error { return nil }

func (k *pocketKind) scale(c *flaggerv1.Canary, replicas int32) error {
	k.with(c, func(p *pocket) { p.replicas = replicas })
	return nil
}

func (k *pocketKind) UpFromZero(_ context.Context, c *flaggerv1.Canary) error { return k.scale(c, 1) }

func (k *pocketKind) UpToPrimary(_ context.Context, c *flaggerv1.Canary) error { return k.scale(c, 1) }

func (k *pocketKind) DownToZero(_ context.Context, c *flaggerv1.Canary) error { return k.scale(c, 0) }

func (*pocketKind) RecreatePrimary(context.Context, *flaggerv1.Canary, workload.TemplateSource, string, string) error {
	return nil
}
func (*pocketKind) EnsureScaler(context.Context, *flaggerv1.Canary, bool) error   { return nil }
func (*pocketKind) PauseScaler(context.Context, *flaggerv1.Canary) error          { return nil }
func (*pocketKind) ResumeScaler(context.Context, *flaggerv1.Canary) error         { return nil }
func (*pocketKind) EnsureServices(context.Context, *flaggerv1.Canary, bool) error { return nil }
func (*pocketKind) RestoreServices(context.Context, *flaggerv1.Canary) error      { return nil }
func (*pocketKind) CollectConfigs(context.Context, *flaggerv1.Canary) error       { return nil }
func (*pocketKind) PrimaryUpFromZero(context.Context, *flaggerv1.Canary) error    { return nil }
func (*pocketKind) Forget(types.NamespacedName)                                   {}
func (*pocketKind) CachedKeys() []types.NamespacedName                            { return nil }
func (*pocketKind) Dependencies(*flaggerv1.Canary) []workload.Object              { return nil }
func (k *pocketKind) ForCanary(*flaggerv1.Canary) workload.Workload               { return k }
func (*pocketKind) PodProblem(context.Context, *flaggerv1.Canary, bool) (string, error) {
	return "", nil
}
