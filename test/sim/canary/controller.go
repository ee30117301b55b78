package canary

import (
	"context"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/canary"
	"github.com/serin-dev/serin/internal/canary/controller"
	"github.com/serin-dev/serin/internal/endpoints"
	"github.com/serin-dev/serin/internal/queryrunner"
	"github.com/serin-dev/serin/internal/readyourwrites"
	"github.com/serin-dev/serin/internal/telemetry"
	"github.com/serin-dev/serin/internal/traffic"
	"github.com/serin-dev/serin/internal/workload"
	"github.com/serin-dev/serin/test/sim"
	"github.com/serin-dev/serin/test/sim/actors"
	"github.com/serin-dev/serin/test/sim/store"
)

// process is the real controller of Canaries in one process of Serin. What leaves it (questions, messages) goes to the
// actors of the world instead of the network; all else is what runs in production.
type process struct {
	canaries *Canaries
	instance *sim.Instance
	real     *controller.Reconciler
	queries  *queryrunner.Runner
	events   *actors.EventRecorder
	registry *prometheus.Registry
}

// watched are the kinds that a process watches from its start on.
var watched = []schema.GroupKind{
	canaryKind,
	{Group: flaggerv1.GroupName, Kind: flaggerv1.MetricTemplateKind},
	actors.DeploymentKind,
	{Kind: "Service"},
	{Group: "autoscaling", Kind: "HorizontalPodAutoscaler"},
	{Kind: "ConfigMap"},
	{Kind: "Secret"},
	endpoints.Kind,
}

// Controller implements sim.Kind.
func (k *Canaries) Controller(i *sim.Instance) sim.Controller {
	p := &process{canaries: k, instance: i, registry: prometheus.NewRegistry()}
	k.processes = append(slices.DeleteFunc(k.processes, func(p *process) bool { return !p.instance.Alive() }), p)
	p.queries = queryrunner.NewPooled(i.Clock, inFlight, controller.Pool, nil, func(key types.NamespacedName) { i.Enqueue(reconcile.Request{NamespacedName: key}) })
	p.crowd()
	p.events = actors.NewEventRecorder(k.world, i)
	actors.Index(i, controller.IndexTargets, endpoints.Index)
	seeing := controller.RecordReads(readyourwrites.New(i.Client, i.Reader, i.Clock))
	p.real = controller.New(controller.Parts{
		Observer: controller.Observer{
			Client:    i.Client,
			Workloads: &workload.Workloads{Client: seeing, Reader: i.Reader, Options: workload.Options{ConfigTracking: true}},
			Routers:   k.routers, Applier: &traffic.Applier{Client: seeing}, Settings: k.settings, Indexed: true,
		},
		Reader: i.Reader, Clock: i.Clock, Queries: p.queries, Metrics: telemetry.New(p.registry),
		Reporter: &controller.Reporter{
			Client: i.Client, Reader: i.Reader, Clock: i.Clock, Outbox: p.events.Outbox, OngoingEvents: &telemetry.OngoingEvents{},
			Recorder: p.events.Recorder(""),
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

// RequestsFor implements sim.Controller, with the mapping that the watches have in production.
func (p *process) RequestsFor(change store.Change) []reconcile.Request {
	before, after := actors.WatchedChange(p.canaries.world, change, change.Kind.Group == flaggerv1.GroupName || change.Kind == endpoints.Kind)
	return p.real.AffectedReleases(context.Background(), change.Kind, before, after)
}

// Flush implements sim.Controller.
func (p *process) Flush() {
	p.events.Flush()
	for {
		asked, ok := p.queries.TakeNext(context.Background())
		if !p.instance.Alive() {
			return
		}
		if !ok {
			p.starved()
			return
		}
		if asked.Key.Namespace == neighbours {
			continue // these queries are never answered
		}
		p.canaries.services.deliver(p, asked)
	}
}

// inFlight bounds the questions of one pool that are out at once.
const inFlight = 8

// settingsOf is what a process is configured with.
func settingsOf(provider string) canary.Settings {
	return canary.Settings{Provider: provider, MinInterval: 0, Drain: drain}
}
