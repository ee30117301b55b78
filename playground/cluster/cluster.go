//go:build linux

// Package cluster starts and stops a whole Kubernetes cluster inside the
// current sandbox: control plane, one node whose pods are processes, Services
// and DNS, and, on request, a gateway and Prometheus.
//
// It composes the parts and must not know what the cluster is used for: no
// releases, no demo.
package cluster

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/clock"

	playground "github.com/serin-dev/serin/playground"
	"github.com/serin-dev/serin/playground/apiproxy"
	"github.com/serin-dev/serin/playground/build"
	"github.com/serin-dev/serin/playground/gateway"
	"github.com/serin-dev/serin/playground/metrics"
	"github.com/serin-dev/serin/playground/network"
	"github.com/serin-dev/serin/playground/node"
	"github.com/serin-dev/serin/playground/podroot"
	"github.com/serin-dev/serin/playground/process"
	"github.com/serin-dev/serin/playground/services"
)

// DemoImage is the image of the demo application (package app); its tag is passed as VERSION.
const DemoImage = "serin.dev/demo"

// NodeName is the name of the only node.
const NodeName = "playground"

// Options configure a cluster. Folder is required, and Sandbox and Builder, which Enter sets.
type Options struct {
	Sandbox *playground.Sandbox
	Builder *build.Builder
	// Folder contains logs, keys and data; it is created if missing. When the cluster has stopped, its logs (in the subfolder
	// logs) and its data remain until the next start.
	Folder string
	// Log receives the log of the playground itself; nil discards it.
	Log *slog.Logger
	// Terminal, if not nil, shows the progress of builds in one line.
	Terminal *os.File
	// Gateway and Prometheus select whether these are started.
	Gateway, Prometheus bool
	// TCPRouteCRDs are the files with the CRDs that the gateway needs to serve TCPRoutes; empty: it does not.
	TCPRouteCRDs []string
	// APIServerOnly starts only etcd and the API server: without controllers and a node, nothing but the caller changes objects.
	APIServerOnly bool
	// ObjectsOnly starts no node and no network of Services: the caller simulates the pods. The rules of thousands of Services would
	// occupy a processor whenever one changes.
	ObjectsOnly bool
	// Autoscaling runs the HorizontalPodAutoscaler controller. There are no pod metrics, so it only enforces minReplicas and
	// maxReplicas, and scales by metrics that tests provide.
	Autoscaling bool
	// Images are available in addition to DemoImage; the key is the name without tag.
	Images map[string]node.Image
	// Audit are the users, such as system:serviceaccount:default:serin, whose requests the API server records. See Requests.
	Audit []string
	// Clock defaults to the real clock.
	Clock clock.WithTicker
}

// Enter builds the programs that a cluster with these options needs, moves the program into a sandbox, and sets the options'
// Sandbox and Builder. more, if not nil, builds additional programs of the caller. report is called as described at
// build.New. Enter must be the first call in main or TestMain.
func Enter(o *Options, report func(string), more func(context.Context, *build.Builder) error) error {
	podroot.BecomePod() // before the builder, which requires environment variables that containers do not have
	builder, err := build.New(report)
	if err != nil {
		return err
	}
	builder.ShowProgressOn(o.Terminal)
	o.Builder = builder
	o.Sandbox = playground.Enter(func(ctx context.Context) error {
		if _, err := buildPrograms(ctx, builder, *o); err != nil || more == nil {
			return err
		}
		return more(ctx, builder)
	})
	return nil
}

type programs struct {
	controlPlane, demoApp, traefik, prometheus, gatewayCRDs, traefikCRDs string
}

func buildPrograms(ctx context.Context, b *build.Builder, o Options) (p programs, err error) {
	if err := b.Prepare(ctx, o.Prometheus, o.Gateway); err != nil {
		return p, err
	}
	if p.controlPlane, err = b.ControlPlane(ctx); err != nil {
		return p, err
	}
	if o.Prometheus {
		if p.prometheus, err = b.Prometheus(ctx); err != nil {
			return p, err
		}
	}
	if o.Gateway {
		if p.traefik, err = b.Traefik(ctx); err != nil {
			return p, err
		}
		if p.gatewayCRDs, err = b.GatewayCRDs(ctx); err != nil {
			return p, err
		}
		if p.traefikCRDs, err = b.TraefikCRDs(ctx); err != nil {
			return p, err
		}
	}
	p.demoApp, err = b.DemoApp(ctx)
	return p, err
}

