//go:build linux

// Package demo runs four releases on a cluster under steady load: a good
// version of a Canary is promoted, a failing and a slow one are rolled back,
// and a good version of a Rollout is promoted.
//
// It uses Serin as a user does, and verifies the responses that clients
// received. It must not know how Serin works inside.
package demo

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"github.com/serin-dev/serin/playground/cluster"
	"github.com/serin-dev/serin/playground/load"
	"github.com/serin-dev/serin/playground/process"
)

//go:embed cart.yaml
var cartManifests string

//go:embed web.yaml
var webManifests string

// Names in the manifests.
const (
	namespace = "shop"
	image     = cluster.DemoImage
)

// requestRate is the number of requests a second: enough for a check to detect one failure in ten within a window of 5 s at 20 %.
const requestRate = 100

// waitTimeout bounds each wait of the demo; a scenario takes about 25 s.
const waitTimeout = 3 * time.Minute

// Result is the result of a scenario.
type Result struct {
	Scenario string  `json:"act"`
	Outcome  Outcome `json:"outcome"`
	// Steps is the number of weights that the version reached, Windows the number of observation windows that were evaluated.
	Steps   int `json:"steps"`
	Windows int `json:"windows"`
	// Requests is the number of requests during the scenario; FailedRequests of them had no answer or an answer with status 5xx.
	Requests       int     `json:"requests"`
	FailedRequests int     `json:"failedRequests"`
	Seconds        float64 `json:"seconds"`

	// Counts are the requests in detail.
	Counts load.Counts `json:"-"`
}

// Viewer shows the progress of the demo. Its methods are called by one goroutine.
type Viewer interface {
	// ShowActivity shows what the demo is doing.
	ShowActivity(text string)
	// StartScenario announces the next scenario and its position among all scenarios. The cluster, the applications and the load
	// have started.
	StartScenario(number, all int, scenario Scenario) error
	// Progress shows a change of the release, or the counts after some time without a change.
	Progress(change bool, release string, counts load.Counts)
	// Result shows the result of a scenario; err contains the differences from the expected result.
	Result(scenario Scenario, result Result, err error)
	// End is called when the demo has ended, if a scenario was announced.
	End()
}

// Options configure the demo. All fields are required.
type Options struct {
	Cluster *cluster.Cluster
	// Serin is the path of the program, CRDs the folder with its CRDs.
	Serin, CRDs string
	// Log prints a line about what Keep does.
	Log    func(string)
	Viewer Viewer
	Clock  clock.WithTicker
}

type demoRunner struct {
	Options
	serin    *process.Process
	statuses map[*Target]chan releaseStatus
	load     *load.Load // on target
	target   *Target
}

// serinName is the name of the controller's process and log.
const serinName = "serin"

// maxRestarts is the number of times that Serin is started again after the scenarios.
const maxRestarts = 5

// Run runs all scenarios. Its error contains the differences from the expected results of all scenarios. The demo ends early
// when the application cannot be deployed or a release does not end. serin is the process of Serin, which continues to run; nil: it
// was not started.
func Run(ctx context.Context, o Options) (serin *process.Process, err error) {
	p := newRunner(o)
	err = p.run(ctx)
	return p.serin, err
}

// Keep keeps Serin running until ctx or the cluster ends, as Kubernetes would: a process that ends, for example because the machine
// slept for longer than its Lease, is started again. nil: there is none.
func Keep(ctx context.Context, o Options, serin *process.Process) error {
	for restarts := 0; ; restarts++ {
		var ends <-chan struct{}
		if serin != nil {
			ends = serin.Done()
		}
		select {
		case <-ctx.Done():
			return nil
		case <-o.Cluster.Done():
			return o.Cluster.Err()
		case <-ends:
		}
		ended := o.Cluster.Ended(serin)
		if restarts == maxRestarts {
			return ended
		}
		reason, _, _ := strings.Cut(ended.Error(), "\n") // the end of the log follows
		o.Log("Serin has ended and is started again: " + reason)
		var err error
		if serin, err = o.startSerin(); err != nil {
			return err
		}
	}
}

// startSerin starts the controller.
func (o Options) startSerin() (*process.Process, error) {
	argv := append([]string{o.Serin, "controller", "-kubeconfig", o.Cluster.Kubeconfig, "-metrics-server", o.Cluster.PrometheusURL}, controllerFlags...)
	return o.Cluster.StartProcess(serinName, argv, nil)
}

func newRunner(o Options) *demoRunner {
	return &demoRunner{Options: o, statuses: map[*Target]chan releaseStatus{Cart: make(chan releaseStatus, 1000), Web: make(chan releaseStatus, 1000)}}
}

