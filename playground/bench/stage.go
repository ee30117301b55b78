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
	"github.com/serin-dev/serin/playground/process"
)

const (
	// drainDelay is how long pods without traffic are retained: Serin's default.
	drainDelay = 5 * time.Second
	// podDelay is the time until a pod is ready.
	podDelay = time.Second
	// waitTimeout bounds every wait, in addition to the observation windows.
	waitTimeout = 3 * time.Minute
	// releaseTimeout is added to the limit of a wait for each release that it is about.
	releaseTimeout = 300 * time.Millisecond
	// quietPeriod is the time without requests after which an activity counts as complete, and quietUse the share of a processor that
	// the controller may use in it.
	quietPeriod = 5 * time.Second
	quietUse    = 0.1
)

// stage is a cluster with a controller and all releases.
type stage struct {
	settings
	subject    benchmarkedAPI
	controller controller
	cluster    *cluster.Cluster
	clock      clock.WithTicker
	log        *slog.Logger
	say        func(string)

	proxy   *apiproxy.Proxy
	metrics *http.Server
	// life ends with the stage, and fail ends the benchmark with an error.
	life    context.Context //nolint:containedctx // the lifetime of everything that the stage starts
	fail    context.CancelCauseFunc
	stop    context.CancelFunc
	running sync.WaitGroup

	mu         sync.Mutex
	timelines  map[string]timeline // by name
	peakMemory int64               // of the controller's resident memory, in bytes
	process    *process.Process    // the controller; nil while it is being restarted
}

// close stops what raise started in addition to the cluster.
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

// runInBackground runs a function until the stage is closed; its error ends the benchmark.
func (s *stage) runInBackground(run func(context.Context) error) {
	s.running.Go(func() {
		if err := run(s.life); err != nil && s.life.Err() == nil {
			s.fail(err)
		}
	})
}

// deploy starts the node and the controller.
func (s *stage) deploy(ctx context.Context, fail context.CancelCauseFunc, b *build.Builder) error {
	s.life, s.stop = context.WithCancel(context.WithoutCancel(ctx))
	s.fail = fail
	ctx, cancel := context.WithTimeoutCause(ctx, waitTimeout, fmt.Errorf("it took more than %s", waitTimeout))
	defer cancel()

	node := fakenode.New(fakenode.Options{
		Name: nodeName, Version: build.KubernetesVersion, Delay: podDelay, Client: s.cluster.Client, Clock: s.clock, Log: s.log,
	})
	if err := node.Register(ctx); err != nil {
		return err
	}
	s.runInBackground(node.Run)

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
	if err := s.watchTimelines(ctx); err != nil {
		return err
	}
	return s.startController(ctx)
}

// createNamespace creates a namespace with the objects that its releases share.
func (s *stage) createNamespace(ctx context.Context, name string) error {
	if _, err := s.cluster.Client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("make namespace %s: %w", name, err)
	}
	for _, object := range s.subject.sharedObjects(s.settings) {
		if err := s.create(ctx, name, object); err != nil {
			return err
		}
	}
	return nil
}

// create creates an object.
func (s *stage) create(ctx context.Context, namespace string, object *unstructured.Unstructured) error {
	resource, _ := meta.UnsafeGuessKindToResource(object.GroupVersionKind())
	if _, err := s.cluster.Dynamic.Resource(resource).Namespace(namespace).Create(ctx, object, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("make %s %s: %w", object.GetKind(), object.GetName(), err)
	}
	return nil
}

