package operator

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/analysis/launch"
	"github.com/serin-dev/serin/internal/analysis/measure"
	"github.com/serin-dev/serin/internal/othercontroller"
	"github.com/serin-dev/serin/internal/outbound"
	"github.com/serin-dev/serin/internal/queryrunner"
	"github.com/serin-dev/serin/internal/readyourwrites"
	"github.com/serin-dev/serin/internal/reconciler"
	"github.com/serin-dev/serin/internal/rollout/controller"
	"github.com/serin-dev/serin/internal/telemetry"
	"github.com/serin-dev/serin/internal/traffic"
	"github.com/serin-dev/serin/internal/traffic/alb/verification"
	"github.com/serin-dev/serin/internal/watching"
)

// rolloutsMissing returns the reason why Rollouts cannot be served, or nil if they can.
func (p process) rolloutsMissing(ctx context.Context) error {
	kinds := []requiredKind{
		{name: argov1.RolloutKind, list: &argov1.RolloutList{}},
		{name: argov1.AnalysisRunKind, list: &argov1.AnalysisRunList{}},
		{name: argov1.AnalysisTemplateKind, list: &argov1.AnalysisTemplateList{}},
		{name: argov1.ExperimentKind, list: &argov1.ExperimentList{}},
		{name: "ReplicaSet", list: &appsv1.ReplicaSetList{}},
	}
	if p.flags.Namespace == "" {
		kinds = append(kinds, requiredKind{name: argov1.ClusterAnalysisTemplateKind, list: &argov1.ClusterAnalysisTemplateList{}, isClusterScoped: true})
	}
	return checkInstalled(ctx, p.mgr.GetAPIReader(), p.flags.Namespace, "serin crds --group argoproj.io", kinds)
}

// serveRollouts adds the controller of Rollouts, and those of the AnalysisRuns and Experiments that they need.
func (p process) serveRollouts(ctx context.Context) error {
	mgr, f := p.mgr, p.flags
	own, err := p.newRolloutCluster(ctx)
	if err != nil {
		return err
	}
	otherController, err := p.newArgoRolloutsWatch(ctx, own)
	if err != nil {
		return err
	}
	clk := clock.RealClock{}
	consistent := readyourwrites.New(own.GetClient(), own.GetAPIReader(), clk)
	events, err := newEventClient(mgr)
	if err != nil {
		return err
	}
	newRecorder := func() *telemetry.Recorder {
		return telemetry.NewRecorder(events, p.outbox, clk, controller.Component)
	}
	recorder := newRecorder()
	notifications, err := p.newNotifications(ctx, own, consistent, recorder)
	if err != nil {
		return err
	}
	plugins, err := p.newPluginHost(ctx)
	if err != nil {
		return err
	}
	if err := p.serveAnalyses(ctx, own, plugins, newRecorder(), notifications, otherController); err != nil || len(f.Argo.Controllers) > 0 {
		return err
	}
	runs := p.newRunLauncher(own, consistent)
	if err := p.serveExperiments(own, runs, experimentRecorders{own: newRecorder(), rollouts: recorder}, notifications, otherController); err != nil {
		return err
	}
	istio, err := p.connectIstioPrimary(ctx)
	if err != nil {
		return err
	}
	queue := &reconciler.Queue{}
	observer, err := p.newRolloutObserver(ctx, rolloutClients{own, consistent, istio}, runs, otherController, queue)
	if err != nil {
		return err
	}
	if observer.StepPlugins, err = p.newStepPlugins(plugins, queue); err != nil {
		return err
	}
	if observer.RouterPlugins, err = p.newRouterPlugins(plugins, observer.Routers, queue); err != nil {
		return err
	}
	reconciler := controller.New(controller.Parts{
		Observer: observer, Clock: clk, Recorder: recorder, OngoingEvents: &telemetry.OngoingEvents{}, Metrics: p.metrics,
		Notifications: notifications, Health: p.reportHealth, Shards: p.shards.held(),
	})
	p.shards.onChange(reconciler.RequeueShard(queue))
	p.conflicts.setRollouts(own.GetClient())
	return reconciler.Add(mgr, queue, controller.Options{
		Workers: f.Argo.RolloutThreads, Cache: own.GetCache(), Leases: otherController != nil && otherController.LeasesUnreadable == "", ClusterTemplates: f.Namespace == "",
		Groups: istio.clusters,
	})
}

