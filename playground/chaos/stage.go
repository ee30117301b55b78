//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"

	"github.com/serin-dev/serin/playground/bench/fakenode"
	"github.com/serin-dev/serin/playground/build"
	"github.com/serin-dev/serin/playground/cluster"
	"github.com/serin-dev/serin/playground/load"
)

// settings are the options of a run.
type settings struct {
	// releases is the minimum number of releases of each API, duration the minimum time for which faults are injected.
	releases int
	duration time.Duration
	seed     uint64
	// served and simulated are the numbers of applications of each API.
	served, simulated int
	// faults are the kinds of faults to inject; nil: all.
	faults []string
}

// The seed has independent streams, so that one draw does not shift the others.
const (
	scheduleStream = iota
	requestStream
	clockStream
	appStream
)

const (
	// simulatedNode is the node of the pods that exist as objects only, podDelay the time until such a pod is ready.
	simulatedNode = "simulated"
	podDelay      = 500 * time.Millisecond
	// waitTimeout bounds every wait for an expected state, except for releases. It is not a requirement on its duration.
	waitTimeout = 4 * time.Minute
	// requestRate is the number of requests a second to each served application.
	requestRate = 20
	// requestTimeout is long: a request that takes long on a busy machine is not lost.
	requestTimeout = 30 * time.Second
)

var httpRouteResource = schema.GroupVersionResource{Group: "gateway.networking.k8s.io", Version: "v1", Resource: "httproutes"}

// stage is a namespace with applications, two replicas of Serin that release them, and everything that observes both.
type stage struct {
	settings
	cluster   *cluster.Cluster
	versions  versions
	namespace string
	clock     clock.WithTicker
	say       func(string)

	ledger    *ledger
	ledgerURL string
	history   *history
	leases    *leaseLog
	replicas  []*replica
	apps      []*app

	life    context.Context //nolint:containedctx // it ends what the stage started, with close
	end     context.CancelFunc
	fail    context.CancelCauseFunc
	running sync.WaitGroup

	mu         sync.Mutex
	violations []string
	released   map[string]int // by API
	promoted   int
	injected   []*faultCount
	// replacements are the two directions in which versions of Serin replace each other; nil if none is injected.
	replacements []*replacement
}

// violate records the violation of an invariant of docs/simulator.md.
func (s *stage) violate(invariant, format string, args ...any) {
	text := invariant + ": " + fmt.Sprintf(format, args...)
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Contains(s.violations, text) {
		s.violations = append(s.violations, text)
		s.say(s.clock.Now().UTC().Format("15:04:05.000") + " VIOLATION of " + text)
	}
}

func (s *stage) countRelease(r *release) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.released[r.releaseAPI.name]++
	if r.good {
		s.promoted++
	}
}

// stream returns the random numbers of one purpose.
func (s *stage) stream(purpose uint64) *rand.Rand { return rand.New(rand.NewPCG(s.seed, purpose)) }

