// Package operator wires the process: flags, manager, caches, leader election, shards, health.
//
// It creates every component and makes no decisions: it must not know phases, routes or metrics beyond the names of
// their packages.
package operator

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/encodedcache"
	"github.com/serin-dev/serin/internal/fence"
	"github.com/serin-dev/serin/internal/metric"
	"github.com/serin-dev/serin/internal/othercontroller"
	"github.com/serin-dev/serin/internal/queue"
	"github.com/serin-dev/serin/internal/readyourwrites"
	"github.com/serin-dev/serin/internal/telemetry"
	"github.com/serin-dev/serin/internal/watching"
	"github.com/serin-dev/serin/internal/workload"
)

// maxConcurrentQueries limits the concurrent queries of one kind, for all releases: webhooks, metric queries of Canaries,
// measurements of AnalysisRuns. Namespaces share it.
//
// reservedQueries is the number of namespaces that have one query of each kind in flight although the limit is reached. A
// webhook may hang for an hour in each of a handful of namespaces, which reach the limit together, and meanwhile the releases of
// all others would neither advance nor be rolled back. A query in flight costs goroutines and a connection, some 50 KiB, and the
// response that it reads, 64 KiB of a webhook and 1 MiB of a metrics service at most; hence a limit for them, too.
const (
	maxConcurrentQueries = 256
	reservedQueries      = 512
)

// Default lease times, the same as in Kubernetes' own controllers.
const (
	leaseDuration = 15 * time.Second
	renewDeadline = 10 * time.Second
	retryPeriod   = 2 * time.Second
)

// Scheme returns a scheme with every type that the controller and the commands read or write.
func Scheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, discoveryv1.AddToScheme, coordinationv1.AddToScheme, authorizationv1.AddToScheme, flaggerv1.AddToScheme, appsv1.AddToScheme, batchv1.AddToScheme, policyv1.AddToScheme, argov1.AddToScheme} {
		if err := add(scheme); err != nil {
			panic(err) // two types with one name: a programming error
		}
	}
	return scheme
}

// Run runs the controller until ctx is done.
func Run(ctx context.Context, f Flags, version string, stderr io.Writer) error {
	if err := f.Validate(); err != nil {
		return err
	}
	logger, err := telemetry.NewLogger(f.LogLevel, f.LogEncoding, stderr)
	if err != nil {
		return err
	}
	log.SetLogger(logger)
	endStart := tuneMemory(f, os.Getenv, readContainerLimit())
	counters := telemetry.New(metrics.Registry)
	counters.SetInfo(version, f.MeshProvider)
	fences := f.fences()
	transports := []transport.WrapperFunc{counters.CountRequests, fences.Transport}
	restConfig, err := f.restConfig(transports)
	if err != nil {
		return err
	}
	self, err := f.newMember(restConfig)
	if err != nil {
		return err
	}
	divided := f.newShards(self, counters, logger)
	stores := caches{recent: &encodedcache.Recent{}}
	mgr, err := newManager(restConfig, f, stores, f.newLeaderLock(self), logger)
	if err != nil {
		return err
	}
	health, err := newHealth(f, mgr)
	if err != nil {
		return err
	}
	p := process{mgr: mgr, caches: stores, flags: f, transports: transports, fences: fences, metrics: counters, logger: logger, reportHealth: health.SetHealthMessage, queue: queue.New(f.ReleaseLimits(), f.Namespace), shards: divided}
	p.notificationOutbox, p.outbox = telemetry.NewOutbox(clock.RealClock{}, logger), telemetry.NewOutbox(clock.RealClock{}, logger)
	if p.permissions, err = newPermissions(mgr, logger); err != nil {
		return err
	}
	own, err := localMetricsService(mgr.GetConfig(), f.NoCrossNamespaceRefs)
	if err != nil {
		return err
	}
	p.services = MetricsServices(own, clock.RealClock{})
	if err := serveAPIs(ctx, mgr, clock.RealClock{}, logger, p.requestedAPIs()); err != nil {
		return err
	}
	if divided != nil {
		if err := mgr.Add(divided.coordinator); err != nil {
			return fmt.Errorf("add the coordinator of shards: %w", err)
		}
	}
	if !f.electsLeader() {
		if err := mgr.Add(replicaRunnable{f.newHeartbeat(self, logger).run}); err != nil {
			return fmt.Errorf("add the heartbeat: %w", err)
		}
	}
	if err := mgr.Add(replicaRunnable{func(ctx context.Context) error {
		return returnMemory(ctx, clock.RealClock{}, stores.recent.Forget, endStart)
	}}); err != nil {
		return fmt.Errorf("add the return of memory: %w", err)
	}
	logger.Info("Started", "version", version, "provider", f.MeshProvider, "namespace", f.Namespace)
	// The messages of the last reconciliations must be sent too, so the outboxes continue until the reconcilers have
	// ended. Events continue longer than notifications, because a notification that cannot be sent is reported as an
	// event.
	stopNotifications, stopEvents := startOutbox(ctx, p.notificationOutbox), startOutbox(ctx, p.outbox)
	err = run(ctx, mgr, health)
	return errors.Join(err, stopNotifications(), stopEvents())
}