func (p *demoRunner) run(ctx context.Context) error {
	defer p.stopLoad()
	if err := p.deploy(ctx); err != nil {
		return err
	}
	defer p.Viewer.End()
	var errs []error
	scenarios := Scenarios()
	for i, scenario := range scenarios {
		if err := p.Viewer.StartScenario(i+1, len(scenarios), scenario); err != nil {
			return err
		}
		result, err := p.runScenario(ctx, scenario)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		p.Viewer.Result(scenario, result, err)
		if err != nil {
			errs = append(errs, fmt.Errorf("scenario %s: %w", scenario.Name, err))
		}
		if result.Outcome == Stuck {
			break // the next release would not end either
		}
	}
	return errors.Join(errs...)
}

// deploy starts Serin and the applications, and the load on the first one.
func (p *demoRunner) deploy(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, waitTimeout, fmt.Errorf("it took more than %s", waitTimeout))
	defer cancel()
	c := p.Cluster
	p.Viewer.ShowActivity("starting Serin")
	for _, folder := range []string{p.CRDs, filepath.Join(p.CRDs, "argoproj")} {
		if err := c.ApplyFolder(ctx, folder); err != nil {
			return err
		}
	}
	var err error
	if p.serin, err = p.startSerin(); err != nil {
		return err
	}
	p.Viewer.ShowActivity("creating a Canary for Deployment cart, and Rollout web")
	if err := c.Apply(ctx, cartManifests+"---\n"+strings.ReplaceAll(webManifests, "PROMETHEUS", c.PrometheusURL)); err != nil {
		return err
	}
	for _, target := range []*Target{Cart, Web} {
		p.watchStatuses(context.WithoutCancel(ctx), target)
		if err := p.waitForStatus(ctx, target, target.isIdle); err != nil {
			return fmt.Errorf("wait for the first version of %s: %w", target.Name, err)
		}
	}
	p.Viewer.ShowActivity(fmt.Sprintf("sending %d requests a second through the gateway", requestRate))
	return p.startLoad(ctx, Cart)
}

// startLoad directs the load to an application as soon as it can be reached.
func (p *demoRunner) startLoad(ctx context.Context, target *Target) error {
	if p.target == target {
		return nil
	}
	p.stopLoad()
	if err := p.waitForGateway(ctx, target); err != nil {
		return err
	}
	var err error
	p.load, err = load.Start(context.WithoutCancel(ctx), load.Options{URL: p.Cluster.GatewayURL, Host: target.Host, Rate: requestRate, Clock: p.Clock})
	if err == nil {
		p.target = target
	}
	return err
}

func (p *demoRunner) stopLoad() {
	if p.target != nil {
		p.load.Stop()
		p.target = nil
	}
}

// waitForGateway waits until the gateway serves the route of an application.
func (p *demoRunner) waitForGateway(ctx context.Context, target *Target) error {
	first, err := load.Start(ctx, load.Options{URL: p.Cluster.GatewayURL, Host: target.Host, Rate: requestRate / 10, Clock: p.Clock})
	if err != nil {
		return err
	}
	defer first.Stop()
	return first.WaitFor(ctx, func(c load.Counts) bool { return c.Requests > c.Failed() })
}

// watchStatuses sends the statuses of a release to p.statuses until the cluster ends.
func (p *demoRunner) watchStatuses(ctx context.Context, target *Target) {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		<-p.Cluster.Done()
		cancel()
	}()
	send := func(object any) {
		observed, ok := object.(*unstructured.Unstructured)
		if !ok {
			return
		}
		select {
		case p.statuses[target] <- target.read(observed.Object):
		case <-ctx.Done():
		}
	}
	informer := dynamicinformer.NewFilteredDynamicInformer(p.Cluster.Dynamic, target.Release, namespace, 0, cache.Indexers{},
		func(o *metav1.ListOptions) {
			o.FieldSelector = fields.OneTermEqualSelector("metadata.name", target.Name).String()
		})
	// AddEventHandler fails only for an informer that has stopped; this one has not started.
	_, _ = informer.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: send, UpdateFunc: func(_, object any) { send(object) },
	})
	go informer.Informer().RunWithContext(ctx)
}

// nextStatus returns the next status of a release, or an error when ctx ends or the cluster or Serin has ended.
func (p *demoRunner) nextStatus(ctx context.Context, target *Target, tick <-chan time.Time) (s releaseStatus, ticked bool, err error) {
	select {
	case s = <-p.statuses[target]:
		return s, false, nil
	case <-tick:
		return s, true, nil
	case <-ctx.Done():
		return s, false, context.Cause(ctx)
	case <-p.Cluster.Done():
		return s, false, fmt.Errorf("the cluster ended: %w", p.Cluster.Err())
	case <-p.serin.Done():
		return s, false, p.Cluster.Ended(p.serin)
	}
}