// Cluster is a running cluster. Each address exists twice: inside the sandbox, and outside on 127.0.0.1.
type Cluster struct {
	// Client, Dynamic and Config are for the API server, with the administrator's credentials, from inside.
	Client  kubernetes.Interface
	Dynamic dynamic.Interface
	Config  *rest.Config
	// Kubeconfig is a file for programs inside, OutsideKubeconfig one for other programs on the machine.
	Kubeconfig, OutsideKubeconfig string
	// GatewayURL and PrometheusURL are empty if these were not started.
	GatewayURL, OutsideGatewayURL       string
	PrometheusURL, OutsidePrometheusURL string
	// Folder is the absolute path of Options.Folder.
	Folder string

	options     Options
	programs    programs
	credentials *credentials
	processes   *process.Group
	network     *network.Network
	stop        context.CancelCauseFunc
	done        <-chan struct{}
	cause       func() error
	background  sync.WaitGroup
	lock        *os.File

	mu sync.Mutex
	// parts are the programs that the cluster cannot run without, by name.
	parts map[string]*process.Process
}

// lockFolder locks the folder for this process; the kernel releases the lock however the process ends.
func lockFolder(folder string) (*os.File, error) {
	file, err := os.OpenFile(filepath.Join(folder, "lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("lock the cluster's folder: %w", err)
	}
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		file.Close()
		return nil, fmt.Errorf("folder %s is in use by a running playground: stop that playground, or choose another folder", folder)
	}
	return file, nil
}

// IsRunning reports whether a cluster of any process uses a folder.
func IsRunning(folder string) bool {
	file, err := lockFolder(folder)
	if err != nil {
		return !errors.Is(err, fs.ErrNotExist)
	}
	file.Close()
	return false
}

// errStopped is the cause when Stop was called.
var errStopped = errors.New("the cluster was stopped")

// Start starts a cluster and returns when all its parts are ready. A sandbox can contain one cluster at a time. ctx bounds
// the start only; the cluster runs until Stop.
func Start(ctx context.Context, o Options) (*Cluster, error) {
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	folder, err := filepath.Abs(o.Folder)
	if err != nil {
		return nil, fmt.Errorf("resolve folder %s: %w", o.Folder, err)
	}
	c := &Cluster{options: o, Folder: folder, parts: map[string]*process.Process{}}
	running, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	c.stop, c.done, c.cause = stop, running.Done(), func() error { return context.Cause(running) }
	// The start is aborted when a part of the cluster ends during the start.
	starting, abort := context.WithCancelCause(ctx)
	defer abort(nil)
	defer context.AfterFunc(running, func() { abort(context.Cause(running)) })()
	if err := c.startAll(starting, running); err != nil {
		if cause := context.Cause(running); cause != nil {
			err = cause
		}
		return nil, errors.Join(err, c.Stop())
	}
	return c, nil
}

func (c *Cluster) startAll(ctx, running context.Context) (err error) {
	if c.programs, err = buildPrograms(ctx, c.options.Builder, c.options); err != nil {
		return err
	}
	if err := os.MkdirAll(c.Folder, 0o755); err != nil {
		return fmt.Errorf("create the cluster's folder: %w", err)
	}
	if c.lock, err = lockFolder(c.Folder); err != nil {
		return err
	}
	for _, old := range []string{"etcd", "prometheus", "node/pods"} {
		if err := os.RemoveAll(filepath.Join(c.Folder, old)); err != nil {
			return fmt.Errorf("clear the folder of the previous cluster: %w", err)
		}
	}
	for _, folder := range []string{"logs", "keys", "etcd", "node"} {
		if err := os.MkdirAll(filepath.Join(c.Folder, folder), 0o755); err != nil {
			return fmt.Errorf("create the cluster's folder: %w", err)
		}
	}
	c.processes = process.NewGroup(filepath.Join(c.Folder, "logs"))
	if c.network, err = network.New(); err != nil {
		return err
	}
	if c.credentials, err = newCredentials(filepath.Join(c.Folder, "keys"), c.options.Clock.Now()); err != nil {
		return err
	}
	if err := c.startAPIServer(ctx, running); err != nil || c.options.APIServerOnly {
		return err
	}
	if err := c.startControllers(); err != nil || c.options.ObjectsOnly {
		return err
	}

	factory := informers.NewSharedInformerFactory(c.Client, 0)
	server, err := services.New(factory, c.options.Log)
	if err != nil {
		return err
	}
	parts := []func(context.Context) error{server.Run}
	if c.options.Prometheus {
		discovery, err := metrics.NewDiscovery(factory, c.prometheusFolder())
		if err != nil {
			return err
		}
		parts = append(parts, discovery.Run)
	}
	n := node.New(c.nodeOptions())
	if err := n.Register(ctx); err != nil {
		return err
	}
	factory.StartWithContext(running)
	c.background.Go(func() {
		<-running.Done()
		factory.Shutdown()
	})
	for _, run := range append(parts, n.Run) {
		c.background.Go(func() {
			if err := run(running); err != nil {
				c.stop(err)
			}
		})
	}

	extras, extrasCtx := errgroup.WithContext(ctx)
	if c.options.Gateway {
		extras.Go(func() error { return c.startGateway(extrasCtx, running) })
	}
	if c.options.Prometheus {
		extras.Go(func() error { return c.startPrometheus(extrasCtx, running) })
	}
	return extras.Wait()
}

