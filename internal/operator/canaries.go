package operator

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/serin-dev/serin/internal/alerting"
	"github.com/serin-dev/serin/internal/canary"
	"github.com/serin-dev/serin/internal/canary/controller"
	"github.com/serin-dev/serin/internal/hook"
	"github.com/serin-dev/serin/internal/othercontroller"
	"github.com/serin-dev/serin/internal/outbound"
	"github.com/serin-dev/serin/internal/queryrunner"
	"github.com/serin-dev/serin/internal/readyourwrites"
	"github.com/serin-dev/serin/internal/reconciler"
	"github.com/serin-dev/serin/internal/telemetry"
	"github.com/serin-dev/serin/internal/traffic"
	"github.com/serin-dev/serin/internal/watching"
	"github.com/serin-dev/serin/internal/workload"
)

// serveCanaries adds the controller of Canaries.
func (p process) serveCanaries(ctx context.Context) error {
	mgr, f := p.mgr, p.flags
	if p.queue.Limits() {
		if err := controller.IndexQueueEntries(ctx, mgr.GetFieldIndexer()); err != nil {
			return err
		}
	}
	if err := controller.IndexTargets(ctx, mgr.GetFieldIndexer()); err != nil {
		return err
	}
	unread, err := p.endpoints.prepare(ctx, mgr.GetAPIReader(), mgr.GetFieldIndexer(), f.Namespace, p.logger)
	if err != nil {
		return err
	}
	otherController, err := f.newFlaggerWatch(ctx, mgr, p.permissions, p.logger)
	if err != nil {
		return err
	}
	return p.wireCanaryController(unread, otherController)
}

// wireCanaryController creates and connects the components of the controller of Canaries.
func (p process) wireCanaryController(endpointsUnread string, otherController *watching.OtherController) error {
	mgr, f := p.mgr, p.flags
	clk := clock.RealClock{}
	restricted, trusted := outbound.New(f.userAddressPolicy()), outbound.New(trustedAddressPolicy())
	settings := canary.Settings{
		Provider: f.defaultProvider(), MinInterval: f.MinAnalysisInterval, Drain: f.DrainDelay, NoCrossNamespace: f.NoCrossNamespaceRefs,
	}
	consistent := controller.RecordReads(readyourwrites.New(mgr.GetClient(), mgr.GetAPIReader(), clk))
	hooks := hook.New(restricted, clk)
	sender := &controller.QuerySender{
		Client: mgr.GetClient(), APIReader: mgr.GetAPIReader(), Clock: clk, Hooks: hooks,
		Services: p.services, Restricted: restricted, Unrestricted: trusted,
		MetricsServer: f.MetricsServer, Provider: settings.Provider, NoCrossNamespace: f.NoCrossNamespaceRefs, Telemetry: p.metrics,
	}
	queue := &reconciler.Queue{}
	queries := queryrunner.NewPooled(clk, maxConcurrentQueries, controller.Pool, sender.Send, queue.AddAnswered)
	queries.ReserveFirstQueries(reservedQueries)
	queries.RequirePermission(p.mayQuery)
	reporter, err := p.newReporter(restricted, trusted, hooks)
	if err != nil {
		return err
	}
	routes, err := p.newRouteCluster()
	if err != nil {
		return err
	}
	reconciler := controller.New(controller.Parts{
		Observer: controller.Observer{
			Client: mgr.GetClient(), Workloads: &workload.Workloads{Client: consistent, APIReader: mgr.GetAPIReader(), Options: f.WorkloadOptions()},
			Routers: f.Routers(), Applier: newRouteApplier(consistent, mgr.GetAPIReader(), routes), Settings: settings, Queue: p.queue,
			MetricTypes: p.services.TemplateTypes(), Indexed: true,
			EndpointsUnread: endpointsUnread, OtherController: otherController, FindConflict: p.conflicts.conflictingRollout,
		},
		APIReader: mgr.GetAPIReader(), Clock: clk, Queries: queries, Reporter: reporter, Metrics: p.metrics, Health: p.reportHealth,
		Shards: p.shards.held(),
	})
	p.shards.onChange(reconciler.RequeueShard(queue))
	if err := reconciler.Add(mgr, queue, controller.Options{Workers: f.Threadiness, Routes: routes, ConfigTracking: f.EnableConfigTracking}); err != nil {
		return err
	}
	p.conflicts.setCanaries(mgr.GetClient())
	if err := mgr.Add(replicaRunnable{queries.Run}); err != nil {
		return fmt.Errorf("add the query runner of Canaries: %w", err)
	}
	return nil
}

