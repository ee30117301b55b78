package store_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/test/sim/store"
)

func nested(obj *unstructured.Unstructured, path string) any {
	value, _, _ := unstructured.NestedFieldNoCopy(obj.Object, strings.Split(path, ".")...)
	return value
}

func TestCreateSetsDefaultsAndMetadata(t *testing.T) {
	for _, c := range []struct {
		name, manifest string
		want           map[string]any
		absent         []string
	}{
		{"Deployment", deployment("podinfo"), map[string]any{
			"spec.revisionHistoryLimit": int64(10), "spec.progressDeadlineSeconds": int64(600), "spec.strategy.type": "RollingUpdate",
			"spec.strategy.rollingUpdate.maxSurge": "25%", "spec.template.spec.restartPolicy": "Always", "spec.template.spec.dnsPolicy": "ClusterFirst",
			"metadata.generation": int64(1), "metadata.resourceVersion": "1", "metadata.creationTimestamp": "2026-01-01T00:00:00Z",
			"metadata.uid": "00000000-0000-4000-8000-000000000001", "status": map[string]any{},
		}, []string{"spec.paused"}},
		{"Service", service("podinfo"), map[string]any{
			"spec.type": "ClusterIP", "spec.sessionAffinity": "None",
			"spec.ports":          []any{map[string]any{"name": "http", "port": int64(80), "protocol": "TCP", "targetPort": "http"}},
			"spec.ipFamilies":     []any{"IPv4"},
			"status.loadBalancer": map[string]any{},
		}, []string{"metadata.generation"}},
		{"unknown fields", strings.Replace(service("podinfo"), "spec: {", "spec: {nonsense: 1, ", 1), nil, []string{"spec.nonsense"}},
		{"Canary", strings.Replace(canary("podinfo"), "spec:", "spec:\n  nonsense: 1", 1) + "status: {phase: Failed}\n", map[string]any{
			"metadata.generation": int64(1), "spec.service.port": int64(80),
		}, []string{"spec.nonsense", "status"}},
		{"HTTPRoute", httpRoute("podinfo"), map[string]any{
			"spec.parentRefs": []any{map[string]any{"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": "gateway", "namespace": "playground"}},
		}, nil},
		{"ConfigMap", "{apiVersion: v1, kind: ConfigMap, metadata: {name: c, labels: {}}, data: {a: b}}", map[string]any{"data.a": "b"}, []string{"metadata.labels", "metadata.generation"}},
		{"Secret", "{apiVersion: v1, kind: Secret, metadata: {name: c}, stringData: {a: b}}", map[string]any{"data.a": "Yg==", "type": "Opaque"}, []string{"stringData"}},
		{"generated name", "{apiVersion: v1, kind: ConfigMap, metadata: {generateName: c-}}", map[string]any{"metadata.generateName": "c-"}, nil},
		{
			"HorizontalPodAutoscaler", "{apiVersion: autoscaling/v2, kind: HorizontalPodAutoscaler, metadata: {name: h}, spec: {maxReplicas: 3, scaleTargetRef: {kind: Deployment, name: d}}}",
			map[string]any{"spec.minReplicas": int64(1)},
			nil,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			obj := w.create(c.manifest)
			if obj.GetName() == "" {
				t.Error("the object has no name")
			}
			for path, want := range c.want {
				if diff := cmp.Diff(want, nested(obj, path)); diff != "" {
					t.Errorf("%s (-want +got):\n%s", path, diff)
				}
			}
			for _, path := range c.absent {
				if got := nested(obj, path); got != nil {
					t.Errorf("%s is %v, want nothing", path, got)
				}
			}
			if diff := cmp.Diff(obj.Object, w.get(obj.GroupVersionKind(), obj.GetName()).Object); diff != "" {
				t.Errorf("what was answered and what is stored differ:\n%s", diff)
			}
		})
	}
}

// TestAddressesAreDerivedFromNames verifies that failed attempts have no influence on the addresses of other Services.
func TestAddressesAreDerivedFromNames(t *testing.T) {
	manifest := strings.Replace(service("x"), "spec: {", "spec: {type: NodePort, ", 1)
	first, second := newWorld(t), newWorld(t)
	second.create(service("z"))
	second.create(manifest)
	second.must(second.client.Delete(t.Context(), newObject(serviceKind, "x")))
	want, got := first.create(manifest), second.create(manifest)
	if diff := cmp.Diff(want.Object["spec"], got.Object["spec"]); diff != "" {
		t.Errorf("the same Service got something else (-first +second):\n%s", diff)
	}
	if address := nested(got, "spec.clusterIP"); address == nested(second.get(serviceKind, "z"), "spec.clusterIP") {
		t.Errorf("two Services have the address %v", address)
	}
	if obj := second.create(strings.Replace(service("many"), "spec: {", "spec: {clusterIP: None, ", 1)); nested(obj, "spec.clusterIP") != "None" {
		t.Errorf("a headless Service has %v", nested(obj, "spec"))
	}
}

