//go:build linux

package e2e_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"

	"github.com/serin-dev/serin/playground/load"
)

var (
	canaries    = schema.GroupVersionResource{Group: "flagger.app", Version: "v1beta1", Resource: "canaries"}
	deployments = appsv1.SchemeGroupVersion.WithResource("deployments")
	events      = corev1.SchemeGroupVersion.WithResource("events")
	pods        = corev1.SchemeGroupVersion.WithResource("pods")
	services    = corev1.SchemeGroupVersion.WithResource("services")
	configMaps  = corev1.SchemeGroupVersion.WithResource("configmaps")
	secrets     = corev1.SchemeGroupVersion.WithResource("secrets")
	scalers     = schema.GroupVersionResource{Group: "autoscaling", Version: "v2", Resource: "horizontalpodautoscalers"}
	httpRoutes  = schema.GroupVersionResource{Group: "gateway.networking.k8s.io", Version: "v1", Resource: "httproutes"}
	leases      = schema.GroupVersionResource{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"}
	virtuals    = schema.GroupVersionResource{Group: "networking.istio.io", Version: "v1beta1", Resource: "virtualservices"}
)

// environment is a namespace with its own Serin, so that tests can run concurrently and kill their Serin.
type environment struct {
	t         *testing.T
	namespace string
	// env contains environment variables of its Serin, as NAME=value.
	env []string
	// canaries and events are the recorded histories of the namespace.
	canaries *history[canary]
	events   *history[corev1.Event]
}

// shortIntervalFlags returns flags with short intervals and delays. Later flags override them.
func shortIntervalFlags() []string {
	return []string{
		"controller", "-kubeconfig", controllerKubeconfig, "-metrics-server", shared.PrometheusURL, "-mesh-provider", "gatewayapi:v1",
		"-min-analysis-interval", "1s", "-drain-delay", "1s", "-log-level", "info", "-port", "0",
	}
}

// startEnvironment creates a namespace and starts a Serin that serves it. Both end with the test.
func startEnvironment(t *testing.T, namespace string, flags ...string) *environment {
	t.Helper()
	s := newEnvironment(t, namespace)
	s.startSerin(flags...)
	return s
}

// leaseRole is the permission for the Lease of a Serin that serves one namespace.
const leaseRole = `
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: serin-lease}
rules:
- {apiGroups: [coordination.k8s.io], resources: [leases], verbs: [get, create, update]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: serin-lease}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: serin-lease}
subjects: [{kind: ServiceAccount, name: serin, namespace: default}]
`

// newEnvironment creates a namespace without a Serin.
func newEnvironment(t *testing.T, namespace string) *environment {
	t.Helper()
	s := &environment{t: t, namespace: namespace}
	_, err := shared.Client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := shared.Client.CoreV1().Namespaces().Delete(context.Background(), namespace, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	s.apply(leaseRole)
	s.canaries = recordHistory[canary](t, canaries, namespace)
	s.events = recordHistory[corev1.Event](t, events, namespace)
	return s
}

// startSerin starts a Serin that serves the namespace.
func (s *environment) startSerin(flags ...string) {
	s.t.Helper()
	s.startProcess(serin, s.processName(), flags...)
}

// startProcess starts a copy of Serin that serves the namespace, under a name among the cluster's processes.
func (s *environment) startProcess(program, name string, flags ...string) {
	s.t.Helper()
	t := s.t
	argv := slices.Concat([]string{program}, shortIntervalFlags(), []string{"-namespace", s.namespace}, flags)
	if _, err := shared.StartProcess(name, argv, append([]string{"POD_NAMESPACE=" + s.namespace}, s.env...)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			s.logHistory()
		}
		if err := shared.Kill(name); err != nil {
			t.Error(err)
		}
	})
}

// processName returns the name of the environment's Serin among the cluster's processes.
func (s *environment) processName() string { return "serin-" + s.namespace }

// killAndRestart sends SIGKILL to Serin, checks that the Canary is still in the expected state, and starts Serin again.
func (s *environment) killAndRestart(name string, checkState func(canary) error) {
	s.t.Helper()
	if err := shared.Kill(s.processName()); err != nil {
		s.t.Fatal(err)
	}
	if c := convert[canary](s.t, s.get(canaries, name)); checkState(c) != nil {
		s.t.Errorf("the Canary had already changed when Serin was killed: %s", c)
	}
	if _, err := shared.Restart(s.processName()); err != nil {
		s.t.Fatal(err)
	}
}