// run runs the manager and the health server until ctx is done or one of them fails. The server does not wait for the caches:
// kubelet would kill a container whose caches take long to fill, and that of the next attempt.
func run(ctx context.Context, mgr manager.Manager, health *telemetry.Server) error {
	filled := make(chan struct{})
	if err := mgr.Add(replicaRunnable{func(context.Context) error { close(filled); return nil }}); err != nil { // starts after the caches
		return fmt.Errorf("wait for the first caches: %w", err)
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	running, ctx := errgroup.WithContext(ctx)
	running.Go(func() error { return health.Run(ctx) })
	running.Go(func() error {
		defer stop()
		return runManager(ctx, mgr, filled)
	})
	return running.Wait()
}

// runManager runs the manager until ctx is done. If the context of a manager is done before its caches are filled, its Start
// neither returns nor waits, but loops. Therefore, the manager is stopped only once the caches are filled, and runManager does
// not wait for that: until then, the manager writes nothing.
func runManager(ctx context.Context, mgr manager.Manager, filled <-chan struct{}) error {
	managerCtx, stop := context.WithCancel(context.WithoutCancel(ctx))
	context.AfterFunc(ctx, func() { <-filled; stop() })
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(managerCtx) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	select {
	case <-filled:
		return <-ended
	default:
		return errors.New("stopped before the caches were filled: the API server has not sent all objects that Serin watches")
	}
}

// startOutbox starts an outbox that does not end with ctx. The returned function stops it, after it has had time to send
// queued messages.
func startOutbox(ctx context.Context, outbox *telemetry.Outbox) (stop func() error) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var running errgroup.Group
	running.Go(func() error { return outbox.Run(ctx) })
	return func() error {
		cancel()
		return running.Wait()
	}
}

// process contains what the served APIs share.
type process struct {
	mgr    manager.Manager
	caches caches
	flags  Flags
	// transports wrap the transport of every client of an API server.
	transports []transport.WrapperFunc
	// fences are those of the Leases of this process; nil: without leader election.
	fences       *fence.Leases
	metrics      *telemetry.Metrics
	logger       logr.Logger
	reportHealth func(component, message string)
	// services are the metrics services of both APIs.
	services *metric.Registry
	// outbox sends the messages of all releases, except for the notifications of Rollouts.
	outbox, notificationOutbox *telemetry.Outbox
	// conflicts detects workloads that two APIs release. It is completed as APIs are served.
	conflicts *apiConflicts
	// endpoints is the cache of EndpointSlices of all APIs.
	endpoints *endpointSliceCache
	// queue is the queue in which releases of both APIs wait for the limit of concurrent releases.
	queue *queue.Queue
	// shards are the shards of this process; nil: it reconciles all releases.
	shards *shards
	// permissions reports the permissions of other controllers' service accounts.
	permissions watching.UpdatePermission
}

// mayQuery reports whether this process may send a query of a release in a namespace now: a receiver may act on it, so that it
// requires the same Leases as a write.
func (p process) mayQuery(namespace string) error {
	return p.fences.CheckLease(p.shards.held().LeaseOf(namespace))
}

// requestedAPIs returns the APIs that the flags request.
func (p process) requestedAPIs() []api {
	workloads := &workload.Workloads{Client: p.mgr.GetClient(), APIReader: p.mgr.GetAPIReader()}
	p.conflicts, p.endpoints = &apiConflicts{workloads: workloads}, &endpointSliceCache{}
	var all []api
	if p.flags.servesAPI(apiCanary) {
		all = append(all, api{apiCanary, func(ctx context.Context) error {
			return checkInstalled(ctx, p.mgr.GetAPIReader(), p.flags.Namespace, "serin crds", []requiredKind{
				{name: flaggerv1.CanaryKind, list: &flaggerv1.CanaryList{}},
				{name: flaggerv1.MetricTemplateKind, list: &flaggerv1.MetricTemplateList{}},
				{name: flaggerv1.AlertProviderKind, list: &flaggerv1.AlertProviderList{}},
			})
		}, p.serveCanaries})
	}
	if p.flags.servesAPI(apiRollout) {
		all = append(all, api{apiRollout, p.rolloutsMissing, p.serveRollouts})
	}
	return all
}

// tuneClient configures the client of an API server. The transports wrap that of the client in this order, the last one
// outermost.
func (f *Flags) tuneClient(cfg *rest.Config, transports []transport.WrapperFunc) *rest.Config {
	cfg.QPS, cfg.Burst = f.QPS, f.Burst
	cfg.UserAgent = "serin"
	// Serin and the API server are in the same network: compression would cost both of them processor time, and Serin the buffers
	// of each watch.
	cfg.DisableCompression = true
	cfg.Wrap(newEvictionTransport)
	for _, wrap := range transports {
		cfg.Wrap(wrap)
	}
	return cfg
}

