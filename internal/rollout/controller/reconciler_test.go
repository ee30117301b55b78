package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/reconciler"
	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/internal/rollout"
	"github.com/serin-dev/serin/internal/rollout/replicaset"
	"github.com/serin-dev/serin/internal/telemetry"
)

const cart = `
apiVersion: argoproj.io/v1alpha1
kind: Rollout
metadata: {name: cart, generation: 1}
spec:
  replicas: 2
  selector: {matchLabels: {app: cart}}
  template:
    metadata: {labels: {app: cart}}
    spec: {containers: [{name: cart, image: "cart:1"}]}
  strategy: {canary: {stableService: cart, steps: [{setWeight: 50}, {pause: {}}]}}
`

const cartService = `
apiVersion: v1
kind: Service
metadata: {name: cart, annotations: {owner: web}}
spec: {selector: {app: cart}, ports: [{port: 80}]}
`

func withImage(to string) func(*argov1.Rollout) {
	return func(object *argov1.Rollout) { object.Spec.Template.Spec.Containers[0].Image = to }
}

func TestAnIdleRolloutCostsNoRequest(t *testing.T) {
	p := newFakeCluster(t, cart, cartService)
	p.settle()
	p.edit(withImage("cart:2"))
	p.settle()
	if status := p.rollout().Status; status.Phase != argov1.RolloutPhasePaused {
		t.Fatalf("phase %s: %s", status.Phase, status.Message)
	}
	p.writes, p.live = nil, nil
	for range 3 {
		if _, err := p.reconcile(); err != nil {
			t.Fatal(err)
		}
	}
	if len(p.writes) > 0 || len(p.live) > 0 {
		t.Errorf("wrote %v, read %v", p.writes, p.live)
	}
	if got := p.replicaSetNames(); !slices.Equal(got, []string{"cart:1=1", "cart:2=1"}) {
		t.Errorf("ReplicaSets %v", got)
	}
}

func TestAReleaseCostsFewRequests(t *testing.T) {
	p := newFakeCluster(t, strings.Replace(cart, "{pause: {}}", "{pause: {duration: 10}}", 1), cartService)
	p.settle()
	p.edit(withImage("cart:2"))
	var all []string
	for range 60 {
		p.writes = nil
		result, err := p.reconcile()
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, p.writes...)
		p.startPods()
		if len(p.writes) == 0 {
			if result.RequeueAfter == 0 {
				break
			}
			p.clock.Step(result.RequeueAfter + time.Second)
		}
	}
	if status := p.rollout().Status; status.Phase != argov1.RolloutPhaseHealthy {
		t.Fatalf("phase %s: %s", status.Phase, status.Message)
	}
	if len(p.live) > 0 {
		t.Errorf("read %v", p.live)
	}
	if most := 14; len(all) > most {
		t.Errorf("%d writes, events apart, want %d at most:\n%s", len(all), most, strings.Join(all, "\n"))
	}
}

// TestAWaitIsExplainedInTheStatus: with the next write, or with a write of its own once it has lasted.
func TestAWaitIsExplainedInTheStatus(t *testing.T) {
	p := newFakeCluster(t, cart, cartService)
	p.settle()
	p.edit(withImage("cart:2"))
	p.settle()
	explained := func(when string) {
		t.Helper()
		if waits := waitingGates(shownGates(p.rollout().Status)); len(waits) != 1 || waits[0].Opener != "person" {
			t.Errorf("%s the status shows that it waits for %+v", when, waits)
		}
	}
	explained("paused,")

	forgotten := p.rollout()
	forgotten.Status.Serin = nil
	if err := p.client.Status().Update(t.Context(), forgotten); err != nil {
		t.Fatal(err)
	}
	result, err := p.reconcile()
	if err != nil || result.RequeueAfter == 0 || result.RequeueAfter > reconciler.ExplainAfter {
		t.Fatalf("wake in %s, %v", result.RequeueAfter, err)
	}
	p.clock.Step(reconciler.ExplainAfter)
	p.settle()
	explained("after a while")
	p.clock.Step(reconciler.ExplainAfter)
	p.writes = nil
	if result, err := p.reconcile(); err != nil || len(p.writes) > 0 || result.RequeueAfter > 0 {
		t.Errorf("it is explained, and wrote %v, wakes in %s, %v", p.writes, result.RequeueAfter, err)
	}
}