// logHistory logs the states and events that were recorded, to diagnose a failed test.
func (s *environment) logHistory() {
	var text strings.Builder
	states, _ := s.canaries.statesFrom(0)
	for _, c := range states {
		fmt.Fprintf(&text, "%s %s deleted=%t %s\n", c.at.Format("15:04:05.000"), c.name, c.deleted, c.object)
	}
	if len(states) > 0 {
		fmt.Fprintln(&text, "gates:")
		for _, g := range states[len(states)-1].object.Status.Serin.Gates {
			fmt.Fprintf(&text, "  %+v\n", g)
		}
	}
	recordedEvents, _ := s.events.statesFrom(0)
	for _, e := range recordedEvents {
		if kind := e.object.InvolvedObject.Kind; kind == "Canary" || kind == "Rollout" {
			fmt.Fprintf(&text, "%s event %s %s: %s\n", e.at.Format("15:04:05.000"), e.object.InvolvedObject.Name, e.object.Type, e.object.Message)
		}
	}
	s.t.Logf("history of namespace %s:\n%s\nend of Serin's log:\n%s", s.namespace, text.String(), shared.Tail(s.processName(), 30))
}

// readExample returns a manifest of the folder testdata with some texts replaced, given as pairs of old and new text. A text
// that does not occur fails the test, because the test would not use the intended manifest.
func readExample(t *testing.T, name string, replace ...string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name+".yaml"))
	if err != nil {
		t.Fatal(err)
	}
	return replaceTexts(t, string(text), replace...)
}

func replaceTexts(t *testing.T, text string, replace ...string) string {
	t.Helper()
	for i := 0; i < len(replace); i += 2 {
		if !strings.Contains(text, replace[i]) {
			t.Fatalf("the manifest has no %q:\n%s", replace[i], text)
		}
		text = strings.ReplaceAll(text, replace[i], replace[i+1])
	}
	return text
}

