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

// agents is a world with a DaemonSet, a Canary for it, and a ConfigMap.
func agents(t *testing.T) *world {
	t.Helper()
	w := newWorld(t)
	w.d.templateKind = daemonSets{}
	w.applyYAML(`{apiVersion: v1, kind: ConfigMap, metadata: {name: env}, data: {A: "1"}}`)
	w.applyYAML(agentSet)
	w.applyYAML(agentCanary)
	return w
}

func (w *world) observedAgent() Observation {
	w.t.Helper()
	o, err := w.d.ForCanary(w.canary("agent")).Observe(w.t.Context(), w.canary("agent"))
	must(w.t, err)
	return o
}

// runs gives a DaemonSet the status of one that runs on so many nodes.
func (w *world) runs(name string, nodes int) {
	w.t.Helper()
	obj := w.object(daemonSetKind, name)
	for _, field := range []string{"desiredNumberScheduled", "currentNumberScheduled", "updatedNumberScheduled", "numberReady", "numberAvailable"} {
		mustSet(obj.Object, int64(nodes), "status", field)
	}
	mustSet(obj.Object, obj.GetGeneration(), "status", "observedGeneration")
	must(w.t, w.client.Status().Update(w.t.Context(), obj))
}

func (w *world) nodeSelector(name string) map[string]string {
	w.t.Helper()
	selector, _, err := unstructured.NestedStringMap(w.object(daemonSetKind, name).Object, "spec", "template", "spec", "nodeSelector")
	must(w.t, err)
	return selector
}

