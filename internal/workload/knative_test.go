package workload

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// newKnativeCluster returns a cluster with a Service of Knative and a Canary for it.
func newKnativeCluster(t *testing.T) (*fakeCluster, Workload) {
	t.Helper()
	w := newFakeCluster(t)
	w.applyYAML(`{apiVersion: serving.knative.dev/v1, kind: Service, metadata: {name: fn, annotations: {note: mine}}, spec: {template: {spec: {containers: [{image: "fn:1"}]}}, ofTomorrow: 1}}`)
	w.applyYAML(`{apiVersion: flagger.app/v1beta1, kind: Canary, metadata: {name: fn}, spec: {provider: knative, targetRef: {apiVersion: serving.knative.dev/v1, kind: Service, name: fn}, analysis: {interval: 10s}}}`)
	return w, w.workload.ForCanary(w.canary("fn"))
}

// createRevision creates a revision like Knative.
func (w *fakeCluster) createRevision(name, created, ready string) {
	w.t.Helper()
	w.applyYAML(`{apiVersion: serving.knative.dev/v1, kind: Revision, metadata: {name: ` + name + `, creationTimestamp: "` + created + `"}, status: {conditions: [{type: Active, status: Unknown}, ` + ready + `]}}`)
	w.patchYAML(knativeServiceKind, "fn", `{status: {latestCreatedRevisionName: `+name+`}}`)
}

const isReady = `{type: Ready, status: "True"}`

func (w *fakeCluster) annotations() map[string]string {
	w.t.Helper()
	return w.object(knativeServiceKind, "fn").GetAnnotations()
}

func TestKnativeServiceIsReleased(t *testing.T) {
	w, kind := newKnativeCluster(t)
	ctx, c := t.Context(), w.canary("fn")
	see := func(asks ...ObserveOption) Observation {
		t.Helper()
		o, err := kind.Observe(ctx, c, asks...)
		must(t, err)
		return o
	}
	if o := see(); !o.Target.Found || o.Target.Readiness.Ready || o.Primary.Found || o.PrimaryUpToDate || o.Problem != "" {
		t.Errorf("before Knative has created a revision: %+v", o)
	}
	w.expectNoRequests("no revision yet", func() { must(t, kind.EnsurePrimary(ctx, c, "", "id-0", true)) })
	w.createRevision("fn-00001", "2026-01-01T00:00:00Z", isReady)
	must(t, kind.EnsurePrimary(ctx, c, "", "id-1", true))
	first := see(WithHistory)
	if !first.PrimaryUpToDate || !first.Primary.Readiness.Ready || first.Primary.PromotionID != "id-1" || first.Target.Available != 1 || !slices.Equal(first.Images, []string{"fn:1"}) {
		t.Errorf("got %+v", first)
	}
	if got := first.NewestTemplate.UTC().Format("2006-01-02"); got != "2026-01-01" {
		t.Errorf("the newest template is from %s", got)
	}
	if diff := cmp.Diff([]Object{{knativeServiceKind, "fn"}, {revisionKind, "fn-00001"}, {revisionKind, "fn-00001"}}, first.Dependencies); diff != "" {
		t.Error(diff)
	}

	w.createRevision("fn-00002", "2026-01-02T00:00:00Z", `{type: Ready, status: "False", reason: ContainerMissing, message: no such image}`)
	second := see()
	if second.PrimaryUpToDate || second.Target.Revision == first.Target.Revision || second.Target.FlaggerHash == first.Target.FlaggerHash {
		t.Errorf("got %+v", second)
	}
	if diff := cmp.Diff(Readiness{Message: "Knative Revision fn-00002 is not ready: ContainerMissing: no such image"}, second.Target.Readiness); diff != "" {
		t.Error(diff)
	}
	if second.Target.Available != 0 || !second.Primary.Readiness.Ready {
		t.Errorf("got %+v", second)
	}
	expectRefused(t, kind.EnsurePrimary(ctx, c, first.Target.Revision, "id-x", true), ErrTargetChanged, "not the analysed one")
	must(t, kind.EnsurePrimary(ctx, c, "", "id-x", false)) // a serving primary does not follow the target
	expectRefused(t, kind.CopyTemplate(ctx, c, first.Target.Revision, "id-2"), ErrTargetChanged, "Knative Service fn.shop has revision fn-00002, not the analysed one")
	must(t, kind.CopyTemplate(ctx, c, second.Target.Revision, "id-2"))
	w.expectNoRequests("copied already", func() { must(t, kind.CopyTemplate(ctx, c, second.Target.Revision, "id-2")) })
	want := map[string]string{"note": "mine", primaryRevision: "fn-00002", promotedAnnotation: "id-2", previousAnnotation: "fn-00001"}
	if diff := cmp.Diff(want, w.annotations()); diff != "" {
		t.Error(diff)
	}
	must(t, kind.RestoreTemplate(ctx, c, "id-3"))
	w.expectNoRequests("restored already", func() { must(t, kind.RestoreTemplate(ctx, c, "id-3")) })
	want = map[string]string{"note": "mine", primaryRevision: "fn-00001", promotedAnnotation: "id-3"}
	if diff := cmp.Diff(want, w.annotations()); diff != "" {
		t.Error(diff)
	}
	expectRefused(t, kind.RestoreTemplate(ctx, c, "id-4"), ErrHistoryGone, "Knative Service fn.shop lacks")
	must(t, kind.RestoreServices(ctx, c))
	if diff := cmp.Diff(map[string]string{"note": "mine"}, w.annotations()); diff != "" {
		t.Error(diff)
	}
	if kept, _, _ := unstructured.NestedInt64(w.object(knativeServiceKind, "fn").Object, "spec", "ofTomorrow"); kept != 1 {
		t.Error("an unknown field was removed")
	}
}