// prepareCluster installs what all stages of a cluster share. The definitions are those of the current version: they are updated
// before Serin, and retained when it is rolled back.
func prepareCluster(ctx context.Context, c *cluster.Cluster, repository string, log *slog.Logger) error {
	definitions := filepath.Join(repository, "config", "crd")
	for _, folder := range []string{definitions, filepath.Join(definitions, "argoproj")} {
		if err := c.ApplyFolder(ctx, folder); err != nil {
			return err
		}
	}
	node := fakenode.New(fakenode.Options{
		Name: simulatedNode, Version: build.KubernetesVersion, Delay: podDelay, Client: c.Client, Clock: clock.RealClock{}, Log: log,
	})
	if err := node.Register(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	go func() {
		<-c.Done()
		cancel()
	}()
	go node.Run(ctx) //nolint:errcheck // it returns an error only before it runs
	return nil
}

// newStage starts replicas and creates applications. The caller must close the stage, also after an error.
func newStage(ctx context.Context, c *cluster.Cluster, v versions, namespace string, options settings, say func(string)) *stage {
	clk := clock.RealClock{}
	s := &stage{
		settings: options, cluster: c, versions: v, namespace: namespace, clock: clk, say: say, released: map[string]int{},
		ledger:  &ledger{clock: clk, answers: map[string]*answers{}},
		history: &history{clock: clk, states: map[objectKey][]state{}, news: make(chan struct{})},
	}
	s.leases = newLeaseLog(clk, s.violate)
	s.life, s.end = context.WithCancel(context.WithoutCancel(ctx))
	return s
}

// deploy starts everything. Replicas hand over while the first versions are deployed.
func (s *stage) deploy(ctx context.Context) error {
	_, err := s.cluster.Client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.namespace}}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("create namespace %s: %w", s.namespace, err)
	}
	err = s.history.watch(ctx, s.life, &s.running, s.cluster.Dynamic, s.namespace,
		canaryResource, rolloutResource, httpRouteResource, deploymentResource, replicaSetResource, corev1.SchemeGroupVersion.WithResource("services"))
	if err != nil {
		return err
	}
	if err := s.startLedger(ctx); err != nil {
		return err
	}
	for i := range 2 {
		if err := s.startReplica(ctx, i); err != nil {
			return err
		}
	}
	manifests, err := render(sharedManifests, map[string]any{"Namespace": s.namespace, "Ledger": s.ledgerURL, "Prometheus": s.cluster.PrometheusURL})
	if err != nil {
		return err
	}
	for _, api := range []*releaseAPI{canaryAPI, rolloutAPI} {
		for i := range s.served + s.simulated {
			a := &app{releaseAPI: api, name: fmt.Sprintf("%s-%d", api.name, i), served: i < s.served, badVersions: map[string]bool{}}
			a.random = s.stream(appStream + uint64(len(s.apps)))
			s.apps = append(s.apps, a)
			own, err := a.renderManifests(s)
			if err != nil {
				return err
			}
			manifests += "\n---\n" + own
		}
	}
	return s.cluster.Apply(ctx, manifests)
}

// startLedger serves the ledger on the loopback address.
func (s *stage) startLedger(ctx context.Context) error {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp4", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("serve the ledger: %w", err)
	}
	s.ledgerURL = "http://" + listener.Addr().String()
	server := &http.Server{Handler: s.ledger, ReadHeaderTimeout: time.Minute}
	s.running.Go(func() { _ = server.Serve(listener) })      // it ends with the stage
	context.AfterFunc(s.life, func() { _ = server.Close() }) //nolint:contextcheck // it serves until the stage is closed
	return nil
}

func (s *stage) startReplica(ctx context.Context, index int) error {
	name := fmt.Sprintf("serin-%s-%c", s.namespace, 'a'+index)
	proxy, kubeconfig, err := s.cluster.StartCountingProxy(ctx, name)
	if err != nil {
		return err
	}
	r := &replica{
		name: name, cluster: s.cluster, clock: s.clock, proxy: proxy, leases: s.leases, random: s.stream(requestStream + uint64(index)<<32), unconditional: map[string]bool{},
		// Both versions must know these arguments.
		arguments: []string{
			"controller", "-kubeconfig", kubeconfig, "-metrics-server", s.cluster.PrometheusURL, "-mesh-provider", "gatewayapi:v1",
			"-min-analysis-interval", canaryWindow.String(), "-log-level", "info", "-port", "0", "-namespace", s.namespace, "-allow-loopback-hooks", "-enable-leader-election",
		},
	}
	r.setVersion(s.versions.current)
	r.setClock(drawClockOffset(s.stream(clockStream + uint64(index)<<32)))
	proxy.SetFault(r.serve)
	s.replicas = append(s.replicas, r)
	s.running.Go(func() {
		if err := r.supervise(s.life); err != nil {
			s.fail(err)
		}
	})
	return nil
}

// waitUntilIdle waits until the first versions serve, and starts the clients.
func (s *stage) waitUntilIdle(ctx context.Context) error {
	for _, a := range s.apps {
		if err := s.history.waitUntil(ctx, a.name+" is idle", releaseTimeout, func() error { return a.checkIdle(s.history, a.name) }); err != nil {
			return err
		}
		a.created = s.userObjects(a)
		if !a.served {
			continue
		}
		options := load.Options{URL: s.cluster.GatewayURL, Host: a.host(s.namespace), Rate: requestRate, Timeout: requestTimeout, Clock: s.clock}
		first, err := load.Start(ctx, options)
		if err != nil {
			return err
		}
		limited, cancel := context.WithTimeout(ctx, waitTimeout)
		err = first.WaitFor(limited, func(c load.Counts) bool { return c.Requests > c.Failed() })
		cancel()
		first.Stop()
		if err != nil {
			return err
		}
		if a.load, err = load.Start(s.life, options); err != nil { //nolint:contextcheck // it continues until the stage is closed
			return err
		}
	}
	return nil
}

