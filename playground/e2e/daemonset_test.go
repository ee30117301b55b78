//go:build linux

package e2e_test

import (
	"fmt"
	"maps"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/serin-dev/serin/playground/load"
)

var daemonSets = appsv1.SchemeGroupVersion.WithResource("daemonsets")

// daemonSet returns a DaemonSet of the first version of the demo application, whose metrics are scraped.
func daemonSet(t *testing.T, name string, env ...string) string {
	t.Helper()
	return toJSON(t, map[string]any{
		"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": map[string]any{"name": name},
		"spec": map[string]any{
			"selector": map[string]any{"matchLabels": map[string]any{"app": name}},
			"template": map[string]any{
				"metadata": map[string]any{"labels": map[string]any{"app": name}, "annotations": map[string]any{"prometheus.io/scrape": "true"}},
				"spec":     map[string]any{"containers": []any{container("v1", env)}},
			},
		},
	}) + "\n---\n"
}

// nodes returns the nodes on which pods with these labels run.
func (s *environment) nodes(selector string) map[string]bool {
	s.t.Helper()
	list, err := shared.Client.CoreV1().Pods(s.namespace).List(s.t.Context(), metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		s.t.Fatal(err)
	}
	on := map[string]bool{}
	for _, pod := range list.Items {
		on[pod.Spec.NodeName] = true
	}
	return on
}

func TestDaemonSetIsReleasedByTheMetricsOfItsOwnPods(t *testing.T) {
	t.Parallel()
	s := startEnvironment(t, "daemonset")
	s.apply(daemonSet(t, "agent", "ERROR_PERCENT", "50"))
	s.waitForObject("DaemonSet agent runs", daemonSets, "agent", func(object *unstructured.Unstructured) error {
		if object == nil {
			return fmt.Errorf("it does not exist")
		}
		if is := convert[appsv1.DaemonSet](t, object).Status; is.NumberAvailable == 0 || is.NumberAvailable < is.DesiredNumberScheduled {
			return fmt.Errorf("status %+v", is)
		}
		return nil
	})
	before := s.nodes("app=agent")

	r := s.follow("agent")
	s.apply(readExample(t, "canary-daemonset", "interval: 30s", "interval: 2s", "{port: 9100}", "{port: 9100, targetPort: http}", "iterations: 3}",
		"iterations: 3, metrics: [{name: request-success-rate, interval: 5s, thresholdRange: {min: 80}}]}"))
	r.waitForPhase("Initialized")
	s.waitForPodsDeleted("app=agent")
	if diff := cmp.Diff(before, s.nodes("app=agent-primary")); diff != "" {
		t.Errorf("nodes of agent (-) and of agent-primary (+):\n%s", diff)
	}

	// The primary answers with many errors and receives ten times as many requests as the canary: a query that included its
	// requests would fail the new version.
	users := s.startServiceLoad("agent", 9100, 40)
	waitForRequests(t, users, 1, "v1")
	tries := s.load(load.Options{URL: s.serviceURL("agent-canary", 9100), Rate: 4}) // it has no pods yet
	r = s.follow("agent")
	s.deployDaemonSetVersion("agent", "v2")
	r.waitForEnd("Succeeded")
	s.waitForPodsDeleted("app=agent")
	waitForRequests(t, users, 1, "v2")

	// Conversely, a query that included the requests of the primary would not fail the bad version.
	r = s.follow("agent")
	s.deployDaemonSetVersion("agent", "v3", "ERROR_PERCENT", "50")
	end := r.waitForEnd("Failed")
	s.waitForPodsDeleted("app=agent")
	r.waitForEvent("Rolling back agent.daemonset failed checks threshold reached 2")
	if end.Status.LastAppliedSpec == end.Status.LastPromotedSpec {
		t.Errorf("the bad version is recorded as promoted: %s", end)
	}
	tries.Stop()
	since := users.Counts()
	waitForRequests(t, users, 50)
	users.Stop()
	if last := users.Counts().Since(since); len(last.ByVersion) != 1 || last.ByVersion["v2"].Requests == 0 {
		t.Errorf("after the rollback the versions are %s", last)
	}
	if diff := cmp.Diff(before, s.nodes("app=agent-primary")); diff != "" {
		t.Errorf("nodes of agent (-) and of agent-primary (+):\n%s", diff)
	}
	selector, _, _ := unstructured.NestedStringMap(s.get(daemonSets, "agent").Object, "spec", "template", "spec", "nodeSelector")
	if !maps.Equal(selector, map[string]string{"flagger.app/scale-to-zero": "true"}) {
		t.Errorf("the node selector of the idle target is %v", selector)
	}
}

// deployDaemonSetVersion is deployVersion for a DaemonSet.
func (s *environment) deployDaemonSetVersion(name, version string, env ...string) {
	s.t.Helper()
	variables := append([]any{map[string]any{"$patch": "replace"}}, container(version, env)["env"].([]any)...)
	patch := fmt.Sprintf(`{"spec":{"template":{"spec":{"containers":[{"name":"app","image":"serin.dev/demo:%s","env":%s}]}}}}`, version, toJSON(s.t, variables))
	_, err := shared.Client.AppsV1().DaemonSets(s.namespace).
		Patch(s.t.Context(), name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{})
	if err != nil {
		s.t.Fatalf("patch DaemonSet %s: %v", name, err)
	}
}