func (p *demoRunner) waitForStatus(ctx context.Context, target *Target, reached func(releaseStatus) bool) error {
	var last releaseStatus
	for {
		s, _, err := p.nextStatus(ctx, target, nil)
		if err != nil {
			return fmt.Errorf("%w; last seen: %s %s", err, last, last.message)
		}
		if last = s; reached(s) {
			return nil
		}
	}
}

// countsInterval is the interval at which the counts are shown.
const countsInterval = time.Second

// runScenario starts a release and follows it until its end.
func (p *demoRunner) runScenario(ctx context.Context, scenario Scenario) (Result, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, waitTimeout, fmt.Errorf("the scenario took more than %s", waitTimeout))
	defer cancel()
	target := scenario.Target
	if err := p.startLoad(ctx, target); err != nil {
		return Result{Scenario: scenario.Name, Outcome: Stuck}, err
	}
	startedAt, before := p.Clock.Now(), p.load.Counts()
	result := Result{Scenario: scenario.Name, Outcome: Stuck}
	var progress releaseProgress
	finish := func(err error) (Result, error) {
		result.Steps, result.Windows = progress.steps, progress.windows
		result.Counts = p.load.Counts().Since(before)
		result.Requests, result.FailedRequests = result.Counts.Requests, result.Counts.Failed()
		result.Seconds = p.Clock.Since(startedAt).Seconds()
		if err != nil {
			return result, err
		}
		return result, scenario.verifyResult(result)
	}

	patch, err := json.Marshal(scenario.patch())
	if err != nil {
		return finish(err)
	}
	_, err = p.Cluster.Dynamic.Resource(target.Workload).Namespace(namespace).Patch(ctx, target.Name, types.JSONPatchType, patch, metav1.PatchOptions{})
	if err != nil {
		return finish(fmt.Errorf("change the version of %s: %w", target.Name, err))
	}
	ticker := p.Clock.NewTicker(countsInterval)
	defer ticker.Stop()
	var last releaseStatus
	for {
		s, ticked, err := p.nextStatus(ctx, target, ticker.C())
		if err != nil {
			return finish(fmt.Errorf("%w; last seen: %s %s", err, last, last.message))
		}
		if ticked {
			p.Viewer.Progress(false, last.String(), p.load.Counts().Since(before))
			continue
		}
		outcome := progress.observe(s)
		if s.String() != last.String() {
			p.Viewer.Progress(true, s.String(), p.load.Counts().Since(before))
		}
		last = s
		if outcome != "" {
			result.Outcome = outcome
			return finish(p.waitForRequests(ctx))
		}
	}
}

// waitForRequests waits for some requests that were sent after the end of the release, so that the counts include the version
// that serves then.
func (p *demoRunner) waitForRequests(ctx context.Context) error {
	from := p.load.Counts()
	return p.load.WaitFor(ctx, func(c load.Counts) bool { return c.Requests-from.Requests >= requestRate })
}

// verifyResult returns an error with all differences from the expected result. Requests may fail only because the version of the
// scenario fails them; no request may be lost, whatever the outcome of the release.
func (s Scenario) verifyResult(r Result) error {
	var errs []error
	if r.Outcome != s.Want {
		errs = append(errs, fmt.Errorf("version %s was %s, want %s", s.Version, r.Outcome, s.Want))
	}
	if r.Counts.Lost > 0 {
		errs = append(errs, fmt.Errorf("%d requests were lost: %s", r.Counts.Lost, r.Counts))
	}
	for version, counts := range r.Counts.ByVersion {
		if counts.Errors > 0 && (version != s.Version || s.Env[errorPercent] == "") {
			errs = append(errs, fmt.Errorf("version %s failed %d requests, want none", version, counts.Errors))
		}
	}
	if r.Counts.ByVersion[s.Version].Requests == 0 {
		errs = append(errs, fmt.Errorf("version %s got no requests", s.Version))
	}
	return errors.Join(errs...)
}

// controllerFlags shorten the minimum interval and the drain, so that the demo takes little time. The commands of users find the
// controller, which has no Deployment, and these flags by its Lease.
var controllerFlags = []string{
	"-mesh-provider=gatewayapi:v1", "-min-analysis-interval=2s", "-drain-delay=2s", "-log-level=info", "-enable-leader-election",
}

// WatchArgs returns the arguments with which Serin shows the release of an application.
func WatchArgs(target *Target) []string { return []string{"watch", target.Name, "-n", namespace} }