// Until it first serves, the primary is the newest revision of Knative.
func TestThePrimaryRevisionFollowsUntilItServes(t *testing.T) {
	w, kind := newKnativeCluster(t)
	ctx, c := t.Context(), w.canary("fn")
	w.createRevision("fn-00001", "2026-01-01T00:00:00Z", isReady)
	must(t, kind.EnsurePrimary(ctx, c, "", "id-1", true))
	w.createRevision("fn-00002", "2026-01-02T00:00:00Z", isReady)
	must(t, kind.EnsurePrimary(ctx, c, "", "id-2", true))
	if got := w.annotations()[primaryRevision]; got != "fn-00002" {
		t.Errorf("got %s", got)
	}
}

// If the annotation was removed, the primary is the revision that receives traffic.
func TestTheAnnotationIsRestoredFromTheTraffic(t *testing.T) {
	w, kind := newKnativeCluster(t)
	ctx, c := t.Context(), w.canary("fn")
	w.createRevision("fn-00001", "2026-01-01T00:00:00Z", isReady)
	w.createRevision("fn-00002", "2026-01-02T00:00:00Z", isReady)
	expectRefused(t, kind.RecreatePrimary(ctx, c, TemplateSource{}, "", "id-1"), ErrHistoryGone, "Knative Service fn.shop lost its annotation flagger.app/primary-revision")
	w.patchYAML(knativeServiceKind, "fn", `{spec: {traffic: [{latestRevision: true, percent: 30}, {revisionName: fn-00001, percent: 70}]}}`)
	must(t, kind.RecreatePrimary(ctx, c, TemplateSource{}, "", "id-1"))
	if got := w.annotations()[primaryRevision]; got != "fn-00001" {
		t.Errorf("got %s", got)
	}
	must(t, w.client.Delete(ctx, w.object(revisionKind, "fn-00001")))
	o, err := kind.Observe(ctx, c)
	if want := "Knative Revision fn-00001 is not ready: it does not exist"; err != nil || o.Primary.Readiness.Message != want {
		t.Errorf("got %+v, %v", o.Primary, err)
	}
}

func TestAMissingKnativeService(t *testing.T) {
	w, kind := newKnativeCluster(t)
	ctx, c := t.Context(), w.canary("fn")
	must(t, w.client.Delete(ctx, w.object(knativeServiceKind, "fn")))
	const missing = `Knative Service fn.shop get query error: services.serving.knative.dev "fn" not found`
	if o, err := kind.Observe(ctx, c); err != nil || o.Problem != missing || o.KindNotInstalled {
		t.Errorf("got %+v, %v", o, err)
	}
	expectRefused(t, kind.EnsurePrimary(ctx, c, "", "id-1", true), ErrUnusable, missing)
	must(t, kind.RestoreServices(ctx, c))
	w.absent = knativeServiceKind
	const unknown = "Service fn.shop cannot be read, because this cluster does not know its kind: install the definition of serving.knative.dev/v1"
	if o, err := kind.Observe(ctx, c); err != nil || o.Problem != unknown || !o.KindNotInstalled {
		t.Errorf("got %+v, %v", o, err)
	}
}