func TestAReplicaSetOfAnotherOwnerKeepsItsName(t *testing.T) {
	p := newFakeCluster(t, cart, cartService)
	p.settle()
	var first appsv1.ReplicaSetList
	if err := p.client.List(t.Context(), &first); err != nil || len(first.Items) != 1 {
		t.Fatalf("%d ReplicaSets, %v", len(first.Items), err)
	}
	name := first.Items[0].Name

	p = newFakeCluster(t, cart, cartService, fmt.Sprintf(`
apiVersion: apps/v1
kind: ReplicaSet
metadata: {name: %s, labels: {app: other}}
spec: {replicas: 3, selector: {matchLabels: {app: other}}, template: {metadata: {labels: {app: other}}, spec: {containers: [{name: other, image: "other:1"}]}}}
`, name))
	p.settle()
	if count := p.rollout().Status.CollisionCount; count == nil || *count != 1 {
		t.Errorf("collisionCount %v, want 1", count)
	}
	if got := p.replicaSetNames(); !slices.Equal(got, []string{"cart:1=2"}) {
		t.Errorf("ReplicaSets %v", got)
	}
	other := &appsv1.ReplicaSet{}
	if err := p.client.Get(t.Context(), client.ObjectKey{Namespace: "shop", Name: name}, other); err != nil || *other.Spec.Replicas != 3 || len(other.OwnerReferences) > 0 {
		t.Errorf("the ReplicaSet of another owner was changed: %+v, %v", other, err)
	}
}

func TestAReplicaSetThatIsRejectedIsReportedInTheStatus(t *testing.T) {
	p := newFakeCluster(t, cart, cartService)
	p.refuse = func(verb string, object client.Object) error {
		if _, is := object.(*appsv1.ReplicaSet); is && verb == "create" {
			return apierrors.NewForbidden(schema.GroupResource{Group: "apps", Resource: "replicasets"}, object.GetName(), fmt.Errorf("exceeded quota"))
		}
		return nil
	}
	var result reconcile.Result
	for range 3 {
		result, _ = p.reconcile()
	}
	if result.RequeueAfter == 0 {
		t.Error("the reconciliation is not retried")
	}
	if c := p.condition(argov1.RolloutProgressing); c.Reason != "ReplicaSetCreateError" || !strings.Contains(c.Message, "exceeded quota") {
		t.Errorf("condition %+v", c)
	}
	p.waitForEvent("ReplicaSetCreateError: Failed to create new replica set")
	p.refuse = nil
	p.settle()
	if got := p.replicaSetNames(); !slices.Equal(got, []string{"cart:1=2"}) {
		t.Errorf("permitted, the ReplicaSets are %v", got)
	}
}

// TestARejectedWriteIsReportedOnTheRollout: once in an event, and in the status once it has lasted. When the write is
// permitted, the release continues.
func TestARejectedWriteIsReportedOnTheRollout(t *testing.T) {
	p := newFakeCluster(t, cart, cartService)
	p.settle()
	p.refuse = func(_ string, object client.Object) error {
		if _, is := object.(*appsv1.ReplicaSet); is {
			return apierrors.NewForbidden(schema.GroupResource{Group: "apps", Resource: "replicasets"}, object.GetName(), errors.New("serin cannot patch it"))
		}
		return nil
	}
	p.edit(func(object *argov1.Rollout) { object.Spec.Replicas = new(int32(3)) })
	for range 2 {
		if result, err := p.reconcile(); err != nil || result.RequeueAfter == 0 {
			t.Fatalf("the reconciliation is not retried: %v, %v", result, err)
		}
		p.clock.Step(reconciler.ExplainAfter)
	}
	p.waitForEvent("ReconciliationError: Reconciliation failed with error: replicasets.apps")
	gates := shownGates(p.rollout().Status)
	if len(gates) == 0 || gates[0].Name != "refused" || gates[0].Opener != "person" || !strings.Contains(gates[0].Message, "serin cannot patch it") {
		t.Errorf("the status shows that it waits for %+v", gates)
	}
	p.refuse = nil
	p.settle()
	if got := p.replicaSetNames(); !slices.Equal(got, []string{"cart:1=3"}) {
		t.Errorf("permitted, the ReplicaSets are %v", got)
	}
}

