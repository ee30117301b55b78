package workload

import (
	"context"
	"errors"
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
)

// createReplicaSet creates the ReplicaSet that the Deployment controller would create for the primary's current template.
func (w *fakeCluster) createReplicaSet(number string) {
	w.t.Helper()
	primary := w.object(deploymentKind, "cart-primary")
	set := newObject(replicaSetKind, namespace, "cart-primary-"+number)
	template, _, _ := unstructured.NestedMap(primary.Object, "spec", "template")
	mustSet(template, "hash"+number, "metadata", "labels", "pod-template-hash")
	set.Object["spec"] = map[string]any{"template": template, "selector": map[string]any{"matchLabels": map[string]any{"pod-template-hash": "hash" + number}}}
	set.SetLabels(map[string]string{"app": "cart-primary"})
	annotations := map[string]string{revisionAnnotation: number}
	maps.Copy(annotations, primary.GetAnnotations())
	set.SetAnnotations(annotations)
	set.SetOwnerReferences([]metav1.OwnerReference{*metav1.NewControllerRef(primary, deploymentKind)})
	must(w.t, w.client.Create(w.t.Context(), set))
}

func TestAFailedPromotionIsRolledBackWithItsConfiguration(t *testing.T) {
	w := newCartCluster(t)
	c := w.canary("cart")
	must(t, w.workload.EnsurePrimary(t.Context(), c, "", "id-1", false))
	w.createReplicaSet("9")
	w.patchYAML(configMapGVK, "env", `{data: {COLOR: green}}`)
	w.patchYAML(secretGVK, "creds", `{data: {pass: dHdv}}`)
	w.promoteImage("cart:2", "id-2")
	w.createReplicaSet("10")
	if diff := cmp.Diff(map[string]any{"COLOR": "green"}, w.contentOf(configMapGVK, "env-primary")); diff != "" {
		t.Fatal(diff)
	}

	for range 2 { // the second call has no effect
		must(t, w.workload.RestoreTemplate(t.Context(), c, "id-3"))
	}
	if got := w.primaryImage(); got != "cart:1" || w.observe().Primary.PromotionID != "id-3" {
		t.Errorf("got %s, %s", got, w.observe().Primary.PromotionID)
	}
	if diff := cmp.Diff(map[string]any{"COLOR": "blue"}, w.contentOf(configMapGVK, "env-primary")); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(map[string]any{"pass": "b25l"}, w.contentOf(secretGVK, "creds-primary")); diff != "" {
		t.Error(diff)
	}
	if _, found, _ := unstructured.NestedString(w.object(deploymentKind, "cart-primary").Object, "spec", "template", "metadata", "labels", "pod-template-hash"); found {
		t.Error("the hash of the ReplicaSet is in the template")
	}
	must(t, w.workload.CollectConfigs(t.Context(), c))
	if w.object(configMapGVK, "env-primary-previous-cart") != nil || w.object(secretGVK, "creds-primary-previous-cart") != nil {
		t.Error("stored content remains")
	}
	if w.object(configMapGVK, "env-primary") == nil || w.object(configMapGVK, "env") == nil {
		t.Error("configuration in use was deleted")
	}
}

// A promotion that changed only the configuration is reverted: the primary never had its template.
func TestAnIncompletePromotionIsReverted(t *testing.T) {
	w := newCartCluster(t)
	c := w.canary("cart")
	must(t, w.workload.EnsurePrimary(t.Context(), c, "", "id-1", false))
	w.patchYAML(configMapGVK, "env", `{data: {COLOR: green}}`)
	seen, err := w.workload.readWorkloads(t.Context(), c)
	must(t, err)
	_, err = w.workload.ensureCopies(t.Context(), c, seen.configs, "id-2")
	must(t, err)
	if w.observe().PrimaryUpToDate {
		t.Error("the primary counts as up to date although its configuration is the previous content")
	}
	must(t, w.workload.RestoreConfigs(t.Context(), c, "id-0"))
	if diff := cmp.Diff(map[string]any{"COLOR": "green"}, w.contentOf(configMapGVK, "env-primary")); diff != "" {
		t.Errorf("the ID of another promotion reverted it: %s", diff)
	}
	for range 2 { // the second call has no effect
		must(t, w.workload.RestoreConfigs(t.Context(), c, "id-2"))
	}
	w.patchYAML(configMapGVK, "env", `{data: {COLOR: blue}}`)
	if !w.observe().PrimaryUpToDate {
		t.Error("the primary does not count as up to date after the restoration")
	}
	if diff := cmp.Diff(map[string]any{"COLOR": "blue"}, w.contentOf(configMapGVK, "env-primary")); diff != "" {
		t.Error(diff)
	}
}

