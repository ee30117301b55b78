package workload

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"pgregory.net/rapid"

	"github.com/serin-dev/serin/internal/jsontree"
	"github.com/serin-dev/serin/internal/workload/flaggerhash"
)

const (
	agentSet = `
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: agent}
spec:
  selector: {matchLabels: {app: agent}}
  template:
    metadata: {labels: {app: agent}}
    spec:
      containers: [{name: agent, image: "agent:1", envFrom: [{configMapRef: {name: env}}]}]`
	agentCanary = `{apiVersion: flagger.app/v1beta1, kind: Canary, metadata: {name: agent}, spec: {targetRef: {apiVersion: apps/v1, kind: DaemonSet, name: agent}, service: {port: 80}, analysis: {interval: 10s}}}`
)

// newDaemonSetCluster returns a cluster with a DaemonSet, a Canary for it, and a ConfigMap.
func newDaemonSetCluster(t *testing.T) *fakeCluster {
	t.Helper()
	w := newFakeCluster(t)
	w.workload = newTemplateWorkload(w.workload.Workloads, daemonSets{})
	w.applyYAML(`{apiVersion: v1, kind: ConfigMap, metadata: {name: env}, data: {A: "1"}}`)
	w.applyYAML(agentSet)
	w.applyYAML(agentCanary)
	return w
}

func (w *fakeCluster) observedAgent() Observation {
	w.t.Helper()
	o, err := w.workload.ForCanary(w.canary("agent")).Observe(w.t.Context(), w.canary("agent"))
	must(w.t, err)
	return o
}

// setReadyNodes sets the status of a DaemonSet with ready pods on the given number of nodes.
func (w *fakeCluster) setReadyNodes(name string, nodes int) {
	w.t.Helper()
	obj := w.object(daemonSetKind, name)
	for _, field := range []string{"desiredNumberScheduled", "currentNumberScheduled", "updatedNumberScheduled", "numberReady", "numberAvailable"} {
		mustSet(obj.Object, int64(nodes), "status", field)
	}
	mustSet(obj.Object, obj.GetGeneration(), "status", "observedGeneration")
	must(w.t, w.client.Status().Update(w.t.Context(), obj))
}

func (w *fakeCluster) nodeSelector(name string) map[string]string {
	w.t.Helper()
	selector, _, err := unstructured.NestedStringMap(w.object(daemonSetKind, name).Object, "spec", "template", "spec", "nodeSelector")
	must(w.t, err)
	return selector
}