// TestARejectedRolloutIsRetriedWithBackoff: as docs/security.md describes, and like a Canary.
func TestARejectedRolloutIsRetriedWithBackoff(t *testing.T) {
	p := newFakeCluster(t, cart, cartService)
	p.settle()
	p.refuse = func(_ string, object client.Object) error {
		if _, is := object.(*appsv1.ReplicaSet); is {
			return apierrors.NewForbidden(schema.GroupResource{Group: "apps", Resource: "replicasets"}, object.GetName(), errors.New("serin cannot patch it"))
		}
		return nil
	}
	p.edit(func(object *argov1.Rollout) { object.Spec.Replicas = new(int32(3)) })
	for range 2 { // the status explains it
		if _, err := p.reconcile(); err != nil {
			t.Fatal(err)
		}
		p.clock.Step(reconciler.ExplainAfter)
	}
	passes := 0
	for end := p.clock.Now().Add(time.Hour); p.clock.Now().Before(end); passes++ {
		result, err := p.reconcile()
		if err != nil {
			t.Fatalf("the work queue decides on the retry, not the row of rejections: %v", err)
		}
		if result.RequeueAfter < time.Second || result.RequeueAfter > reconciler.MaxBackoff {
			t.Fatalf("retried in %s", result.RequeueAfter)
		}
		p.clock.Step(result.RequeueAfter)
	}
	if passes > 16 {
		t.Errorf("%d attempts in an hour", passes)
	}
	p.refuse = nil
	p.settle()
	if got := p.replicaSetNames(); !slices.Equal(got, []string{"cart:1=3"}) {
		t.Errorf("permitted, the ReplicaSets are %v", got)
	}
	p.refuse = func(string, client.Object) error {
		return apierrors.NewForbidden(schema.GroupResource{}, "cart", errors.New("again"))
	}
	p.edit(func(object *argov1.Rollout) { object.Spec.Replicas = new(int32(4)) })
	if result, err := p.reconcile(); err != nil || result.RequeueAfter > reconciler.InitialBackoff {
		t.Errorf("after a success, a rejection is retried in %s, %v", result.RequeueAfter, err)
	}
}

func TestOrphanedReplicaSetsAreAdoptedAndThoseThatNoLongerMatchAreReleased(t *testing.T) {
	p := newFakeCluster(t, cart, cartService)
	p.settle()
	var all appsv1.ReplicaSetList
	if err := p.client.List(t.Context(), &all); err != nil {
		t.Fatal(err)
	}
	rs := &all.Items[0]
	rs.OwnerReferences = nil
	if err := p.client.Update(t.Context(), rs); err != nil {
		t.Fatal(err)
	}
	p.settle()
	if got := p.replicaSetNames(); !slices.Equal(got, []string{"cart:1=2"}) {
		t.Errorf("an orphan was not adopted: %v", got)
	}
	if err := p.client.Get(t.Context(), client.ObjectKeyFromObject(rs), rs); err != nil {
		t.Fatal(err)
	}
	rs.Labels["app"] = "debug"
	if err := p.client.Update(t.Context(), rs); err != nil {
		t.Fatal(err)
	}
	p.writes = nil
	if _, err := p.reconcile(); err != nil {
		t.Fatal(err)
	}
	if err := p.client.Get(t.Context(), client.ObjectKeyFromObject(rs), rs); err != nil || metav1.GetControllerOf(rs) != nil {
		t.Errorf("one that no longer matches was not released: %v, %v", rs.OwnerReferences, err)
	}
}

