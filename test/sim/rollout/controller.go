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

// process contains the production controllers of Rollouts in one process of Serin. Measurements and events are delivered to the
// actors of the world instead of the network; everything else runs as in production.
type process struct {
	rollouts *Rollouts
	instance *sim.Instance
	events   *actors.EventRecorder
	registry *prometheus.Registry
	metrics  *telemetry.Metrics
	// rolloutEvents records events about Rollouts.
	rolloutEvents *telemetry.Recorder
	// footprints return what the controllers retain in memory of the objects of their kinds.
	footprints map[schema.GroupKind]func() reconciler.Footprint
	queries    *queryrunner.Runner
	measurer   *measure.Measurer
	jobs       *measure.Jobs
	// stepPlugins and routerPlugins are those of the controller of Rollouts.
	stepPlugins   *controller.StepPlugins
	routerPlugins *controller.RouterPlugins
}

// The maximum numbers of measurements in flight, in total and per run.
const (
	maxInFlight       = 32
	maxInFlightPerRun = 16
)

// process returns the process of an instance.
func (k *Rollouts) process(i *sim.Instance) *process {
	if k.processes[i] != nil {
		return k.processes[i]
	}
	actors.AddIndexes(i, controller.IndexOwners, controller.IndexServices, controller.IndexWorkloads, controller.IndexMarkedWorkloads, endpoints.Index)
	p := &process{rollouts: k, instance: i, registry: prometheus.NewRegistry(), footprints: map[schema.GroupKind]func() reconciler.Footprint{}, events: actors.NewEventRecorder(k.World, i)}
	p.metrics, p.rolloutEvents = telemetry.New(p.registry), p.newRecorder()
	p.jobs = &measure.Jobs{Client: i.Client, APIReader: i.Reader, Clock: i.Clock}
	p.measurer = &measure.Measurer{
		Client: i.Client, Secrets: i.Reader, Clock: i.Clock, Namespace: actors.Namespace, Jobs: p.jobs, Telemetry: p.metrics,
		Services: metric.NewRegistry(metricprometheus.Service(nil), web.Service(metric.Cluster{})), Restricted: k.services.newSecretClient(),
		Plugins: &metricPlugins{k.services, i},
	}
	k.processes[i] = p
	return p
}

func (p *process) newRecorder() *telemetry.Recorder {
	return p.events.ForComponent(controller.Component)
}

// newLauncher returns the creator of AnalysisRuns.
func (p *process) newLauncher(readYourWrites client.Client) *launch.Launcher {
	return &launch.Launcher{Client: readYourWrites, ClusterTemplates: p.instance.Client, APIReader: p.instance.Reader}
}

// Controller implements sim.Kind.
func (k *Rollouts) Controller(i *sim.Instance) sim.Controller {
	p := k.process(i)
	p.addPlugins()
	readYourWrites := readyourwrites.New(i.Client, i.Reader, i.Clock)
	real := controller.New(controller.Parts{
		Observer: controller.Observer{
			Client: readYourWrites, APIReader: i.Reader, Runs: p.newLauncher(readYourWrites), Routers: k.routers, Applier: &traffic.Applier{Client: readYourWrites},
			MarkedKinds: k.routers.MarkedKinds(), StepPlugins: p.stepPlugins, RouterPlugins: p.routerPlugins,
		},
		Shards: i.Shards, Clock: i.Clock, Recorder: p.rolloutEvents, OngoingEvents: &telemetry.OngoingEvents{}, Metrics: p.metrics,
		Watch: func(kinds []schema.GroupVersionKind) error {
			for _, kind := range kinds {
				i.Watch(kind.GroupKind())
			}
			return nil
		},
	})
	p.footprints[rolloutKind] = real.Footprint
	return p.newController(real, append([]schema.GroupKind{
		rolloutKind, actors.ReplicaSetKind, runKind, experimentKind, templateKind, clusterTemplateKind, actors.ServiceKind, endpoints.Kind,
	}, k.markedKinds()...), func(change store.Change) []reconcile.Request {
		typed := change.Kind.Group == argov1.GroupName || change.Kind == actors.ReplicaSetKind || change.Kind == endpoints.Kind
		before, after := actors.WatchedChange(k.World, change, typed)
		return real.AffectedReleases(context.Background(), change.Kind, before, after)
	})
}