// parseObjects parses manifests.
func parseObjects(t *testing.T, manifests string) []*unstructured.Unstructured {
	t.Helper()
	var objects []*unstructured.Unstructured
	decoder := yaml.NewYAMLOrJSONDecoder(strings.NewReader(manifests), 4096)
	for {
		object := &unstructured.Unstructured{}
		err := decoder.Decode(&object.Object)
		if errors.Is(err, io.EOF) {
			return objects
		}
		if err != nil {
			t.Fatalf("parse the manifest: %v\n%s", err, manifests)
		}
		if len(object.Object) > 0 {
			objects = append(objects, object)
		}
	}
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

// apply applies manifests as kubectl apply --server-side does, in the namespace of the environment.
func (s *environment) apply(manifests string) {
	s.t.Helper()
	for _, object := range parseObjects(s.t, manifests) {
		if object.GetNamespace() != "" {
			object.SetNamespace(s.namespace)
		}
		_, err := resourceClient(s.t, object.GroupVersionKind(), s.namespace).
			Apply(s.t.Context(), object.GetName(), object, metav1.ApplyOptions{FieldManager: "e2e", Force: true})
		if err != nil {
			s.t.Fatalf("apply %s %s: %v", object.GetKind(), object.GetName(), err)
		}
	}
}

// patch applies a merge patch to an object.
func (s *environment) patch(resource schema.GroupVersionResource, name, patch string) {
	s.t.Helper()
	_, err := shared.Dynamic.Resource(resource).Namespace(s.namespace).
		Patch(s.t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	if err != nil {
		s.t.Fatalf("patch %s %s: %v", resource.Resource, name, err)
	}
}

func (s *environment) delete(resource schema.GroupVersionResource, name string) {
	s.t.Helper()
	if err := shared.Dynamic.Resource(resource).Namespace(s.namespace).Delete(s.t.Context(), name, metav1.DeleteOptions{}); err != nil {
		s.t.Fatalf("delete %s %s: %v", resource.Resource, name, err)
	}
}

// deployVersion sets the version and the environment variables of the container of a Deployment. env contains names and values
// alternately.
func (s *environment) deployVersion(deployment, version string, env ...string) {
	s.t.Helper()
	variables := append([]any{map[string]any{"$patch": "replace"}}, container(version, env)["env"].([]any)...)
	s.strategicMergePatch(deployment, fmt.Sprintf(`{"spec":{"template":{"spec":{"containers":[{"name":"app","image":"serin.dev/demo:%s","env":%s}]}}}}`, version, toJSON(s.t, variables)))
}

// strategicMergePatch patches a Deployment with a strategic merge patch, which merges containers by name.
func (s *environment) strategicMergePatch(deployment, patch string) {
	s.t.Helper()
	_, err := shared.Client.AppsV1().Deployments(s.namespace).
		Patch(s.t.Context(), deployment, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{})
	if err != nil {
		s.t.Fatalf("patch Deployment %s: %v", deployment, err)
	}
}

// container returns a container of the demo application. env contains names and values alternately.
func container(version string, env []string) map[string]any {
	variables := []any{}
	for i := 0; i < len(env); i += 2 {
		variables = append(variables, map[string]any{"name": env[i], "value": env[i+1]})
	}
	return map[string]any{
		"name": "app", "image": "serin.dev/demo:" + version, "env": variables,
		"ports":          []any{map[string]any{"name": "http", "containerPort": int64(8080), "protocol": "TCP"}},
		"readinessProbe": map[string]any{"httpGet": map[string]any{"path": "/readyz", "port": "http"}, "periodSeconds": int64(1)},
	}
}

// deployment returns a Deployment of the first version of the demo application, whose metrics are scraped.
func deployment(t *testing.T, name string, replicas int, env ...string) string {
	t.Helper()
	return toJSON(t, map[string]any{
		"apiVersion": "apps/v1", "kind": "Deployment", "metadata": map[string]any{"name": name},
		"spec": map[string]any{
			"replicas": replicas, "selector": map[string]any{"matchLabels": map[string]any{"app": name}},
			"template": map[string]any{
				"metadata": map[string]any{"labels": map[string]any{"app": name}, "annotations": map[string]any{"prometheus.io/scrape": "true"}},
				"spec":     map[string]any{"containers": []any{container("v1", env)}},
			},
		},
	}) + "\n---\n"
}

func toJSON(t *testing.T, value any) string {
	t.Helper()
	text, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return string(bytes.TrimSpace(text))
}

// get returns an object that must exist.
func (s *environment) get(resource schema.GroupVersionResource, name string) *unstructured.Unstructured {
	s.t.Helper()
	object, err := shared.Dynamic.Resource(resource).Namespace(s.namespace).Get(s.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	return object
}

// convert converts an unstructured object to a typed one.
func convert[T any](t *testing.T, object *unstructured.Unstructured) T {
	t.Helper()
	var typed T
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &typed); err != nil {
		t.Fatal(err)
	}
	return typed
}

// startLoad starts a steady load on a host name through the gateway as soon as the gateway serves that name.
func (s *environment) startLoad(host string, rate float64, change ...func(*load.Options)) *load.Load {
	s.t.Helper()
	return s.startLoadAt(shared.GatewayURL, host, rate, change...)
}

// startLoadAt is startLoad through another gateway.
func (s *environment) startLoadAt(address, host string, rate float64, change ...func(*load.Options)) *load.Load {
	s.t.Helper()
	return s.loadAfterFirstAnswer(load.Options{URL: address, Host: host, Rate: rate}, change...)
}

// waitForAnswers waits until each of the versions has answered a request: a gateway may learn the endpoints of one Service of a
// route later than those of the other, and returns 503 for its share until then.
func (s *environment) waitForAnswers(host string, versions ...string) {
	s.t.Helper()
	first := s.load(load.Options{URL: shared.GatewayURL, Host: host, Rate: 10})
	for _, version := range versions {
		waitForRequests(s.t, first, 1, version)
	}
	first.Stop()
}

// startServiceLoad starts a steady load on a Service, as from another pod of the cluster, once it answers: its rules are in place
// some time after its pods are available.
func (s *environment) startServiceLoad(service string, port int, rate float64) *load.Load {
	s.t.Helper()
	return s.loadAfterFirstAnswer(load.Options{URL: s.serviceURL(service, port), Rate: rate})
}

func (s *environment) serviceURL(service string, port int) string {
	return fmt.Sprintf("http://%s.%s:%d", service, s.namespace, port)
}

func (s *environment) loadAfterFirstAnswer(options load.Options, changes ...func(*load.Options)) *load.Load {
	s.t.Helper()
	first := s.load(load.Options{URL: options.URL, Host: options.Host, HTTP2: options.HTTP2, Rate: 10})
	waitForRequests(s.t, first, 1)
	first.Stop()
	return s.load(options, changes...)
}

func (s *environment) load(options load.Options, changes ...func(*load.Options)) *load.Load {
	s.t.Helper()
	for _, change := range changes {
		change(&options)
	}
	l, err := load.Start(s.t.Context(), options)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(l.Stop)
	return l
}

// waitForRequests waits until one of the versions (any version, if none is named) has answered n more requests, and returns
// the counts since the call.
func waitForRequests(t *testing.T, l *load.Load, n int, versions ...string) load.Counts {
	t.Helper()
	before := l.Counts()
	ctx, cancel := context.WithTimeout(t.Context(), waitTimeout)
	defer cancel()
	err := l.WaitFor(ctx, func(c load.Counts) bool {
		since := c.Since(before)
		answered := since.Requests - since.Lost
		if len(versions) > 0 {
			answered = 0
			for _, version := range versions {
				answered += since.ByVersion[version].Requests
			}
		}
		return answered >= n
	})
	if err != nil {
		t.Fatal(err)
	}
	return l.Counts().Since(before)
}