// A promotion that changed only the configuration is followed by another one: the configuration of the primary is still the
// content that was replaced first.
func TestTheStoredContentIsThatOfThePrimary(t *testing.T) {
	w := newCartCluster(t)
	c := w.canary("cart")
	must(t, w.workload.EnsurePrimary(t.Context(), c, "", "id-1", false))
	w.createReplicaSet("1")
	w.patchYAML(configMapGVK, "env", `{data: {COLOR: green}}`)
	seen, err := w.workload.readWorkloads(t.Context(), c)
	must(t, err)
	_, err = w.workload.ensureCopies(t.Context(), c, seen.configs, "id-2")
	must(t, err)
	w.patchYAML(configMapGVK, "env", `{data: {COLOR: red}}`)
	w.promoteImage("cart:3", "id-3")
	w.createReplicaSet("2")
	must(t, w.workload.RestoreTemplate(t.Context(), c, "id-4"))
	if diff := cmp.Diff(map[string]any{"COLOR": "blue"}, w.contentOf(configMapGVK, "env-primary")); diff != "" {
		t.Error(diff)
	}
}

// A promotion with the configuration of an earlier one, or without it, changes only the template: it counts as complete, and is
// reverted to what ran before it.
func TestAPromotionKeepsTheConfigurationOfAnEarlierOne(t *testing.T) {
	complete := func(w *fakeCluster) { w.promoteImage("cart:2", "id-2") }
	incomplete := func(w *fakeCluster) {
		seen, err := w.workload.readWorkloads(t.Context(), w.canary("cart"))
		must(t, err)
		_, err = w.workload.ensureCopies(t.Context(), w.canary("cart"), seen.configs, "id-2")
		must(t, err)
	}
	same := func(w *fakeCluster) { w.promoteImage("cart:3", "id-3") }
	none := func(w *fakeCluster) {
		w.patchYAML(deploymentKind, "cart", `{spec: {template: {spec: {containers: [{name: server, image: "cart:3"}]}}}}`)
		must(t, w.workload.CopyTemplate(t.Context(), w.canary("cart"), w.observe().Target.Revision, "id-3"))
	}
	for name, test := range map[string]struct {
		first, second func(w *fakeCluster)
		restored      string
	}{
		"complete, then the same":     {complete, same, "green"},
		"incomplete, then the same":   {incomplete, same, "blue"},
		"complete, then without it":   {complete, none, "green"},
		"incomplete, then without it": {incomplete, none, "blue"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newCartCluster(t)
			c := w.canary("cart")
			must(t, w.workload.EnsurePrimary(t.Context(), c, "", "id-1", false))
			w.createReplicaSet("1")
			w.patchYAML(configMapGVK, "env", `{data: {COLOR: green}}`)
			test.first(w)
			w.createReplicaSet("2")
			test.second(w)
			w.createReplicaSet("3")
			if !w.observe().PrimaryUpToDate {
				t.Error("the primary does not count as up to date after its promotion")
			}
			must(t, w.workload.RestoreTemplate(t.Context(), c, "id-4"))
			if diff := cmp.Diff(map[string]any{"COLOR": test.restored}, w.contentOf(configMapGVK, "env-primary")); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestWithoutHistoryNothingIsRestored(t *testing.T) {
	w := newCartCluster(t)
	c := w.canary("cart")
	expectRefused(t, w.workload.RestoreTemplate(t.Context(), c, "id-3"), ErrHistoryGone, "deployment cart-primary.shop was deleted")
	must(t, w.workload.EnsurePrimary(t.Context(), c, "", "id-1", false))
	w.promoteImage("cart:2", "id-2")
	w.createReplicaSet("2")
	expectRefused(t, w.workload.RestoreTemplate(t.Context(), c, "id-3"), ErrHistoryGone, "raise its revisionHistoryLimit")
	if got := w.primaryImage(); got != "cart:2" {
		t.Errorf("got %s", got)
	}
}

func TestADeletedPrimaryIsRecreatedFromItsHistory(t *testing.T) {
	w := newCartCluster(t)
	c := w.canary("cart")
	must(t, w.workload.EnsurePrimary(t.Context(), c, "", "id-1", false))
	w.createReplicaSet("1")
	w.setImage("cart:2") // not analysed yet
	w.observe()
	must(t, w.client.Delete(t.Context(), w.object(deploymentKind, "cart-primary")))
	must(t, w.workload.RecreatePrimary(t.Context(), c, TemplateSource{}, "", "id-2"))
	if got := w.primaryImage(); got != "cart:1" || w.observe().Primary.PromotionID != "id-2" {
		t.Errorf("got %s, %s", got, w.observe().Primary.PromotionID)
	}
	must(t, w.client.Delete(t.Context(), w.object(deploymentKind, "cart-primary")))
	must(t, w.client.Delete(t.Context(), w.object(replicaSetKind, "cart-primary-1")))
	expectRefused(t, w.workload.RecreatePrimary(t.Context(), c, TemplateSource{}, "", "id-3"), ErrHistoryGone, "deployment cart-primary.shop does not exist, and no ReplicaSet with its template remains")
}

// While the history is garbage-collected, the remaining templates may be older than the promoted one.
func TestADeletedPrimaryIsRecreatedFromThePromotedTemplate(t *testing.T) {
	w := newCartCluster(t)
	c := w.canary("cart")
	must(t, w.workload.EnsurePrimary(t.Context(), c, "", "id-1", false))
	first := w.observe().Target
	w.createReplicaSet("1")
	w.promoteImage("cart:2", "id-2")
	second := w.observe().Target
	w.createReplicaSet("2")
	w.promoteImage("cart:3", "id-3")
	w.createReplicaSet("3")
	w.setImage("cart:4") // not analysed yet
	for _, test := range []struct {
		source TemplateSource
		want   string
	}{
		{TemplateSource{Revision: second.Revision}, "cart:2"},
		{TemplateSource{FlaggerHash: first.FlaggerHash}, "cart:1"},
		{TemplateSource{Revision: first.Revision, FlaggerHash: second.FlaggerHash}, "cart:1"},
		{TemplateSource{}, "cart:3"},
	} {
		must(t, w.client.Delete(t.Context(), w.object(deploymentKind, "cart-primary")))
		must(t, w.workload.RecreatePrimary(t.Context(), c, test.source, "", "id-4"))
		annotated := templateSourceOf(w.object(deploymentKind, "cart-primary"))
		if got := w.primaryImage(); got != test.want || !annotated.matches(test.source) {
			t.Errorf("%+v: got %s with source %+v", test.source, got, annotated)
		}
	}
	must(t, w.client.Delete(t.Context(), w.object(deploymentKind, "cart-primary")))
	must(t, w.client.Delete(t.Context(), w.object(replicaSetKind, "cart-primary-2")))
	expectRefused(t, w.workload.RecreatePrimary(t.Context(), c, TemplateSource{Revision: second.Revision}, "", "id-5"), ErrHistoryGone, "no ReplicaSet with its template remains")

	// Primaries of Flagger have no source annotation.
	for _, number := range []string{"1", "3"} {
		w.patchYAML(replicaSetKind, "cart-primary-"+number, `{metadata: {annotations: {serin.dev/runs: null}}}`)
	}
	must(t, w.workload.RecreatePrimary(t.Context(), c, TemplateSource{Revision: second.Revision}, "", "id-5"))
	if got := w.primaryImage(); got != "cart:3" {
		t.Errorf("without any source annotation: got %s", got)
	}
}

// The source annotation follows the template but is not part of it, so that it restarts no pod.
func TestTheSourceAnnotationFollowsTheTemplate(t *testing.T) {
	w := newCartCluster(t)
	c := w.canary("cart")
	expectSource := func(want State) {
		t.Helper()
		primary := w.object(deploymentKind, "cart-primary")
		if got := templateSourceOf(primary); got != (TemplateSource{want.Revision, want.FlaggerHash}) {
			t.Errorf("got %+v, want the source of %+v", got, want)
		}
		if _, found := stringValues(podTemplate(primary)["metadata"].(map[string]any)["annotations"])[templateSourceAnnotation]; found {
			t.Error("the annotation is in the template")
		}
	}
	must(t, w.workload.EnsurePrimary(t.Context(), c, "", "id-1", false))
	first := w.observe().Target
	expectSource(first)
	w.createReplicaSet("1")
	w.promoteImage("cart:2", "id-2")
	expectSource(w.observe().Target)
	w.createReplicaSet("2")
	must(t, w.workload.RestoreTemplate(t.Context(), c, "id-3"))
	expectSource(first)
}

// A target that changes between the decision and the action is a new revision, from which no primary is created.
func TestAPrimaryIsNotCreatedFromAnotherRevision(t *testing.T) {
	w := newCartCluster(t)
	c := w.canary("cart")
	revision := w.observe().Target.Revision
	w.setImage("cart:2")
	expectRefused(t, w.workload.EnsurePrimary(t.Context(), c, revision, "id-1", false), ErrTargetChanged, "not the analysed "+revision)
	if w.object(deploymentKind, "cart-primary") != nil || w.object(configMapGVK, "env-primary") != nil {
		t.Error("objects were created")
	}
	must(t, w.workload.EnsurePrimary(t.Context(), c, w.observe().Target.Revision, "id-1", false))
}

// A primary that is deleted after a CopyTemplate is restored with the template and configuration from before it.
func TestADeletedPrimaryIsRecreatedWithItsConfiguration(t *testing.T) {
	w := newCartCluster(t)
	c := w.canary("cart")
	must(t, w.workload.EnsurePrimary(t.Context(), c, "", "id-1", false))
	before := w.observe().Target
	w.createReplicaSet("1")
	w.patchYAML(configMapGVK, "env", `{data: {COLOR: green}}`)
	w.promoteImage("cart:2", "id-2")
	w.createReplicaSet("2")
	must(t, w.client.Delete(t.Context(), w.object(deploymentKind, "cart-primary")))
	must(t, w.workload.RecreatePrimary(t.Context(), c, TemplateSource{Revision: before.Revision}, "id-2", "id-3"))
	if diff := cmp.Diff(map[string]any{"COLOR": "blue"}, w.contentOf(configMapGVK, "env-primary")); diff != "" || w.primaryImage() != "cart:1" {
		t.Errorf("got image %s\n%s", w.primaryImage(), diff)
	}
}

// failOneCreation lets the first creation of an object with that name fail.
type failOneCreation struct {
	client.Client
	name string
}

func (f *failOneCreation) Create(ctx context.Context, obj client.Object, opts ...client.CreateOption) error {
	if obj.GetName() == f.name {
		f.name = ""
		return errors.New("the API server is not available")
	}
	return f.Client.Create(ctx, obj, opts...)
}

// recreateEnv replaces the immutable configuration of the target.
func (w *fakeCluster) recreateEnv(color string) {
	w.t.Helper()
	must(w.t, w.client.Delete(w.t.Context(), w.object(configMapGVK, "env")))
	w.applyYAML(`{apiVersion: v1, kind: ConfigMap, metadata: {name: env}, data: {COLOR: ` + color + `}, immutable: true}`)
}

// A copy of immutable configuration is deleted and created again: without it, the primary could not start any pod.
func TestACopyThatIsMissingAfterAFailureIsRestored(t *testing.T) {
	w := newCartCluster(t)
	c := w.canary("cart")
	w.recreateEnv("blue")
	must(t, w.workload.EnsurePrimary(t.Context(), c, "", "id-1", false))
	w.createReplicaSet("1")
	w.recreateEnv("green")
	w.promoteImage("cart:2", "id-2")
	w.createReplicaSet("2")
	w.workload.Client = &failOneCreation{w.workload.Client, "env-primary"}
	if err := w.workload.RestoreTemplate(t.Context(), c, "id-3"); err == nil || w.object(configMapGVK, "env-primary") != nil {
		t.Fatalf("got %v, want an error between the deletion and the creation", err)
	}
	must(t, w.workload.RestoreTemplate(t.Context(), c, "id-3"))
	if diff := cmp.Diff(map[string]any{"COLOR": "blue"}, w.contentOf(configMapGVK, "env-primary")); diff != "" || w.primaryImage() != "cart:1" {
		t.Errorf("got image %s\n%s", w.primaryImage(), diff)
	}
	if restored := w.object(configMapGVK, "env-primary"); restored == nil || !controlledBy(restored, c) {
		t.Error("the restored copy does not belong to the Canary")
	}
}

// A promotion that was not completed, because the copy could not be created again, is followed by another one.
func TestTheStoredContentSurvivesAnIncompletePromotion(t *testing.T) {
	w := newCartCluster(t)
	c := w.canary("cart")
	w.recreateEnv("blue")
	must(t, w.workload.EnsurePrimary(t.Context(), c, "", "id-1", false))
	w.createReplicaSet("1")
	w.recreateEnv("green")
	w.setImage("cart:2")
	w.workload.Client = &failOneCreation{w.workload.Client, "env-primary"}
	if err := w.workload.CopyTemplate(t.Context(), c, w.observe().Target.Revision, "id-2"); err == nil || w.object(configMapGVK, "env-primary") != nil {
		t.Fatalf("got %v, want an error between the deletion and the creation", err)
	}
	w.recreateEnv("red")
	w.promoteImage("cart:3", "id-3")
	w.createReplicaSet("2")
	must(t, w.workload.RestoreTemplate(t.Context(), c, "id-4"))
	if diff := cmp.Diff(map[string]any{"COLOR": "blue"}, w.contentOf(configMapGVK, "env-primary")); diff != "" {
		t.Error(diff)
	}
}

// Canaries with the same configuration share its copy: a rollback of one of them must not revert the promotion of the other, and
// the stored content of one does not prevent a promotion of the other.
func TestASharedCopyIsNotRestored(t *testing.T) {
	w := newCartCluster(t)
	w.applyYAML(strings.NewReplacer("name: cart", "name: till", "app: cart", "app: till").Replace(cartTarget))
	w.applyYAML(strings.ReplaceAll(cartCanary, "name: cart", "name: till"))
	cart, till := w.canary("cart"), w.canary("till")
	for _, c := range []*flaggerv1.Canary{cart, till} {
		must(t, w.workload.EnsurePrimary(t.Context(), c, "", "id-1", true))
	}
	w.createReplicaSet("1")
	w.patchYAML(configMapGVK, "env", `{data: {COLOR: green}}`)
	w.promoteImage("cart:2", "id-2")
	w.createReplicaSet("2")
	must(t, w.workload.CopyTemplate(t.Context(), till, "", "id-2"))
	must(t, w.workload.CollectConfigs(t.Context(), till))

	err := w.workload.RestoreTemplate(t.Context(), cart, "id-3")
	want := "ConfigMap env-primary.shop is shared by the Canaries cart, till: its content before the promotion of cart is not restored, because till may have promoted " +
		"the current one. To be independent, their targets need different ConfigMaps"
	if err == nil || exceptWarnings(err) != nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
	must(t, w.workload.RestoreTemplate(t.Context(), cart, "id-3"))
	if diff := cmp.Diff(map[string]any{"COLOR": "green"}, w.contentOf(configMapGVK, "env-primary")); diff != "" || w.primaryImage() != "cart:1" {
		t.Errorf("got image %s\n%s", w.primaryImage(), diff)
	}

	w.patchYAML(configMapGVK, "env", `{data: {COLOR: red}}`)
	must(t, w.workload.CopyTemplate(t.Context(), till, "", "id-4"))
	if diff := cmp.Diff(map[string]any{"COLOR": "red"}, w.contentOf(configMapGVK, "env-primary")); diff != "" {
		t.Error(diff)
	}
}

// hiddenMetadata is a cache that does not show an object yet.
type hiddenMetadata struct {
	client.Client
	name string
}

func (h hiddenMetadata) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	if _, isMetadata := obj.(*metav1.PartialObjectMetadata); isMetadata && key.Name == h.name {
		return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
	}
	return h.Client.Get(ctx, key, obj, opts...)
}

// The stored content may be newer than the cache, and after the template is restored, nothing restores it any longer.
func TestContentThatWasStoredJustNowIsRestored(t *testing.T) {
	w := newCartCluster(t)
	c := w.canary("cart")
	must(t, w.workload.EnsurePrimary(t.Context(), c, "", "id-1", false))
	before := w.observe().Target
	w.createReplicaSet("1")
	w.patchYAML(configMapGVK, "env", `{data: {COLOR: green}}`)
	w.promoteImage("cart:2", "id-2")
	w.createReplicaSet("2")
	w.workload.Client = hiddenMetadata{w.workload.Client, "env-primary-previous-cart"}
	expectBlue := func(what string) {
		t.Helper()
		if diff := cmp.Diff(map[string]any{"COLOR": "blue"}, w.contentOf(configMapGVK, "env-primary")); diff != "" {
			t.Errorf("%s: %s", what, diff)
		}
	}
	must(t, w.workload.RestoreTemplate(t.Context(), c, "id-3"))
	expectBlue("RestoreTemplate")
	w.patchYAML(configMapGVK, "env-primary", `{data: {COLOR: green}}`)
	must(t, w.client.Delete(t.Context(), w.object(deploymentKind, "cart-primary")))
	must(t, w.workload.RecreatePrimary(t.Context(), c, TemplateSource{Revision: before.Revision}, "id-2", "id-4"))
	expectBlue("RecreatePrimary")
}
