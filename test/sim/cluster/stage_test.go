package cluster_test

import (
	"context"
	"maps"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/serin-dev/serin/test/sim"
	"github.com/serin-dev/serin/test/sim/cluster"
	"github.com/serin-dev/serin/test/sim/store"
)

// stage is a run without releases: a cluster, and the actions of a test.
type stage struct {
	*testing.T
	*sim.World
	cluster *cluster.Cluster
	gateway *cluster.Gateway
	user    client.Client

	options cluster.Options
	routes  []cluster.Route
	begin   func(*stage)
	quiet   func(*stage)
	end     func(*stage)
}

var (
	deployments    = schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"}
	replicaSets    = schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "ReplicaSet"}
	pods           = schema.GroupVersionKind{Version: "v1", Kind: "Pod"}
	serviceKind    = schema.GroupVersionKind{Version: "v1", Kind: "Service"}
	endpointSlices = schema.GroupVersionKind{Group: "discovery.k8s.io", Version: "v1", Kind: "EndpointSlice"}
	scalers        = schema.GroupVersionKind{Group: "autoscaling", Version: "v2", Kind: "HorizontalPodAutoscaler"}
	httpRoutes     = schema.GroupVersionKind{Group: "gateway.networking.k8s.io", Version: "v1", Kind: "HTTPRoute"}
	virtualService = schema.GroupVersionKind{Group: "networking.istio.io", Version: "v1", Kind: "VirtualService"}

	openShiftRoutes  = schema.GroupVersionKind{Group: "route.openshift.io", Version: "v1", Kind: "Route"}
	httpProxies      = schema.GroupVersionKind{Group: "projectcontour.io", Version: "v1", Kind: "HTTPProxy"}
	routeTables      = schema.GroupVersionKind{Group: "gateway.solo.io", Version: "v1", Kind: "RouteTable"}
	upstreams        = schema.GroupVersionKind{Group: "gloo.solo.io", Version: "v1", Kind: "Upstream"}
	serviceSplitters = schema.GroupVersionKind{Group: "consul.hashicorp.com", Version: "v1alpha1", Kind: "ServiceSplitter"}
)

var definitions = sync.OnceValues(func() (*store.Definitions, error) {
	var kinds []schema.GroupKind
	for _, kind := range []schema.GroupVersionKind{virtualService, httpRoutes, openShiftRoutes, httpProxies, routeTables, upstreams, serviceSplitters} {
		kinds = append(kinds, kind.GroupKind())
	}
	return store.Routes(context.Background(), kinds...)
})

// play executes the run with the given options.
func (s *stage) play(t *testing.T, o sim.Options) sim.Result {
	t.Helper()
	s.T = t
	var err error
	if o.Definitions, err = definitions(); err != nil {
		t.Fatal(err)
	}
	o.Scheme, o.Classes = runtime.NewScheme(), cluster.Classes()
	if o.FaultDuration == 0 {
		o.FaultDuration = 10 * time.Minute
	}
	result := sim.Run(o, s)
	for _, v := range result.Violations {
		t.Errorf("seed %d: %s after %s: %s", o.Seed, v.Number, v.At, v.Text)
	}
	if t.Failed() {
		for _, line := range result.Trace {
			t.Log(line)
		}
	}
	return result
}

// playFaultFree executes a run without faults.
func (s *stage) playFaultFree(t *testing.T) sim.Result {
	t.Helper()
	return s.play(t, sim.Options{Seed: 1, FaultFree: true, FullTrace: true})
}

// Populate implements sim.Kind.
func (s *stage) Populate(w *sim.World) {
	s.World, s.user = w, w.Server.Client("user")
	s.cluster = cluster.New(w, s.options)
	s.gateway = cluster.NewGateway(w, s.cluster, func() []cluster.Route { return s.routes })
	s.begin(s)
}

// Controller implements sim.Kind. It reconciles nothing.
func (s *stage) Controller(*sim.Instance) sim.Controller { return noController{} }

// Quiesce implements sim.Kind.
func (s *stage) Quiesce(*sim.World) {
	s.cluster.Quiesce()
	if s.quiet != nil {
		s.quiet(s)
	}
}

// Settled implements sim.Kind.
func (s *stage) Settled(*sim.World) bool { return s.cluster.Settled() }

