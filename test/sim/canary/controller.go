package canary

import (
	"context"
	"slices"
	"strings"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/canary"
	"github.com/serin-dev/serin/internal/canary/controller"
	"github.com/serin-dev/serin/internal/ownwrites"
	"github.com/serin-dev/serin/internal/prober"
	"github.com/serin-dev/serin/internal/telemetry"
	"github.com/serin-dev/serin/internal/traffic"
	"github.com/serin-dev/serin/internal/workload"
	"github.com/serin-dev/serin/test/sim"
	"github.com/serin-dev/serin/test/sim/store"
)

// process is the real controller of Canaries in one process of Serin. What leaves it (questions, messages) goes to the
// actors of the world instead of the network; all else is what runs in production.
type process struct {
	canaries *Canaries
	instance *sim.Instance
	real     *controller.Reconciler
	prober   *prober.Prober
	outbox   *telemetry.Outbox
}

// watched are the kinds that a process watches from its start on.
var watched = []schema.GroupKind{
	canaryKind,
	{Group: flaggerv1.GroupName, Kind: flaggerv1.MetricTemplateKind},
	deploymentKind,
	{Kind: "Service"},
	{Group: "autoscaling", Kind: "HorizontalPodAutoscaler"},
	{Kind: "ConfigMap"},
	{Kind: "Secret"},
	controller.EndpointsKind,
}

// Controller implements sim.Kind.
func (k *Canaries) Controller(i *sim.Instance) sim.Controller {
	p := &process{canaries: k, instance: i}
	p.prober = prober.New(i.Clock, inFlight, nil, func(key types.NamespacedName) { i.Enqueue(reconcile.Request{NamespacedName: key}) })
	p.outbox = telemetry.NewOutbox(clocktesting.NewFakeClock(sim.Beginning), logr.Discard()) // it waits for nothing here
	for _, index := range []func(context.Context, client.FieldIndexer) error{controller.IndexTargets, controller.IndexEndpoints} {
		if err := index(context.Background(), i.Cache); err != nil {
			panic(err) // a mistake in the program
		}
	}
	seeing := controller.Noting(ownwrites.New(i.Client, i.Reader, i.Clock))
	p.real = controller.New(controller.Parts{
		Observer: controller.Observer{
			Client:    i.Client,
			Workloads: &workload.Workloads{Client: seeing, Reader: i.Reader, Options: workload.Options{ConfigTracking: true}},
			Routers:   k.routers, Applier: &traffic.Applier{Client: seeing}, Settings: k.settings, Indexed: true,
		},
		Reader: i.Reader, Clock: i.Clock, Prober: p.prober, Metrics: telemetry.New(prometheus.NewRegistry()),
		Reporter: &controller.Reporter{
			Client: i.Client, Reader: i.Reader, Clock: i.Clock, Outbox: p.outbox, Standing: &telemetry.Standing{},
			Recorder: telemetry.NewRecorder(p, p.outbox, i.Clock, ""),
		},
		Watch: func(workloads, routes []schema.GroupVersionKind) error {
			for _, kind := range slices.Concat(workloads, routes) {
				i.Watch(kind.GroupKind())
			}
			return nil
		},
	})
	return p
}

// Reconcile implements sim.Controller.
func (p *process) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	return p.real.Reconcile(ctx, req)
}

// Watches implements sim.Controller.
func (p *process) Watches() []schema.GroupKind { return watched }

// Concerned implements sim.Controller, with the mapping that the watches have in production.
func (p *process) Concerned(change store.Change) []reconcile.Request {
	return p.real.Touched(context.Background(), change.Kind, p.seen(change.Kind, change.Old), p.seen(change.Kind, change.New))
}

// seen is an object in the form in which production watches its kind; nil for none.
func (p *process) seen(kind schema.GroupKind, version *store.Version) client.Object {
	switch {
	case version == nil:
		return nil
	case kind.Group == flaggerv1.GroupName, kind == controller.EndpointsKind:
		object, err := version.Typed(p.canaries.world.Scheme)
		if err != nil {
			panic(err) // what the store admitted does not fit its own type
		}
		return object
	default:
		return &unstructured.Unstructured{Object: version.Content()}
	}
}

// Out implements sim.Controller.
func (p *process) Out() {
	for p.outbox.Send(context.Background()) {
	}
	for {
		asked, ok := p.prober.Take(context.Background())
		if !ok || !p.instance.Alive() {
			return
		}
		p.canaries.outside.put(p, asked)
	}
}

// inFlight bounds the questions that are out at once.
const inFlight = 8

// Create implements telemetry.EventWriter: events are told to the world and not stored, because nothing reads them.
func (p *process) Create(_ context.Context, object client.Object, _ ...client.CreateOption) error {
	p.said(object)
	return nil
}

// Patch implements telemetry.EventWriter.
func (p *process) Patch(_ context.Context, object client.Object, _ client.Patch, _ ...client.PatchOption) error {
	p.said(object)
	return nil
}

func (p *process) said(object client.Object) {
	if e, ok := object.(*corev1.Event); ok {
		key := types.NamespacedName{Namespace: e.InvolvedObject.Namespace, Name: e.InvolvedObject.Name}
		p.canaries.world.Say("  %s: %s: %s", key.Name, e.Type, e.Message)
		if strings.Contains(e.Message, "by a fault of its own") {
			p.canaries.world.Violate("panic", "%s", e.Message)
		}
		p.canaries.world.Tell(Said{Instance: p.instance.Name, Release: key, Type: e.Type, Message: e.Message})
	}
}

// settingsOf is what a process is configured with.
func settingsOf(provider string) canary.Settings {
	return canary.Settings{Provider: provider, MinInterval: 0, Drain: drain}
}