func (c *Cluster) nodeOptions() node.Options {
	images := map[string]node.Image{DemoImage: {Program: c.programs.demoApp, TagVariable: "VERSION"}}
	maps.Copy(images, c.options.Images)
	return node.Options{
		Name: NodeName, Version: build.KubernetesVersion, Client: c.Client, Network: c.network, Images: images,
		Folder: filepath.Join(c.Folder, "node"), Certificate: c.credentials.certificate, Clock: c.options.Clock, Log: c.options.Log,
	}
}

const apiServerPort = 6443

func (c *Cluster) startAPIServer(ctx, running context.Context) error {
	inside := "https://127.0.0.1:" + strconv.Itoa(apiServerPort)
	c.Kubeconfig = filepath.Join(c.Folder, "kubeconfig-inside")
	if err := c.credentials.writeKubeconfig(c.Kubeconfig, inside); err != nil {
		return err
	}
	outside, err := c.options.Sandbox.Expose(running, net.JoinHostPort("127.0.0.1", strconv.Itoa(apiServerPort)))
	if err != nil {
		return err
	}
	c.OutsideKubeconfig = filepath.Join(c.Folder, "kubeconfig")
	if err := c.credentials.writeKubeconfig(c.OutsideKubeconfig, "https://"+outside); err != nil {
		return err
	}
	if c.Config, err = clientcmd.BuildConfigFromFlags("", c.Kubeconfig); err != nil {
		return fmt.Errorf("read kubeconfig: %w", err)
	}
	c.Config.QPS, c.Config.Burst = 500, 1000
	if c.Client, err = kubernetes.NewForConfig(c.Config); err != nil {
		return fmt.Errorf("create a client of the API server: %w", err)
	}
	if c.Dynamic, err = dynamic.NewForConfig(c.Config); err != nil {
		return fmt.Errorf("create a client of the API server: %w", err)
	}

	if err := c.startPart("etcd", nil, c.programs.controlPlane, "etcd", filepath.Join(c.Folder, "etcd")); err != nil {
		return err
	}
	recorded, err := c.writeAuditPolicy()
	if err != nil {
		return err
	}
	if err := c.startPart("apiserver", nil, append(c.apiServerSpec(apiServerPort), recorded...)...); err != nil {
		return err
	}
	return c.WaitForAPIServer(ctx)
}

// WaitForAPIServer waits until the API server is ready.
func (c *Cluster) WaitForAPIServer(ctx context.Context) error {
	return c.waitUntil(ctx, "the API server", func(ctx context.Context) error {
		return c.Client.CoreV1().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
	})
}

// apiServerSpec returns the command of an API server that listens on a port.
func (c *Cluster) apiServerSpec(port int) []string {
	key := c.credentials.filePath("service-accounts.key")
	return []string{
		c.programs.controlPlane, "apiserver",
		"--etcd-servers=http://127.0.0.1:2379",
		"--secure-port=" + strconv.Itoa(port), "--bind-address=0.0.0.0", "--advertise-address=" + network.NodeAddress.String(),
		"--tls-cert-file=" + c.credentials.filePath("server.crt"), "--tls-private-key-file=" + c.credentials.filePath("server.key"),
		"--cert-dir=" + c.credentials.folder, "--token-auth-file=" + c.credentials.filePath("tokens.csv"), "--authorization-mode=RBAC",
		"--service-account-issuer=https://kubernetes.default.svc", "--service-account-key-file=" + key,
		"--service-account-signing-key-file=" + key, "--service-cluster-ip-range=" + network.ServiceRange.String(),
		// Pods of the playground get no service account token, so the admission plugin that adds one is disabled.
		"--disable-admission-plugins=ServiceAccount",
		"--endpoint-reconciler-type=none", "--profiling=false",
	}
}