// createReleases creates releases until there are count of them, and returns when the controller has initialized all.
func (s *stage) createReleases(ctx context.Context, count int) error {
	s.mu.Lock()
	first := len(s.timelines)
	for i := first; i < count; i++ {
		s.timelines[releaseName(i)] = s.subject.timeline(s.controller)
	}
	s.mu.Unlock()
	s.say(fmt.Sprintf("handing %d releases of API %s over to %s ...", count-first, s.subject.api, s.controller.name))
	timeout := waitTimeout + time.Duration(count-first)*releaseTimeout
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("it took more than %s", timeout))
	defer cancel()
	for i := first; i < count; i++ {
		if i%namespaceReleases != 0 {
			continue
		}
		if err := s.createNamespace(ctx, releaseNamespace(i)); err != nil {
			return err
		}
	}
	err := createAll(ctx, count-first, func(ctx context.Context, i int) error {
		for _, object := range s.subject.releaseObjects(releaseName(first+i), s.settings) {
			if err := s.create(ctx, releaseNamespace(first+i), object); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	return s.waitForAll(ctx, "all are taken over", isDone)
}

// startController starts the controller behind a counting proxy, with a stub of Prometheus.
func (s *stage) startController(ctx context.Context) error {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp4", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("serve metrics: %w", err)
	}
	s.metrics = prometheusStub()
	s.prometheus = "http://" + listener.Addr().String()
	s.runInBackground(func(context.Context) error {
		if err := s.metrics.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("serve metrics: %w", err)
		}
		return nil
	})
	proxy, kubeconfig, err := s.cluster.StartCountingProxy(ctx, s.controller.name)
	if err != nil {
		return err
	}
	s.proxy = proxy
	argv, env := s.controller.command(kubeconfig, s.prometheus)
	process, err := s.cluster.StartProcess(s.controller.name, argv, env)
	if err != nil {
		return err
	}
	s.setProcess(process)
	s.runInBackground(s.sampleMemory)
	return nil
}

// setProcess replaces the process whose end is an error; nil: there is none, because it is being restarted.
func (s *stage) setProcess(p *process.Process) {
	s.mu.Lock()
	s.process = p
	s.mu.Unlock()
	if p != nil {
		s.runInBackground(func(ctx context.Context) error { return s.awaitEnd(ctx, p) })
	}
}

// currentProcess returns the process whose end is an error; nil while it is being restarted.
func (s *stage) currentProcess() *process.Process {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.process
}

// awaitEnd returns an error when the controller ends, unless it was ended for a restart.
func (s *stage) awaitEnd(ctx context.Context, p *process.Process) error {
	select {
	case <-ctx.Done():
		return nil
	case <-p.Done():
	}
	if s.currentProcess() != p {
		return nil
	}
	return s.cluster.Ended(p)
}

// memorySampleInterval is the interval at which the memory of the controller is sampled.
const memorySampleInterval = time.Second

// sampleMemory records the maximum of the sampled memory.
func (s *stage) sampleMemory(ctx context.Context) error {
	ticker := s.clock.NewTicker(memorySampleInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C():
		}
		sampled := s.currentProcess()
		if sampled == nil {
			continue
		}
		usage, err := s.cluster.Usage(s.controller.name)
		if s.currentProcess() != sampled {
			continue
		}
		if err != nil {
			return err
		}
		s.mu.Lock()
		s.peakMemory = max(s.peakMemory, usage.ResidentBytes)
		s.mu.Unlock()
	}
}

// watchTimelines starts to fill the timelines.
func (s *stage) watchTimelines(ctx context.Context) error {
	s.timelines = map[string]timeline{}
	see := func(raw any) {
		at := s.clock.Now()
		object := raw.(*unstructured.Unstructured)
		s.mu.Lock()
		defer s.mu.Unlock()
		if t := s.timelines[releaseForObject(object)]; t != nil {
			if err := t.observe(at, object); err != nil {
				s.fail(err)
			}
		}
	}
	for _, resource := range s.subject.watchedResources {
		informer := dynamicinformer.NewFilteredDynamicInformer(s.cluster.Dynamic, resource, metav1.NamespaceAll, 0, cache.Indexers{}, nil).Informer()
		_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: see, UpdateFunc: func(_, object any) { see(object) }})
		if err != nil {
			return fmt.Errorf("watch the releases: %w", err)
		}
		s.runInBackground(func(ctx context.Context) error {
			informer.RunWithContext(ctx)
			return nil
		})
		if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
			return fmt.Errorf("watch the releases: %w", context.Cause(ctx))
		}
	}
	return nil
}

// countPhases counts the releases in each phase, and reports whether a condition is true for all of them.
func (s *stage) countPhases(holds func(timeline) bool) (phases map[string]int, all bool) {
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
	// phasePollInterval is the interval at which the phases are evaluated.
	phasePollInterval = 100 * time.Millisecond
	// phaseLogInterval is the interval at which the phases are logged.
	phaseLogInterval = 10 * time.Second
)