func TestADeletionRestoresTheServices(t *testing.T) {
	p := newFakeCluster(t, cart, cartService)
	p.settle()
	service := &corev1.Service{}
	at := client.ObjectKey{Namespace: "shop", Name: "cart"}
	if err := p.client.Get(t.Context(), at, service); err != nil || service.Spec.Selector[argov1.PodTemplateHashLabel] == "" {
		t.Fatalf("the Service selects %v, %v", service.Spec.Selector, err)
	}
	was := p.rollout()

	// A Rollout that is only no longer selected, because its label names another controller now, is unchanged.
	p.reconciler.AffectedReleases(t.Context(), schema.GroupKind{Group: argov1.GroupName, Kind: argov1.RolloutKind}, was, nil)
	if err := p.reconciler.restorer.restoreDeleted(t.Context(), key, ""); err != nil {
		t.Fatal(err)
	}
	if err := p.client.Get(t.Context(), at, service); err != nil || service.Spec.Selector[argov1.PodTemplateHashLabel] == "" {
		t.Fatalf("it still exists, and its Service was restored: %v, %v", service.Spec.Selector, err)
	}

	// A Rollout that was recreated, but is not in the cache yet, continues with the objects of the former one.
	former := was.DeepCopy()
	former.UID = "former"
	p.reconciler.AffectedReleases(t.Context(), schema.GroupKind{Group: argov1.GroupName, Kind: argov1.RolloutKind}, former, nil)
	if err := p.reconciler.restorer.restoreDeleted(t.Context(), key, ""); err != nil {
		t.Fatal(err)
	}
	if err := p.client.Get(t.Context(), at, service); err != nil || service.Spec.Selector[argov1.PodTemplateHashLabel] == "" {
		t.Fatalf("it exists again, and its Service was restored: %v, %v", service.Spec.Selector, err)
	}

	if err := p.client.Delete(t.Context(), was); err != nil {
		t.Fatal(err)
	}
	p.reconciler.AffectedReleases(t.Context(), schema.GroupKind{Group: argov1.GroupName, Kind: argov1.RolloutKind}, was, nil)
	p.refuse = func(verb string, object client.Object) error { return errAway }
	if _, err := p.reconcile(); err == nil {
		t.Error("the failure is not retried")
	}
	p.refuse = nil
	if _, err := p.reconcile(); err != nil {
		t.Fatal(err)
	}
	if err := p.client.Get(t.Context(), at, service); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{"app": "cart"}, service.Spec.Selector); diff != "" {
		t.Errorf("selector: %s", diff)
	}
	if diff := cmp.Diff(map[string]string{"owner": "web"}, service.Annotations); diff != "" {
		t.Errorf("annotations: %s", diff)
	}
	p.waitForEvent("RolloutDeleted: Rollout cart/shop is deleted.")
}

// TestADeletedRolloutLeavesNoState: neither in the memory of the process nor in its metrics.
func TestADeletedRolloutLeavesNoState(t *testing.T) {
	for name, deleted := range map[string]bool{"deleted": true, "another controller serves it": false} {
		t.Run(name, func(t *testing.T) {
			p := newFakeCluster(t, cart, cartService)
			registry := prometheus.NewRegistry()
			p.configure(func(parts *Parts) { parts.Metrics = telemetry.New(registry) })
			p.settle()
			p.edit(func(r *argov1.Rollout) { r.Spec.Paused = true })
			p.settle()
			if waiting := exportedGates(t, registry); len(waiting) != 1 || !strings.Contains(waiting[0], `value:"paused"`) || !strings.Contains(waiting[0], `value:"person"`) {
				t.Errorf("the gate of the paused Rollout is not exported: %q", waiting)
			}
			was := p.rollout()
			if deleted {
				if err := p.client.Delete(t.Context(), was); err != nil {
					t.Fatal(err)
				}
			} else {
				p.replaceClient(withoutRollouts{p.client})
			}
			p.reconciler.AffectedReleases(t.Context(), schema.GroupKind{Group: argov1.GroupName, Kind: argov1.RolloutKind}, was, nil)
			for range 2 {
				if _, err := p.reconcile(); err != nil {
					t.Fatal(err)
				}
			}
			families, err := registry.Gather()
			if err != nil {
				t.Fatal(err)
			}
			for _, family := range families {
				for _, series := range family.GetMetric() {
					if strings.Contains(series.String(), "cart") {
						t.Errorf("a series of %s remains: %s", family.GetName(), series)
					}
				}
			}
			if held := p.reconciler.Footprint(); len(held) > 0 {
				t.Errorf("the process still remembers %v", held)
			}
		})
	}
}

// exportedGates returns the series about waiting gates.
func exportedGates(t *testing.T, registry *prometheus.Registry) []string {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, family := range families {
		if family.GetName() != "serin_gate_waiting_since_timestamp_seconds" {
			continue
		}
		for _, series := range family.GetMetric() {
			all = append(all, series.String())
		}
	}
	return all
}

