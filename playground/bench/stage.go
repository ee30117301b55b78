//go:build linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic/dynamicinformer"
	appsinformers "k8s.io/client-go/informers/apps/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"github.com/serin-dev/serin/playground/apiproxy"
	"github.com/serin-dev/serin/playground/bench/fakenode"
	"github.com/serin-dev/serin/playground/build"
	"github.com/serin-dev/serin/playground/cluster"
)

const (
	// serinName is how the controller's process and log are called.
	serinName = "serin"
	// drain is for how long pods without traffic are kept: Serin's default.
	drain = 5 * time.Second
	// podDelay is how long a pod takes to become ready.
	podDelay = time.Second
	// patience bounds waits for something that has to come, beside the windows.
	patience = 3 * time.Minute
	// quiet is how long no request may come before the last thing that happened counts as over.
	quiet = 5 * time.Second
)

// stage is a cluster with Serin in it, and all releases.
type stage struct {
	settings
	cluster *cluster.Cluster
	clock   clock.WithTicker
	log     *slog.Logger
	say     func(string)

	proxy   *apiproxy.Proxy
	metrics *http.Server
	stop    context.CancelFunc
	running sync.WaitGroup

	mu        sync.Mutex
	timelines map[string]*timeline // by name
	peak      int64                // of Serin's resident memory, in bytes
}

// close ends what raise started beside the cluster.
func (s *stage) close() error {
	if s.stop == nil {
		return nil
	}
	s.stop()
	var errs []error
	if s.metrics != nil {
		errs = append(errs, s.metrics.Close())
	}
	s.running.Wait()
	if s.proxy != nil {
		errs = append(errs, s.proxy.Close())
	}
	return errors.Join(errs...)
}

// background runs a part until the stage is closed; its error ends everything.
func (s *stage) background(ctx context.Context, fail context.CancelCauseFunc, run func(context.Context) error) {
	s.running.Go(func() {
		if err := run(ctx); err != nil && ctx.Err() == nil {
			fail(err)
		}
	})
}

// raise starts Serin, hands all Deployments over to it, and returns when it has taken them.
func (s *stage) raise(ctx context.Context, fail context.CancelCauseFunc, b *build.Builder) error {
	life, stop := context.WithCancel(context.WithoutCancel(ctx))
	s.stop = stop
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("it took more than %s", patience))
	defer cancel()

	node := fakenode.New(fakenode.Options{
		Name: nodeName, Version: build.KubernetesVersion, Delay: podDelay, Client: s.cluster.Client, Clock: s.clock, Log: s.log,
	})
	if err := node.Register(ctx); err != nil {
		return err
	}
	s.background(life, fail, node.Run)

	istio, err := b.IstioCRDs(ctx)
	if err != nil {
		return err
	}
	for _, folder := range []string{filepath.Join(b.Repository(), "config", "crd"), istio} {
		if err := s.cluster.ApplyFolder(ctx, folder); err != nil {
			return err
		}
	}
	if _, err := s.cluster.Client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("make the namespace of the releases: %w", err)
	}
	if err := s.watch(ctx, life, fail); err != nil {
		return err
	}
	if err := s.startSerin(ctx, life, fail); err != nil {
		return err
	}

	s.say(fmt.Sprintf("handing %d Deployments over to Serin ...", s.releases))
	for i := range s.releases {
		name := nameOf(i)
		if _, err := s.cluster.Client.AppsV1().Deployments(namespace).Create(ctx, deployment(name), metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("make Deployment %s: %w", name, err)
		}
		if _, err := s.cluster.Dynamic.Resource(canaries).Namespace(namespace).Create(ctx, canary(name, s.steps, s.interval), metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("make Canary %s: %w", name, err)
		}
	}
	return s.until(ctx, "all are taken over", func(phases map[string]int) bool { return phases[initialized] == s.releases })
}

// startSerin starts the controller behind a proxy that counts, with a stub of Prometheus to ask.
func (s *stage) startSerin(ctx, life context.Context, fail context.CancelCauseFunc) error {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp4", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("serve metrics: %w", err)
	}
	s.metrics = prometheus()
	s.background(life, fail, func(context.Context) error {
		if err := s.metrics.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("serve metrics: %w", err)
		}
		return nil
	})
	proxy, kubeconfig, err := s.cluster.Count(ctx, serinName)
	if err != nil {
		return err
	}
	s.proxy = proxy
	argv := []string{
		s.serin, "controller", "-kubeconfig", kubeconfig, "-metrics-server", "http://" + listener.Addr().String(), "-mesh-provider", "istio",
		"-enable-leader-election", "-leader-election-namespace", namespace, "-drain-delay", drain.String(), "-log-level", "info",
	}
	if s.interval < 10*time.Second {
		argv = append(argv, "-min-analysis-interval", s.interval.String())
	}
	if s.profiles != "" {
		argv = append(argv, "-profiling-address", profilingAddress)
	}
	process, err := s.cluster.StartProcess(serinName, argv, nil)
	if err != nil {
		return err
	}
	s.background(life, fail, func(ctx context.Context) error {
		select {
		case <-ctx.Done():
			return nil
		case <-process.Done():
			return s.cluster.Ended(process)
		}
	})
	s.background(life, fail, s.sample)
	return nil
}