func (c *Cluster) startControllers() error {
	controllers := "*,-bootstrap-signer-controller,-token-cleaner-controller"
	if !c.options.Autoscaling {
		controllers += ",-horizontal-pod-autoscaler-controller"
	}
	common := []string{
		"--kubeconfig=" + c.Kubeconfig, "--leader-elect=false", "--secure-port=0", "--profiling=false",
		"--kube-api-qps=500", "--kube-api-burst=1000",
	}
	err := c.startPart("controller-manager", nil, append([]string{
		c.programs.controlPlane, "kcm",
		"--controllers=" + controllers, "--use-service-account-credentials=false", "--root-ca-file=" + c.credentials.filePath("ca.crt"),
		"--service-account-private-key-file=" + c.credentials.filePath("service-accounts.key"),
	}, common...)...)
	if err != nil {
		return err
	}
	return c.startPart("scheduler", nil, append([]string{c.programs.controlPlane, "scheduler"}, common...)...)
}

func (c *Cluster) startGateway(ctx, running context.Context) error {
	if err := gateway.InstallCRDs(ctx, c.Dynamic, c.programs.gatewayCRDs, c.waitUntil); err != nil {
		return err
	}
	if err := c.ApplyFolder(ctx, c.programs.traefikCRDs); err != nil {
		return err
	}
	for _, file := range c.options.TCPRouteCRDs {
		if err := c.ApplyFolder(ctx, file); err != nil {
			return err
		}
	}
	tcp := len(c.options.TCPRouteCRDs) > 0
	if err := gateway.CreateGateway(ctx, c.Dynamic, tcp); err != nil {
		return err
	}
	err := c.startPart("traefik", []string{"KUBECONFIG=" + c.Kubeconfig}, append([]string{c.programs.traefik}, gateway.TraefikArgs(network.NodeAddress, tcp)...)...)
	if err != nil {
		return err
	}
	address := net.JoinHostPort(network.NodeAddress.String(), strconv.Itoa(gateway.Port))
	outside, err := c.options.Sandbox.Expose(running, address)
	if err != nil {
		return err
	}
	c.GatewayURL, c.OutsideGatewayURL = "http://"+network.NodeAddress.String(), "http://"+outside
	return c.waitUntil(ctx, "the gateway", func(ctx context.Context) error {
		if err := gateway.CheckProgrammed(ctx, c.Dynamic); err != nil {
			return err
		}
		return checkReachable(ctx, address)
	})
}

func (c *Cluster) prometheusFolder() string { return filepath.Join(c.Folder, "prometheus") }

func (c *Cluster) startPrometheus(ctx, running context.Context) error {
	static := map[string]string{}
	if c.options.Gateway {
		static["traefik"] = net.JoinHostPort("127.0.0.1", strconv.Itoa(gateway.MetricsPort))
	}
	args, err := metrics.WriteConfig(c.prometheusFolder(), static)
	if err != nil {
		return err
	}
	if err := c.startPart("prometheus", nil, append([]string{c.programs.prometheus}, args...)...); err != nil {
		return err
	}
	address := net.JoinHostPort(network.NodeAddress.String(), strconv.Itoa(metrics.Port))
	outside, err := c.options.Sandbox.Expose(running, address)
	if err != nil {
		return err
	}
	c.PrometheusURL, c.OutsidePrometheusURL = "http://"+address, "http://"+outside
	return c.waitUntil(ctx, "Prometheus", func(ctx context.Context) error { return checkHTTP(ctx, c.PrometheusURL+"/-/ready") })
}

// startPart starts a program that the cluster cannot run without: when it ends, the cluster stops.
func (c *Cluster) startPart(name string, env []string, argv ...string) error {
	p, err := c.processes.Start(process.Spec{Name: name, Argv: argv, Env: env})
	if err != nil {
		return err
	}
	c.requirePart(p)
	return nil
}

// requirePart stops the cluster when a part ends, unless KillPart ended it.
func (c *Cluster) requirePart(p *process.Process) {
	c.mu.Lock()
	c.parts[p.Name] = p
	c.mu.Unlock()
	c.background.Go(func() {
		select {
		case <-c.done:
			return
		case <-p.Done():
		}
		c.mu.Lock()
		required := c.parts[p.Name] == p
		c.mu.Unlock()
		if required {
			c.stop(c.processes.Ended(p))
		}
	})
}

// KillPart sends SIGKILL to a part of the cluster, such as etcd or apiserver. The cluster continues without it until RestartPart.
func (c *Cluster) KillPart(name string) error {
	c.mu.Lock()
	delete(c.parts, name)
	c.mu.Unlock()
	return c.processes.Kill(name)
}