// waitForAll waits until a condition is true for all releases, and logs their phases periodically.
func (s *stage) waitForAll(ctx context.Context, what string, holds func(timeline) bool) error {
	looks, lines := s.clock.NewTicker(phasePollInterval), s.clock.NewTicker(phaseLogInterval)
	defer looks.Stop()
	defer lines.Stop()
	for {
		phases, all := s.countPhases(holds)
		if all {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait until %s: %w; now: %s", what, context.Cause(ctx), formatPhases(phases))
		case <-lines.C():
			s.say("  " + formatPhases(phases))
		case <-looks.C():
		}
	}
}

// formatPhases formats the phases of all releases as one line.
func formatPhases(phases map[string]int) string {
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

// countRequests counts the requests to the API server so far, except for Leases, which never end.
func (s *stage) countRequests() int {
	r := sortRequests(s.proxy.Counts())
	return sumCounts(r.Reads) + sumCounts(r.Writes)
}

// waitQuiet waits until the controller sends no requests and needs almost no processor time, with a limit: requests that never stop are
// a result of the measurement. It reports whether the controller became quiet.
func (s *stage) waitQuiet(ctx context.Context) (quiet bool, err error) {
	before, since := s.countRequests(), s.clock.Now()
	used, err := s.cluster.Usage(s.controller.name)
	if err != nil {
		return false, err
	}
	for deadline := since.Add(waitTimeout / 3); s.clock.Now().Before(deadline); {
		select {
		case <-ctx.Done():
			return false, context.Cause(ctx)
		case <-s.clock.After(phasePollInterval):
		}
		now := s.clock.Now()
		count := s.countRequests()
		if count == before && now.Sub(since) < quietPeriod {
			continue
		}
		usage, err := s.cluster.Usage(s.controller.name)
		if err != nil {
			return false, err
		}
		// The first reconciliations of idle releases send no requests.
		if count == before && usage.CPUSeconds-used.CPUSeconds < quietUse*now.Sub(since).Seconds() {
			return true, nil
		}
		before, since, used = count, now, usage
	}
	s.say("  the controller did not become quiet")
	return false, nil
}

// measureIdle measures the cost of idle releases.
func (s *stage) measureIdle(ctx context.Context) (idleCosts, error) {
	if _, err := s.waitQuiet(ctx); err != nil {
		return idleCosts{}, err
	}
	s.say(fmt.Sprintf("counting requests for %s in which nothing happens ...", s.idle))
	endProfile := s.profileProcessor(ctx, "cpu-idle")
	counts, began := s.proxy.Counts(), s.clock.Now()
	before, err := s.cluster.Usage(s.controller.name)
	if err != nil {
		return idleCosts{}, err
	}
	select {
	case <-ctx.Done():
		return idleCosts{}, context.Cause(ctx)
	case <-s.clock.After(s.idle):
	}
	after, err := s.cluster.Usage(s.controller.name)
	if err != nil {
		return idleCosts{}, err
	}
	took := s.clock.Since(began)
	found := sortRequests(s.proxy.Counts().Since(counts))
	r := idleCosts{
		Seconds: took.Seconds(), Requests: found, ResidentBytes: after.ResidentBytes, FileBytes: after.FileBytes,
		RequestsPerMinutePerRelease: float64(sumCounts(found.Reads)+sumCounts(found.Writes)) / took.Minutes() / float64(len(s.timelines)),
		CPUSecondsPerMinute:         (after.CPUSeconds - before.CPUSeconds) / took.Minutes(),
	}
	return r, errors.Join(endProfile(), s.saveProfile(ctx, profilesURL+"heap", "heap-idle.pprof"), s.saveProfile(ctx, metricsURL, "metrics-idle.txt"))
}

// measureRelease changes the version of count releases, the first of them first, and measures the cost. pause is the time between two
// changes.
func (s *stage) measureRelease(ctx context.Context, first, count int, pause time.Duration) (releaseCosts, error) {
	timeout := s.windows() + waitTimeout + time.Duration(count)*(pause+releaseTimeout)
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("it took more than %s", timeout))
	defer cancel()
	s.say(fmt.Sprintf("shipping %d new versions, %d windows of %s each ...", count, s.steps, s.interval))
	endProfile := s.profileProcessor(ctx, "cpu")
	before, err := s.readProcessorTimes()
	if err != nil {
		return releaseCosts{}, err
	}
	s.mu.Lock()
	s.peakMemory = before.controller.ResidentBytes
	s.mu.Unlock()
	counts := s.proxy.Counts()
	if err := s.changeTemplates(ctx, first, count, pause); err != nil {
		return releaseCosts{}, err
	}
	if err := s.waitForAll(ctx, "all releases have started", isStarted); err != nil {
		return releaseCosts{}, err
	}
	started, err := s.readProcessorTimes()
	if err != nil {
		return releaseCosts{}, err
	}
	if err := s.waitForAll(ctx, "all releases have ended", isDone); err != nil {
		return releaseCosts{}, err
	}
	after, err := s.readProcessorTimes()
	if err != nil {
		return releaseCosts{}, err
	}
	afterCounts := s.proxy.Counts()
	quiet, err := s.waitQuiet(ctx)
	if err != nil {
		return releaseCosts{}, err
	}
	if quiet { // otherwise, the cost of waiting would count as a cost of releases
		if after, err = s.readProcessorTimes(); err != nil {
			return releaseCosts{}, err
		}
		afterCounts = s.proxy.Counts()
	}
	found := sortRequests(afterCounts.Since(counts))
	each := float64(count)
	use := after.since(before)
	r := releaseCosts{
		NotMeasured: []string{}, Requests: found,
		RequestsPerRelease: float64(sumCounts(found.Reads)+sumCounts(found.Writes)) / each, ReadsPerRelease: float64(sumCounts(found.Reads)) / each,
		CPUSecondsPerRelease: use.ControllerCPUSeconds / each, AfterResidentBytes: after.controller.ResidentBytes, AfterFileBytes: after.controller.FileBytes,
		Processors: use, ProcessorsDuringStart: started.since(before),
	}
	var all []timeBreakdown
	s.mu.Lock()
	r.PeakResidentBytes = max(s.peakMemory, after.controller.ResidentBytes)
	for i := first; i < first+count; i++ {
		name := releaseName(i)
		p, err := s.timelines[name].breakdown(s.settings)
		if err != nil {
			r.NotMeasured = append(r.NotMeasured, fmt.Sprintf("%s: %v", name, err))
			continue
		}
		all = append(all, p)
	}
	s.mu.Unlock()
	r.setTimes(all)
	return r, errors.Join(endProfile(), s.saveProfile(ctx, profilesURL+"heap", "heap-after.pprof"), s.saveProfile(ctx, metricsURL, "metrics-after.txt"))
}