// newRolloutCluster returns the cluster with the caches of Rollouts, and adds it to the manager. Rollouts have their own caches
// except for a few kinds: they contain only objects with the instance ID, and the CRDs may have been installed after the process
// started.
func (p process) newRolloutCluster(ctx context.Context) (cluster.Cluster, error) {
	mgr, f := p.mgr, p.flags
	own, err := cluster.New(mgr.GetConfig(), func(o *cluster.Options) {
		o.Scheme, o.Cache, o.NewCache, o.Client, o.NewClient = mgr.GetScheme(), f.rolloutCache(), p.caches.newSharingCache(mgr.GetCache()), cachedReads(), newClient
		o.HTTPClient, o.MapperProvider = mgr.GetHTTPClient(), func(*rest.Config, *http.Client) (meta.RESTMapper, error) { return mgr.GetRESTMapper(), nil }
	})
	if err != nil {
		return nil, fmt.Errorf("create the caches of Rollouts: %w", err)
	}
	if err := mgr.Add(own); err != nil {
		return nil, fmt.Errorf("add the caches of Rollouts: %w", err)
	}
	for _, index := range []func(context.Context, client.FieldIndexer) error{controller.IndexOwners, controller.IndexServices, controller.IndexWorkloads} {
		if err := index(ctx, own.GetFieldIndexer()); err != nil {
			return nil, err
		}
	}
	if p.queue.Limits() {
		if err := controller.IndexQueueEntries(ctx, own.GetFieldIndexer()); err != nil {
			return nil, err
		}
	}
	return own, nil
}

// newRunLauncher returns the component that creates AnalysisRuns.
func (p process) newRunLauncher(own cluster.Cluster, consistent client.Client) *launch.Launcher {
	templates := client.Reader(own.GetClient())
	if p.flags.Namespace != "" {
		templates = own.GetAPIReader() // cluster-scoped objects cannot be watched with permissions for one namespace
	}
	return &launch.Launcher{Client: consistent, ClusterTemplates: templates, APIReader: own.GetAPIReader(), InstanceID: p.flags.Argo.InstanceID}
}

// rolloutClients are the clients of the controller of Rollouts.
type rolloutClients struct {
	own        cluster.Cluster
	consistent client.Client // reads from the caches of own, and never an object older than its own last write
	istio      remoteClusters
}

// newRolloutObserver returns the component that observes Rollouts, and prepares the caches that it needs.
func (p process) newRolloutObserver(
	ctx context.Context, clients rolloutClients, runs *launch.Launcher, otherController *watching.OtherController, queue *reconciler.Queue,
) (controller.Observer, error) {
	unread, err := p.endpoints.prepare(ctx, p.mgr.GetAPIReader(), p.mgr.GetFieldIndexer(), p.flags.Namespace, p.logger)
	if err != nil {
		return controller.Observer{}, err
	}
	reader := clients.own.GetAPIReader()
	queries, err := p.newTargetGroupVerifier(reader, queue)
	if err != nil {
		return controller.Observer{}, err
	}
	marked := p.markedKinds(ctx, reader, clients.istio.clients)
	if slices.Contains(marked, appsv1.SchemeGroupVersion.WithKind("Deployment")) {
		if err := controller.IndexMarkedWorkloads(ctx, clients.own.GetFieldIndexer()); err != nil {
			return controller.Observer{}, err
		}
	}
	return controller.Observer{
		Client: clients.consistent, APIReader: reader, Routers: p.flags.Routers(),
		Applier:    &traffic.Applier{Client: clients.consistent, Groups: clients.istio.clients},
		Runs:       runs,
		InstanceID: p.flags.Argo.InstanceID, FindConflict: p.conflicts.conflictingCanary, OtherController: otherController, Queries: queries, Queue: p.queue, EndpointsUnread: unread,
		Resync: time.Duration(p.flags.Argo.RolloutResync) * time.Second, MarkedKinds: marked,
	}, nil
}

// markedKinds returns the kinds of marked objects that can be watched from the start: those that are installed in this
// cluster and may be read. Kinds of another cluster are excluded, because it may not respond yet.
func (p process) markedKinds(ctx context.Context, reader client.Reader, remote map[string]client.Client) []schema.GroupVersionKind {
	var kinds []schema.GroupVersionKind
	for _, kind := range p.flags.Routers().MarkedKinds() {
		if remote[kind.Group] != nil {
			continue
		}
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
		if err := reader.List(ctx, list, client.InNamespace(p.flags.Namespace), client.Limit(1)); err != nil {
			p.logger.V(1).Info("Does not watch a kind for marks of deleted Rollouts", "kind", kind.Kind, "err", err.Error())
			continue
		}
		kinds = append(kinds, kind)
	}
	return kinds
}

// maxAWSQueries limits the concurrent queries about load balancers: AWS limits the calls of a whole account.
const maxAWSQueries = 8

