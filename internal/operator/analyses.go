package operator

import (
	"context"
	"fmt"
	"os"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/cluster"

	analysiscontroller "github.com/serin-dev/serin/internal/analysis/controller"
	"github.com/serin-dev/serin/internal/analysis/launch"
	"github.com/serin-dev/serin/internal/analysis/measure"
	experimentcontroller "github.com/serin-dev/serin/internal/experiment/controller"
	"github.com/serin-dev/serin/internal/notification/dispatch"
	"github.com/serin-dev/serin/internal/outbound"
	"github.com/serin-dev/serin/internal/plugin"
	"github.com/serin-dev/serin/internal/queryrunner"
	"github.com/serin-dev/serin/internal/reconciler"
	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/internal/telemetry"
	"github.com/serin-dev/serin/internal/watching"
)

// concurrentMeasurements limits the concurrent measurements of one AnalysisRun.
const concurrentMeasurements = 16

// The environment variables of Argo's controller for Jobs of analyses that run in another cluster.
const (
	jobNamespaceVariable  = "ARGO_ROLLOUTS_ANALYSIS_JOB_NAMESPACE"
	jobKubeconfigVariable = "ARGO_ROLLOUTS_ANALYSIS_JOB_KUBECONFIG"
	inCluster             = "in-cluster"
)

// serveAnalyses adds the controller of AnalysisRuns, which reads from the caches of Rollouts.
func (p process) serveAnalyses(ctx context.Context, own cluster.Cluster, plugins *plugin.Host, recorder *telemetry.Recorder, notifications *dispatch.Dispatcher, otherController *watching.OtherController) error {
	clk := clock.RealClock{}
	jobs, jobCache, err := p.newJobRunner(own)
	if err != nil {
		return err
	}
	queue := &reconciler.Queue{}
	measurer := &measure.Measurer{
		Client: own.GetClient(), Secrets: own.GetAPIReader(), Clock: clk, Services: p.services,
		Restricted: outbound.New(p.flags.userAddressPolicy()), Unrestricted: outbound.New(trustedAddressPolicy()),
		Namespace: p.flags.Argo.OwnNamespace, Environment: os.Getenv, Jobs: jobs, Telemetry: p.metrics,
	}
	if plugins != nil {
		measurer.Plugins = plugins
	}
	// A measurement may create a Job.
	measureInShard := func(ctx context.Context, key queryrunner.Key, query release.Query) release.Answer {
		return measurer.Measure(p.shards.held().Context(ctx, key.Namespace), key, query)
	}
	queries := queryrunner.NewConcurrent(clk, maxConcurrentQueries, concurrentMeasurements, measureInShard, queue.AddAnswered)
	queries.ReserveFirstQueries(reservedQueries)
	queries.RequirePermission(p.mayQuery)
	if err := p.mgr.Add(replicaRunnable{queries.Run}); err != nil {
		return fmt.Errorf("add the query runner of AnalysisRuns: %w", err)
	}
	reconciler := analysiscontroller.New(analysiscontroller.Parts{
		Client: own.GetClient(), APIReader: own.GetAPIReader(), Clock: clk, Queries: queries, Recorder: recorder, Notifications: notifications, Jobs: jobs, Metrics: p.metrics, Shards: p.shards.held(),
		InstanceID: p.flags.Argo.InstanceID, OtherController: otherController.ActingSign,
	})
	p.shards.onChange(reconciler.RequeueShard(queue))
	p.metrics.RegisterAnalyses(analysiscontroller.ReadSeries(ctx, own.GetCache(), p.shards.held()))
	return reconciler.Add(p.mgr, queue, analysiscontroller.Options{Workers: p.flags.Argo.AnalysisThreads, Cache: own.GetCache(), Jobs: jobCache})
}

// newJobRunner returns the runner for Jobs of analyses, in this cluster or in the one that the environment configures.
func (p process) newJobRunner(own cluster.Cluster) (*measure.Jobs, cache.Cache, error) {
	jobs := &measure.Jobs{Client: own.GetClient(), APIReader: own.GetAPIReader(), Clock: clock.RealClock{}, Namespace: os.Getenv(jobNamespaceVariable)}
	path := os.Getenv(jobKubeconfigVariable)
	if path == "" {
		return jobs, own.GetCache(), nil
	}
	cfg, err := rest.InClusterConfig()
	if path != inCluster {
		cfg, err = clientcmd.BuildConfigFromFlags("", path)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("read %s: %w", jobKubeconfigVariable, err)
	}
	if cfg.Host == p.mgr.GetConfig().Host {
		return jobs, own.GetCache(), nil
	}
	remote, err := cluster.New(p.flags.tuneClient(cfg, p.transports), func(o *cluster.Options) {
		o.Scheme, o.Cache, o.NewCache, o.Client, o.NewClient = p.mgr.GetScheme(), p.flags.rolloutCache(), p.caches.newCache, cachedReads(), newClient
		o.MapperProvider = newCachingMapper
	})
	if err != nil {
		return nil, nil, fmt.Errorf("connect to the cluster of %s: %w", jobKubeconfigVariable, err)
	}
	if err := p.mgr.Add(remote); err != nil {
		return nil, nil, fmt.Errorf("add the cluster of %s: %w", jobKubeconfigVariable, err)
	}
	jobs.Client, jobs.APIReader, jobs.RemoteCluster = remote.GetClient(), remote.GetAPIReader(), true
	return jobs, remote.GetCache(), nil
}

// experimentRecorders are the event recorders of the controllers of Experiments and of Rollouts.
type experimentRecorders struct{ own, rollouts *telemetry.Recorder }

// serveExperiments adds the controller of Experiments.
func (p process) serveExperiments(own cluster.Cluster, runs *launch.Launcher, recorders experimentRecorders, notifications *dispatch.Dispatcher, otherController *watching.OtherController) error {
	queue := &reconciler.Queue{}
	reconciler := experimentcontroller.New(experimentcontroller.Parts{
		Client: own.GetClient(), Clock: clock.RealClock{}, Launcher: runs, Recorder: recorders.own, Rollouts: recorders.rollouts, Metrics: p.metrics,
		Notifications: notifications, Shards: p.shards.held(), InstanceID: p.flags.Argo.InstanceID,
		OtherController: otherController.ActingSign,
	})
	p.shards.onChange(reconciler.RequeueShard(queue))
	return reconciler.Add(p.mgr, queue, experimentcontroller.Options{Workers: p.flags.Argo.ExperimentThreads, Cache: own.GetCache()})
}
