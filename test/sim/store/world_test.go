package store_test

import (
	"context"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/test/sim/store"
)

const namespace = "shop"

var (
	canaryKind         = schema.GroupVersionKind{Group: "flagger.app", Version: "v1beta1", Kind: "Canary"}
	deploymentKind     = schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"}
	serviceKind        = schema.GroupVersionKind{Version: "v1", Kind: "Service"}
	configMapKind      = schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}
	podKind            = schema.GroupVersionKind{Version: "v1", Kind: "Pod"}
	httpRouteKind      = schema.GroupVersionKind{Group: "gateway.networking.k8s.io", Version: "v1", Kind: "HTTPRoute"}
	virtualServiceKind = schema.GroupVersionKind{Group: "networking.istio.io", Version: "v1", Kind: "VirtualService"}
)

// definitions are read once for all tests.
var definitions = sync.OnceValues(func() (*store.Definitions, error) {
	own, err := store.Serin()
	if err != nil {
		return nil, err
	}
	gateway, err := store.ModuleFile(context.Background(), "sigs.k8s.io/gateway-api", "config/crd/standard/gateway.networking.k8s.io_httproutes.yaml")
	if err != nil {
		return nil, err
	}
	istio, err := store.ModuleFile(context.Background(), "istio.io/api", "kubernetes/customresourcedefinitions.gen.yaml")
	if err != nil {
		return nil, err
	}
	others, err := store.Compile([][]byte{gateway, istio}, httpRouteKind.GroupKind(), virtualServiceKind.GroupKind())
	if err != nil {
		return nil, err
	}
	return own.And(others), nil
})

// world is a server, a clock, and a client.
type world struct {
	t           testing.TB
	server      *store.Server
	client      client.Client
	scheme      *runtime.Scheme
	definitions *store.Definitions
	now         time.Time
}

func newWorld(t testing.TB, change ...func(*store.Options)) *world {
	t.Helper()
	w := &world{t: t, scheme: runtime.NewScheme(), now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, appsv1.AddToScheme, flaggerv1.AddToScheme} {
		w.must(add(w.scheme))
	}
	var err error
	w.definitions, err = definitions()
	w.must(err)
	options := store.Options{Definitions: w.definitions, Scheme: w.scheme, Now: func() time.Time { return w.now }}
	for _, change := range change {
		change(&options)
	}
	w.server, err = store.New(options)
	w.must(err)
	w.client = w.server.Client("user")
	return w
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) create(manifest string) *unstructured.Unstructured {
	w.t.Helper()
	obj := parse(w.t, manifest)
	w.must(w.client.Create(w.t.Context(), obj))
	return obj
}

func (w *world) get(kind schema.GroupVersionKind, name string) *unstructured.Unstructured {
	w.t.Helper()
	obj := newObject(kind, name)
	w.must(w.client.Get(w.t.Context(), keyOf(name), obj))
	return obj
}

// patch applies a merge patch, written in YAML.
func (w *world) patch(kind schema.GroupVersionKind, name, patch string) error {
	w.t.Helper()
	text, err := yaml.YAMLToJSON([]byte(patch))
	w.must(err)
	return w.client.Patch(w.t.Context(), newObject(kind, name), client.RawPatch(types.MergePatchType, text))
}

func parse(t testing.TB, manifest string) *unstructured.Unstructured {
	t.Helper()
	obj := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(manifest), &obj.Object); err != nil {
		t.Fatal(err)
	}
	if obj.GetNamespace() == "" {
		obj.SetNamespace(namespace)
	}
	return obj
}

func newObject(kind schema.GroupVersionKind, name string) *unstructured.Unstructured {
	obj := &unstructured.Unstructured{}
	obj.SetGroupVersionKind(kind)
	obj.SetNamespace(namespace)
	obj.SetName(name)
	return obj
}

func keyOf(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: namespace, Name: name}
}

func deployment(name string) string {
	return `
apiVersion: apps/v1
kind: Deployment
metadata: {name: ` + name + `, labels: {app: ` + name + `}, annotations: {team: shop}}
spec:
  replicas: 2
  selector: {matchLabels: {app: ` + name + `}}
  template:
    metadata: {labels: {app: ` + name + `}, annotations: {prometheus.io/scrape: "true"}}
    spec:
      containers:
      - name: app
        image: serin.dev/demo:1.0.0
        command: [app, --port=8080, --level=info]
        ports: [{name: http, containerPort: 8080}, {name: metrics, containerPort: 9797}]
        env: [{name: MODE, value: fast}, {name: KEY, valueFrom: {secretKeyRef: {name: keys, key: main}}}]
        envFrom: [{configMapRef: {name: settings}}]
        readinessProbe: {httpGet: {path: /readyz, port: http}, periodSeconds: 1}
        livenessProbe: {exec: {command: [check]}, initialDelaySeconds: 5, timeoutSeconds: 5}
        resources: {requests: {cpu: 100m, memory: 64Mi}, limits: {memory: 512Mi, cpu: "2"}}
        volumeMounts: [{name: files, mountPath: /files}]
      volumes: [{name: files, configMap: {name: files}}]
`
}

func canary(name string) string {
	return `
apiVersion: flagger.app/v1beta1
kind: Canary
metadata: {name: ` + name + `}
spec:
  provider: istio
  targetRef: {apiVersion: apps/v1, kind: Deployment, name: ` + name + `}
  autoscalerRef: {apiVersion: autoscaling/v2, kind: HorizontalPodAutoscaler, name: ` + name + `}
  progressDeadlineSeconds: 60
  service: {port: 80, targetPort: http, portDiscovery: true, gateways: [public], hosts: [shop.test], retries: {attempts: 3, perTryTimeout: 1s}}
  analysis:
    interval: 10s
    threshold: 5
    maxWeight: 50
    stepWeight: 5
    metrics:
    - {name: request-success-rate, interval: 1m, thresholdRange: {min: 99}}
    - {name: latency, templateRef: {name: latency}, interval: 30s, thresholdRange: {max: 500}}
    webhooks:
    - {name: gate, type: confirm-rollout, url: "http://gate.test/", metadata: {kind: gate}}
    - {name: load, url: "http://load.test/", timeout: 5s, metadata: {cmd: "hey -z 1m"}}
`
}

func service(name string) string {
	return `
apiVersion: v1
kind: Service
metadata: {name: ` + name + `}
spec: {selector: {app: ` + name + `}, ports: [{name: http, port: 80, targetPort: http}]}
`
}

func httpRoute(name string) string {
	return `
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: ` + name + `}
spec:
  parentRefs: [{name: gateway, namespace: playground}]
  hostnames: [` + name + `.test]
  rules: [{backendRefs: [{name: ` + name + `-primary, port: 80, weight: 100}, {name: ` + name + `-canary, port: 80, weight: 0}]}]
`
}

func rules(weight int) []any {
	return []any{map[string]any{
		"matches": []any{map[string]any{"path": map[string]any{"type": "PathPrefix", "value": "/"}}},
		"backendRefs": []any{
			map[string]any{"group": "", "kind": "Service", "name": "podinfo-primary", "port": 80, "weight": 100 - weight},
			map[string]any{"group": "", "kind": "Service", "name": "podinfo-canary", "port": 80, "weight": weight},
		},
	}}
}

func canaryX() *flaggerv1.Canary {
	return &flaggerv1.Canary{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "x"}}
}

func toJSON(t testing.TB, text string) []byte {
	t.Helper()
	out, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func convert(content map[string]any, out any) error {
	return runtime.DefaultUnstructuredConverter.FromUnstructured(content, out)
}