func TestDaemonSetIsParkedAndRunsAgain(t *testing.T) {
	w := agents(t)
	c := w.canary("agent")
	w.edit(daemonSetKind, "agent", `{spec: {template: {spec: {nodeSelector: {disk: ssd}}}}}`)
	w.runs("agent", 3)
	before := w.observedAgent()
	if before.Target.Replicas != 3 || !before.Target.Readiness.Ready || before.Target.Readiness.RequiredAvailable != 3 {
		t.Fatalf("got %+v", before.Target)
	}
	must(t, w.d.DownToZero(t.Context(), c))
	if diff := cmp.Diff(map[string]string{"disk": "ssd", parkingNodeSelector: "true"}, w.nodeSelector("agent")); diff != "" {
		t.Error(diff)
	}
	parked := w.observedAgent()
	if parked.Target.Replicas != 0 || parked.Target.Readiness.Ready {
		t.Errorf("before the controller saw it: %+v", parked.Target)
	}
	if parked.Target.Revision != before.Target.Revision || parked.Target.FlaggerHash != before.Target.FlaggerHash {
		t.Error("to park it is not a new revision")
	}
	requests := len(w.versions["DaemonSet/agent"])
	must(t, w.d.DownToZero(t.Context(), c))
	if w.look(); len(distinct(w.versions["DaemonSet/agent"])) > requests {
		t.Error("parked again")
	}
	for name, up := range map[string]func() error{
		"from zero":      func() error { return w.d.UpFromZero(t.Context(), c) },
		"like a primary": func() error { return w.d.UpToPrimary(t.Context(), c) },
	} {
		must(t, w.d.DownToZero(t.Context(), c))
		must(t, up())
		if diff := cmp.Diff(map[string]string{"disk": "ssd"}, w.nodeSelector("agent")); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// A DaemonSet without a selector of its own has none again, and one whose nodes were not counted yet asks for a pod.
func TestDaemonSetWithoutSelector(t *testing.T) {
	w := agents(t)
	c := w.canary("agent")
	must(t, w.d.DownToZero(t.Context(), c))
	must(t, w.d.UpFromZero(t.Context(), c))
	if _, found, _ := unstructured.NestedFieldNoCopy(w.object(daemonSetKind, "agent").Object, "spec", "template", "spec", "nodeSelector"); found {
		t.Error("a selector stays")
	}
	if got := w.observedAgent().Target; got.Replicas != 1 || got.Readiness.Ready {
		t.Errorf("got %+v", got)
	}
}

func TestDaemonSetIsReleased(t *testing.T) {
	w := agents(t)
	c, ctx := w.canary("agent"), t.Context()
	must(t, w.d.EnsurePrimary(ctx, c, "", "id-1", true))
	w.runs("agent-primary", 3)
	if seen := w.observedAgent(); !seen.PrimaryUpToDate || !seen.Primary.Readiness.Ready || seen.Primary.PromotionID != "id-1" {
		t.Fatalf("got %+v", seen)
	}
	must(t, w.d.DownToZero(ctx, c))
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

	w.edit(daemonSetKind, "agent", `{spec: {template: {spec: {containers: [{name: agent, image: "agent:2"}]}}}}`)
	revision := w.observedAgent().Target.Revision
	must(t, w.d.CopyTemplate(ctx, c, revision, "id-2"))
	if got := w.nodeSelector("agent-primary"); len(got) != 0 {
		t.Errorf("the primary is parked: %v", got)
	}
	if seen := w.observedAgent(); !seen.PrimaryUpToDate || seen.Primary.PromotionID != "id-2" {
		t.Errorf("got %+v", seen)
	}
	must(t, w.d.RestoreTemplate(ctx, c, "id-3"))
	mustSet(before, "id-3", "metadata", "annotations", promotionIDAnnotation)
	if diff := cmp.Diff(before, podTemplate(w.object(daemonSetKind, "agent-primary"))); diff != "" {
		t.Error(diff)
	}
	must(t, w.client.Delete(ctx, w.object(daemonSetKind, "agent-primary")))
	must(t, w.d.RecreatePrimary(ctx, c, TemplateSource{}, "", "id-4"))
	mustSet(before, "id-4", "metadata", "annotations", promotionIDAnnotation)
	if diff := cmp.Diff(before, podTemplate(w.object(daemonSetKind, "agent-primary"))); diff != "" {
		t.Error(diff)
	}
}

// To be parked and to run again is history of Kubernetes, and none of the user's.
func TestNewestTemplateOfADaemonSet(t *testing.T) {
	w := agents(t)
	target := w.object(daemonSetKind, "agent")
	template := podTemplate(target)
	for name, of := range map[string]struct {
		made     string
		template map[string]any
	}{
		"agent-1": {"2026-01-01T00:00:00Z", template},
		"agent-2": {"2026-01-02T00:00:00Z", withParkingSelector(template)},
	} {
		past := newObject(controllerRevisionKind, namespace, name)
		past.SetLabels(map[string]string{"app": "agent"})
		mustSet(past.Object, of.made, "metadata", "creationTimestamp")
		past.Object["data"] = map[string]any{"spec": map[string]any{"template": of.template}}
		past.SetOwnerReferences([]metav1.OwnerReference{*metav1.NewControllerRef(target, daemonSetKind)})
		must(t, w.client.Create(t.Context(), past))
	}
	seen, err := w.d.Observe(t.Context(), w.canary("agent"), WithHistory)
	must(t, err)
	if got := seen.NewestTemplate.UTC().Format("2006-01-02"); got != "2026-01-01" {
		t.Errorf("got %s", got)
	}
}

func TestDaemonSetThatOthersUpdateIsRefused(t *testing.T) {
	w := agents(t)
	w.edit(daemonSetKind, "agent", `{spec: {updateStrategy: {type: OnDelete}}}`)
	want := "createPrimaryDaemonSet failed: daemonset agent.shop must have RollingUpdate strategy but have OnDelete"
	if got := w.observedAgent().Problem; got != want {
		t.Errorf("got %s", got)
	}
	refused(t, w.d.EnsurePrimary(t.Context(), w.canary("agent"), "", "id-1", true), ErrUnusable, want)
	must(t, w.client.Delete(t.Context(), w.object(daemonSetKind, "agent")))
	want = `daemonset agent.shop get query error: daemonsets.apps "agent" not found`
	if got := w.observedAgent().Problem; got != want {
		t.Errorf("got %s", got)
	}
}

func TestDaemonSetReadiness(t *testing.T) {
	for _, test := range []struct {
		name                                  string
		seen, desired, updated, available, of int64
		want                                  Readiness
	}{
		{"not seen", 1, 3, 3, 3, 100, Readiness{Message: "waiting for rollout to finish: observed daemonset generation less than desired generation"}},
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
				"observedGeneration": test.seen, "desiredNumberScheduled": test.desired,
				"updatedNumberScheduled": test.updated, "numberAvailable": test.available,
			}
			if diff := cmp.Diff(test.want, daemonSets{}.readiness(obj, int(test.of))); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// Flagger hashes a map without entries where there was no selector, which is not the same as none.
func TestDaemonSetIsHashedAsFlaggerDoes(t *testing.T) {
	plain := map[string]any{"spec": map[string]any{"containers": []any{map[string]any{"name": "agent"}}}}
	selecting := map[string]any{"spec": map[string]any{"containers": plain["spec"].(map[string]any)["containers"], "nodeSelector": map[string]any{"disk": "ssd"}}}
	if flaggerhash.HashTemplate(daemonSets{}.templateForFlaggerHash(plain)) == flaggerhash.HashTemplate(plain) {
		t.Error("no selector is hashed like an empty one")
	}
	if flaggerhash.HashTemplate(daemonSets{}.templateForFlaggerHash(selecting)) != flaggerhash.HashTemplate(selecting) {
		t.Error("a selector changes the hash")
	}
}

// Whatever a template has, to park it changes nothing but one key, and to unpark it gives the template back.
func TestParkingIsUndone(t *testing.T) {
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
			t.Fatalf("asks for pods: %v", parked)
		}
		if got := withoutParkingSelector(parked); !jsontree.Equal(before, got) {
			t.Fatalf("got %v, want %v", got, before)
		}
	})
}