// sampleEvery is the time between two looks at the memory of Serin.
const sampleEvery = time.Second

// sample keeps the largest memory seen.
func (s *stage) sample(ctx context.Context) error {
	ticker := s.clock.NewTicker(sampleEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C():
		}
		usage, err := s.cluster.Usage(serinName)
		if err != nil {
			return err
		}
		s.mu.Lock()
		s.peak = max(s.peak, usage.ResidentBytes)
		s.mu.Unlock()
	}
}

// watch fills the timelines, from here on.
func (s *stage) watch(ctx, life context.Context, fail context.CancelCauseFunc) error {
	s.timelines = map[string]*timeline{}
	for i := range s.releases {
		s.timelines[nameOf(i)] = &timeline{}
	}
	plans := dynamicinformer.NewFilteredDynamicInformer(s.cluster.Dynamic, canaries, namespace, 0, cache.Indexers{}, nil).Informer()
	workloads := appsinformers.NewDeploymentInformer(s.cluster.Client, namespace, 0, cache.Indexers{})
	for informer, see := range map[cache.SharedIndexInformer]func(any){
		plans: func(object any) {
			at := s.clock.Now()
			raw := object.(*unstructured.Unstructured)
			var typed struct {
				Status canaryStatus `json:"status"`
			}
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(raw.Object, &typed); err != nil {
				fail(fmt.Errorf("read Canary %s: %w", raw.GetName(), err))
				return
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			s.timelines[raw.GetName()].seeCanary(at, typed.Status)
		},
		workloads: func(object any) {
			at := s.clock.Now()
			d := object.(*appsv1.Deployment)
			name, primary := strings.CutSuffix(d.Name, "-primary")
			s.mu.Lock()
			defer s.mu.Unlock()
			if primary {
				s.timelines[name].seePrimary(at, d)
			} else {
				s.timelines[name].seeTarget(at, d)
			}
		},
	} {
		_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: see, UpdateFunc: func(_, object any) { see(object) }})
		if err != nil {
			return fmt.Errorf("watch the releases: %w", err)
		}
		s.background(life, fail, func(ctx context.Context) error {
			informer.RunWithContext(ctx)
			return nil
		})
		if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
			return fmt.Errorf("watch the releases: %w", context.Cause(ctx))
		}
	}
	return nil
}

// phases counts the releases in each phase.
func (s *stage) phases() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	counts := map[string]int{}
	for _, t := range s.timelines {
		counts[t.phase]++
	}
	return counts
}

const (
	// lookEvery is the time between two looks at the phases.
	lookEvery = 100 * time.Millisecond
	// tellEvery is the time between two lines about them.
	tellEvery = 10 * time.Second
)

// until waits until the phases are as they have to be, and tells of them from time to time.
func (s *stage) until(ctx context.Context, what string, reached func(map[string]int) bool) error {
	looks, lines := s.clock.NewTicker(lookEvery), s.clock.NewTicker(tellEvery)
	defer looks.Stop()
	defer lines.Stop()
	for {
		phases := s.phases()
		if reached(phases) {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait until %s: %w; now: %s", what, context.Cause(ctx), describe(phases))
		case <-lines.C():
			s.say("  " + describe(phases))
		case <-looks.C():
		}
	}
}

// describe is one line about the phases of all releases.
func describe(phases map[string]int) string {
	var parts []string
	for _, phase := range slices.Sorted(maps.Keys(phases)) {
		name := phase
		if name == "" {
			name = "not seen yet"
		}
		parts = append(parts, fmt.Sprintf("%d %s", phases[phase], name))
	}
	return strings.Join(parts, ", ")
}

// requests counts what came to the API server so far, but for leases, which never end.
func (s *stage) requests() int {
	r := sorted(s.proxy.Counts())
	return total(r.Reads) + total(r.Writes)
}

// settle waits until no requests come any more, but not for ever: what does not end is counted as what it is.
func (s *stage) settle(ctx context.Context) error {
	before, since := s.requests(), s.clock.Now()
	for deadline := since.Add(patience / 3); s.clock.Now().Before(deadline); {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-s.clock.After(lookEvery):
		}
		now := s.clock.Now()
		if count := s.requests(); count != before {
			before, since = count, now
		} else if now.Sub(since) >= quiet {
			return nil
		}
	}
	s.say("  requests did not cease")
	return nil
}

