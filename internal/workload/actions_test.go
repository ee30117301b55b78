package workload

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/readyourwrites"
)

var (
	canaryGVK    = flaggerv1.SchemeGroupVersion.WithKind("Canary")
	configMapGVK = schema.GroupVersionKind{Version: "v1", Kind: configMapKind}
	secretGVK    = schema.GroupVersionKind{Version: "v1", Kind: secretKind}
)

const (
	cartCanary = `{apiVersion: flagger.app/v1beta1, kind: Canary, metadata: {name: cart}, spec: {targetRef: {apiVersion: apps/v1, kind: Deployment, name: cart}, service: {port: 80}, analysis: {interval: 10s}}}`
	cartTarget = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: cart, labels: {app: cart}}
spec:
  replicas: 2
  selector: {matchLabels: {app: cart}}
  template:
    metadata: {labels: {app: cart}}
    spec:
      containers: [{name: server, image: "cart:1", envFrom: [{configMapRef: {name: env}}, {secretRef: {name: creds, optional: true}}]}]
`
	cartEnv   = `{apiVersion: v1, kind: ConfigMap, metadata: {name: env, labels: {team: shop}, annotations: {note: mine}}, data: {COLOR: blue}}`
	cartCreds = `{apiVersion: v1, kind: Secret, metadata: {name: creds}, type: Opaque, stringData: {pass: one}}`
)

// newCartCluster returns a cluster with a target, its configuration and a Canary.
func newCartCluster(t *testing.T) *fakeCluster {
	t.Helper()
	w := newFakeCluster(t)
	for _, text := range []string{cartTarget, cartEnv, cartCreds, cartCanary} {
		w.applyYAML(text)
	}
	return w
}

func (w *fakeCluster) observe(asks ...ObserveOption) Observation {
	w.t.Helper()
	o, err := w.workload.Observe(w.t.Context(), w.canary("cart"), asks...)
	must(w.t, err)
	return o
}

// expectNoRequests fails the test if do sends a request to the API server.
func (w *fakeCluster) expectNoRequests(what string, do func()) {
	w.t.Helper()
	clear(w.requests)
	do()
	if len(w.requests) > 0 {
		w.t.Errorf("%s: got requests %v, want none", what, w.requests)
	}
}

// promoteImage changes the image of the target and promotes it.
func (w *fakeCluster) promoteImage(image, id string) {
	w.t.Helper()
	w.setImage(image)
	must(w.t, w.workload.CopyTemplate(w.t.Context(), w.canary("cart"), w.observe().Target.Revision, id))
}

func (w *fakeCluster) setImage(image string) {
	w.t.Helper()
	w.patchYAML(deploymentKind, "cart", `{spec: {template: {spec: {containers: [{name: server, image: "`+image+`", envFrom: [{configMapRef: {name: env}}, {secretRef: {name: creds, optional: true}}]}]}}}}`)
}

func (w *fakeCluster) primaryImage() string {
	w.t.Helper()
	containers, _, _ := unstructured.NestedSlice(w.object(deploymentKind, "cart-primary").Object, "spec", "template", "spec", "containers")
	return containers[0].(map[string]any)["image"].(string)
}

func (w *fakeCluster) contentOf(kind schema.GroupVersionKind, name string) map[string]any {
	w.t.Helper()
	obj := w.object(kind, name)
	if obj == nil {
		return nil
	}
	data, _, _ := unstructured.NestedMap(obj.Object, "data")
	return data
}

func TestObservationOfAFreshTarget(t *testing.T) {
	w := newCartCluster(t)
	o := w.observe()
	if o.Problem != "" || !o.Target.Found || o.Primary.Found || o.PrimaryUpToDate || o.Target.Replicas != 2 || o.SelectorLabel != "app" || o.SelectorValue != "cart" {
		t.Errorf("got %+v", o)
	}
	if !strings.HasPrefix(o.Target.Revision, "s1-") {
		t.Errorf("got revision %q", o.Target.Revision)
	}
	// Recorded in config-map-change: Flagger's checksums of just this content.
	want := map[string]string{"configmap/env": "7ce1f0e75fb02413", "secret/creds": "efa992f54ecc2561"}
	if diff := cmp.Diff(want, o.FlaggerConfigs); diff != "" {
		t.Error(diff)
	}
	configMap, secret := corev1.SchemeGroupVersion.WithKind(configMapKind), corev1.SchemeGroupVersion.WithKind(secretKind)
	reads := []Object{
		{deploymentKind, "cart"},
		{deploymentKind, "cart-primary"},
		{configMap, "env"},
		{configMap, "env-primary"},
		{secret, "creds"},
		{secret, "creds-primary"},
	}
	if diff := cmp.Diff(reads, o.Dependencies); diff != "" {
		t.Error(diff)
	}
	w.expectNoRequests("a second observation", func() {
		if diff := cmp.Diff(o, w.observe()); diff != "" {
			t.Error(diff)
		}
	})
}

func TestOnlyChangedConfigurationIsReadAgain(t *testing.T) {
	w := newCartCluster(t)
	before := w.observe()
	w.patchYAML(configMapGVK, "env", `{data: {COLOR: green}}`)
	clear(w.requests)
	after := w.observe()
	if diff := cmp.Diff(map[string]int{"get ConfigMap": 1}, w.requests); diff != "" {
		t.Error(diff)
	}
	if before.Target.Revision == after.Target.Revision {
		t.Error("changed configuration is not a new revision")
	}
	if got, want := after.FlaggerConfigs["configmap/env"], "b1abf6826a542d78"; got != want { // recorded
		t.Errorf("got %s, want %s", got, want)
	}
	w.patchYAML(configMapGVK, "env", `{data: {COLOR: blue}}`)
	if diff := cmp.Diff(before, w.observe()); diff != "" {
		t.Errorf("the original content has another observation:\n%s", diff)
	}
}

func TestBinaryDataIsARevisionAndIsCopied(t *testing.T) {
	w := newCartCluster(t)
	before := w.observe()
	w.patchYAML(configMapGVK, "env", `{binaryData: {blob: AAEC}, immutable: true}`)
	after := w.observe()
	if before.Target.Revision == after.Target.Revision || before.FlaggerConfigs["configmap/env"] != after.FlaggerConfigs["configmap/env"] {
		t.Error("binaryData: want another revision and the same Flagger checksum")
	}
	must(t, w.workload.EnsurePrimary(t.Context(), w.canary("cart"), "", "id-1", false))
	copied := w.object(configMapGVK, "env-primary").Object
	if blob, _, _ := unstructured.NestedString(copied, "binaryData", "blob"); blob != "AAEC" || copied["immutable"] != true {
		t.Errorf("got %v", copied)
	}
	if !w.observe().PrimaryUpToDate {
		t.Error("the copy is not up to date")
	}
	// Kubernetes rejects a change of immutable content: the object is recreated, at the source and in the copy.
	first := w.object(configMapGVK, "env-primary").GetUID()
	must(t, w.client.Delete(t.Context(), w.object(configMapGVK, "env")))
	w.applyYAML(`{apiVersion: v1, kind: ConfigMap, metadata: {name: env}, data: {COLOR: red}, immutable: true}`)
	must(t, w.workload.CopyTemplate(t.Context(), w.canary("cart"), w.observe().Target.Revision, "id-2"))
	if diff := cmp.Diff(map[string]any{"COLOR": "red"}, w.contentOf(configMapGVK, "env-primary")); diff != "" {
		t.Error(diff)
	}
	if w.object(configMapGVK, "env-primary").GetUID() == first {
		t.Error("an immutable ConfigMap was changed in place")
	}
	// A finalizer delays the deletion of the copy: an error names it, and nothing is retried until it is gone.
	w.patchYAML(configMapGVK, "env-primary", `{metadata: {finalizers: [backup.example/hold]}}`)
	must(t, w.client.Delete(t.Context(), w.object(configMapGVK, "env")))
	w.applyYAML(`{apiVersion: v1, kind: ConfigMap, metadata: {name: env}, data: {COLOR: green}, immutable: true}`)
	copyTemplate := func() error {
		return w.workload.CopyTemplate(t.Context(), w.canary("cart"), w.observe().Target.Revision, "id-3")
	}
	if err := copyTemplate(); !apierrors.IsAlreadyExists(err) {
		t.Errorf("the first time: got %v", err)
	}
	want := "updating the configuration of deployment cart-primary.shop failed: ConfigMap env-primary.shop is immutable, and its deletion waits for the finalizers backup.example/hold: remove them, and Serin creates it with the new content"
	if err := copyTemplate(); !errors.Is(err, ErrUnusable) || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
	w.patchYAML(configMapGVK, "env-primary", `{metadata: {finalizers: null}}`)
	must(t, copyTemplate())
}

func TestProblemsOfATarget(t *testing.T) {
	for _, test := range []struct {
		name    string
		prepare func(w *fakeCluster)
		want    string
	}{
		{
			"missing", func(w *fakeCluster) { must(w.t, w.client.Delete(w.t.Context(), w.object(deploymentKind, "cart"))) },
			`deployment cart.shop get query error: deployments.apps "cart" not found`,
		},
		{
			"configuration missing", func(w *fakeCluster) { must(w.t, w.client.Delete(w.t.Context(), w.object(configMapGVK, "env"))) },
			`createPrimaryDeployment failed: GetTargetConfigs failed: configmap env.shop get query error: configmap env.shop get query error: configmaps "env" not found`,
		},
		{"optional configuration missing", func(w *fakeCluster) { must(w.t, w.client.Delete(w.t.Context(), w.object(secretGVK, "creds"))) }, ""},
		{
			"no port", func(w *fakeCluster) { w.patchYAML(canaryGVK, "cart", `{spec: {service: {port: 0}}}`) },
			`reconcileService failed: service cart-canary.shop create error: Service "cart-canary" is invalid: spec.ports[0].port: Invalid value: 0: must be between 1 and 65535, inclusive`,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newCartCluster(t)
			w.t = t
			test.prepare(w)
			if got := w.observe().Problem; got != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
			err := w.workload.EnsurePrimary(t.Context(), w.canary("cart"), "", "id-1", false)
			if test.want == "" {
				must(t, err)
				return
			}
			expectRefused(t, err, ErrUnusable, test.want)
		})
	}
}

// TestTheStatusRevealsNothingOfASecret: its entry in status.serin.configs is the same for every content.
func TestTheStatusRevealsNothingOfASecret(t *testing.T) {
	shown := map[string]string{}
	for _, password := range []string{"hunter2", "correct horse"} {
		w := newCartCluster(t)
		w.patchYAML(secretGVK, "creds", fmt.Sprintf(`{data: {password: %s}}`, base64.StdEncoding.EncodeToString([]byte(password))))
		secret := w.object(secretGVK, "creds")
		shown[password] = w.observe().Configs["secret/creds"]
		if want := "resourceVersion " + secret.GetResourceVersion(); shown[password] != want {
			t.Errorf("got %q, want %q", shown[password], want)
		}
		if again := w.observe().Configs["secret/creds"]; again != shown[password] { // from the cache
			t.Errorf("%q became %q", shown[password], again)
		}
	}
	if shown["hunter2"] != shown["correct horse"] {
		t.Errorf("the content can be guessed from %q", shown)
	}
}

// TestNoConfigurationIsReadWithoutTracking runs a release with a client without permission to read ConfigMaps and Secrets.
func TestNoConfigurationIsReadWithoutTracking(t *testing.T) {
	w := newCartCluster(t)
	w.workload.Options.ConfigTracking = false
	denied := func(obj runtime.Object) error {
		switch obj.(type) {
		case *corev1.ConfigMap, *corev1.ConfigMapList, *corev1.Secret, *corev1.SecretList, *metav1.PartialObjectMetadata, *metav1.PartialObjectMetadataList:
			return apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps and secrets"}, "", nil)
		default:
			return nil
		}
	}
	limited := interceptor.NewClient(w.client, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			if err := denied(obj); err != nil {
				return err
			}
			return c.Get(ctx, key, obj, opts...)
		},
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if err := denied(list); err != nil {
				return err
			}
			return c.List(ctx, list, opts...)
		},
	})
	w.workload.Client, w.workload.APIReader = limited, limited
	c := w.canary("cart")
	must(t, w.workload.EnsurePrimary(t.Context(), c, "", "id-1", false))
	must(t, w.workload.CopyTemplate(t.Context(), c, w.observe().Target.Revision, "id-2"))
	must(t, w.workload.RestoreConfigs(t.Context(), c, "id-2"))
	must(t, w.workload.RestoreTemplate(t.Context(), c, "id-2"))
	must(t, w.workload.CollectConfigs(t.Context(), c))
}

func TestUntrackedConfiguration(t *testing.T) {
	w := newCartCluster(t)
	w.patchYAML(configMapGVK, "env", `{metadata: {annotations: {flagger.app/config-tracking: disabled-please}}}`)
	w.patchYAML(secretGVK, "creds", `{type: example.com/token}`)
	o := w.observe()
	if len(o.Configs) != 0 || o.FlaggerConfigs == nil {
		t.Errorf("got %v, %v", o.Configs, o.FlaggerConfigs)
	}
	w.workload.Options.ConfigTracking = false
	if o := w.observe(); o.FlaggerConfigs != nil || len(o.Configs) != 0 {
		t.Errorf("tracking is off: got %v", o.FlaggerConfigs)
	}
	must(t, w.workload.EnsurePrimary(t.Context(), w.canary("cart"), "", "id-1", false))
	if w.object(configMapGVK, "env-primary") != nil || !w.observe().PrimaryUpToDate {
		t.Error("want no copy, and the same references")
	}
}

func TestThePrimaryIsCreatedOnce(t *testing.T) {
	w := newCartCluster(t)
	must(t, w.workload.EnsurePrimary(t.Context(), w.canary("cart"), "", "id-1", false))
	o := w.observe()
	if !o.Primary.Found || o.Primary.PromotionID != "id-1" || !o.PrimaryUpToDate || o.Primary.Revision != "" {
		t.Errorf("got %+v", o)
	}
	w.expectNoRequests("with an up-to-date target", func() {
		must(t, w.workload.EnsurePrimary(t.Context(), w.canary("cart"), "", "id-2", false))
	})
	w.setImage("cart:2")
	if w.observe().PrimaryUpToDate {
		t.Error("another image counts as up to date")
	}
	w.expectNoRequests("with another target", func() { must(t, w.workload.EnsurePrimary(t.Context(), w.canary("cart"), "", "id-2", false)) })
}

func TestThePrimaryFollowsItsTargetUntilItServes(t *testing.T) {
	w := newCartCluster(t)
	c := w.canary("cart")
	must(t, w.workload.EnsurePrimary(t.Context(), c, "", "id-1", true))
	w.observe()
	w.expectNoRequests("nothing changed", func() { must(t, w.workload.EnsurePrimary(t.Context(), c, "", "id-2", true)) })
	w.setImage("cart:2")
	must(t, w.workload.EnsurePrimary(t.Context(), c, "", "id-2", true))
	if got := w.primaryImage(); got != "cart:2" || w.observe().Primary.PromotionID != "id-2" {
		t.Errorf("got %s, %s", got, w.observe().Primary.PromotionID)
	}
	w.patchYAML(configMapGVK, "env", `{data: {COLOR: green}}`)
	must(t, w.workload.EnsurePrimary(t.Context(), c, "", "id-3", true))
	if o := w.observe(); o.Primary.PromotionID != "id-3" || !o.PrimaryUpToDate {
		t.Errorf("changed configuration: got %+v", o.Primary)
	}
	w.patchYAML(deploymentKind, "cart", `{spec: {replicas: 5}}`)
	must(t, w.workload.EnsurePrimary(t.Context(), c, "", "id-4", true))
	if o := w.observe(); o.Primary.PromotionID != "id-3" || o.Primary.Replicas != 5 {
		t.Errorf("other replicas must not change the template: got %+v", o.Primary)
	}
	decided := w.observe().Target.Revision
	w.setImage("cart:3")
	expectRefused(t, w.workload.EnsurePrimary(t.Context(), c, decided, "id-5", true), ErrTargetChanged, "not the analysed "+decided)
	if got := w.primaryImage(); got != "cart:2" {
		t.Errorf("after a change of the target since the decision, the primary has %s, want cart:2", got)
	}
}

func TestAPrimaryOfAnotherOwnerIsRefused(t *testing.T) {
	for name, owner := range map[string]string{
		"was not created for Canary cart":       ``,
		"is controlled by Canary other":         `ownerReferences: [{apiVersion: flagger.app/v1beta1, kind: Canary, name: other, uid: u, controller: true}]`,
		"is controlled by an earlier Canary of": `ownerReferences: [{apiVersion: flagger.app/v1beta1, kind: Canary, name: cart, uid: u, controller: true}]`,
	} {
		t.Run(name, func(t *testing.T) {
			w := newCartCluster(t)
			w.t = t
			w.applyYAML(`{apiVersion: apps/v1, kind: Deployment, metadata: {name: cart-primary, ` + owner + `}, spec: {selector: {matchLabels: {app: x}}, template: {metadata: {labels: {app: x}}}}}`)
			for _, err := range []error{
				w.workload.EnsurePrimary(t.Context(), w.canary("cart"), "", "id-1", false),
				w.workload.CopyTemplate(t.Context(), w.canary("cart"), w.observe().Target.Revision, "id-1"),
				w.workload.RestoreTemplate(t.Context(), w.canary("cart"), "id-1"),
			} {
				expectRefused(t, err, ErrNotOwned, name)
			}
			if len(w.versionsOf("Deployment/cart-primary")) != 1 {
				t.Error("it was changed")
			}
		})
	}
}

func TestAnOrphanedPrimaryIsAdopted(t *testing.T) {
	w := newCartCluster(t)
	must(t, w.workload.EnsurePrimary(t.Context(), w.canary("cart"), "", "id-1", false))
	w.patchYAML(deploymentKind, "cart-primary", `{metadata: {ownerReferences: null}}`)
	if err := w.workload.EnsurePrimary(t.Context(), w.canary("cart"), "", "id-2", false); !errors.Is(err, readyourwrites.ErrStale) {
		t.Errorf("got %v, want ErrStale", err)
	}
	must(t, w.workload.EnsurePrimary(t.Context(), w.canary("cart"), "", "id-2", false))
	if !controlledBy(w.object(deploymentKind, "cart-primary"), w.canary("cart")) || w.observe().Primary.PromotionID != "id-1" {
		t.Error("want the owner, and an unchanged template")
	}
}

func TestAPromotionCopiesOnlyTheAnalysedRevision(t *testing.T) {
	w := newCartCluster(t)
	c := w.canary("cart")
	must(t, w.workload.EnsurePrimary(t.Context(), c, "", "id-1", false))
	w.setImage("cart:2")
	analysed := w.observe().Target.Revision

	w.setImage("cart:3")
	expectRefused(t, w.workload.CopyTemplate(t.Context(), c, analysed, "id-2"), ErrTargetChanged, "not the analysed "+analysed)
	w.setImage("cart:2")
	w.patchYAML(configMapGVK, "env", `{data: {COLOR: green}}`)
	expectRefused(t, w.workload.CopyTemplate(t.Context(), c, analysed, "id-2"), ErrTargetChanged, "")
	if got := w.primaryImage(); got != "cart:1" {
		t.Fatalf("the primary has %s", got)
	}

	w.patchYAML(configMapGVK, "env", `{data: {COLOR: blue}}`)
	must(t, w.workload.CopyTemplate(t.Context(), c, analysed, "id-2"))
	if o := w.observe(); w.primaryImage() != "cart:2" || o.Primary.PromotionID != "id-2" || !o.PrimaryUpToDate {
		t.Errorf("got %s, %+v", w.primaryImage(), o.Primary)
	}
	w.setImage("cart:4")
	w.expectNoRequests("the same promotion again", func() { must(t, w.workload.CopyTemplate(t.Context(), c, analysed, "id-2")) })
}

// The content may change after its checksum was read: content that was not analysed is not copied.
func TestConfigurationThatChangesDuringThePromotionIsNotCopied(t *testing.T) {
	w := newCartCluster(t)
	c := w.canary("cart")
	must(t, w.workload.EnsurePrimary(t.Context(), c, "", "id-1", false))
	w.patchYAML(configMapGVK, "env", `{data: {COLOR: green}}`)
	seen, err := w.workload.readWorkloads(t.Context(), c)
	must(t, err)
	w.patchYAML(configMapGVK, "env", `{data: {COLOR: red}}`)
	_, err = w.workload.ensureCopies(t.Context(), c, seen.configs, "id-2")
	expectRefused(t, err, ErrTargetChanged, "ConfigMap env.shop was changed or deleted just now")
	if diff := cmp.Diff(map[string]any{"COLOR": "blue"}, w.contentOf(configMapGVK, "env-primary")); diff != "" {
		t.Error(diff)
	}
}

func TestAConcurrentWriteOfThePrimaryIsAConflict(t *testing.T) {
	w := newCartCluster(t)
	c := w.canary("cart")
	must(t, w.workload.EnsurePrimary(t.Context(), c, "", "id-1", false))
	seen, err := w.workload.readWorkloads(t.Context(), c)
	must(t, err)
	w.patchYAML(deploymentKind, "cart-primary", `{spec: {paused: true}}`)
	err = w.workload.writeTemplate(t.Context(), c, seen, map[string]any{}, TemplateSource{})
	if !apierrors.IsConflict(err) || !strings.HasPrefix(err.Error(), "updating deployment cart-primary.shop template spec failed: ") {
		t.Errorf("got %v, want a conflict", err)
	}
}

func TestUnusedCopiesAreCollected(t *testing.T) {
	w := newCartCluster(t)
	c := w.canary("cart")
	must(t, w.workload.EnsurePrimary(t.Context(), c, "", "id-1", false))
	w.applyYAML(`{apiVersion: v1, kind: ConfigMap, metadata: {name: users-primary}}`)
	w.applyYAML(`{apiVersion: v1, kind: ConfigMap, metadata: {name: shared-primary, ownerReferences: [{apiVersion: flagger.app/v1beta1, kind: Canary, name: cart, uid: ` + string(c.UID) + `, controller: true}, {apiVersion: flagger.app/v1beta1, kind: Canary, name: other, uid: u}]}}`)
	w.patchYAML(deploymentKind, "cart", `{spec: {template: {spec: {containers: [{name: server, image: "cart:2"}]}}}}`)
	must(t, w.workload.CollectConfigs(t.Context(), c))
	if w.object(configMapGVK, "env-primary") == nil {
		t.Fatal("a copy that the primary still uses was deleted")
	}
	must(t, w.workload.CopyTemplate(t.Context(), c, w.observe().Target.Revision, "id-2"))
	must(t, w.workload.CollectConfigs(t.Context(), c))
	for name, want := range map[string]bool{"env-primary": false, "users-primary": true, "shared-primary": true, "env": true} {
		if got := w.object(configMapGVK, name) != nil; got != want {
			t.Errorf("%s exists: %v, want %v", name, got, want)
		}
	}
	w.expectNoRequests("nothing remains to collect", func() { must(t, w.workload.CollectConfigs(t.Context(), c)) })
}

// The primary of a former target may still serve, and restart its pods.
func TestCopiesOfFormerTargetsAreNotCollected(t *testing.T) {
	w := newCartCluster(t)
	must(t, w.workload.EnsurePrimary(t.Context(), w.canary("cart"), "", "id-1", false))
	w.applyYAML(`{apiVersion: v1, kind: ConfigMap, metadata: {name: basket-env}, data: {COLOR: red}}`)
	w.applyYAML(strings.NewReplacer("name: cart", "name: basket", "app: cart", "app: basket", "name: env", "name: basket-env").Replace(cartTarget))
	w.patchYAML(canaryGVK, "cart", `{spec: {targetRef: {name: basket}}}`)
	must(t, w.workload.EnsurePrimary(t.Context(), w.canary("cart"), "", "id-2", false))
	must(t, w.workload.CollectConfigs(t.Context(), w.canary("cart")))
	for _, name := range []string{"env-primary", "basket-env-primary"} {
		if w.object(configMapGVK, name) == nil {
			t.Errorf("%s was deleted", name)
		}
	}
	must(t, w.client.Delete(t.Context(), w.object(deploymentKind, "cart-primary")))
	must(t, w.workload.CollectConfigs(t.Context(), w.canary("cart")))
	if w.object(configMapGVK, "env-primary") != nil {
		t.Error("without the former primary, its copy was not deleted")
	}
}

func TestCopiesAreShared(t *testing.T) {
	w := newCartCluster(t)
	must(t, w.workload.EnsurePrimary(t.Context(), w.canary("cart"), "", "id-1", false))
	w.applyYAML(strings.NewReplacer("name: cart", "name: till", "app: cart", "app: till").Replace(cartTarget))
	w.applyYAML(strings.ReplaceAll(cartCanary, "name: cart", "name: till"))
	for range 2 {
		must(t, w.workload.EnsurePrimary(t.Context(), w.canary("till"), "", "id-1", true))
		must(t, w.workload.EnsurePrimary(t.Context(), w.canary("cart"), "", "id-1", true))
	}
	var owners []string
	for _, owner := range w.object(configMapGVK, "env-primary").GetOwnerReferences() {
		if owner.Controller != nil && *owner.Controller {
			owner.Name += " controls"
		}
		owners = append(owners, owner.Name)
	}
	if diff := cmp.Diff([]string{"cart controls", "till"}, owners); diff != "" {
		t.Error(diff)
	}
	if got := len(w.versionsOf("ConfigMap/env-primary")); got != 2 {
		t.Errorf("%d versions: the two Canaries replace each other's owner reference", got)
	}
}

// A Canary that does not use a shared copy any longer leaves it to the others, as if it had never shared it.
func TestASharedCopyIsLeftToItsUsers(t *testing.T) {
	for _, leaving := range []string{"cart", "till"} { // cart controls the copy
		t.Run(leaving, func(t *testing.T) {
			w := newCartCluster(t)
			w.applyYAML(strings.NewReplacer("name: cart", "name: till", "app: cart", "app: till").Replace(cartTarget))
			w.applyYAML(strings.ReplaceAll(cartCanary, "name: cart", "name: till"))
			for _, name := range []string{"cart", "till"} {
				must(t, w.workload.EnsurePrimary(t.Context(), w.canary(name), "", "id-1", true))
			}
			w.patchYAML(deploymentKind, leaving, `{spec: {template: {spec: {containers: [{name: server, image: "cart:2"}]}}}}`)
			must(t, w.workload.CopyTemplate(t.Context(), w.canary(leaving), "", "id-2"))
			for range 2 { // the second call has no effect
				must(t, w.workload.CollectConfigs(t.Context(), w.canary(leaving)))
			}
			remaining := w.canary(map[string]string{"cart": "till", "till": "cart"}[leaving])
			for _, kind := range []schema.GroupVersionKind{configMapGVK, secretGVK} {
				name := map[string]string{configMapKind: "env-primary", secretKind: "creds-primary"}[kind.Kind]
				copied := w.object(kind, name)
				if owners := copied.GetOwnerReferences(); len(owners) != 1 || !controlledBy(copied, remaining) || w.contentOf(kind, name) == nil {
					t.Errorf("%s %s: got owners %v, and content %v", kind.Kind, name, owners, w.contentOf(kind, name))
				}
			}
		})
	}
}

func TestAUsersObjectInPlaceOfACopyIsRefused(t *testing.T) {
	w := newCartCluster(t)
	w.applyYAML(`{apiVersion: v1, kind: ConfigMap, metadata: {name: env-primary}, data: {mine: "yes"}}`)
	err := w.workload.EnsurePrimary(t.Context(), w.canary("cart"), "", "id-1", false)
	expectRefused(t, err, ErrNotOwned, "createPrimaryDeployment failed: CreatePrimaryConfigs failed: ConfigMap env-primary.shop was not created for Canary cart")
	w.patchYAML(configMapGVK, "env-primary", `{data: {mine: null, COLOR: blue}}`)
	must(t, w.workload.EnsurePrimary(t.Context(), w.canary("cart"), "", "id-1", false)) // with Serin's content it counts as orphaned
}

// podProblemOf returns the problem of the pods of the target (or the primary) as the controller reports it.
func podProblemOf(t *testing.T, w *fakeCluster, c *flaggerv1.Canary, primary bool) (string, error) {
	t.Helper()
	pods, err := w.workload.Pods(t.Context(), c, primary)
	return pods.Problem().String(), err
}

func TestPodProblem(t *testing.T) {
	w := newCartCluster(t)
	c := w.canary("cart")
	must(t, w.workload.EnsurePrimary(t.Context(), c, "", "id-1", false))
	if got, err := podProblemOf(t, w, c, false); got != "" || err != nil {
		t.Errorf("without pods: got %q, %v", got, err)
	}
	w.applyYAML(`{apiVersion: v1, kind: Pod, metadata: {name: cart-b, labels: {app: cart}}, status: {containerStatuses: [{name: server, state: {waiting: {reason: CrashLoopBackOff, message: back-off}}}]}}`)
	w.applyYAML(`{apiVersion: v1, kind: Pod, metadata: {name: cart-a, labels: {app: cart}}, status: {containerStatuses: [{name: server, state: {waiting: {reason: ContainerCreating}}}]}}`)
	w.applyYAML(`{apiVersion: v1, kind: Pod, metadata: {name: prim-a, labels: {app: cart-primary}}, status: {conditions: [{type: PodScheduled, status: "False", reason: Unschedulable, message: "0/3 nodes"}]}}`)
	w.applyYAML(`{apiVersion: v1, kind: Pod, metadata: {name: other, labels: {app: other}}, status: {initContainerStatuses: [{name: i, state: {terminated: {exitCode: 1, reason: Error}}}]}}`)
	for primary, want := range map[bool]string{
		false: "pod cart-b: container server: CrashLoopBackOff: back-off",
		true:  "pod prim-a: Unschedulable: 0/3 nodes",
	} {
		clear(w.requests)
		if got, err := podProblemOf(t, w, c, primary); got != want || err != nil {
			t.Errorf("got %q, %v, want %q", got, err, want)
		}
		if diff := cmp.Diff(map[string]int{"list PodList": 1}, w.requests); diff != "" {
			t.Error(diff)
		}
	}
}

// A container that crashes repeatedly is waiting, terminated or running when it is observed.
func TestPodProblemOfAContainerBetweenTwoCrashes(t *testing.T) {
	const crashed = "lastState: {terminated: {exitCode: 1, reason: Error, message: no database}}, restartCount: 2"
	for status, want := range map[string]string{
		"state: {running: {}}, ready: false, " + crashed: "pod cart-a: container server: started again 2 times, last ended with Error, exit code 1: no database",
		"state: {running: {}}, ready: true, " + crashed:  "",
		"state: {running: {}}, ready: false":             "",
	} {
		w := newCartCluster(t)
		w.applyYAML(`{apiVersion: v1, kind: Pod, metadata: {name: cart-a, labels: {app: cart}}, status: {containerStatuses: [{name: server, ` + status + `}]}}`)
		if got, err := podProblemOf(t, w, w.canary("cart"), false); got != want || err != nil {
			t.Errorf("%s: got %q, %v, want %q", status, got, err, want)
		}
	}
}

func TestPodProblemsNameContainerAndImageWithTheCompleteMessage(t *testing.T) {
	w := newCartCluster(t)
	message := strings.Repeat("layer ", 33) + "unauthorized: access to the registry was denied"
	w.applyYAML(`{apiVersion: v1, kind: Pod, metadata: {name: cart-a, labels: {app: cart}}, status: {containerStatuses: [{name: server, image: "cart:v9", state: {waiting: {reason: ErrImagePull, message: "` + message + `"}}}]}}`)
	pods, err := w.workload.Pods(t.Context(), w.canary("cart"), false)
	must(t, err)
	want := PodProblem{Pod: "cart-a", Container: "server", Image: "cart:v9", Reason: "ErrImagePull", Message: message}
	if diff := cmp.Diff(want, pods.Problem()); diff != "" {
		t.Error(diff)
	}
	if got := pods.Problem().String(); !strings.HasSuffix(got, "layer …") { // not in the middle of "unauthorized"
		t.Errorf("the text of the controller is %q", got)
	}
}

func TestTheNewestTemplateIsReadOnRequest(t *testing.T) {
	w := newCartCluster(t)
	target := w.object(deploymentKind, "cart")
	mustSet(target.Object, "2025-12-31T00:00:00Z", "metadata", "creationTimestamp")
	must(t, w.client.Update(t.Context(), target))
	if got := w.observe(WithHistory).NewestTemplate.UTC().Format("2006-01-02"); got != "2025-12-31" {
		t.Errorf("without a history: got %s, want the creation time", got)
	}
	for name, created := range map[string]string{"cart-1": "2026-01-01T00:00:00Z", "cart-2": "2026-01-02T00:00:00Z"} {
		set := newObject(replicaSetKind, namespace, name)
		set.SetLabels(map[string]string{"app": "cart"})
		mustSet(set.Object, created, "metadata", "creationTimestamp")
		mustSet(set.Object, map[string]any{"metadata": map[string]any{"labels": map[string]any{"pod-template-hash": name}}}, "spec", "template")
		set.SetOwnerReferences([]metav1.OwnerReference{*metav1.NewControllerRef(target, deploymentKind)})
		must(t, w.client.Create(t.Context(), set))
	}
	if got := w.observe().NewestTemplate; !got.IsZero() {
		t.Errorf("without WithHistory: got %v", got)
	}
	if got := w.observe(WithHistory).NewestTemplate.UTC().Format("2006-01-02"); got != "2026-01-02" {
		t.Errorf("got %s", got)
	}
}

// A cache without our own last write shows a previous state of the cluster.
func TestAStaleCacheIsAnError(t *testing.T) {
	w := newCartCluster(t)
	c := w.canary("cart")
	// An object that Serin created and that the cache does not have exists or was deleted: the API server knows which.
	w.hideFromCache("cart-primary")
	must(t, w.workload.EnsurePrimary(t.Context(), c, "", "id-1", false))
	if _, err := w.workload.Observe(t.Context(), c); !errors.Is(err, readyourwrites.ErrStale) {
		t.Errorf("created, but missing in the cache: got %v", err)
	}
	w.hideFromCache("")
	stale := w.object(deploymentKind, "cart")
	must(t, w.workload.DownToZero(t.Context(), c))
	w.showStale(stale)
	if _, err := w.workload.Observe(t.Context(), c); !errors.Is(err, readyourwrites.ErrStale) {
		t.Errorf("got %v", err)
	}
	if err := w.workload.DownToZero(t.Context(), c); !errors.Is(err, readyourwrites.ErrStale) {
		t.Errorf("acting: got %v", err)
	}
	w.showStale(nil)
	if got := w.observe().Target.Replicas; got != 0 {
		t.Errorf("got %d", got)
	}
	must(t, w.client.Delete(t.Context(), w.object(deploymentKind, "cart-primary")))
	if w.observe().Primary.Found {
		t.Error("found after its deletion")
	}
	w.expectNoRequests("after the deletion", func() { w.observe() })
	w.workload.Forget(objectKey(c))
	if len(w.workload.cache.entries) != 0 {
		t.Error("state of a deleted Canary remains")
	}
}

// A primary that Flagger created by its rules counts as up to date (adoption R2).
func TestAPrimaryOfFlaggerIsUpToDate(t *testing.T) {
	w := newCartCluster(t)
	w.patchYAML(configMapGVK, "env", `{binaryData: {blob: AAEC}}`)
	w.patchYAML(deploymentKind, "cart", `{spec: {template: {metadata: {annotations: {argocd.argoproj.io/tracking-id: x}}, spec: {affinity: {podAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: host, labelSelector: {matchLabels: {app: cart}}}]}}}}}}`)
	c := w.canary("cart")
	seen, err := w.workload.readWorkloads(t.Context(), c)
	must(t, err)
	primary := w.workload.newPrimary(c, seen.target, seen.selectorPair, primaryTemplate(podTemplate(seen.target), seen.selectorPair, seen.trackedConfigKeys(), "uuid", flaggerRules), TemplateSource{})
	must(t, w.client.Create(t.Context(), primary))
	w.applyYAML(`{apiVersion: v1, kind: ConfigMap, metadata: {name: env-primary}, data: {COLOR: blue}}`)
	w.applyYAML(strings.Replace(cartCreds, "name: creds", "name: creds-primary", 1))
	if !w.observe().PrimaryUpToDate {
		t.Error("want the primary to be up to date")
	}
	w.patchYAML(configMapGVK, "env", `{data: {COLOR: green}}`)
	if w.observe().PrimaryUpToDate {
		t.Error("other content counts as up to date")
	}
}