// releaseUntil releases versions of all applications until done is closed, and returns when the last releases have ended.
func (s *stage) releaseUntil(ctx context.Context, done <-chan struct{}) error {
	var all errgroup.Group
	for _, a := range s.apps {
		all.Go(func() error {
			for n := 2; ; n++ {
				select {
				case <-done:
					return nil
				case <-ctx.Done():
					return context.Cause(ctx)
				default:
				}
				if err := s.runRelease(ctx, a, fmt.Sprintf("v%d", n)); err != nil {
					return err
				}
			}
		})
	}
	return all.Wait()
}

// poll waits until a condition is true.
func (s *stage) poll(ctx context.Context, what string, holds func() bool) error {
	ctx, cancel := context.WithTimeoutCause(ctx, waitTimeout, fmt.Errorf("it took more than %s", waitTimeout))
	defer cancel()
	for !holds() {
		select {
		case <-s.clock.After(retryInterval):
		case <-ctx.Done():
			return fmt.Errorf("wait until %s: %w", what, context.Cause(ctx))
		}
	}
	return nil
}

// releasedEnough reports whether each API had its minimum number of releases.
func (s *stage) releasedEnough() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.released[canaryAPI.name] >= s.releases && s.released[rolloutAPI.name] >= s.releases
}

// run injects faults during releases until there were enough of both, and checks the invariants.
func (s *stage) run(ctx context.Context) error {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	s.fail = fail
	go func() {
		select {
		case <-s.cluster.Done():
			fail(fmt.Errorf("the cluster ended: %w", s.cluster.Err()))
		case <-ctx.Done():
		}
	}()
	s.say(fmt.Sprintf("seed %d: starting two replicas and %d applications of each API", s.seed, s.served+s.simulated))
	if err := s.deploy(ctx); err != nil {
		return withCause(ctx, err)
	}
	schedule := newSchedule(s)
	if err := schedule.handOverDuringInitialization(ctx); err != nil {
		return withCause(ctx, err)
	}
	if err := s.waitUntilIdle(ctx); err != nil {
		return withCause(ctx, err)
	}
	s.say("first versions serve; releasing under faults")
	done := make(chan struct{})
	releases := make(chan error, 1)
	go func() { releases <- s.releaseUntil(ctx, done) }()
	if err := schedule.run(ctx); err != nil {
		fail(err) // the releases end, too
	}
	s.say("no more faults; waiting for the last releases")
	close(done)
	if err := <-releases; err != nil {
		return withCause(ctx, err)
	}
	return withCause(ctx, s.checkEnd(ctx))
}

// withCause replaces an error that results from a cancellation by its cause.
func withCause(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); err != nil && cause != nil {
		return cause
	}
	return err
}

// close ends everything that the stage started.
func (s *stage) close() error {
	s.end()
	for _, a := range s.apps {
		if a.load != nil {
			a.load.Stop()
		}
	}
	var errs []error
	for _, r := range s.replicas {
		r.proxy.Heal()
	}
	s.running.Wait()
	for _, r := range s.replicas {
		errs = append(errs, r.proxy.Close())
	}
	return errors.Join(errs...)
}

// userObjects returns the current objects of the user of an application.
func (s *stage) userObjects(a *app) map[objectKey]*unstructured.Unstructured {
	all := map[objectKey]*unstructured.Unstructured{}
	keys := []objectKey{{a.kind, a.name}}
	if a.releaseAPI == canaryAPI {
		keys = append(keys, objectKey{"Deployment", a.name})
	} else {
		keys = append(keys, objectKey{"Service", a.name}, objectKey{"Service", a.name + "-canary"}, objectKey{"HTTPRoute", a.name})
	}
	for _, key := range keys {
		all[key] = s.history.latest(key.kind, key.name)
	}
	return all
}
