package rollout

import (
	"context"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	analysiscontroller "github.com/serin-dev/serin/internal/analysis/controller"
	"github.com/serin-dev/serin/internal/analysis/launch"
	"github.com/serin-dev/serin/internal/analysis/measure"
	"github.com/serin-dev/serin/internal/endpoints"
	experimentcontroller "github.com/serin-dev/serin/internal/experiment/controller"
	"github.com/serin-dev/serin/internal/metric"
	metricprometheus "github.com/serin-dev/serin/internal/metric/prometheus"
	"github.com/serin-dev/serin/internal/metric/web"
	"github.com/serin-dev/serin/internal/queryrunner"
	"github.com/serin-dev/serin/internal/readyourwrites"
	"github.com/serin-dev/serin/internal/reconciler"
	"github.com/serin-dev/serin/internal/rollout/controller"
	"github.com/serin-dev/serin/internal/telemetry"
	"github.com/serin-dev/serin/internal/traffic"
	"github.com/serin-dev/serin/test/sim"
	"github.com/serin-dev/serin/test/sim/actors"
	"github.com/serin-dev/serin/test/sim/store"
)

// process is what one process of Serin has for Rollouts. What leaves it (measurements, messages) goes to the actors of the
// world instead of the network; all else is what runs in production.
type process struct {
	rollouts *Rollouts
	instance *sim.Instance
	events   *actors.EventRecorder
	registry *prometheus.Registry
	metrics  *telemetry.Metrics
	// rolloutEvents is of events about Rollouts.
	rolloutEvents *telemetry.Recorder
	// footprints are what the controllers remember of the objects of their kinds.
	footprints map[schema.GroupKind]func() reconciler.Footprint
	queries    *queryrunner.Runner
	measurer   *measure.Measurer
	jobs       *measure.Jobs
}

// The bounds of measurements that are out at once, in all and of one run.
const (
	inFlight = 32
	abreast  = 16
)

// process is the one of an instance.
func (k *Rollouts) process(i *sim.Instance) *process {
	if k.lives[i] != nil {
		return k.lives[i]
	}
	actors.Index(i, controller.IndexOwners, controller.IndexServices, controller.IndexWorkloads, controller.IndexMarkedWorkloads, endpoints.Index)
	p := &process{rollouts: k, instance: i, registry: prometheus.NewRegistry(), footprints: map[schema.GroupKind]func() reconciler.Footprint{}, events: actors.NewEventRecorder(k.world, i)}
	p.metrics, p.rolloutEvents = telemetry.New(p.registry), p.recorder()
	p.jobs = &measure.Jobs{Client: i.Client, APIReader: i.Reader, Clock: i.Clock}
	p.measurer = &measure.Measurer{
		Client: i.Client, Secrets: i.Reader, Clock: i.Clock, Namespace: actors.Namespace, Jobs: p.jobs, Telemetry: p.metrics,
		Services: metric.NewRegistry(metricprometheus.Service(nil), web.Service(metric.Cluster{})), Restricted: k.services.named(),
	}
	k.lives[i] = p
	return p
}

func (p *process) recorder() *telemetry.Recorder { return p.events.Recorder(controller.Component) }

// launcher makes AnalysisRuns.
func (p *process) launcher(seeing client.Client) *launch.Launcher {
	return &launch.Launcher{Client: seeing, ClusterTemplates: p.instance.Client, APIReader: p.instance.Reader}
}

// Controller implements sim.Kind.
func (k *Rollouts) Controller(i *sim.Instance) sim.Controller {
	p := k.process(i)
	seeing := readyourwrites.New(i.Client, i.Reader, i.Clock)
	real := controller.New(controller.Parts{
		Observer: controller.Observer{
			Client: seeing, Reader: i.Reader, Runs: p.launcher(seeing), Routers: k.routers, Applier: &traffic.Applier{Client: seeing},
			MarkedKinds: k.routers.MarkedKinds(),
		},
		Clock: i.Clock, Recorder: p.rolloutEvents, OngoingEvents: &telemetry.OngoingEvents{}, Metrics: p.metrics,
		Watch: func(kinds []schema.GroupVersionKind) error {
			for _, kind := range kinds {
				i.Watch(kind.GroupKind())
			}
			return nil
		},
	})
	p.footprints[rolloutKind] = real.Footprint
	return &running{process: p, Reconciler: real, watches: append([]schema.GroupKind{
		rolloutKind, actors.ReplicaSetKind, runKind, experimentKind, templateKind, clusterTemplateKind, actors.ServiceKind, endpoints.Kind,
	}, k.marked()...), concerned: func(change store.Change) []reconcile.Request {
		typed := change.Kind.Group == argov1.GroupName || change.Kind == actors.ReplicaSetKind || change.Kind == endpoints.Kind
		before, after := actors.WatchedChange(k.world, change, typed)
		return real.AffectedReleases(context.Background(), change.Kind, before, after)
	}}
}

