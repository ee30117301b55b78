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

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic/dynamicinformer"
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
	subject subject
	cluster *cluster.Cluster
	clock   clock.WithTicker
	log     *slog.Logger
	say     func(string)

	proxy   *apiproxy.Proxy
	metrics *http.Server
	stop    context.CancelFunc
	running sync.WaitGroup

	mu        sync.Mutex
	timelines map[string]timeline // by name
	peak      int64               // of Serin's resident memory, in bytes
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
	definitions := filepath.Join(b.Repository(), "config", "crd")
	for _, folder := range []string{definitions, filepath.Join(definitions, "argoproj"), istio} {
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

	s.say(fmt.Sprintf("handing %d releases of API %s over to Serin ...", s.releases, s.subject.api))
	made := s.subject.shared(s.settings)
	for i := range s.releases {
		made = append(made, s.subject.each(nameOf(i), s.settings)...)
	}
	for _, object := range made {
		resource, _ := meta.UnsafeGuessKindToResource(object.GroupVersionKind())
		if _, err := s.cluster.Dynamic.Resource(resource).Namespace(namespace).Create(ctx, object, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("make %s %s: %w", object.GetKind(), object.GetName(), err)
		}
	}
	return s.until(ctx, "all are taken over", timeline.rests)
}

// startSerin starts the controller behind a proxy that counts, with a stub of Prometheus to ask.
func (s *stage) startSerin(ctx, life context.Context, fail context.CancelCauseFunc) error {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp4", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("serve metrics: %w", err)
	}
	s.metrics = prometheus()
	s.prometheus = "http://" + listener.Addr().String()
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
		s.serin, "controller", "-kubeconfig", kubeconfig, "-metrics-server", s.prometheus, "-allow-loopback-hooks", "-mesh-provider", "istio",
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
	s.timelines = map[string]timeline{}
	for i := range s.releases {
		s.timelines[nameOf(i)] = s.subject.timeline()
	}
	see := func(raw any) {
		at := s.clock.Now()
		object := raw.(*unstructured.Unstructured)
		s.mu.Lock()
		defer s.mu.Unlock()
		if t := s.timelines[releaseOf(object)]; t != nil {
			if err := t.see(at, object); err != nil {
				fail(err)
			}
		}
	}
	for _, resource := range s.subject.watched {
		informer := dynamicinformer.NewFilteredDynamicInformer(s.cluster.Dynamic, resource, namespace, 0, cache.Indexers{}, nil).Informer()
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

// look counts the releases in each phase, and says whether something holds of each.
func (s *stage) look(holds func(timeline) bool) (phases map[string]int, all bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	phases, all = map[string]int{}, true
	for _, t := range s.timelines {
		phases[t.phase()]++
		all = all && holds(t)
	}
	return phases, all
}

const (
	// lookEvery is the time between two looks at the phases.
	lookEvery = 100 * time.Millisecond
	// tellEvery is the time between two lines about them.
	tellEvery = 10 * time.Second
)

// until waits until something holds of all releases, and tells of their phases from time to time.
func (s *stage) until(ctx context.Context, what string, holds func(timeline) bool) error {
	looks, lines := s.clock.NewTicker(lookEvery), s.clock.NewTicker(tellEvery)
	defer looks.Stop()
	defer lines.Stop()
	for {
		phases, all := s.look(holds)
		if all {
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
		Seconds: took.Seconds(), Requests: found, ResidentBytes: after.ResidentBytes, FileBytes: after.FileBytes,
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
	if err := s.until(ctx, "all releases have ended", timeline.over); err != nil {
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
		CPUSecondsPerRelease: (after.CPUSeconds - before.CPUSeconds) / each, AfterResidentBytes: after.ResidentBytes, AfterFileBytes: after.FileBytes,
	}
	var all []parts
	s.mu.Lock()
	r.PeakResidentBytes = max(s.peak, after.ResidentBytes)
	for _, name := range slices.Sorted(maps.Keys(s.timelines)) {
		p, err := s.timelines[name].parts(s.settings)
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

// ship changes all versions one after the other, each as soon as the one before it is acknowledged, as a tool does
// that applies a repository.
func (s *stage) ship(ctx context.Context) error {
	containers := workload("")["template"].(map[string]any)["spec"].(map[string]any)["containers"].([]any)
	containers[0].(map[string]any)["image"] = newVersion
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"template": map[string]any{"spec": map[string]any{"containers": containers}}}})
	if err != nil {
		return fmt.Errorf("change the versions: %w", err)
	}
	for i := range s.releases {
		name := nameOf(i)
		_, err := s.cluster.Dynamic.Resource(s.subject.target).Namespace(namespace).Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
		if err != nil {
			return fmt.Errorf("change the version of %s: %w", name, err)
		}
		at := s.clock.Now()
		s.mu.Lock()
		s.timelines[name].ship(at)
		s.mu.Unlock()
	}
	return nil
}