// rest measures what releases cost while nothing happens.
func (s *stage) rest(ctx context.Context) (idle, error) {
	if err := s.settle(ctx); err != nil {
		return idle{}, err
	}
	s.say(fmt.Sprintf("counting requests for %s in which nothing happens ...", s.idle))
	counts, began := s.proxy.Counts(), s.clock.Now()
	before, err := s.cluster.Usage(serinName)
	if err != nil {
		return idle{}, err
	}
	select {
	case <-ctx.Done():
		return idle{}, context.Cause(ctx)
	case <-s.clock.After(s.idle):
	}
	after, err := s.cluster.Usage(serinName)
	if err != nil {
		return idle{}, err
	}
	took := s.clock.Since(began)
	found := sorted(s.proxy.Counts().Since(counts))
	r := idle{
		Seconds: took.Seconds(), Requests: found, ResidentBytes: after.ResidentBytes,
		RequestsPerMinutePerRelease: float64(total(found.Reads)+total(found.Writes)) / took.Minutes() / float64(s.releases),
		CPUSecondsPerMinute:         (after.CPUSeconds - before.CPUSeconds) / took.Minutes(),
	}
	return r, errors.Join(s.profile(ctx, profilesURL+"heap", "heap-idle.pprof"), s.profile(ctx, metricsURL, "metrics-idle.txt"))
}

// release ships the new version of everything and measures what that costs.
func (s *stage) release(ctx context.Context) (released, error) {
	windows := time.Duration(s.steps) * s.interval
	ctx, cancel := context.WithTimeoutCause(ctx, windows+patience, fmt.Errorf("it took more than %s", windows+patience))
	defer cancel()
	s.say(fmt.Sprintf("shipping %d new versions, %d windows of %s each ...", s.releases, s.steps, s.interval))
	profiled := make(chan error, 1)
	go func() {
		// The server gives no profile of a minute or more.
		profiled <- s.profile(ctx, profilesURL+"profile?seconds=50", "cpu.pprof")
	}()
	before, err := s.cluster.Usage(serinName)
	if err != nil {
		return released{}, err
	}
	s.mu.Lock()
	s.peak = before.ResidentBytes
	s.mu.Unlock()
	counts := s.proxy.Counts()
	if err := s.ship(ctx); err != nil {
		return released{}, err
	}
	err = s.until(ctx, "all releases have ended", func(phases map[string]int) bool { return phases[succeeded]+phases[failed] == s.releases })
	if err != nil {
		return released{}, err
	}
	if err := s.settle(ctx); err != nil {
		return released{}, err
	}
	after, err := s.cluster.Usage(serinName)
	if err != nil {
		return released{}, err
	}
	found := sorted(s.proxy.Counts().Since(counts))
	each := float64(s.releases)
	r := released{
		NotMeasured: []string{}, Requests: found,
		RequestsPerRelease: float64(total(found.Reads)+total(found.Writes)) / each, ReadsPerRelease: float64(total(found.Reads)) / each,
		CPUSecondsPerRelease: (after.CPUSeconds - before.CPUSeconds) / each, AfterResidentBytes: after.ResidentBytes,
	}
	var all []parts
	s.mu.Lock()
	r.PeakResidentBytes = max(s.peak, after.ResidentBytes)
	for _, name := range slices.Sorted(maps.Keys(s.timelines)) {
		p, err := s.timelines[name].parts(s.interval)
		if err != nil {
			r.NotMeasured = append(r.NotMeasured, fmt.Sprintf("%s: %v", name, err))
			continue
		}
		all = append(all, p)
	}
	s.mu.Unlock()
	r.spend(all)
	return r, errors.Join(<-profiled, s.profile(ctx, profilesURL+"heap", "heap-after.pprof"), s.profile(ctx, metricsURL, "metrics-after.txt"))
}

// ship changes all Deployments one after the other, each as soon as the one before it is acknowledged, as a tool does
// that applies a repository.
func (s *stage) ship(ctx context.Context) error {
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"template": map[string]any{"spec": map[string]any{
		"containers": []any{map[string]any{"name": "app", "image": newVersion}},
	}}}})
	if err != nil {
		return fmt.Errorf("change the Deployments: %w", err)
	}
	for i := range s.releases {
		name := nameOf(i)
		_, err := s.cluster.Client.AppsV1().Deployments(namespace).Patch(ctx, name, types.StrategicMergePatchType, patch, metav1.PatchOptions{})
		if err != nil {
			return fmt.Errorf("change Deployment %s: %w", name, err)
		}
		at := s.clock.Now()
		s.mu.Lock()
		s.timelines[name].patched = at
		s.mu.Unlock()
	}
	return nil
}
