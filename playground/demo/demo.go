//go:build linux

// Package demo plays three acts on a cluster: a good version is promoted, a
// failing and a slow one are rolled back, under steady load.
//
// It drives Serin as a user does, by a Deployment and a Canary, and judges by
// what the clients saw. It must not know how Serin works inside.
package demo

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"github.com/serin-dev/serin/playground/cluster"
	"github.com/serin-dev/serin/playground/load"
	"github.com/serin-dev/serin/playground/process"
)

//go:embed cart.yaml
var demoManifests string

// Names in cart.yaml.
const (
	namespace = "shop"
	name      = "cart"
	host      = "cart.example.com"
	image     = cluster.DemoImage
)

// requestRate is the number of requests a second: enough for a check to see one failure in ten within a window of 5 s at 20 %.
const requestRate = 100

// waitTimeout bounds everything that the demo waits for; an act takes some 25 s.
const waitTimeout = 3 * time.Minute

var canaries = schema.GroupVersionResource{Group: "flagger.app", Version: "v1beta1", Resource: "canaries"}

// Result is what became of an act.
type Result struct {
	Scenario string  `json:"act"`
	Outcome  Outcome `json:"outcome"`
	// Steps is the number of weights that the version reached, Windows the number of times one was judged.
	Steps   int `json:"steps"`
	Windows int `json:"windows"`
	// Requests were sent by clients during the act; FailedRequests had no answer or one with an error.
	Requests       int     `json:"requests"`
	FailedRequests int     `json:"failedRequests"`
	Seconds        float64 `json:"seconds"`

	// Counts are the requests in detail.
	Counts load.Counts `json:"-"`
}

// Viewer shows the demo to somebody. Its methods are called by one goroutine.
type Viewer interface {
	// Say tells what is being done.
	Say(text string)
	// Begin opens the stage; everything works from now on.
	Begin() error
	// StartScenario announces the next act, number of all.
	StartScenario(number, all int, act Scenario)
	// Progress shows a change of the release, or the counts after some time without one.
	Progress(change bool, release string, counts load.Counts)
	// Result ends an act; err says what was not as it must.
	Result(act Scenario, result Result, err error)
	// End closes the stage.
	End()
}

// Options say what is played where. All fields are needed.
type Options struct {
	Cluster *cluster.Cluster
	// Serin is the program, CRDs the folder with the definitions of its resources.
	Serin, CRDs string
	Viewer      Viewer
	Clock       clock.WithTicker
}

type demoRunner struct {
	Options
	serin    *process.Process
	statuses chan canaryStatus
	load     *load.Load
}

// serinName is how the controller's process and log are called.
const serinName = "serin"

// Run plays all acts. The error says what was not as it must, for all acts together; what could not even begin ends
// the demo.
func Run(ctx context.Context, o Options) error {
	p := &demoRunner{Options: o, statuses: make(chan canaryStatus, 1000)}
	if err := p.deploy(ctx); err != nil {
		return err
	}
	defer p.load.Stop()
	if err := o.Viewer.Begin(); err != nil {
		return err
	}
	defer o.Viewer.End()
	var errs []error
	acts := Scenarios()
	for i, act := range acts {
		o.Viewer.StartScenario(i+1, len(acts), act)
		result, err := p.runScenario(ctx, act)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		o.Viewer.Result(act, result, err)
		if err != nil {
			errs = append(errs, fmt.Errorf("act %s: %w", act.Name, err))
		}
		if result.Outcome == Stuck {
			break // the next act would only show the same
		}
	}
	return errors.Join(errs...)
}

// deploy starts Serin and the application, and the load as soon as the application can be reached.
func (p *demoRunner) deploy(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, waitTimeout, fmt.Errorf("it took more than %s", waitTimeout))
	defer cancel()
	c := p.Cluster
	p.Viewer.Say("starting Serin")
	if err := c.ApplyFolder(ctx, p.CRDs); err != nil {
		return err
	}
	var err error
	argv := append([]string{p.Serin, "controller", "-kubeconfig", c.Kubeconfig, "-metrics-server", c.PrometheusURL}, controllerFlags...)
	p.serin, err = c.StartProcess(serinName, argv, nil)
	if err != nil {
		return err
	}
	p.Viewer.Say("handing Deployment cart over to Serin, by a Canary")
	if err := c.Apply(ctx, demoManifests); err != nil {
		return err
	}
	p.watchStatuses(context.WithoutCancel(ctx))
	if err := p.waitForStatus(ctx, func(s canaryStatus) bool { return s.phase == "Initialized" || s.phase == "Succeeded" }); err != nil {
		return fmt.Errorf("wait for Canary %s to be initialized: %w", name, err)
	}
	p.Viewer.Say(fmt.Sprintf("sending %d requests a second through the gateway", requestRate))
	if err := p.waitForGateway(ctx); err != nil {
		return err
	}
	p.load, err = load.Start(context.WithoutCancel(ctx), load.Options{URL: c.GatewayURL, Host: host, Rate: requestRate, Clock: p.Clock})
	return err
}

