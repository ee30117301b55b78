//go:build linux

package e2e_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// demoResources are the resources that may remain of a demo.
var demoResources = []schema.GroupVersionResource{
	canaries, rollouts, deployments, services, pods,
	{Group: "apps", Version: "v1", Resource: "replicasets"},
	{Group: "argoproj.io", Version: "v1alpha1", Resource: "analysistemplates"},
	{Group: "argoproj.io", Version: "v1alpha1", Resource: "analysisruns"},
}

// demoLeaseRole is the permission for the Lease in a namespace that does not exist yet.
const demoLeaseRole = `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: serin-demo-lease}
rules:
- {apiGroups: [coordination.k8s.io], resources: [leases], resourceNames: [serin], verbs: [get, update]}
- {apiGroups: [coordination.k8s.io], resources: [leases], verbs: [create]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: serin-demo-lease}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: serin-demo-lease}
subjects: [{kind: ServiceAccount, name: serin, namespace: default}]
`

// TestDemoPromotesAVersionRollsOneBackAndIsDeleted runs serin demo with Canaries in a namespace that it creates, and with Rollouts
// and with a gateway in an empty namespace.
func TestDemoPromotesAVersionRollsOneBackAndIsDeleted(t *testing.T) {
	t.Parallel()
	for name, flags := range map[string][]string{
		"canary": {"--kind", "canary"}, "rollout": {"--kind", "rollout"},
		"gateway": {"--provider", "gatewayapi", "--gateway", "playground/gateway"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			namespace := "demo-" + name
			if name == "canary" { // a Serin that already serves the namespace before it exists
				s := &environment{t: t, namespace: namespace}
				s.canaries, s.events = recordHistory[canary](t, canaries, namespace), recordHistory[corev1.Event](t, events, namespace)
				t.Cleanup(func() {
					err := shared.Client.CoreV1().Namespaces().Delete(context.Background(), namespace, metav1.DeleteOptions{})
					if err != nil && !apierrors.IsNotFound(err) {
						t.Error(err)
					}
				})
				if err := shared.Apply(t.Context(), demoLeaseRole); err != nil {
					t.Fatal(err)
				}
				s.startSerin()
			} else {
				startEnvironment(t, namespace)
			}
			testDemo(commandRunner{t, shared.Kubeconfig}, namespace, flags)
		})
	}
}

func testDemo(sh commandRunner, namespace string, flags []string) {
	t := sh.t
	t.Helper()
	of := func(more ...string) []string {
		return slices.Concat([]string{"demo", "--namespace", namespace, "--controller-flags=-namespace=" + namespace}, more)
	}
	startedAt := time.Now()
	running := sh.start(of(append(flags, "--image", loadtesterImage+":e2e")...)...)
	running.waitForOutput("Releasing v2\n") // on a terminal, the view starts here
	logMeasured(t, "the first frame of serin demo", startedAt)
	promoted := running.wait()
	if promoted.code != codeDone {
		t.Errorf("want code %d: %s", codeDone, promoted)
	}
	sh.checkOutput(promoted, "created Deployment demo-load", "Releasing v2\n", "Delete it with: serin demo --namespace "+namespace+" --delete")
	t.Logf("output for the user:\n%s", promoted.stdout)

	// The second run finds the demo, and its kind.
	broken := sh.run(codeDone, of("--break")...)
	sh.checkOutput(broken, "Releasing v3, which fails half of its requests", "The broken version was rolled back, as expected.")
	t.Logf("output for the user:\n%s", broken.stdout)
	if strings.Contains(broken.stdout, "created") {
		t.Errorf("the demo was created again: %s", broken)
	}
	// Requests of users reach no broken version of a Canary without a gateway, which is tested before.
	if counts := demoUserCounts(t, namespace); namespace == "demo-canary" && !strings.HasPrefix(counts, "0 of ") {
		t.Errorf("of a Canary that is tested before users reach it, %s: %s", counts, demoLoadLog(t, namespace))
	}

	deleted := sh.run(codeDone, of("--delete")...)
	t.Logf("output for the user:\n%s", deleted.stdout)
	sh.checkOutput(deleted, "deleted Service demo-load", "The demo is deleted.")
	for _, resource := range demoResources {
		list, err := shared.Dynamic.Resource(resource).Namespace(namespace).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, object := range list.Items {
			t.Errorf("%s %s remains", object.GetKind(), object.GetName())
		}
	}
	_, err := shared.Client.CoreV1().Namespaces().Get(t.Context(), namespace, metav1.GetOptions{})
	if existed := namespace != "demo-canary"; existed && err != nil || !existed && !apierrors.IsNotFound(err) {
		t.Errorf("the namespace that existed before (%t) is %v", existed, err)
	}
	if p := sh.run(codeNotFound, of("--delete")...); !strings.Contains(p.stderr, "there is no demo in namespace "+namespace) {
		t.Errorf("a deleted demo is not reported: %s", p)
	}
}

// logMeasured logs a duration that docs/benchmarks.md names; make bench-live prints it.
func logMeasured(t *testing.T, subject string, startedAt time.Time) {
	t.Helper()
	t.Logf("measured: %s after %d ms", subject, time.Since(startedAt).Milliseconds())
}

// demoLoadLog returns the log of the load, which contains each failed request.
func demoLoadLog(t *testing.T, namespace string) string {
	t.Helper()
	pods, err := shared.Client.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{LabelSelector: "app=demo-load"})
	if err != nil || len(pods.Items) != 1 {
		t.Fatalf("the load has %d pods, %v", len(pods.Items), err)
	}
	text, err := shared.Client.CoreV1().Pods(namespace).GetLogs(pods.Items[0].Name, &corev1.PodLogOptions{}).DoRaw(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// demoUserCounts returns the counts of the requests of users, after at least one.
func demoUserCounts(t *testing.T, namespace string) string {
	t.Helper()
	text, err := shared.Client.CoreV1().Services(namespace).ProxyGet("http", "demo-load", "80", "users", nil).DoRaw(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	counts := strings.TrimSpace(string(text))
	if strings.HasPrefix(counts, "0 of 0 ") {
		t.Error("the load has sent no request")
	}
	return counts
}
