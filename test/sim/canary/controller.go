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

// process is the production controller of Canaries in one process of Serin. Queries and events are delivered to the actors of
// the world instead of the network; everything else runs as in production.
type process struct {
	canaries   *Canaries
	instance   *sim.Instance
	reconciler *controller.Reconciler
	queries    *queryrunner.Runner
	events     *actors.EventRecorder
	registry   *prometheus.Registry
}

// watchedKinds are the kinds that a process watches from its start.
var watchedKinds = []schema.GroupKind{
	canaryKind,
	{Group: flaggerv1.GroupName, Kind: flaggerv1.MetricTemplateKind},
	alertProviderKind,
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
	k.processes[i] = p
	p.queries = queryrunner.NewPooled(i.Clock, maxInFlightPerPool, controller.Pool, nil, func(key types.NamespacedName, _ bool) { i.Enqueue(reconcile.Request{NamespacedName: key}) })
	p.queries.RequirePermission(func(namespace string) error {
		if namespace == neighbourNamespace {
			return nil // those queries were sent before this process started
		}
		return i.CheckLease()
	})
	p.submitNeighbourQueries()
	p.events = actors.NewEventRecorder(k.World, i)
	actors.AddIndexes(i, controller.IndexTargets, endpoints.Index)
	readYourWrites := controller.RecordReads(readyourwrites.New(i.Client, i.Reader, i.Clock))
	metrics := telemetry.New(p.registry)
	p.reconciler = controller.New(controller.Parts{
		Observer: controller.Observer{
			Client:    i.Client,
			Workloads: &workload.Workloads{Client: readYourWrites, APIReader: i.Reader, Options: workload.Options{ConfigTracking: true}},
			Routers:   k.routers, Applier: &traffic.Applier{Client: readYourWrites}, Settings: k.settings, Indexed: true,
		},
		Shards:    i.Shards,
		APIReader: i.Reader, Clock: i.Clock, Queries: p.queries, Metrics: metrics,
		Reporter: &controller.Reporter{
			Client: i.Client, APIReader: i.Reader, Clock: i.Clock, Outbox: p.events.Outbox, OngoingEvents: &telemetry.OngoingEvents{},
			Recorder: p.events.ForComponent(""), NewAlertSender: newAlertSender, Metrics: metrics,
		},
		Watch: func(workloads, routes []schema.GroupVersionKind) error {
			for _, kind := range slices.Concat(workloads, routes) {
				i.Watch(kind.GroupKind())
			}
			return nil
		},
	})
	return &actors.Controller{Reconciler: p.reconciler, WatchedKinds: watchedKinds, Requests: p.requestsFor, Send: p.send}
}

// requestsFor returns the releases to reconcile after a change, with the mapping that the watches have in production.
func (p *process) requestsFor(change store.Change) []reconcile.Request {
	before, after := actors.WatchedChange(p.canaries.World, change, change.Kind.Group == flaggerv1.GroupName || change.Kind == endpoints.Kind)
	return p.reconciler.AffectedReleases(context.Background(), change.Kind, before, after)
}

// send sends all events and queries that are queued.
func (p *process) send() {
	p.events.Flush()
	for {
		query, ok := p.queries.TakeNext(context.Background())
		if !p.instance.Alive() {
			return
		}
		if !ok {
			p.reportStarved()
			return
		}
		if query.Key.Namespace == neighbourNamespace {
			continue // these queries are never answered
		}
		p.canaries.services.answer(p, query)
	}
}

// maxInFlightPerPool is the maximum number of queries of one pool that are in flight.
const maxInFlightPerPool = 8

// settingsOf returns the configuration of a process.
func settingsOf(provider string) canary.Settings {
	return canary.Settings{Provider: provider, MinInterval: 0, Drain: drainDelay}
}