// newReporter returns the component that reports the events of Canaries: to Kubernetes, to their hooks and as alerts.
func (p process) newReporter(restricted, trusted *outbound.Client, hooks *hook.Client) (*controller.Reporter, error) {
	mgr, f, clk := p.mgr, p.flags, clock.RealClock{}
	sender, err := f.alertSender(trusted)
	if err != nil {
		return nil, err
	}
	events, err := newEventClient(mgr)
	if err != nil {
		return nil, err
	}
	return &controller.Reporter{
		Client: mgr.GetClient(), APIReader: mgr.GetAPIReader(), Clock: clk,
		Recorder: telemetry.NewRecorder(events, p.outbox, clk, ""), Outbox: p.outbox, OngoingEvents: &telemetry.OngoingEvents{},
		Hooks: hooks, EventHook: f.EventWebhook, EventHooks: hook.New(trusted, clk), AlertSender: sender, Cluster: f.ClusterName, NoCrossNamespace: f.NoCrossNamespaceRefs,
		NewAlertSender: alerting.NewSenders(restricted, f.userAddressPolicy()).New, Metrics: p.metrics,
	}, nil
}

// newRouteApplier returns the applier of the routes of Canaries. routes is the cluster that contains them; nil: that of the
// Canaries, whose clients are given.
func newRouteApplier(local client.Client, localLive client.Reader, routes cluster.Cluster) *traffic.Applier {
	if routes == nil {
		return &traffic.Applier{Client: local, APIReader: localLive}
	}
	remote := readyourwrites.New(routes.GetClient(), routes.GetAPIReader(), clock.RealClock{})
	return &traffic.Applier{Client: controller.RecordReads(remote), APIReader: routes.GetAPIReader(), NoOwnerReferences: true}
}

// newFlaggerWatch detects a running Flagger, unless the administrator has divided the Canaries between the two. The permissions
// of earlier versions did not include leases, and a cache that may not read a kind would prevent the process from starting.
func (f *Flags) newFlaggerWatch(
	ctx context.Context, mgr manager.Manager, isPermitted watching.UpdatePermission, logger logr.Logger,
) (*watching.OtherController, error) {
	if f.AdoptWhileOtherControllerRuns {
		return nil, nil
	}
	otherController := watching.NewFlaggerWatch(mgr.GetClient())
	otherController.Scope, otherController.IsPermitted = f.otherControllers(), isPermitted
	if err := otherController.Index(ctx, mgr.GetFieldIndexer()); err != nil {
		return nil, err
	}
	err := mgr.GetAPIReader().List(ctx, &coordinationv1.LeaseList{}, client.InNamespace(f.Namespace), client.MatchingFieldsSelector{Selector: otherControllerLeases}, client.Limit(1))
	switch {
	case apierrors.IsForbidden(err):
		otherController.LeasesUnreadable = "Leases may not be read"
		logger.Info("Detects Flagger by its Deployment only, because its Lease may not be read. " +
			"Allow list and watch on leases of coordination.k8s.io named " + othercontroller.FlaggerLeaseName + ", and restart")
	case err != nil:
		return nil, fmt.Errorf("list Leases: %w", err)
	}
	return otherController, nil
}

// newRouteCluster returns the cluster with the route objects, or nil if it is the cluster of the Canaries.
func (p process) newRouteCluster() (cluster.Cluster, error) {
	mgr, f := p.mgr, p.flags
	if f.KubeconfigServiceMesh == "" || f.KubeconfigServiceMesh == f.Kubeconfig {
		return nil, nil
	}
	cfg, err := clientcmd.BuildConfigFromFlags("", f.KubeconfigServiceMesh)
	if err != nil {
		return nil, fmt.Errorf("read -kubeconfig-service-mesh: %w", err)
	}
	if cfg.Host == mgr.GetConfig().Host {
		return nil, nil
	}
	c, err := cluster.New(f.tuneClient(cfg, p.transports), func(o *cluster.Options) {
		o.Scheme, o.Cache, o.NewCache, o.Client, o.NewClient = mgr.GetScheme(), f.cacheOptions(), p.caches.newCache, cachedReads(), newClient
		o.MapperProvider = newCachingMapper
	})
	if err != nil {
		return nil, fmt.Errorf("connect to the cluster of -kubeconfig-service-mesh: %w", err)
	}
	if err := mgr.Add(c); err != nil {
		return nil, fmt.Errorf("add the cluster of -kubeconfig-service-mesh: %w", err)
	}
	return c, nil
}

// defaultProvider returns the provider of Canaries that do not set one. An empty flag means istio, as in Flagger; Validate
// has refused unknown names.
func (f *Flags) defaultProvider() string {
	name, _ := traffic.Normalize(f.MeshProvider)
	return name
}

// alertSender returns the alert sender that the flags configure: Microsoft Teams, else Slack, else nil.
func (f *Flags) alertSender(c *outbound.Client) (alerting.Sender, error) {
	switch {
	case f.MSTeamsURL != "":
		return alerting.New(c, "msteams", alerting.Options{URL: f.MSTeamsURL, Proxy: f.MSTeamsProxyURL})
	case f.SlackURL != "" && f.SlackChannel != "":
		return alerting.New(c, "slack", alerting.Options{
			URL: f.SlackURL, Token: f.SlackToken, Proxy: f.SlackProxyURL, Username: f.SlackUser, Channel: f.SlackChannel,
		})
	case f.SlackURL != "":
		return nil, errors.New("-slack-url is set but -slack-channel is empty, so no alert could be sent: set the channel")
	default:
		return nil, nil
	}
}