func TestRefusals(t *testing.T) {
	deploymentWith := func(old, text string) string { return strings.Replace(deployment("x"), old, text, 1) }
	for _, c := range []struct {
		name string
		do   func(w *world) error
		want metav1.StatusReason
		says string
	}{
		{"exists", func(w *world) error {
			w.create(deployment("x"))
			return w.client.Create(w.t.Context(), parse(w.t, deployment("x")))
		}, metav1.StatusReasonAlreadyExists, `deployments.apps "x" already exists`},
		{"not found", func(w *world) error {
			return w.client.Get(w.t.Context(), keyOf("y"), newObject(deploymentKind, "y"))
		}, metav1.StatusReasonNotFound, `deployments.apps "y" not found`},
		{"update of an old version", func(w *world) error {
			obj := w.create(deployment("x"))
			w.must(w.patch(deploymentKind, "x", "{spec: {replicas: 9}}"))
			return w.client.Update(w.t.Context(), obj)
		}, metav1.StatusReasonConflict, `Operation cannot be fulfilled on deployments.apps "x": the object has been modified`},
		{"patch of an old version", func(w *world) error {
			w.create(deployment("x"))
			return w.patch(deploymentKind, "x", `{metadata: {resourceVersion: "77"}, spec: {replicas: 9}}`)
		}, metav1.StatusReasonConflict, "the object has been modified"},
		{"update of another object", func(w *world) error {
			obj := w.create(deployment("x"))
			obj.SetUID("other")
			return w.client.Update(w.t.Context(), obj)
		}, metav1.StatusReasonConflict, "Precondition failed: UID in precondition: other"},
		{"update without a version", func(w *world) error {
			obj := w.create(canary("x"))
			obj.SetResourceVersion("")
			return w.client.Update(w.t.Context(), obj)
		}, metav1.StatusReasonInvalid, "must be specified for an update"},
		{"deletion of another object", func(w *world) error {
			return w.client.Delete(w.t.Context(), w.create(deployment("x")), client.Preconditions{UID: new(types.UID("other"))})
		}, metav1.StatusReasonConflict, "the UID in the precondition (other) does not match the UID in record"},
		{"deletion of another version", func(w *world) error {
			return w.client.Delete(w.t.Context(), w.create(deployment("x")), client.Preconditions{ResourceVersion: new("77")})
		}, metav1.StatusReasonConflict, "the ResourceVersion in the precondition (77) does not match the ResourceVersion in record (1)"},
		{"deletion of nothing", func(w *world) error {
			return w.client.Delete(w.t.Context(), newObject(deploymentKind, "y"))
		}, metav1.StatusReasonNotFound, ""},
		{"a value that the schema forbids", func(w *world) error {
			return w.client.Create(w.t.Context(), parse(w.t, strings.Replace(canary("x"), "threshold: 5", "threshold: many", 1)))
		}, metav1.StatusReasonInvalid, "spec.analysis.threshold: Invalid value"},
		{"an unknown provider", func(w *world) error {
			return w.client.Create(w.t.Context(), parse(w.t, strings.Replace(canary("x"), "type: confirm-rollout", "type: confirm-nothing", 1)))
		}, metav1.StatusReasonInvalid, "supported values"},
		{"a value of a wrong type", func(w *world) error {
			return w.client.Create(w.t.Context(), parse(w.t, deploymentWith("replicas: 2", "replicas: two")))
		}, metav1.StatusReasonBadRequest, "cannot unmarshal string"},
		{"a selector that selects nothing", func(w *world) error {
			return w.client.Create(w.t.Context(), parse(w.t, deploymentWith("labels: {app: x}, annotations: {prom", "labels: {app: z}, annotations: {prom")))
		}, metav1.StatusReasonInvalid, "`selector` does not match template `labels`"},
		{"another selector", func(w *world) error {
			w.create(deployment("x"))
			return w.patch(deploymentKind, "x", "{spec: {selector: {matchLabels: {more: z}}, template: {metadata: {labels: {more: z}}}}}")
		}, metav1.StatusReasonInvalid, "spec.selector: Invalid value"},
		{"a rule of the schema", func(w *world) error {
			return w.client.Create(w.t.Context(), parse(w.t, strings.Replace(httpRoute("x"), "rules: [{", "rules: [{matches: [{path: {type: PathPrefix, value: nowhere}}], ", 1)))
		}, metav1.StatusReasonInvalid, "value must be an absolute path and start with '/'"},
		{"a new finalizer on what goes", func(w *world) error {
			w.create(strings.Replace(deployment("x"), "name: x,", "name: x, finalizers: [a.test/b],", 1))
			w.must(w.client.Delete(w.t.Context(), newObject(deploymentKind, "x")))
			return w.patch(deploymentKind, "x", "{metadata: {finalizers: [a.test/b, a.test/c]}}")
		}, metav1.StatusReasonInvalid, "no new finalizers can be added if the object is being deleted"},
		{"another cluster IP", func(w *world) error {
			w.create(service("x"))
			return w.patch(serviceKind, "x", "{spec: {clusterIP: None}}")
		}, metav1.StatusReasonInvalid, "may not change once set"},
		{"data that is frozen", func(w *world) error {
			w.create("{apiVersion: v1, kind: ConfigMap, metadata: {name: x}, immutable: true, data: {a: b}}")
			return w.patch(configMapKind, "x", "{data: {a: c}}")
		}, metav1.StatusReasonInvalid, "field is immutable when `immutable` is set"},
		{"a bad label", func(w *world) error {
			w.create(service("x"))
			return w.patch(serviceKind, "x", "{metadata: {labels: {a: 'b c'}}}")
		}, metav1.StatusReasonInvalid, "metadata.labels: Invalid value"},
		{"a status that cannot be", func(w *world) error {
			w.create(deployment("x"))
			obj := newObject(deploymentKind, "x")
			return w.client.Status().Patch(w.t.Context(), obj, client.RawPatch(types.MergePatchType, []byte(`{"status":{"replicas":1,"readyReplicas":2}}`)))
		}, metav1.StatusReasonInvalid, "cannot be greater than status.replicas"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			err := c.do(w)
			if reason := apierrors.ReasonForError(err); reason != c.want {
				t.Fatalf("reason is %q, want %q: %v", reason, c.want, err)
			}
			if !strings.Contains(err.Error(), c.says) {
				t.Errorf("the error does not say %q: %v", c.says, err)
			}
		})
	}
}