// analysisRunController returns the controller of AnalysisRuns.
func (p *process) analysisRunController() sim.Controller {
	enqueue := p.instance.Enqueue
	p.queries = queryrunner.NewConcurrent(p.instance.Clock, maxInFlight, maxInFlightPerRun, nil, func(key types.NamespacedName, _ bool) { enqueue(reconcile.Request{NamespacedName: key}) })
	p.queries.RequirePermission(func(string) error { return p.instance.CheckLease() })
	real := analysiscontroller.New(analysiscontroller.Parts{
		Shards: p.instance.Shards,
		Client: p.instance.Client, APIReader: p.instance.Reader, Clock: p.instance.Clock, Queries: p.queries, Recorder: p.newRecorder(), Jobs: p.jobs, Metrics: p.metrics,
	})
	p.footprints[runKind] = real.Footprint
	return p.newController(real, []schema.GroupKind{runKind, actors.JobKind}, func(change store.Change) []reconcile.Request {
		if change.Kind == runKind {
			return []reconcile.Request{{NamespacedName: change.Key}}
		}
		if change.Kind != actors.JobKind {
			return nil
		}
		of := change.Object().Meta().Annotations
		return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: of[measure.RunNamespaceAnnotation], Name: of[measure.RunNameAnnotation]}}}
	})
}

// experimentController returns the controller of Experiments.
func (p *process) experimentController() sim.Controller {
	readYourWrites := readyourwrites.New(p.instance.Client, p.instance.Reader, p.instance.Clock)
	real := experimentcontroller.New(experimentcontroller.Parts{
		Shards: p.instance.Shards,
		Client: p.instance.Client, Clock: p.instance.Clock, Launcher: p.newLauncher(readYourWrites), Recorder: p.newRecorder(), Rollouts: p.rolloutEvents, Metrics: p.metrics,
	})
	p.footprints[experimentKind] = real.Footprint
	owned := []schema.GroupKind{actors.ReplicaSetKind, actors.ServiceKind, runKind}
	return p.newController(real, append([]schema.GroupKind{experimentKind}, owned...), func(change store.Change) []reconcile.Request {
		if change.Kind == experimentKind {
			return []reconcile.Request{{NamespacedName: change.Key}}
		}
		owner := actors.ControllerOf(change.Object().Meta())
		if !slices.Contains(owned, change.Kind) || owner.Kind != argov1.ExperimentKind {
			return nil
		}
		return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: change.Key.Namespace, Name: owner.Name}}}
	})
}

// newController returns a controller of the process. Its logs are recorded in runs that check them for secrets.
func (p *process) newController(real reconcile.Reconciler, watched []schema.GroupKind, requests func(store.Change) []reconcile.Request) *actors.Controller {
	logged := reconcile.Func(func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
		return real.Reconcile(p.rollouts.withLogger(ctx), req)
	})
	return &actors.Controller{Reconciler: logged, WatchedKinds: watched, Requests: func(change store.Change) []reconcile.Request {
		if change.Kind == actors.ReplicaSetKind && change.Object().Meta().Labels[argov1.PodTemplateHashLabel] == "" {
			return nil // production watches only objects with the label
		}
		return requests(change)
	}, Send: func() {
		p.events.Flush()
		p.sendMeasurements()
		p.sendPluginCalls()
	}}
}

// sendMeasurements sends the measurements that are queued.
func (p *process) sendMeasurements() {
	for p.queries != nil && p.instance.Alive() {
		query, ok := p.queries.TakeNext(context.Background())
		if !ok {
			return
		}
		p.rollouts.services.measure(p, query)
	}
}

// markedKinds returns the kinds of users' objects that are annotated with their manager, in addition to Services.
func (k *Rollouts) markedKinds() []schema.GroupKind {
	var all []schema.GroupKind
	for _, kind := range k.routers.MarkedKinds() {
		all = append(all, kind.GroupKind())
	}
	return all
}