// runs is the controller of AnalysisRuns.
func (p *process) runs() sim.Controller {
	enqueue := p.instance.Enqueue
	p.queries = queryrunner.NewConcurrent(p.instance.Clock, inFlight, abreast, nil, func(key types.NamespacedName) { enqueue(reconcile.Request{NamespacedName: key}) })
	real := analysiscontroller.New(analysiscontroller.Parts{
		Client: p.instance.Client, Clock: p.instance.Clock, Queries: p.queries, Recorder: p.recorder(), Jobs: p.jobs, Metrics: p.metrics,
	})
	p.footprints[runKind] = real.Footprint
	return &running{process: p, Reconciler: real, watches: []schema.GroupKind{runKind, actors.JobKind}, concerned: func(change store.Change) []reconcile.Request {
		if change.Kind == runKind {
			return []reconcile.Request{{NamespacedName: change.Key}}
		}
		if change.Kind != actors.JobKind {
			return nil
		}
		of := change.Object().Meta().Annotations
		return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: of[measure.RunNamespaceAnnotation], Name: of[measure.RunNameAnnotation]}}}
	}}
}

// experiments is the controller of Experiments.
func (p *process) experiments() sim.Controller {
	seeing := readyourwrites.New(p.instance.Client, p.instance.Reader, p.instance.Clock)
	real := experimentcontroller.New(experimentcontroller.Parts{
		Client: p.instance.Client, Clock: p.instance.Clock, Launcher: p.launcher(seeing), Recorder: p.recorder(), Rollouts: p.rolloutEvents, Metrics: p.metrics,
	})
	p.footprints[experimentKind] = real.Footprint
	owned := []schema.GroupKind{actors.ReplicaSetKind, actors.ServiceKind, runKind}
	return &running{process: p, Reconciler: real, watches: append([]schema.GroupKind{experimentKind}, owned...), concerned: func(change store.Change) []reconcile.Request {
		if change.Kind == experimentKind {
			return []reconcile.Request{{NamespacedName: change.Key}}
		}
		kind, name := owner(change.Object().Meta())
		if !slices.Contains(owned, change.Kind) || kind != argov1.ExperimentKind {
			return nil
		}
		return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: change.Key.Namespace, Name: name}}}
	}}
}

// running is one of the controllers of a process.
type running struct {
	reconcile.Reconciler

	process   *process
	watches   []schema.GroupKind
	concerned func(store.Change) []reconcile.Request
}

// Reconcile implements sim.Controller.
func (r *running) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	return r.Reconciler.Reconcile(r.process.rollouts.logging(ctx), req)
}

// Watches implements sim.Controller.
func (r *running) Watches() []schema.GroupKind { return r.watches }

// RequestsFor implements sim.Controller, with the mapping that the watches have in production.
func (r *running) RequestsFor(change store.Change) []reconcile.Request {
	if change.Kind == actors.ReplicaSetKind && change.Object().Meta().Labels[argov1.PodTemplateHashLabel] == "" {
		return nil // production watches what carries the label
	}
	return r.concerned(change)
}

// Flush implements sim.Controller.
func (r *running) Flush() {
	p := r.process
	p.events.Flush()
	p.ask()
}

// ask lets the measurements out that wait for it.
func (p *process) ask() {
	for p.queries != nil && p.instance.Alive() {
		asked, ok := p.queries.TakeNext(context.Background())
		if !ok {
			return
		}
		p.rollouts.services.deliver(p, asked)
	}
}

// marked are the kinds of users' objects that carry marks, beside Services.
func (k *Rollouts) marked() []schema.GroupKind {
	var all []schema.GroupKind
	for _, kind := range k.routers.MarkedKinds() {
		all = append(all, kind.GroupKind())
	}
	return all
}