func TestUnknownKind(t *testing.T) {
	w := newWorld(t)
	w.create(httpRoute("x"))
	w.server.Uninstall(httpRouteKind.GroupKind())
	err := w.client.Get(t.Context(), keyOf("x"), newObject(httpRouteKind, "x"))
	if !meta.IsNoMatchError(err) {
		t.Errorf("a kind without a definition answers %v", err)
	}
	w.must(w.server.Install(httpRouteKind.GroupKind()))
	err = w.client.Get(t.Context(), keyOf("x"), newObject(httpRouteKind, "x"))
	if !apierrors.IsNotFound(err) {
		t.Errorf("objects came back with the definition: %v", err)
	}
}

// TestGenerations verifies which writes create a new version and a new generation.
func TestGenerations(t *testing.T) {
	for _, c := range []struct {
		manifest, patch string
		subresource     string
		version, next   bool
	}{
		{deployment("x"), "{spec: {replicas: 2}}", "", false, false},
		{deployment("x"), "{spec: {replicas: 3}}", "", true, true},
		{deployment("x"), "{metadata: {annotations: {a: b}}}", "", true, true},
		{deployment("x"), "{metadata: {labels: {a: b}}}", "", true, false},
		{deployment("x"), "{status: {replicas: 3}}", "", false, false},
		{deployment("x"), "{status: {replicas: 3}}", "status", true, false},
		{deployment("x"), "{spec: {replicas: 3}}", "status", false, false},
		{deployment("x"), "{metadata: {labels: {a: b}}}", "status", false, false},
		{canary("x"), "{spec: {analysis: {threshold: 9}}}", "", true, true},
		{canary("x"), "{metadata: {annotations: {a: b}}}", "", true, false},
		{canary("x"), "{status: {phase: Failed}}", "", false, false},
		{canary("x"), "{status: {phase: Failed}}", "status", true, false},
		{canary("x"), "{spec: {analysis: {threshold: 9}}}", "status", false, false},
		{canary("x"), "{metadata: {annotations: {a: b}}}", "status", false, false},
		{canary("x"), "{spec: {unknown: 9}}", "", false, false},
		{canary("x"), "{metadata: {managedFields: null, generation: 7}}", "", false, false},
		{service("x"), "{spec: {selector: {app: z}}}", "", true, false},
		{service("x"), "{spec: {clusterIP: null, type: null}}", "", false, false},
		{httpRoute("x"), "{spec: {hostnames: [a.test]}}", "", true, true},
		{httpRoute("x"), "{spec: {parentRefs: [{name: gateway, namespace: playground}]}}", "", false, false},
	} {
		w := newWorld(t)
		before := w.create(c.manifest)
		t.Run(fmt.Sprintf("%s %s %s", before.GetKind(), c.subresource, c.patch), func(t *testing.T) {
			events := len(w.server.Events())
			after := newObject(before.GroupVersionKind(), "x")
			patch := client.RawPatch(types.MergePatchType, toJSON(t, c.patch))
			if c.subresource == "" {
				w.must(w.client.Patch(t.Context(), after, patch))
			} else {
				w.must(w.client.SubResource(c.subresource).Patch(t.Context(), after, patch))
			}
			if got := after.GetResourceVersion() != before.GetResourceVersion(); got != c.version {
				t.Errorf("a new version is %v, want %v:\n%s", got, c.version, cmp.Diff(before.Object, after.Object))
			}
			if got := after.GetGeneration() != before.GetGeneration(); got != c.next {
				t.Errorf("a new generation is %v, want %v", got, c.next)
			}
			if got := len(w.server.Events()) > events; got != c.version {
				t.Errorf("an event is %v, want %v", got, c.version)
			}
		})
	}
}

