//go:build linux

package cluster_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/serin-dev/serin/internal/waittest"
	"github.com/serin-dev/serin/playground/cluster"
	"github.com/serin-dev/serin/playground/load"
)

var shared *cluster.Cluster

func TestMain(m *testing.M) {
	os.Exit(run(m))
}

func run(m *testing.M) int {
	options := cluster.Options{Gateway: true, Prometheus: true, Audit: []string{"system:serviceaccount:default:recorded"}}
	err := cluster.Enter(&options, func(text string) { fmt.Fprintln(os.Stderr, text) }, nil)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	options.Log = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	if options.Folder, err = os.MkdirTemp("", "playground-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(options.Folder)
	if shared, err = cluster.Start(context.Background(), options); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	code := m.Run()
	if err := shared.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

// deployment returns the manifests of a Deployment of the demo application with a readiness probe, and of its Service.
func deployment(name, version string, replicas int) string {
	return fmt.Sprintf(`
apiVersion: apps/v1
kind: Deployment
metadata: {name: %[1]s, namespace: default}
spec:
  replicas: %[3]d
  selector: {matchLabels: {app: %[1]s}}
  template:
    metadata: {labels: {app: %[1]s}, annotations: {prometheus.io/scrape: "true"}}
    spec:
      containers:
      - name: app
        image: serin.dev/demo:%[2]s
        ports: [{name: http, containerPort: 8080}]
        readinessProbe: {httpGet: {path: /readyz, port: http}, periodSeconds: 1}
---
apiVersion: v1
kind: Service
metadata: {name: %[1]s, namespace: default}
spec: {selector: {app: %[1]s}, ports: [{port: 80, targetPort: http}]}
---
`, name, version, replicas)
}

func httpRoute(host, backends string) string {
	return fmt.Sprintf(`
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: %[1]s, namespace: default}
spec:
  parentRefs: [{name: gateway, namespace: playground}]
  hostnames: [%[1]s.test]
  rules: [{backendRefs: [%[2]s]}]
`, host, backends)
}

func apply(t *testing.T, manifests string) {
	t.Helper()
	if err := shared.Apply(t.Context(), manifests); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := shared.Kubectl(context.Background(), manifests, "delete", "--wait=false", "-f", "-"); err != nil {
			t.Error(err)
		}
	})
}

// waitUntil waits until check returns nil; the timeout is long enough for a busy machine.
func waitUntil(t *testing.T, check func(context.Context) error) {
	t.Helper()
	waittest.Until(t, "the check of the cluster succeeds", func() error { return check(t.Context()) })
}

func deploymentAvailable(name string, replicas int32) func(context.Context) error {
	return func(ctx context.Context) error {
		d, err := shared.Client.AppsV1().Deployments("default").Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if d.Status.ObservedGeneration < d.Generation || d.Status.UpdatedReplicas != replicas || d.Status.Replicas != replicas || d.Status.AvailableReplicas != replicas {
			return fmt.Errorf("deployment %s: %+v", name, d.Status)
		}
		return nil
	}
}

func startLoad(t *testing.T, host string, rate float64) *load.Load {
	t.Helper()
	l, err := load.Start(t.Context(), load.Options{URL: shared.GatewayURL, Host: host + ".test", Rate: rate})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Stop)
	return l
}

func versionsAnswered(l *load.Load, versions ...string) func(context.Context) error {
	before := l.Counts()
	return func(context.Context) error {
		counts := l.Counts().Since(before)
		for _, version := range versions {
			if counts.ByVersion[version].Requests == 0 {
				return fmt.Errorf("no request reached %s: %s", version, counts)
			}
		}
		return nil
	}
}

