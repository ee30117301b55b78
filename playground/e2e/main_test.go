//go:build linux

package e2e_test

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/restmapper"

	"github.com/serin-dev/serin/playground/build"
	"github.com/serin-dev/serin/playground/cluster"
	"github.com/serin-dev/serin/playground/ingress"
	"github.com/serin-dev/serin/playground/node"
)

// The cluster, the program under test and the REST mapper that all tests share.
var (
	shared     *cluster.Cluster
	serin      string
	repository string
	istioCRDs  string
	mapper     *restmapper.DeferredDiscoveryRESTMapper
	controller ingressController
)

// maxParallel is the number of tests that run concurrently. They mostly wait, but more of them delay the control plane, and with
// it the gateway.
const maxParallel = "4"

func TestMain(m *testing.M) {
	os.Exit(run(m))
}

func run(m *testing.M) int {
	options := cluster.Options{Gateway: true, Prometheus: true, Autoscaling: true, Audit: accounts}
	err := cluster.Enter(&options, func(text string) { fmt.Fprintln(os.Stderr, text) }, prepare)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	flag.Parse()
	if !isFlagSet("test.parallel") {
		err = flag.Set("test.parallel", maxParallel)
	}
	if err == nil {
		options.Folder, err = os.MkdirTemp("", "e2e-")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(options.Folder)
	options.Log = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if err := start(ctx, options); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	code := m.Run()
	cancel()
	if err := shared.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if err := checkPermissionsUsed(code == 0 && !isFlagSet("test.run") && !isFlagSet("test.skip") && !isFlagSet("test.list")); err != nil {
		fmt.Fprintf(os.Stderr, "--- FAIL: the documented permissions\n%v\n", err) // like a test, so that summaries show it
		return 1
	}
	return code
}

func isFlagSet(name string) (found bool) {
	flag.Visit(func(f *flag.Flag) { found = found || f.Name == name })
	return found
}

// prepare builds and downloads the programs and manifests that the tests need in addition to a cluster, while the network is
// still reachable.
func prepare(ctx context.Context, b *build.Builder) error {
	if _, err := b.Serin(ctx); err != nil {
		return err
	}
	if _, err := b.IstioCRDs(ctx); err != nil {
		return err
	}
	if _, err := b.RouteCRDs(ctx); err != nil {
		return err
	}
	if _, err := b.TCPRouteCRDs(ctx); err != nil {
		return err
	}
	if _, err := b.Skipper(ctx); err != nil {
		return err
	}
	_, err := prepareIngress(ctx, b)
	return err
}

func start(ctx context.Context, options cluster.Options) (err error) {
	repository = options.Builder.Repository()
	if serin, err = options.Builder.Serin(ctx); err != nil {
		return err
	}
	skipper, err := options.Builder.Skipper(ctx)
	if err != nil {
		return err
	}
	options.Images = map[string]node.Image{loadtesterImage: {Program: serin}, manifestImage: {Program: serin}, skipperImage: {Program: skipper}}
	if controller, err = prepareIngress(ctx, options.Builder); err != nil {
		return err
	}
	if controller.missing == nil {
		options.Images[ingress.Image] = node.Image{Program: controller.program}
	}
	if options.TCPRouteCRDs, err = options.Builder.TCPRouteCRDs(ctx); err != nil {
		return err
	}
	if shared, err = cluster.Start(ctx, options); err != nil {
		return err
	}
	if istioCRDs, err = options.Builder.IstioCRDs(ctx); err != nil {
		return err
	}
	routes, err := options.Builder.RouteCRDs(ctx)
	if err != nil {
		return err
	}
	for _, folder := range append([]string{filepath.Join(repository, "config", "crd"), filepath.Join(repository, "config", "crd", "argoproj"), istioCRDs}, routes...) {
		if err := shared.ApplyFolder(ctx, folder); err != nil {
			return err
		}
	}
	mapper = restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(shared.Client.Discovery()))
	if err := runFakeNode(ctx); err != nil {
		return err
	}
	return grantDocumentedPermissions(ctx)
}