// UnsettledReason implements sim.Kind.
func (s *stage) UnsettledReason(*sim.World) string { return s.cluster.UnsettledReason() }

// SettleTimeout implements sim.Kind.
func (s *stage) SettleTimeout(*sim.World) time.Duration { return 30 * time.Minute }

// CheckEnd implements sim.Kind.
func (s *stage) CheckEnd(*sim.World) {
	if s.end != nil {
		s.end(s)
	}
}

// FinalState implements sim.Kind.
func (s *stage) FinalState(*sim.World) string { return "" }

type noController struct{}

func (noController) Reconcile(context.Context, reconcile.Request) (reconcile.Result, error) {
	return reconcile.Result{}, nil
}
func (noController) Watches() []schema.GroupKind                  { return nil }
func (noController) RequestsFor(store.Change) []reconcile.Request { return nil }
func (noController) Flush()                                       {}

func named(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: "shop", Name: name}
}

// create creates an object.
func (s *stage) create(kind schema.GroupVersionKind, name string, spec map[string]any) {
	s.Helper()
	obj := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	obj.SetGroupVersionKind(kind)
	obj.SetNamespace("shop")
	obj.SetName(name)
	if err := s.user.Create(context.Background(), obj); err != nil {
		s.Fatalf("create %s %s: %v", kind.Kind, name, err)
	}
}

// edit changes fields in the spec of an object named cart.
func (s *stage) edit(kind schema.GroupVersionKind, fields map[string]any) {
	s.Helper()
	obj := s.Server.Peek(kind.GroupKind(), named("cart")).Unstructured()
	spec, _ := obj.Object["spec"].(map[string]any)
	maps.Copy(spec, fields)
	if err := s.user.Update(context.Background(), obj); err != nil {
		s.Fatalf("update %s: %v", kind.Kind, err)
	}
}

func (s *stage) delete(kind schema.GroupVersionKind, how ...client.DeleteOption) {
	s.Helper()
	if err := s.user.Delete(context.Background(), s.Server.Peek(kind.GroupKind(), named("cart")).Unstructured(), how...); err != nil {
		s.Fatalf("delete %s: %v", kind.Kind, err)
	}
}

// deploy creates a Deployment of one version.
func (s *stage) deploy(name, version string, replicas int64, more map[string]any) {
	s.Helper()
	spec := map[string]any{
		"replicas": replicas, "selector": map[string]any{"matchLabels": map[string]any{"app": name}}, "template": template(name, version),
	}
	maps.Copy(spec, more)
	s.create(deployments, name, spec)
}

func template(name, version string) map[string]any {
	return map[string]any{
		"metadata": map[string]any{"labels": map[string]any{"app": name, "version": version}},
		"spec":     map[string]any{"containers": []any{map[string]any{"name": "app", "image": "app:" + version}}},
	}
}

// serve creates a Service for a Deployment.
func (s *stage) serve(name, app string) {
	s.Helper()
	s.create(serviceKind, name, map[string]any{
		"selector": map[string]any{"app": app}, "ports": []any{map[string]any{"name": "http", "port": int64(80)}},
	})
}

func (s *stage) status(name string) map[string]any {
	status, _, _ := unstructured.NestedMap(s.Server.Peek(deployments.GroupKind(), named(name)).Content(), "status")
	return status
}

// progress returns the reason of the condition Progressing of Deployment cart.
func (s *stage) progress() string {
	conditions, _ := s.status("cart")["conditions"].([]any)
	for _, item := range conditions {
		if condition, ok := item.(map[string]any); ok && condition["type"] == "Progressing" {
			reason, _ := condition["reason"].(string)
			return reason
		}
	}
	return ""
}

// published returns the number of ready endpoints of a Service.
func (s *stage) published(service string) int {
	n := 0
	for _, slice := range s.Server.All(endpointSlices.GroupKind()) {
		if slice.Meta().Labels["kubernetes.io/service-name"] != service {
			continue
		}
		endpoints, _, _ := unstructured.NestedSlice(slice.Content(), "endpoints")
		for _, item := range endpoints {
			endpoint, _ := item.(map[string]any)
			if ready, _, _ := unstructured.NestedBool(endpoint, "conditions", "ready"); ready {
				n++
			}
		}
	}
	return n
}