func TestADaemonSetIsParkedAndUnparked(t *testing.T) {
	w := newDaemonSetCluster(t)
	c := w.canary("agent")
	w.patchYAML(daemonSetKind, "agent", `{spec: {template: {spec: {nodeSelector: {disk: ssd}}}}}`)
	w.setReadyNodes("agent", 3)
	before := w.observedAgent()
	if before.Target.Replicas != 3 || !before.Target.Readiness.Ready || before.Target.Readiness.RequiredAvailable != 3 {
		t.Fatalf("got %+v", before.Target)
	}
	must(t, w.workload.DownToZero(t.Context(), c))
	if diff := cmp.Diff(map[string]string{"disk": "ssd", parkingNodeSelector: "true"}, w.nodeSelector("agent")); diff != "" {
		t.Error(diff)
	}
	parked := w.observedAgent()
	if parked.Target.Replicas != 0 || parked.Target.Readiness.Ready {
		t.Errorf("before the DaemonSet controller has updated the status: %+v", parked.Target)
	}
	if parked.Target.Revision != before.Target.Revision || parked.Target.FlaggerHash != before.Target.FlaggerHash {
		t.Error("parking counts as a new revision")
	}
	requests := len(w.versions["DaemonSet/agent"])
	must(t, w.workload.DownToZero(t.Context(), c))
	if w.recordVersions(); len(withoutRepeats(w.versions["DaemonSet/agent"])) > requests {
		t.Error("parked again")
	}
	for name, up := range map[string]func() error{
		"from zero":      func() error { return w.workload.UpFromZero(t.Context(), c) },
		"like a primary": func() error { return w.workload.UpToPrimary(t.Context(), c) },
	} {
		must(t, w.workload.DownToZero(t.Context(), c))
		must(t, up())
		if diff := cmp.Diff(map[string]string{"disk": "ssd"}, w.nodeSelector("agent")); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// Unparking a DaemonSet without a node selector removes the selector. Before its nodes are counted, its desired number is one.
func TestDaemonSetWithoutSelector(t *testing.T) {
	w := newDaemonSetCluster(t)
	c := w.canary("agent")
	must(t, w.workload.DownToZero(t.Context(), c))
	must(t, w.workload.UpFromZero(t.Context(), c))
	if _, found, _ := unstructured.NestedFieldNoCopy(w.object(daemonSetKind, "agent").Object, "spec", "template", "spec", "nodeSelector"); found {
		t.Error("a selector remains")
	}
	if got := w.observedAgent().Target; got.Replicas != 1 || got.Readiness.Ready {
		t.Errorf("got %+v", got)
	}
}

func TestDaemonSetIsReleased(t *testing.T) {
	w := newDaemonSetCluster(t)
	c, ctx := w.canary("agent"), t.Context()
	must(t, w.workload.EnsurePrimary(ctx, c, "", "id-1", true))
	w.setReadyNodes("agent-primary", 3)
	if seen := w.observedAgent(); !seen.PrimaryUpToDate || !seen.Primary.Readiness.Ready || seen.Primary.PromotionID != "id-1" {
		t.Fatalf("got %+v", seen)
	}
	must(t, w.workload.DownToZero(ctx, c))
	if seen := w.observedAgent(); !seen.PrimaryUpToDate {
		t.Error("parked, the target differs from its primary")
	}
	past := newObject(controllerRevisionKind, namespace, "agent-primary-1")
	past.SetLabels(map[string]string{"app": "agent-primary", "controller-revision-hash": "1"})
	past.SetOwnerReferences([]metav1.OwnerReference{*metav1.NewControllerRef(w.object(daemonSetKind, "agent-primary"), daemonSetKind)})
	before := podTemplate(w.object(daemonSetKind, "agent-primary"))
	remembered := runtime.DeepCopyJSON(before)
	remembered["$patch"] = "replace"
	past.Object["data"] = map[string]any{"spec": map[string]any{"template": remembered}}
	past.Object["revision"] = int64(1)
	must(t, w.client.Create(ctx, past))

	w.patchYAML(daemonSetKind, "agent", `{spec: {template: {spec: {containers: [{name: agent, image: "agent:2"}]}}}}`)
	revision := w.observedAgent().Target.Revision
	must(t, w.workload.CopyTemplate(ctx, c, revision, "id-2"))
	if got := w.nodeSelector("agent-primary"); len(got) != 0 {
		t.Errorf("the primary is parked: %v", got)
	}
	if seen := w.observedAgent(); !seen.PrimaryUpToDate || seen.Primary.PromotionID != "id-2" {
		t.Errorf("got %+v", seen)
	}
	must(t, w.workload.RestoreTemplate(ctx, c, "id-3"))
	mustSet(before, "id-3", "metadata", "annotations", promotionIDAnnotation)
	if diff := cmp.Diff(before, podTemplate(w.object(daemonSetKind, "agent-primary"))); diff != "" {
		t.Error(diff)
	}
	must(t, w.client.Delete(ctx, w.object(daemonSetKind, "agent-primary")))
	must(t, w.workload.RecreatePrimary(ctx, c, TemplateSource{}, "", "id-4"))
	mustSet(before, "id-4", "metadata", "annotations", promotionIDAnnotation)
	if diff := cmp.Diff(before, podTemplate(w.object(daemonSetKind, "agent-primary"))); diff != "" {
		t.Error(diff)
	}
}

// Parking and unparking add entries to the history, but no new templates.
func TestNewestTemplateOfADaemonSet(t *testing.T) {
	w := newDaemonSetCluster(t)
	target := w.object(daemonSetKind, "agent")
	template := podTemplate(target)
	for name, entry := range map[string]struct {
		created  string
		template map[string]any
	}{
		"agent-1": {"2026-01-01T00:00:00Z", template},
		"agent-2": {"2026-01-02T00:00:00Z", withParkingSelector(template)},
	} {
		past := newObject(controllerRevisionKind, namespace, name)
		past.SetLabels(map[string]string{"app": "agent"})
		mustSet(past.Object, entry.created, "metadata", "creationTimestamp")
		past.Object["data"] = map[string]any{"spec": map[string]any{"template": entry.template}}
		past.SetOwnerReferences([]metav1.OwnerReference{*metav1.NewControllerRef(target, daemonSetKind)})
		must(t, w.client.Create(t.Context(), past))
	}
	seen, err := w.workload.Observe(t.Context(), w.canary("agent"), WithHistory)
	must(t, err)
	if got := seen.NewestTemplate.UTC().Format("2006-01-02"); got != "2026-01-01" {
		t.Errorf("got %s", got)
	}
}

func TestADaemonSetWithOnDeleteIsRefused(t *testing.T) {
	w := newDaemonSetCluster(t)
	w.patchYAML(daemonSetKind, "agent", `{spec: {updateStrategy: {type: OnDelete}}}`)
	want := "createPrimaryDaemonSet failed: daemonset agent.shop must have RollingUpdate strategy but have OnDelete"
	if got := w.observedAgent().Problem; got != want {
		t.Errorf("got %s", got)
	}
	expectRefused(t, w.workload.EnsurePrimary(t.Context(), w.canary("agent"), "", "id-1", true), ErrUnusable, want)
	must(t, w.client.Delete(t.Context(), w.object(daemonSetKind, "agent")))
	want = `daemonset agent.shop get query error: daemonsets.apps "agent" not found`
	if got := w.observedAgent().Problem; got != want {
		t.Errorf("got %s", got)
	}
}

func TestDaemonSetReadiness(t *testing.T) {
	for _, test := range []struct {
		name                                             string
		observed, desired, updated, available, threshold int64
		want                                             Readiness
	}{
		{"not observed", 1, 3, 3, 3, 100, Readiness{Message: "waiting for rollout to finish: observed daemonset generation less than desired generation"}},
		{"updating", 2, 3, 2, 3, 100, Readiness{Message: "waiting for rollout to finish: 2 out of 3 new pods have been updated"}},
		{"starting", 2, 3, 3, 2, 100, Readiness{Message: "waiting for rollout to finish: 2 of 3 (readyThreshold 100%) updated pods are available"}},
		{"enough", 2, 3, 3, 2, 75, Readiness{Ready: true, RequiredAvailable: 2}},
		{"none is not enough", 2, 3, 3, 0, 10, Readiness{Message: "waiting for rollout to finish: 0 of 1 (readyThreshold 10%) updated pods are available"}},
		{"all", 2, 3, 3, 3, 100, Readiness{Ready: true, RequiredAvailable: 3}},
		{"no node", 2, 0, 0, 0, 100, Readiness{Ready: true}},
	} {
		t.Run(test.name, func(t *testing.T) {
			obj := newObject(daemonSetKind, namespace, "agent")
			obj.SetGeneration(2)
			obj.Object["status"] = map[string]any{
				"observedGeneration": test.observed, "desiredNumberScheduled": test.desired,
				"updatedNumberScheduled": test.updated, "numberAvailable": test.available,
			}
			if diff := cmp.Diff(test.want, daemonSets{}.readiness(obj, int(test.threshold))); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// For a template without node selector, Flagger hashes an empty map, which has another hash than nil.
func TestADaemonSetHasFlaggersHash(t *testing.T) {
	plain := map[string]any{"spec": map[string]any{"containers": []any{map[string]any{"name": "agent"}}}}
	selecting := map[string]any{"spec": map[string]any{"containers": plain["spec"].(map[string]any)["containers"], "nodeSelector": map[string]any{"disk": "ssd"}}}
	if flaggerhash.HashTemplate(daemonSets{}.templateForFlaggerHash(plain)) == flaggerhash.HashTemplate(plain) {
		t.Error("an empty selector has the hash of none")
	}
	if flaggerhash.HashTemplate(daemonSets{}.templateForFlaggerHash(selecting)) != flaggerhash.HashTemplate(selecting) {
		t.Error("a selector changes the hash")
	}
}

// Parking adds one key to any template, and unparking restores the template.
func TestUnparkingRestoresTheTemplate(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		spec := map[string]any{"hostNetwork": true}
		if selector := rapid.MapOf(rapid.StringMatching(`[a-z]{1,3}`), rapid.StringMatching(`[a-z]{0,3}`)).Draw(t, "selector"); len(selector) > 0 {
			spec["nodeSelector"] = jsonStrings(selector)
		}
		template := map[string]any{"metadata": map[string]any{"labels": map[string]any{"app": "agent"}}, "spec": spec}
		before := runtime.DeepCopyJSON(template)
		parked := withParkingSelector(template)
		if !jsontree.Equal(before, template) {
			t.Fatalf("the template was changed: %v", template)
		}
		obj := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"template": parked}, "status": map[string]any{"desiredNumberScheduled": int64(2)}}}
		if (daemonSets{}).desiredReplicas(obj) != 0 {
			t.Fatalf("parked, but has desired pods: %v", parked)
		}
		if got := withoutParkingSelector(parked); !jsontree.Equal(before, got) {
			t.Fatalf("got %v, want %v", got, before)
		}
	})
}
