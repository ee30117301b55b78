//go:build linux

package packaging_test

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/restmapper"

	"github.com/serin-dev/serin/playground/cluster"
	"github.com/serin-dev/serin/playground/packaging/chart"
)

// The cluster and the REST mapper that all tests share.
var (
	shared     *cluster.Cluster
	repository string
	mapper     *restmapper.DeferredDiscoveryRESTMapper
)

func TestMain(m *testing.M) {
	os.Exit(run(m))
}

func run(m *testing.M) int {
	var options cluster.Options
	err := cluster.Enter(&options, func(text string) { fmt.Fprintln(os.Stderr, text) }, nil)
	if err == nil {
		flag.Parse()
		options.Folder, err = os.MkdirTemp("", "packaging-")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(options.Folder)
	options.Log = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	repository = options.Builder.Repository()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if shared, err = cluster.Start(ctx, options); err == nil {
		err = shared.ApplyFolder(ctx, filepath.Join(repository, "config", "crd"))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	mapper = restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(shared.Client.Discovery()))
	code := m.Run()
	cancel()
	if err := shared.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

// parseObjects parses manifests.
func parseObjects(t *testing.T, manifests string) []*unstructured.Unstructured {
	t.Helper()
	all, err := chart.Objects(manifests)
	if err != nil {
		t.Fatalf("%v in\n%s", err, manifests)
	}
	return all
}

// resourceClient returns the client for a kind, in a namespace unless the kind is cluster-scoped.
func resourceClient(t *testing.T, kind schema.GroupVersionKind, namespace string) dynamic.ResourceInterface {
	t.Helper()
	mapping, err := mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if err != nil {
		t.Fatal(err)
	}
	if mapping.Scope.Name() == meta.RESTScopeNameRoot {
		return shared.Dynamic.Resource(mapping.Resource)
	}
	return shared.Dynamic.Resource(mapping.Resource).Namespace(namespace)
}

// convert converts an object to a type.
func convert[T any](t *testing.T, object *unstructured.Unstructured) T {
	t.Helper()
	var typed T
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &typed); err != nil {
		t.Fatal(err)
	}
	return typed
}