// withoutRollouts is a cache without Rollouts.
type withoutRollouts struct{ client.Client }

func (w withoutRollouts) Get(ctx context.Context, key client.ObjectKey, into client.Object, options ...client.GetOption) error {
	if _, is := into.(*argov1.Rollout); is {
		return apierrors.NewNotFound(argov1.Resource("rollouts"), key.Name)
	}
	return w.Client.Get(ctx, key, into, options...)
}

// TestPodsAreRelabelledAgainAfterACrash: the ReplicaSet records the metadata only when all pods have it.
func TestPodsAreRelabelledAgainAfterACrash(t *testing.T) {
	p := newFakeCluster(t, strings.Replace(cart, "stableService: cart,", "stableMetadata: {labels: {role: stable}},", 1))
	p.settle()
	var sets appsv1.ReplicaSetList
	if err := p.client.List(t.Context(), &sets); err != nil {
		t.Fatal(err)
	}
	rs := &sets.Items[0]
	for i := range 2 {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: fmt.Sprintf("pod-%d", i), Labels: rs.Spec.Template.Labels,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(rs, appsv1.SchemeGroupVersion.WithKind("ReplicaSet"))},
		}}
		if err := p.client.Create(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
	}
	p.edit(func(object *argov1.Rollout) {
		object.Spec.Strategy.Canary.StableMetadata = &argov1.PodTemplateMetadata{Labels: map[string]string{"tier": "gold"}}
	})
	p.refuse = func(_ string, object client.Object) error {
		if object.GetName() == "pod-1" {
			return errAway
		}
		return nil
	}
	if _, err := p.reconcile(); err == nil {
		t.Fatal("a pod could not be written, and the reconciliation did not fail")
	}
	p.refuse = nil
	p.settle()
	var pods corev1.PodList
	if err := p.client.List(t.Context(), &pods); err != nil {
		t.Fatal(err)
	}
	for _, pod := range pods.Items {
		if pod.Labels["tier"] != "gold" || pod.Labels["role"] != "" || pod.Labels["app"] != "cart" {
			t.Errorf("%s has %v", pod.Name, pod.Labels)
		}
	}
}

// TestManyPodsAreRelabelledInSeveralReconciliations: one reconciliation sends a limited number of requests, so that its worker is free
// for other releases, and the next one continues at once.
func TestManyPodsAreRelabelledInSeveralReconciliations(t *testing.T) {
	const pods = 2*maxLabelledPods + 10
	p := newFakeCluster(t, cart, cartService)
	p.settle()
	p.createPods(pods)
	p.edit(func(object *argov1.Rollout) {
		object.Spec.Strategy.Canary.StableMetadata = &argov1.PodTemplateMetadata{Labels: map[string]string{"tier": "gold"}}
	})
	var written []int
	p.refuse = func(_ string, object client.Object) error {
		if _, isPod := object.(*corev1.Pod); isPod {
			written[len(written)-1]++
		}
		return nil
	}
	for range 3 {
		written = append(written, 0)
		result, err := p.reconcile()
		if err != nil {
			t.Fatal(err)
		}
		if rest := pods - len(written)*maxLabelledPods; rest > 0 && (result.RequeueAfter <= 0 || result.RequeueAfter > time.Second) {
			t.Errorf("%d pods have no metadata yet, and the next reconciliation is in %s", rest, result.RequeueAfter)
		}
	}
	if want := []int{maxLabelledPods, maxLabelledPods, 10}; !slices.Equal(written, want) {
		t.Errorf("pods relabelled by each reconciliation: %v, want %v", written, want)
	}
	var sets appsv1.ReplicaSetList
	if err := p.client.List(t.Context(), &sets); err != nil {
		t.Fatal(err)
	}
	if got := replicaset.AppliedEphemeralMetadata(&sets.Items[0]); got == nil || got.Labels["tier"] != "gold" {
		t.Errorf("the ReplicaSet records %v", got)
	}
}