// waitForGateway waits until the gateway has taken up the route.
func (p *demoRunner) waitForGateway(ctx context.Context) error {
	first, err := load.Start(ctx, load.Options{URL: p.Cluster.GatewayURL, Host: host, Rate: requestRate / 10, Clock: p.Clock})
	if err != nil {
		return err
	}
	defer first.Stop()
	return first.WaitFor(ctx, func(c load.Counts) bool { return c.Requests > c.Failed() })
}

// watchStatuses fills statuses until the cluster ends.
func (p *demoRunner) watchStatuses(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		<-p.Cluster.Done()
		cancel()
	}()
	tell := func(object any) {
		canary, ok := object.(*unstructured.Unstructured)
		if !ok {
			return
		}
		select {
		case p.statuses <- readStatus(canary):
		case <-ctx.Done():
		}
	}
	informer := dynamicinformer.NewFilteredDynamicInformer(p.Cluster.Dynamic, canaries, namespace, 0, cache.Indexers{},
		func(o *metav1.ListOptions) {
			o.FieldSelector = fields.OneTermEqualSelector("metadata.name", name).String()
		})
	// The handler is the informer's first and only one; it cannot be refused.
	_, _ = informer.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: tell, UpdateFunc: func(_, object any) { tell(object) },
	})
	go informer.Informer().RunWithContext(ctx)
}

// nextStatus returns the next status, or an error when there will be none worth waiting for.
func (p *demoRunner) nextStatus(ctx context.Context, tick <-chan time.Time) (s canaryStatus, ticked bool, err error) {
	select {
	case s = <-p.statuses:
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

func (p *demoRunner) waitForStatus(ctx context.Context, reached func(canaryStatus) bool) error {
	var last canaryStatus
	for {
		s, _, err := p.nextStatus(ctx, nil)
		if err != nil {
			return fmt.Errorf("%w; last seen: %s %s", err, last, last.message)
		}
		if last = s; reached(s) {
			return nil
		}
	}
}

// countsInterval is the time between two looks at the counts.
const countsInterval = time.Second

// runScenario begins a release and follows it to its end.
func (p *demoRunner) runScenario(ctx context.Context, act Scenario) (Result, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, waitTimeout, fmt.Errorf("the act took more than %s", waitTimeout))
	defer cancel()
	began, before := p.Clock.Now(), p.load.Counts()
	result := Result{Scenario: act.Name, Outcome: Stuck}
	var seen releaseProgress
	finish := func(err error) (Result, error) {
		result.Steps, result.Windows = seen.steps, seen.windows
		result.Counts = p.load.Counts().Since(before)
		result.Requests, result.FailedRequests = result.Counts.Requests, result.Counts.Failed()
		result.Seconds = p.Clock.Since(began).Seconds()
		if err != nil {
			return result, err
		}
		return result, act.verifyResult(result)
	}

	patch, err := json.Marshal(act.targetPatch())
	if err != nil {
		return finish(err)
	}
	_, err = p.Cluster.Client.AppsV1().Deployments(namespace).Patch(ctx, name, types.StrategicMergePatchType, patch, metav1.PatchOptions{})
	if err != nil {
		return finish(fmt.Errorf("change Deployment %s: %w", name, err))
	}
	ticker := p.Clock.NewTicker(countsInterval)
	defer ticker.Stop()
	var last canaryStatus
	for {
		s, ticked, err := p.nextStatus(ctx, ticker.C())
		if err != nil {
			return finish(fmt.Errorf("%w; last seen: %s %s", err, last, last.message))
		}
		if ticked {
			p.Viewer.Progress(false, last.String(), p.load.Counts().Since(before))
			continue
		}
		outcome := seen.observe(s)
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

// waitForRequests waits for some requests that were sent after the end: they say who serves now.
func (p *demoRunner) waitForRequests(ctx context.Context) error {
	from := p.load.Counts()
	return p.load.WaitFor(ctx, func(c load.Counts) bool { return c.Requests-from.Requests >= requestRate })
}

// verifyResult says what in a result was not as it must. Requests may only fail because the version of the act fails them;
// none may get lost, whatever becomes of the release.
func (a Scenario) verifyResult(r Result) error {
	var errs []error
	if r.Outcome != a.Want {
		errs = append(errs, fmt.Errorf("version %s was %s, it had to be %s", a.Version, r.Outcome, a.Want))
	}
	if r.Counts.Lost > 0 {
		errs = append(errs, fmt.Errorf("%d requests were lost: %s", r.Counts.Lost, r.Counts))
	}
	for version, counts := range r.Counts.ByVersion {
		if counts.Errors > 0 && (version != a.Version || a.Env[errorPercent] == "") {
			errs = append(errs, fmt.Errorf("version %s failed %d requests, it has to fail none", version, counts.Errors))
		}
	}
	if r.Counts.ByVersion[a.Version].Requests == 0 {
		errs = append(errs, fmt.Errorf("version %s got no requests", a.Version))
	}
	return errors.Join(errs...)
}

// controllerFlags make Serin fit for people in a hurry.
var controllerFlags = []string{
	"-mesh-provider=gatewayapi:v1", "-min-analysis-interval=2s", "-drain-delay=2s", "-log-level=info",
}

// WatchArgs make Serin show the demo's release. Its controller is no Deployment here, so the flags have to be told.
func WatchArgs() []string {
	return []string{"watch", name, "-n", namespace, "--controller-flags", strings.Join(controllerFlags, " ")}
}