func TestStatusIsASubresource(t *testing.T) {
	w := newWorld(t)
	w.create(canary("x"))
	c := &flaggerv1.Canary{}
	w.must(w.client.Get(t.Context(), keyOf("x"), c))
	c.Status.Phase = flaggerv1.CanaryPhaseProgressing
	c.Spec.SkipAnalysis = true
	w.must(w.client.Status().Update(t.Context(), c))
	if c.Spec.SkipAnalysis || c.Status.Phase != flaggerv1.CanaryPhaseProgressing || c.Generation != 1 {
		t.Errorf("a write of the status gives %+v", c)
	}
	c.Status.Phase = flaggerv1.CanaryPhaseFailed
	c.Spec.SkipAnalysis = true
	w.must(w.client.Update(t.Context(), c))
	if !c.Spec.SkipAnalysis || c.Status.Phase != flaggerv1.CanaryPhaseProgressing || c.Generation != 2 {
		t.Errorf("a write of the object gives %+v", c)
	}
}

func TestPrunedStatus(t *testing.T) {
	w := newWorld(t, func(o *store.Options) { o.Definitions = o.Definitions.WithoutSerinStatus() })
	w.create(canary("x"))
	obj := &flaggerv1.Canary{}
	w.must(w.client.Get(t.Context(), keyOf("x"), obj))
	patch := []byte(`{"status":{"phase":"Progressing","serin":{"revision":"a"}}}`)
	w.must(w.client.Status().Patch(t.Context(), obj, client.RawPatch(types.MergePatchType, patch)))
	if obj.Status.Serin != nil || obj.Status.Phase != flaggerv1.CanaryPhaseProgressing {
		t.Errorf("status is %+v", obj.Status)
	}
}

func TestFinalizersDelayRemoval(t *testing.T) {
	w := newWorld(t)
	w.create(strings.Replace(canary("x"), "name: x", "name: x, finalizers: [finalizer.flagger.app]", 1))
	w.must(w.client.Delete(t.Context(), newObject(canaryKind, "x")))
	held := w.get(canaryKind, "x")
	if held.GetDeletionTimestamp() == nil || held.GetGeneration() != 2 {
		t.Errorf("a deleted object with a finalizer is %v", held.Object["metadata"])
	}
	version := held.GetResourceVersion()
	w.must(w.client.Delete(t.Context(), newObject(canaryKind, "x")))
	if again := w.get(canaryKind, "x"); again.GetResourceVersion() != version {
		t.Error("deleting it again changed it")
	}
	w.must(w.patch(canaryKind, "x", "{metadata: {finalizers: null}}"))
	if w.server.Peek(canaryKind.GroupKind(), keyOf("x")) != nil {
		t.Error("it is still there without its finalizer")
	}
	events := w.server.Events()
	last := events[len(events)-1]
	if last.Type != store.Deleted || last.Old == nil || last.Revision != w.server.Revision() || last.Verb != store.Patch {
		t.Errorf("the last event is %+v", last)
	}
}