// newTargetGroupVerifier returns the component that verifies load balancers with AWS, if the flags enable it; otherwise nil.
func (p process) newTargetGroupVerifier(cluster client.Reader, queue *reconciler.Queue) (*queryrunner.Runner, error) {
	a := p.flags.Argo
	if !a.VerifyTargetGroups {
		return nil, nil
	}
	// Only the environment of the process can set another endpoint than that of AWS, so it may be a host near the
	// process.
	verifier, err := verification.New(cluster, outbound.New(trustedAddressPolicy()), verification.Options{
		Tag: a.TargetGroupTag, BindingAPI: a.TargetGroupBindingAPI,
	})
	if err != nil {
		return nil, err
	}
	queries := queryrunner.New(clock.RealClock{}, maxAWSQueries, verifier.Send, queue.AddAnswered)
	if err := p.mgr.Add(replicaRunnable{queries.Run}); err != nil {
		return nil, fmt.Errorf("add the query runner of Rollouts: %w", err)
	}
	return queries, nil
}

// newArgoRolloutsWatch detects a running Argo Rollouts, unless the administrator has divided the Rollouts between the two.
func (p process) newArgoRolloutsWatch(ctx context.Context, own cluster.Cluster) (*watching.OtherController, error) {
	if p.flags.AdoptWhileOtherControllerRuns {
		return nil, nil
	}
	otherController := watching.NewArgoRolloutsWatch(own.GetClient(), own.GetClient(), p.flags.Argo.InstanceID)
	otherController.Scope, otherController.IsPermitted = p.flags.otherControllers(), p.permissions
	if err := otherController.Index(ctx, own.GetFieldIndexer()); err != nil {
		return nil, err
	}
	name := othercontroller.ArgoLeaseName(p.flags.Argo.InstanceID)
	err := own.GetAPIReader().List(ctx, &coordinationv1.LeaseList{}, client.InNamespace(p.flags.Namespace),
		client.MatchingFieldsSelector{Selector: fields.OneTermEqualSelector("metadata.name", name)}, client.Limit(1))
	switch {
	case apierrors.IsForbidden(err):
		otherController.LeasesUnreadable = "Leases may not be read"
		p.logger.Info("Detects Argo Rollouts by its Deployment only, because its Lease may not be read. " +
			"Allow list and watch on leases of coordination.k8s.io named " + name + ", and restart")
	case err != nil:
		return nil, fmt.Errorf("list Leases: %w", err)
	}
	return otherController, nil
}

// rolloutCache returns the options of the cache for Rollouts: of their kinds, it contains objects with the instance ID.
func (f *Flags) rolloutCache() cache.Options {
	options := f.cacheOptions()
	jobs := cache.ByObject{Label: labelSelector(measure.RunUIDLabel)}
	if namespace := os.Getenv(jobNamespaceVariable); namespace != "" && f.Namespace != "" {
		jobs.Namespaces = map[string]cache.Config{f.Namespace: {}, namespace: {}}
	}
	options.ByObject = map[client.Object]cache.ByObject{
		&coordinationv1.Lease{}: {Field: fields.OneTermEqualSelector("metadata.name", othercontroller.ArgoLeaseName(f.Argo.InstanceID))},
		&appsv1.ReplicaSet{}:    {Label: labelSelector(argov1.PodTemplateHashLabel)},
		&batchv1.Job{}:          jobs,
	}
	f.notificationCache(options.ByObject)
	for _, object := range []client.Object{
		&argov1.Rollout{}, &argov1.AnalysisRun{}, &argov1.Experiment{}, &argov1.AnalysisTemplate{}, &argov1.ClusterAnalysisTemplate{},
	} {
		options.ByObject[object] = cache.ByObject{Label: f.instanceSelector()}
	}
	return options
}

// labelSelector returns a selector for objects that have a label.
func labelSelector(label string) labels.Selector {
	exists, err := labels.NewRequirement(label, selection.Exists, nil)
	if err != nil {
		panic(err) // an invalid label: a programming error
	}
	return labels.NewSelector().Add(*exists)
}

// instanceSelector returns the selector for the instance ID.
func (f *Flags) instanceSelector() labels.Selector {
	operator, values := selection.DoesNotExist, []string(nil)
	if f.Argo.InstanceID != "" {
		operator, values = selection.Equals, []string{f.Argo.InstanceID}
	}
	requirement, err := labels.NewRequirement(argov1.InstanceIDLabel, operator, values)
	if err != nil {
		panic(err) // Validate has rejected IDs that are not valid labels
	}
	return labels.NewSelector().Add(*requirement)
}