// isStarted reports whether the controller has noticed the new version of a release, if it was shipped.
func isStarted(t timeline) bool { return t.isStarted() || t.isFinished() || !t.isShipped() }

// isDone reports whether a release has ended, or was not shipped.
func isDone(t timeline) bool { return t.isFinished() || t.isIdle() && !t.isShipped() }

// changeTemplates changes the versions of count releases one after the other, each as soon as the previous patch is acknowledged and the
// pause is over, like a tool that applies a repository.
func (s *stage) changeTemplates(ctx context.Context, first, count int, pause time.Duration) error {
	containers := workloadSpec("")["template"].(map[string]any)["spec"].(map[string]any)["containers"].([]any)
	containers[0].(map[string]any)["image"] = newVersion
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"template": map[string]any{"spec": map[string]any{"containers": containers}}}})
	if err != nil {
		return fmt.Errorf("change the versions: %w", err)
	}
	for i := first; i < first+count; i++ {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-s.clock.After(pause):
		}
		name := releaseName(i)
		_, err := s.cluster.Dynamic.Resource(s.subject.targetResource).Namespace(releaseNamespace(i)).Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
		if err != nil {
			return fmt.Errorf("change the version of %s: %w", name, err)
		}
		at := s.clock.Now()
		s.mu.Lock()
		s.timelines[name].changeTemplate(at)
		s.mu.Unlock()
	}
	return nil
}
