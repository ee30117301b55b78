package workload

import (
	"maps"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// replicaSet is what the controller of Deployments keeps of a template.
func (w *world) replicaSet(number string) {
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

func TestAFailedPromotionIsTakenBackWithItsConfiguration(t *testing.T) {
	w := cart(t)
	c := w.canary("cart")
	must(t, w.d.EnsurePrimary(t.Context(), c, "", "id-1", false))
	w.replicaSet("9")
	w.edit(configMapGVK, "env", `{data: {COLOR: green}}`)
	w.edit(secretGVK, "creds", `{data: {pass: dHdv}}`)
	w.promoted("cart:2", "id-2")
	w.replicaSet("10")
	if diff := cmp.Diff(map[string]any{"COLOR": "green"}, w.data(configMapGVK, "env-primary")); diff != "" {
		t.Fatal(diff)
	}

	for range 2 { // the second time it is done
		must(t, w.d.RestoreTemplate(t.Context(), c, "id-3"))
	}
	if got := w.primaryImage(); got != "cart:1" || w.observe().Primary.PromotionID != "id-3" {
		t.Errorf("got %s, %s", got, w.observe().Primary.PromotionID)
	}
	if diff := cmp.Diff(map[string]any{"COLOR": "blue"}, w.data(configMapGVK, "env-primary")); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(map[string]any{"pass": "b25l"}, w.data(secretGVK, "creds-primary")); diff != "" {
		t.Error(diff)
	}
	if _, found, _ := unstructured.NestedString(w.object(deploymentKind, "cart-primary").Object, "spec", "template", "metadata", "labels", "pod-template-hash"); found {
		t.Error("the hash of the ReplicaSet is in the template")
	}
	must(t, w.d.CollectConfigs(t.Context(), c))
	if w.object(configMapGVK, "env-primary-previous") != nil || w.object(secretGVK, "creds-primary-previous") != nil {
		t.Error("what was kept is still there")
	}
	if w.object(configMapGVK, "env-primary") == nil || w.object(configMapGVK, "env") == nil {
		t.Error("what is in use is gone")
	}
}

// A promotion that got no further than the configuration is taken back: the primary never had its template.
func TestAPromotionThatWasRefusedHalfwayIsTakenBack(t *testing.T) {
	w := cart(t)
	c := w.canary("cart")
	must(t, w.d.EnsurePrimary(t.Context(), c, "", "id-1", false))
	w.edit(configMapGVK, "env", `{data: {COLOR: green}}`)
	seen, err := w.d.readWorkloads(t.Context(), c)
	must(t, err)
	_, err = w.d.ensureCopies(t.Context(), c, seen.configs, "id-2")
	must(t, err)
	if w.observe().PrimaryUpToDate {
		t.Error("the pods of the primary read what was there before")
	}
	must(t, w.d.RestoreConfigs(t.Context(), c, "id-0"))
	if diff := cmp.Diff(map[string]any{"COLOR": "green"}, w.data(configMapGVK, "env-primary")); diff != "" {
		t.Errorf("another promotion is none of ours: %s", diff)
	}
	for range 2 { // the second time it is done
		must(t, w.d.RestoreConfigs(t.Context(), c, "id-2"))
	}
	w.edit(configMapGVK, "env", `{data: {COLOR: blue}}`)
	if !w.observe().PrimaryUpToDate {
		t.Error("what is kept is what it reads again")
	}
	if diff := cmp.Diff(map[string]any{"COLOR": "blue"}, w.data(configMapGVK, "env-primary")); diff != "" {
		t.Error(diff)
	}
}

// A promotion that got no further than the configuration is followed by another one: what the primary runs is still what
// was replaced first.
func TestWhatIsKeptIsWhatThePrimaryRan(t *testing.T) {
	w := cart(t)
	c := w.canary("cart")
	must(t, w.d.EnsurePrimary(t.Context(), c, "", "id-1", false))
	w.replicaSet("1")
	w.edit(configMapGVK, "env", `{data: {COLOR: green}}`)
	seen, err := w.d.readWorkloads(t.Context(), c)
	must(t, err)
	_, err = w.d.ensureCopies(t.Context(), c, seen.configs, "id-2")
	must(t, err)
	w.edit(configMapGVK, "env", `{data: {COLOR: red}}`)
	w.promoted("cart:3", "id-3")
	w.replicaSet("2")
	must(t, w.d.RestoreTemplate(t.Context(), c, "id-4"))
	if diff := cmp.Diff(map[string]any{"COLOR": "blue"}, w.data(configMapGVK, "env-primary")); diff != "" {
		t.Error(diff)
	}
}

func TestWithoutHistoryNothingIsRestored(t *testing.T) {
	w := cart(t)
	c := w.canary("cart")
	refused(t, w.d.RestoreTemplate(t.Context(), c, "id-3"), ErrHistoryGone, "deployment cart-primary.shop is gone")
	must(t, w.d.EnsurePrimary(t.Context(), c, "", "id-1", false))
	w.promoted("cart:2", "id-2")
	w.replicaSet("2")
	refused(t, w.d.RestoreTemplate(t.Context(), c, "id-3"), ErrHistoryGone, "raise its revisionHistoryLimit")
	if got := w.primaryImage(); got != "cart:2" {
		t.Errorf("got %s", got)
	}
}

func TestADeletedPrimaryIsMadeFromItsHistory(t *testing.T) {
	w := cart(t)
	c := w.canary("cart")
	must(t, w.d.EnsurePrimary(t.Context(), c, "", "id-1", false))
	w.replicaSet("1")
	w.image("cart:2") // not analysed yet
	w.observe()
	must(t, w.client.Delete(t.Context(), w.object(deploymentKind, "cart-primary")))
	must(t, w.d.RecreatePrimary(t.Context(), c, TemplateSource{}, "", "id-2"))
	if got := w.primaryImage(); got != "cart:1" || w.observe().Primary.PromotionID != "id-2" {
		t.Errorf("got %s, %s", got, w.observe().Primary.PromotionID)
	}
	must(t, w.client.Delete(t.Context(), w.object(deploymentKind, "cart-primary")))
	must(t, w.client.Delete(t.Context(), w.object(replicaSetKind, "cart-primary-1")))
	refused(t, w.d.RecreatePrimary(t.Context(), c, TemplateSource{}, "", "id-3"), ErrHistoryGone, "deployment cart-primary.shop was deleted in the middle of a release")
}

// What is left of the history may be older than what was promoted, when it is being collected.
func TestADeletedPrimaryIsMadeOfWhatWasPromoted(t *testing.T) {
	w := cart(t)
	c := w.canary("cart")
	must(t, w.d.EnsurePrimary(t.Context(), c, "", "id-1", false))
	first := w.observe().Target
	w.replicaSet("1")
	w.promoted("cart:2", "id-2")
	second := w.observe().Target
	w.replicaSet("2")
	w.promoted("cart:3", "id-3")
	w.replicaSet("3")
	w.image("cart:4") // not analysed yet
	for _, test := range []struct {
		of   TemplateSource
		want string
	}{
		{TemplateSource{Revision: second.Revision}, "cart:2"},
		{TemplateSource{FlaggerHash: first.FlaggerHash}, "cart:1"},
		{TemplateSource{Revision: first.Revision, FlaggerHash: second.FlaggerHash}, "cart:1"},
		{TemplateSource{}, "cart:3"},
	} {
		must(t, w.client.Delete(t.Context(), w.object(deploymentKind, "cart-primary")))
		must(t, w.d.RecreatePrimary(t.Context(), c, test.of, "", "id-4"))
		said := templateSourceOf(w.object(deploymentKind, "cart-primary"))
		if got := w.primaryImage(); got != test.want || !said.matches(test.of) {
			t.Errorf("%+v: got %s, and it says %+v", test.of, got, said)
		}
	}
	must(t, w.client.Delete(t.Context(), w.object(deploymentKind, "cart-primary")))
	must(t, w.client.Delete(t.Context(), w.object(replicaSetKind, "cart-primary-2")))
	refused(t, w.d.RecreatePrimary(t.Context(), c, TemplateSource{Revision: second.Revision}, "", "id-5"), ErrHistoryGone, "no ReplicaSet of what it ran is left")

	// Of primaries that Flagger made nothing is known.
	for _, number := range []string{"1", "3"} {
		w.edit(replicaSetKind, "cart-primary-"+number, `{metadata: {annotations: {serin.dev/runs: null}}}`)
	}
	must(t, w.d.RecreatePrimary(t.Context(), c, TemplateSource{Revision: second.Revision}, "", "id-5"))
	if got := w.primaryImage(); got != "cart:3" {
		t.Errorf("without a word about any of them: got %s", got)
	}
}

// What a primary says of itself follows its template, and nothing of it is in the template: no pod is restarted for it.
func TestAPrimarySaysWhatItWasMadeOf(t *testing.T) {
	w := cart(t)
	c := w.canary("cart")
	says := func(want State) {
		t.Helper()
		primary := w.object(deploymentKind, "cart-primary")
		if got := templateSourceOf(primary); got != (TemplateSource{want.Revision, want.FlaggerHash}) {
			t.Errorf("got %+v, want that of %+v", got, want)
		}
		if _, found := stringValues(podTemplate(primary)["metadata"].(map[string]any)["annotations"])[templateSourceAnnotation]; found {
			t.Error("it is in the template")
		}
	}
	must(t, w.d.EnsurePrimary(t.Context(), c, "", "id-1", false))
	first := w.observe().Target
	says(first)
	w.replicaSet("1")
	w.promoted("cart:2", "id-2")
	says(w.observe().Target)
	w.replicaSet("2")
	must(t, w.d.RestoreTemplate(t.Context(), c, "id-3"))
	says(first)
}

// A target that changes between what is decided and what is done is a new revision, and makes no primary.
func TestAPrimaryIsNotMadeOfAnotherRevision(t *testing.T) {
	w := cart(t)
	c := w.canary("cart")
	revision := w.observe().Target.Revision
	w.image("cart:2")
	refused(t, w.d.EnsurePrimary(t.Context(), c, revision, "id-1", false), ErrChanged, "not the analysed "+revision)
	if w.object(deploymentKind, "cart-primary") != nil || w.object(configMapGVK, "env-primary") != nil {
		t.Error("something was made")
	}
	must(t, w.d.EnsurePrimary(t.Context(), c, w.observe().Target.Revision, "id-1", false))
}

// One that is deleted after it got the copy of a run comes back as it was before: template and configuration.
func TestADeletedPrimaryGetsItsConfigurationBack(t *testing.T) {
	w := cart(t)
	c := w.canary("cart")
	must(t, w.d.EnsurePrimary(t.Context(), c, "", "id-1", false))
	before := w.observe().Target
	w.replicaSet("1")
	w.edit(configMapGVK, "env", `{data: {COLOR: green}}`)
	w.promoted("cart:2", "id-2")
	w.replicaSet("2")
	must(t, w.client.Delete(t.Context(), w.object(deploymentKind, "cart-primary")))
	must(t, w.d.RecreatePrimary(t.Context(), c, TemplateSource{Revision: before.Revision}, "id-2", "id-3"))
	if diff := cmp.Diff(map[string]any{"COLOR": "blue"}, w.data(configMapGVK, "env-primary")); diff != "" || w.primaryImage() != "cart:1" {
		t.Errorf("it runs %s\n%s", w.primaryImage(), diff)
	}
}