// RestartPart starts a part that KillPart ended, with the same arguments and data.
func (c *Cluster) RestartPart(name string) error {
	p, err := c.processes.Restart(name)
	if err != nil {
		return err
	}
	c.requirePart(p)
	return nil
}

// pollInterval is the interval between two checks of a part that is starting.
const pollInterval = 50 * time.Millisecond

// waitUntil calls check until it returns nil or ctx ends. An error contains the last error of check.
func (c *Cluster) waitUntil(ctx context.Context, what string, check func(context.Context) error) error {
	for {
		err := check(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w; last error: %w", what, context.Cause(ctx), err)
		case <-c.options.Clock.After(pollInterval):
		}
	}
}

// Done returns a channel that is closed when the cluster has ended, by Stop or because a part of it has ended. Err returns
// the reason.
func (c *Cluster) Done() <-chan struct{} { return c.done }

// Err returns the reason why the cluster has ended. It is nil while the cluster runs, and after Stop.
func (c *Cluster) Err() error {
	if err := c.cause(); !errors.Is(err, errStopped) {
		return err
	}
	return nil
}

// Stop kills everything in the cluster and waits for it. It may be called more than once.
func (c *Cluster) Stop() error {
	c.stop(errStopped)
	c.background.Wait() // pods first: they use the network
	var errs []error
	if c.processes != nil {
		errs = append(errs, c.processes.Close())
	}
	if c.network != nil {
		errs = append(errs, services.Remove(), c.network.Close())
		c.network = nil
	}
	if c.credentials != nil {
		// The address no longer exists; a missing kubeconfig is reported at once, while requests with a stale one hang.
		for _, file := range []string{c.Kubeconfig, c.OutsideKubeconfig} {
			if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
				errs = append(errs, err)
			}
		}
	}
	if c.lock != nil {
		errs = append(errs, c.lock.Close())
		c.lock = nil
	}
	return errors.Join(errs...)
}

// StartProcess starts a program outside pods, such as a controller under test. Its output is written to a file of its name; it is
// killed when the cluster stops. Its environment contains the KUBECONFIG of the cluster, which env may override.
func (c *Cluster) StartProcess(name string, argv, env []string) (*process.Process, error) {
	return c.processes.Start(process.Spec{Name: name, Argv: argv, Env: append([]string{"KUBECONFIG=" + c.Kubeconfig}, env...)})
}

// Ended returns an error with the exit status of a program of StartProcess and the end of its log. It may be called once Done is
// closed.
func (c *Cluster) Ended(p *process.Process) error { return c.processes.Ended(p) }

// Kill sends SIGKILL to a program and waits until it has ended.
func (c *Cluster) Kill(name string) error { return c.processes.Kill(name) }

// Terminate sends SIGTERM to a program and waits until it has ended; if ctx ends first, the program is killed.
func (c *Cluster) Terminate(ctx context.Context, name string) error {
	return c.processes.Terminate(ctx, name)
}

// Signal sends a signal to a running program.
func (c *Cluster) Signal(name string, signal unix.Signal) error {
	return c.processes.Signal(name, signal)
}

// Restart kills a program and starts it again with the same arguments and environment.
func (c *Cluster) Restart(name string) (*process.Process, error) { return c.processes.Restart(name) }

// Usage returns the resource usage of a program.
func (c *Cluster) Usage(name string) (process.Usage, error) { return c.processes.Usage(name) }

// LogPath returns the file with the output of a program.
func (c *Cluster) LogPath(name string) string { return c.processes.LogPath(name) }

// Tail returns the last lines of the log of a program: etcd, apiserver, controller-manager, scheduler, traefik, prometheus,
// or the name given to StartProcess.
func (c *Cluster) Tail(name string, lines int) string { return c.processes.Tail(name, lines) }

// StartCountingProxy starts a proxy that counts requests to the API server, and writes a kubeconfig for programs inside that send
// their requests through it. The caller must close the proxy.
func (c *Cluster) StartCountingProxy(ctx context.Context, name string) (*apiproxy.Proxy, string, error) {
	config := rest.CopyConfig(c.Config)
	config.QPS = -1 // the proxy's clients have their own limits
	proxy, err := apiproxy.Start(ctx, config)
	if err != nil {
		return nil, "", err
	}
	kubeconfig := filepath.Join(c.Folder, "kubeconfig-"+name)
	if err := c.credentials.writeKubeconfig(kubeconfig, proxy.URL); err != nil {
		return nil, "", errors.Join(err, proxy.Close())
	}
	return proxy, kubeconfig, nil
}