// TestAReleaseOfItsOwnIsNotAdopted: the status names the release that Serin started until it ends.
func TestAReleaseOfItsOwnIsNotAdopted(t *testing.T) {
	under := argov1.RolloutStatus{StableRS: "old", CurrentPodHash: "new"}
	if under.Serin = newSerinStatus(under, reconciler.Explanation{}, nil); under.Serin == nil {
		t.Error("the status does not name the release that Serin started")
	}
	if _, reported := rollout.AdoptionEvent(&argov1.Rollout{Status: under}); reported {
		t.Error("it is adopted")
	}
	if over := newSerinStatus(argov1.RolloutStatus{StableRS: "new", CurrentPodHash: "new"}, reconciler.Explanation{}, nil); over != nil {
		t.Errorf("at rest the status has %+v", over)
	}
}

// panickingClient is a client that panics when AnalysisRuns are listed.
type panickingClient struct{ client.Client }

func (c panickingClient) List(ctx context.Context, into client.ObjectList, options ...client.ListOption) error {
	if runs, ok := into.(*argov1.AnalysisRunList); ok {
		_ = runs.Items[len(options)]
	}
	return c.Client.List(ctx, into, options...)
}

func TestAPanicIsReportedOnTheRollout(t *testing.T) {
	p := newFakeCluster(t, cart, cartService)
	p.settle()
	p.edit(withImage("cart:3"))
	p.replaceClient(panickingClient{p.client})
	p.writes = nil
	for i := range 3 {
		result, err := p.reconcile()
		if err != nil || result.RequeueAfter != reconciler.InitialBackoff {
			t.Fatalf("pass %d: next in %s, %v", i+1, result.RequeueAfter, err)
		}
	}
	if want := []string{"patch status Rollout cart"}; !slices.Equal(p.writes, want) {
		t.Errorf("wrote %v, want %v", p.writes, want)
	}
	const sentence = "Serin could not reconcile this Rollout because of a defect in Serin (panic: runtime error: index out of range"
	p.waitForEvent("ReconciliationError: " + sentence)
	if gates := shownGates(p.rollout().Status); len(gates) != 1 || gates[0].Name != "fault" || !strings.HasPrefix(gates[0].Message, sentence) {
		t.Errorf("gates %+v", gates)
	}

	p.replaceClient(p.client)
	p.settle()
	if status := p.rollout().Status; status.Phase != argov1.RolloutPhasePaused || slices.ContainsFunc(shownGates(status), func(g reconciler.StatusGate) bool { return g.Name == "fault" }) {
		t.Errorf("fixed, and %s: %+v", status.Phase, shownGates(status))
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	recorded := slices.DeleteFunc(slices.Clone(p.recordedEvents), func(text string) bool { return !strings.Contains(text, sentence) })
	if len(recorded) != 1 {
		t.Errorf("recorded %d times: %v", len(recorded), recorded)
	}
}

// waitingGates returns the gates of a status that do not pass.
func waitingGates(gates []reconciler.StatusGate) []reconciler.StatusGate {
	return slices.DeleteFunc(slices.Clone(gates), func(g reconciler.StatusGate) bool { return g.Verdict == string(release.Pass) })
}

// TestGatesOfARolloutShowTheirTimes: a pause shows when it ends, and each gate since when it waits, as those of a Canary do.
func TestGatesOfARolloutShowTheirTimes(t *testing.T) {
	p := newFakeCluster(t, strings.Replace(cart, "{pause: {}}", "{pause: {duration: 1h}}", 1), cartService)
	p.settle()
	p.edit(withImage("cart:2"))
	p.settle()
	gates := shownGates(p.rollout().Status)
	i := slices.IndexFunc(gates, func(g reconciler.StatusGate) bool { return g.Name == "pause" })
	if i < 0 || gates[i].Until == nil || gates[i].Since == nil {
		t.Fatalf("got %+v, want a pause with its end", gates)
	}
	began := p.rollout().Status.Serin.PausedAt
	if until := began.Add(time.Hour + time.Nanosecond).Truncate(time.Microsecond); began == nil || !gates[i].Until.Time.Equal(until) {
		t.Errorf("got an end at %v, want it an hour after %v", gates[i].Until, began)
	}
	writes := len(p.writes)
	for range 10 {
		p.clock.Step(time.Minute)
		if _, err := p.reconcile(); err != nil {
			t.Fatal(err)
		}
	}
	if len(p.writes) > writes {
		t.Errorf("got writes during the pause: %v", p.writes[writes:])
	}
}