func TestJSONPatch(t *testing.T) {
	w := newWorld(t)
	created := w.create(deployment("x"))
	obj := newObject(deploymentKind, "x")
	patch := `[{"op":"test","path":"/metadata/uid","value":"` + string(created.GetUID()) + `"},{"op":"replace","path":"/spec/replicas","value":7}]`
	w.must(w.client.Patch(t.Context(), obj, client.RawPatch(types.JSONPatchType, []byte(patch))))
	if nested(obj, "spec.replicas") != int64(7) {
		t.Errorf("replicas are %v", nested(obj, "spec.replicas"))
	}
	events := w.server.Events()
	if basis := events[len(events)-1].Basis; basis.UID != string(created.GetUID()) {
		t.Errorf("the basis is %+v", basis)
	}
	err := w.client.Patch(t.Context(), obj, client.RawPatch(types.JSONPatchType, []byte(`[{"op":"test","path":"/spec/replicas","value":1}]`)))
	if !apierrors.IsInvalid(err) {
		t.Errorf("a test that fails answers %v", err)
	}
}

func TestScale(t *testing.T) {
	w := newWorld(t)
	obj := w.create(deployment("x"))
	scale := &autoscalingv1.Scale{}
	w.must(w.client.SubResource("scale").Get(t.Context(), obj, scale))
	if scale.Spec.Replicas != 2 || scale.Status.Selector != "app=x" {
		t.Errorf("scale is %+v", scale)
	}
	scale.Spec.Replicas = 5
	w.must(w.client.SubResource("scale").Update(t.Context(), obj, client.WithSubResourceBody(scale)))
	if after := w.get(deploymentKind, "x"); nested(after, "spec.replicas") != int64(5) || after.GetGeneration() != 2 {
		t.Errorf("after scaling: %v", after.Object)
	}
	scale.ResourceVersion = "1"
	if err := w.client.SubResource("scale").Update(t.Context(), obj, client.WithSubResourceBody(scale)); !apierrors.IsConflict(err) {
		t.Errorf("an old scale answers %v", err)
	}
}

func TestLists(t *testing.T) {
	w := newWorld(t)
	for _, name := range []string{"c", "a", "b"} {
		w.create(deployment(name))
	}
	other := parse(t, deployment("a"))
	other.SetNamespace("bank")
	w.must(w.client.Create(t.Context(), other))
	for _, c := range []struct {
		options []client.ListOption
		want    []string
	}{
		{nil, []string{"bank/a", "shop/a", "shop/b", "shop/c"}},
		{[]client.ListOption{client.InNamespace(namespace)}, []string{"shop/a", "shop/b", "shop/c"}},
		{[]client.ListOption{client.MatchingLabels{"app": "a"}}, []string{"bank/a", "shop/a"}},
		{[]client.ListOption{client.MatchingFields{"metadata.name": "b"}}, []string{"shop/b"}},
		{[]client.ListOption{client.InNamespace(namespace), client.Limit(2)}, []string{"shop/a", "shop/b"}},
	} {
		generic := &unstructured.UnstructuredList{}
		generic.SetGroupVersionKind(schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "DeploymentList"})
		partial := &metav1.PartialObjectMetadataList{}
		partial.SetGroupVersionKind(generic.GroupVersionKind())
		w.must(w.client.List(t.Context(), generic, c.options...))
		w.must(w.client.List(t.Context(), partial, c.options...))
		var names, again []string
		for i := range generic.Items {
			names = append(names, generic.Items[i].GetNamespace()+"/"+generic.Items[i].GetName())
			again = append(again, partial.Items[i].GetNamespace()+"/"+partial.Items[i].GetName())
		}
		if diff := cmp.Diff(c.want, names); diff != "" {
			t.Errorf("%v (-want +got):\n%s", c.options, diff)
		}
		if diff := cmp.Diff(names, again); diff != "" {
			t.Errorf("metadata of %v (-objects +metadata):\n%s", c.options, diff)
		}
	}
}