func TestGatewaySplitsRequestsByWeight(t *testing.T) {
	apply(t, deployment("split-one", "one", 2)+deployment("split-two", "two", 2)+
		httpRoute("split", "{name: split-one, port: 80, weight: 80}, {name: split-two, port: 80, weight: 20}"))
	waitUntil(t, deploymentAvailable("split-one", 2))
	waitUntil(t, deploymentAvailable("split-two", 2))
	warm := startLoad(t, "split", 20)
	waitUntil(t, versionsAnswered(warm, "one", "two"))
	warm.Stop()

	const requests = 1000
	l := startLoad(t, "split", 200)
	if err := l.WaitFor(t.Context(), func(c load.Counts) bool { return c.Requests >= requests }); err != nil {
		t.Fatal(err)
	}
	l.Stop()
	counts := l.Counts()
	low, high := load.BinomialBounds(counts.Requests, 0.2, 1e-9)
	if two := counts.ByVersion["two"].Requests; two < low || two > high {
		t.Errorf("version two got %d of %d requests, want between %d and %d", two, counts.Requests, low, high)
	}
	if counts.Failed() != 0 {
		t.Errorf("requests failed: %s", counts)
	}
}

func TestRollingUpdateLosesNoRequest(t *testing.T) {
	apply(t, deployment("rolling", "old", 2)+httpRoute("rolling", "{name: rolling, port: 80}"))
	waitUntil(t, deploymentAvailable("rolling", 2))
	warm := startLoad(t, "rolling", 20)
	waitUntil(t, versionsAnswered(warm, "old"))
	warm.Stop()

	l := startLoad(t, "rolling", 100)
	waitUntil(t, versionsAnswered(l, "old"))
	patch := []byte(`{"spec":{"template":{"spec":{"containers":[{"name":"app","image":"serin.dev/demo:new"}]}}}}`)
	if _, err := shared.Client.AppsV1().Deployments("default").Patch(t.Context(), "rolling", types.StrategicMergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	waitUntil(t, deploymentAvailable("rolling", 2))
	// Wait until the last old pod is deleted: its termination is when requests may be lost.
	waitUntil(t, func(ctx context.Context) error {
		pods, err := shared.Client.CoreV1().Pods("default").List(ctx, metav1.ListOptions{LabelSelector: "app=rolling"})
		if err != nil || len(pods.Items) == 2 {
			return err
		}
		return fmt.Errorf("%d pods", len(pods.Items))
	})
	waitUntil(t, versionsAnswered(l, "new"))
	l.Stop()
	counts := l.Counts()
	if counts.Failed() != 0 {
		t.Errorf("requests failed: %s", counts)
	}
	if counts.ByVersion["old"].Requests == 0 || counts.ByVersion["new"].Requests == 0 {
		t.Errorf("not both versions served requests: %s", counts)
	}
}

func TestServiceNamesResolveToAllPods(t *testing.T) {
	apply(t, deployment("named", "one", 2))
	waitUntil(t, deploymentAvailable("named", 2))
	for _, name := range []string{"named.default.svc.cluster.local", "named.default"} {
		l, err := load.Start(t.Context(), load.Options{URL: "http://" + name, Rate: 50})
		if err != nil {
			t.Fatal(err)
		}
		pods := map[string]bool{}
		waitUntil(t, func(context.Context) error {
			for _, s := range l.Samples() {
				pods[s.Pod] = true
			}
			delete(pods, "")
			if len(pods) == 2 {
				return nil
			}
			return fmt.Errorf("answers from %v: %s", pods, l.Counts())
		})
		l.Stop()
	}
}

func TestImageThatDoesNotExistNeverStarts(t *testing.T) {
	apply(t, strings.ReplaceAll(deployment("missing", "one", 1), "serin.dev/demo:one", "registry.example.com:5000/missing:1"))
	waitUntil(t, func(ctx context.Context) error {
		pods, err := shared.Client.CoreV1().Pods("default").List(ctx, metav1.ListOptions{LabelSelector: "app=missing"})
		if err != nil {
			return err
		}
		for _, pod := range pods.Items {
			for _, s := range pod.Status.ContainerStatuses {
				if s.State.Waiting != nil && s.State.Waiting.Reason == "ImagePullBackOff" {
					return nil
				}
			}
		}
		return fmt.Errorf("pods are %+v", pods.Items)
	})
}

func TestPrometheusScrapesPodsWithTheirLabels(t *testing.T) {
	apply(t, deployment("scraped", "one", 1)+httpRoute("scraped", "{name: scraped, port: 80}"))
	waitUntil(t, deploymentAvailable("scraped", 1))
	startLoad(t, "scraped", 20)
	waitUntil(t, func(ctx context.Context) error {
		value, err := queryPrometheus(ctx, `sum(rate(http_request_duration_seconds_count{kubernetes_namespace="default",kubernetes_pod_name=~"scraped-.*",app="scraped",status="200"}[5s]))`)
		if err == nil && value <= 1 {
			err = fmt.Errorf("%v requests a second", value)
		}
		return err
	})
}

func TestRequestsToTheAPIServerAreCounted(t *testing.T) {
	proxy, kubeconfig, err := shared.StartCountingProxy(t.Context(), "counted")
	if err != nil {
		t.Fatal(err)
	}
	defer proxy.Close()
	p, err := shared.StartProcess("counted", []string{shared.ControlPlane(), "kubectl", "--kubeconfig", kubeconfig, "get", "deployments", "-A"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	<-p.Done()
	if p.Err() != nil {
		t.Fatal(shared.Ended(p))
	}
	for kind, n := range proxy.Counts() {
		if kind.Verb == "list" && kind.Group == appsv1.GroupName && kind.Resource == "deployments" {
			if n != 1 {
				t.Errorf("counted %d lists of deployments, want 1", n)
			}
			return
		}
	}
	t.Errorf("no list of deployments among %v", proxy.Counts())
}

func TestRequestsOfAuditedUsersAreRecorded(t *testing.T) {
	apply(t, `
apiVersion: v1
kind: ServiceAccount
metadata: {name: recorded, namespace: default}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: recorded, namespace: default}
rules: [{apiGroups: [apps], resources: [deployments/scale], verbs: [get]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: recorded, namespace: default}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: recorded}
subjects: [{kind: ServiceAccount, name: recorded, namespace: default}]
`)
	token, err := shared.Client.CoreV1().ServiceAccounts("default").CreateToken(t.Context(), "recorded", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	config := rest.AnonymousClientConfig(shared.Config)
	config.BearerToken = token.Status.Token
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	waitUntil(t, func(ctx context.Context) error {
		if _, err := client.AppsV1().Deployments("default").GetScale(ctx, "missing", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return fmt.Errorf("want NotFound, got %w", err)
		}
		return nil
	})
	if _, err := client.CoreV1().Secrets("kube-system").List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Fatalf("want Forbidden for Secrets, got %v", err)
	}
	if _, err := shared.Client.CoreV1().Secrets("kube-system").List(t.Context(), metav1.ListOptions{}); err != nil { // a request of another user
		t.Fatal(err)
	}
	const user = "system:serviceaccount:default:recorded"
	want := []cluster.Request{
		{User: user, Verb: "get", Group: "apps", Resource: "deployments/scale", Namespace: "default", Name: "missing", Path: "/apis/apps/v1/namespaces/default/deployments/missing/scale"},
		{User: user, Verb: "list", Resource: "secrets", Namespace: "kube-system", Path: "/api/v1/namespaces/kube-system/secrets", Forbidden: true},
	}
	waitUntil(t, func(context.Context) error { // the response may arrive before the audit log is written
		got, err := shared.Requests()
		if err != nil {
			return err
		}
		// Until the authorizer has observed the Role, the first requests are forbidden.
		got = slices.DeleteFunc(got, func(r cluster.Request) bool { return r.Verb == "get" && r.Forbidden })
		if diff := cmp.Diff(want, got); diff != "" {
			return fmt.Errorf("recorded requests (-want +got):\n%s", diff)
		}
		return nil
	})
}