// cachedReads makes reads of all representations use caches, and wait for the client's own writes. Without that, a stale cache
// would let a reconciliation apply the previous route again. The library guarantees this for typed objects only; package
// readyourwrites does for unstructured ones.
func cachedReads() client.Options {
	return client.Options{Cache: &client.CacheOptions{Unstructured: true, EnableReadYourWritesConsistency: new(true)}}
}

// newClient returns the client of a cluster whose reads never wait for a write that its caches will not observe.
func newClient(cfg *rest.Config, options client.Options) (client.Client, error) {
	waiting, err := client.New(cfg, options)
	if err != nil {
		return nil, fmt.Errorf("create the client: %w", err)
	}
	options.Cache = nil
	uncached, err := client.New(cfg, options)
	if err != nil {
		return nil, fmt.Errorf("create the client without caches: %w", err)
	}
	after := func(d time.Duration, f func()) (stop func() bool) { return clock.RealClock{}.AfterFunc(d, f).Stop }
	return readyourwrites.WithBoundedWait(waiting, uncached, clock.RealClock{}, after), nil
}

// newEventClient returns a client that only writes events. They are never read: a client with a cache would start to watch all of
// them.
func newEventClient(mgr manager.Manager) (client.Client, error) {
	events, err := client.New(mgr.GetConfig(), client.Options{Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(), HTTPClient: mgr.GetHTTPClient()})
	if err != nil {
		return nil, fmt.Errorf("create the client for events: %w", err)
	}
	return events, nil
}

func newManager(cfg *rest.Config, f Flags, stores caches, lock leaderLock, logger logr.Logger) (manager.Manager, error) {
	options := manager.Options{
		Scheme: Scheme(),
		Logger: logger,
		// Health and metrics have their own mux; see telemetry.Server.
		Metrics:                             metricsserver.Options{BindAddress: "0"},
		HealthProbeBindAddress:              "0",
		MapperProvider:                      newCachingMapper,
		Cache:                               f.cacheOptions(),
		NewCache:                            stores.newCache,
		Client:                              cachedReads(),
		NewClient:                           newClient,
		LeaderElection:                      f.electsLeader(),
		LeaderElectionResourceLockInterface: lock,
		// With shards, the other replicas continue to hold the Lease.
		LeaderElectionReleaseOnCancel: f.Shards == 0,
		LeaseDuration:                 new(f.Argo.LeaseDuration),
		RenewDeadline:                 new(f.Argo.RenewDeadline),
		RetryPeriod:                   new(f.Argo.RetryEvery),
		// A standby fills its caches before it leads, so that a takeover does not wait for them.
		Controller: config.Controller{SkipNameValidation: new(true), EnableWarmup: new(true)},
	}
	mgr, err := manager.New(cfg, options)
	if err != nil {
		return nil, fmt.Errorf("connect to the cluster: %w", err)
	}
	lock.recordEvents(mgr)
	return mgr, nil
}

// newPermissions returns the reader of service accounts' permissions. A SubjectAccessReview is a request and not a stored
// object: it has no cache.
func newPermissions(mgr manager.Manager, logger logr.Logger) (watching.UpdatePermission, error) {
	uncached, err := client.New(mgr.GetConfig(), client.Options{Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(), HTTPClient: mgr.GetHTTPClient()})
	if err != nil {
		return nil, fmt.Errorf("create the client for queries of permissions: %w", err)
	}
	report := func(message string) { logger.Info(message) }
	return (&watching.Permissions{Client: uncached, Clock: clock.RealClock{}, ReportUnavailable: report}).IsPermitted, nil
}

// otherControllers returns the scope in which other controllers are detected.
func (f *Flags) otherControllers() othercontroller.Scope {
	return othercontroller.Scope{Namespaces: f.OtherControllerNamespaces}
}

func newHealth(f Flags, mgr manager.Manager) (*telemetry.Server, error) {
	var synced atomic.Bool
	err := mgr.Add(replicaRunnable{func(ctx context.Context) error {
		synced.Store(mgr.GetCache().WaitForCacheSync(ctx))
		return nil
	}})
	if err != nil {
		return nil, fmt.Errorf("wait for the caches: %w", err)
	}
	return telemetry.NewServer(telemetry.ServerOptions{
		Address: net.JoinHostPort("", f.Port), MoreAddresses: f.additionalAddresses(), ProfilingAddress: f.ProfilingAddress, Gatherer: metrics.Registry,
		Ready: func() error {
			if !synced.Load() {
				return errors.New("the caches are not synchronised yet")
			}
			return nil
		},
	})
}

// replicaRunnable runs on every replica, leader or not.
type replicaRunnable struct {
	run func(context.Context) error
}

func (e replicaRunnable) Start(ctx context.Context) error { return e.run(ctx) }
func (replicaRunnable) NeedLeaderElection() bool          { return false }

// WriteVersion prints the version. Flagger's flag prints a line in the same format.
func WriteVersion(w io.Writer, version, revision string) {
	_, _ = fmt.Fprintf(w, "Serin version %s revision %s\n", version, revision)
}