// TestCallersOwnTheirCopies verifies that modifying an object that was read or written does not change the stored one.
func TestCallersOwnTheirCopies(t *testing.T) {
	w := newWorld(t)
	written := w.create(deployment("x"))
	stored := w.server.Peek(deploymentKind.GroupKind(), keyOf("x")).Unstructured()
	read := w.get(deploymentKind, "x")
	for _, obj := range []*unstructured.Unstructured{written, read} {
		obj.Object["spec"].(map[string]any)["template"].(map[string]any)["spec"].(map[string]any)["containers"].([]any)[0].(map[string]any)["image"] = "other"
	}
	if diff := cmp.Diff(stored.Object, w.get(deploymentKind, "x").Object); diff != "" {
		t.Errorf("the store changed:\n%s", diff)
	}
	w.create("{apiVersion: v1, kind: ConfigMap, metadata: {name: x, labels: {a: b}}, data: {a: b}}")
	config := &corev1.ConfigMap{}
	w.must(w.client.Get(t.Context(), keyOf("x"), config))
	config.Data["a"], config.Labels["a"] = "c", "c"
	again := &corev1.ConfigMap{}
	w.must(w.client.Get(t.Context(), keyOf("x"), again))
	if again.Data["a"] != "b" || again.Labels["a"] != "b" {
		t.Errorf("the store changed: %+v", again)
	}
}

// TestTypedVersionsAreComplete verifies that a typed object that is built from the previous one and the change equals one that
// is converted from the content.
func TestTypedVersionsAreComplete(t *testing.T) {
	w := newWorld(t)
	w.create(canary("x"))
	c := &flaggerv1.Canary{}
	for _, patch := range []string{
		"{status: {phase: Progressing, canaryWeight: 5, conditions: [{type: Promoted, status: Unknown, reason: Progressing, message: m}]}}", "{status: {canaryWeight: 10, conditions: null}}", "{status: {phase: null}}",
	} {
		w.must(w.client.Status().Patch(t.Context(), canaryX(), client.RawPatch(types.MergePatchType, toJSON(t, patch))))
		w.must(w.client.Get(t.Context(), keyOf("x"), c))
		anew := &flaggerv1.Canary{}
		version := w.server.Peek(canaryKind.GroupKind(), keyOf("x"))
		w.must(convert(version.Content(), anew))
		anew.TypeMeta = metav1.TypeMeta{}
		if diff := cmp.Diff(anew, c); diff != "" {
			t.Errorf("after %s (-anew +got):\n%s", patch, diff)
		}
	}
}

func TestPods(t *testing.T) {
	w := newWorld(t)
	pod := "{apiVersion: v1, kind: Pod, metadata: {name: %s}, spec: {nodeName: '%s', terminationGracePeriodSeconds: 20, containers: [{name: a, image: b}]}}"
	w.create(fmt.Sprintf(pod, "placed", "node"))
	w.create(fmt.Sprintf(pod, "unplaced", ""))
	w.must(w.client.Delete(t.Context(), newObject(podKind, "unplaced")))
	if w.server.Peek(podKind.GroupKind(), keyOf("unplaced")) != nil {
		t.Error("a pod without a node is not gone at once")
	}
	w.must(w.client.Delete(t.Context(), newObject(podKind, "placed")))
	going := w.get(podKind, "placed")
	if at := going.GetDeletionTimestamp(); at == nil || at.Sub(w.now).Seconds() != 20 {
		t.Errorf("a pod with a node goes at %v", at)
	}
	w.must(w.client.Delete(t.Context(), newObject(podKind, "placed"), client.GracePeriodSeconds(0)))
	if w.server.Peek(podKind.GroupKind(), keyOf("placed")) != nil {
		t.Error("a pod that was deleted without grace is not gone")
	}
}

func TestRequestsAreCounted(t *testing.T) {
	w := newWorld(t)
	w.create(deployment("x"))
	w.get(deploymentKind, "x")
	w.get(deploymentKind, "x")
	w.must(w.patch(deploymentKind, "x", "{spec: {replicas: 2}}"))
	kind := deploymentKind.GroupKind()
	want := map[store.Request]int{
		{Actor: "user", Verb: "create", Kind: kind}: 1, {Actor: "user", Verb: "get", Kind: kind}: 2, {Actor: "user", Verb: "patch", Kind: kind}: 1,
	}
	if diff := cmp.Diff(want, w.server.Requests()); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
}
