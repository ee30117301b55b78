package controller

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/othercontroller"
	"github.com/serin-dev/serin/internal/outbound"
	"github.com/serin-dev/serin/internal/watching"
)

// indexes are the indexes that the detection of other controllers needs.
type indexes func(object client.Object, field string, values client.IndexerFunc)

func (i indexes) IndexField(_ context.Context, object client.Object, field string, values client.IndexerFunc) error {
	i(object, field, values)
	return nil
}

// clusterWith is a cluster with only these Deployments and Leases.
func clusterWith(t *testing.T, objects ...client.Object) client.WithWatch {
	t.Helper()
	s := scheme(t)
	for _, add := range []func(*runtime.Scheme) error{appsv1.AddToScheme, coordinationv1.AddToScheme} {
		if err := add(s); err != nil {
			t.Fatal(err)
		}
	}
	builder := fake.NewClientBuilder().WithScheme(s)
	if err := watching.NewFlaggerWatch(nil).Index(t.Context(), indexes(func(object client.Object, field string, values client.IndexerFunc) {
		builder.WithIndex(object, field, func(typed client.Object) []string { return values(toUnstructured(t, typed)) })
	})); err != nil {
		t.Fatal(err)
	}
	return builder.WithObjects(objects...).Build()
}

func toUnstructured(t *testing.T, object client.Object) client.Object {
	t.Helper()
	if object == nil {
		return nil
	}
	raw, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		t.Fatal(err)
	}
	out := &unstructured.Unstructured{Object: raw}
	out.SetGroupVersionKind(deploymentKind)
	return out
}

func flaggerDeployment(ready int32, args ...string) *appsv1.Deployment {
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "flagger-system", Name: "flagger"}}
	d.Spec.Template.Spec.Containers = []corev1.Container{{Name: "flagger", Image: "ghcr.test/fluxcd/flagger:1.44.0", Args: args}}
	d.Status.ReadyReplicas = ready
	return d
}

func flaggerLease(holder string, renewed time.Time) *coordinationv1.Lease {
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: "flagger-system", Name: othercontroller.FlaggerLeaseName},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: &holder, LeaseDurationSeconds: new(int32(60)), RenewTime: &metav1.MicroTime{Time: renewed},
		},
	}
}

func TestAReleaseIsLeftToARunningFlaggerAndAdoptedWhenItIsGone(t *testing.T) {
	cart := canaryWithQueries("cart", "", "")
	w := newTestCluster(t, outbound.Policy{AllowLoopback: true})
	others := clusterWith(t, flaggerDeployment(1))
	var health sync.Map
	w.reconciler.OtherController = watching.NewFlaggerWatch(others)
	w.reconciler.Health = func(part, message string) { health.Store(part, message) }
	if err := w.client.Create(t.Context(), cart); err != nil {
		t.Fatal(err)
	}
	key := client.ObjectKeyFromObject(cart)
	const why = "Flagger acts on this Canary (Deployment flagger of namespace flagger-system has ready pods), so Serin does not"
	w.waitFor(t, "an event that says who acts", func() (bool, string) {
		output := w.allOutput(t)
		return strings.Contains(output, "event cart") && strings.Contains(output, why), output
	})
	if c := w.canary(t, key); c.Status.Phase != "" || c.Status.Serin != nil || len(c.Status.Conditions) > 0 {
		t.Errorf("the status of the other controller was written: %+v", c.Status)
	}
	if message, _ := health.Load("peer"); message == nil || !strings.Contains(message.(string), why) {
		t.Errorf("health is %v", message)
	}
	if output := w.allOutput(t); !strings.Contains(output, "Ceded releases") || strings.Count(output, "Ceded releases") > 1 {
		t.Errorf("the log must report it once: %s", output)
	}

	gone := flaggerDeployment(0)
	before := flaggerDeployment(1)
	if err := others.Delete(t.Context(), gone); err != nil {
		t.Fatal(err)
	}
	requests := w.reconciler.AffectedReleases(t.Context(), deploymentKind.GroupKind(), toUnstructured(t, before), nil)
	if len(requests) != 1 || requests[0].NamespacedName != key {
		t.Fatalf("the deletion of Flagger requeues %v, want %v", requests, key)
	}
	// A Canary may observe the Deployment as its target, after it was looked for as another controller.
	w.reconciler.observed.Record(key, []watching.ObjectVersion{watching.VersionOf(deploymentKind.GroupKind(), before)})
	if requests := w.reconciler.AffectedReleases(t.Context(), deploymentKind.GroupKind(), toUnstructured(t, gone), toUnstructured(t, before)); len(requests) != 1 {
		t.Errorf("the start of Flagger requeues %v, want %v", requests, key)
	}
	w.enqueue(key)
	w.waitForPhase(t, key, flaggerv1.CanaryPhaseInitialized)
	if message, _ := health.Load("peer"); message != "" {
		t.Errorf("health is still %v", message)
	}
}

// TestACededReleaseIsReconciledAgain: no watch notifies of the permissions of Flagger's service account.
func TestACededReleaseIsReconciledAgain(t *testing.T) {
	cart := canaryWithQueries("cart", "", "")
	w := newTestCluster(t, outbound.Policy{AllowLoopback: true})
	var permitted atomic.Bool
	permitted.Store(true)
	w.reconciler.OtherController = watching.NewFlaggerWatch(clusterWith(t, flaggerDeployment(1)))
	w.reconciler.OtherController.IsPermitted = func(context.Context, othercontroller.Account, watching.Resource, string) (bool, error) {
		return permitted.Load(), nil
	}
	if err := w.client.Create(t.Context(), cart); err != nil {
		t.Fatal(err)
	}
	key := client.ObjectKeyFromObject(cart)
	w.waitFor(t, "the release is ceded", func() (bool, string) {
		output := w.allOutput(t)
		return strings.Contains(output, "Ceded releases"), output
	})
	result, err := w.reconciler.Reconcile(w.ctx, reconcile.Request{NamespacedName: key})
	if err != nil || result.RequeueAfter <= 0 {
		t.Errorf("it is requeued after %s, %v", result.RequeueAfter, err)
	}
	w.reconciler.OtherController.Scope.Namespaces = []string{"flagger-system"} // trusted whatever permissions it has
	if result, err := w.reconciler.Reconcile(w.ctx, reconcile.Request{NamespacedName: key}); err != nil || result.RequeueAfter != 0 {
		t.Errorf("it depends on no permissions, and is requeued after %s, %v", result.RequeueAfter, err)
	}
	w.reconciler.OtherController.Scope.Namespaces = nil
	permitted.Store(false)
	w.enqueue(key)
	w.waitForPhase(t, key, flaggerv1.CanaryPhaseInitialized)
}

func TestTheExpiryOfALeaseIsAWakeUp(t *testing.T) {
	now := time.Now()
	p := watching.NewFlaggerWatch(clusterWith(t, flaggerDeployment(0), flaggerLease("flagger-1_2", now)))
	sign, err := actingController(t.Context(), p, "shop", now)
	if err != nil {
		t.Fatal(err)
	}
	if wait := sign.Until.Sub(now); !sign.Acts() || wait < time.Minute || wait > 2*time.Minute {
		t.Errorf("a lease that was just renewed: %+v", sign)
	}
	if sign, err = actingController(t.Context(), p, "shop", sign.Until); err != nil || sign.Acts() {
		t.Errorf("an expired lease: %+v, %v", sign, err)
	}
	p.LeasesUnreadable = "they may not be read"
	if sign, err = actingController(t.Context(), p, "shop", now); err != nil || sign.Acts() {
		t.Errorf("leases that may not be read: %+v, %v", sign, err)
	}
	if sign, err = actingController(t.Context(), nil, "shop", now); err != nil || sign.Acts() {
		t.Errorf("no detection: %+v, %v", sign, err)
	}
}

// TestATenantCannotFakeAFlagger: objects in one namespace do not stop the releases of another, unless their service account may
// write Canaries there.
func TestATenantCannotFakeAFlagger(t *testing.T) {
	now := time.Now()
	forged := flaggerDeployment(1)
	forged.Namespace = "mallory"
	forged.Spec.Template.Spec.ServiceAccountName = "flagger"
	lease := flaggerLease("flagger-1_2", now.Add(200*365*24*time.Hour))
	lease.Namespace = "mallory"
	p := watching.NewFlaggerWatch(clusterWith(t, forged, lease))
	p.IsPermitted = func(_ context.Context, account othercontroller.Account, of watching.Resource, namespace string) (bool, error) {
		return of == watching.CanaryStatus && account == othercontroller.Account{Namespace: "mallory", Name: "flagger"} && namespace == "mallory", nil
	}
	for namespace, want := range map[string]bool{"shop": false, "mallory": true} {
		if sign, err := actingController(t.Context(), p, namespace, now); err != nil || sign.Acts() != want {
			t.Errorf("namespace %s: %+v, %v", namespace, sign, err)
		}
	}
	p.Scope.Namespaces = []string{"flagger-system"}
	if sign, err := actingController(t.Context(), p, "mallory", now); err != nil || sign.Acts() {
		t.Errorf("in a namespace that is not configured: %+v, %v", sign, err)
	}
	p.Scope.Namespaces = []string{"mallory"}
	if sign, err := actingController(t.Context(), p, "shop", now); err != nil || !sign.Acts() {
		t.Errorf("in a namespace that the administrator configured: %+v, %v", sign, err)
	}
}

func TestOnlyAFlaggerThatStartsOrStopsRequeuesReleases(t *testing.T) {
	other := flaggerDeployment(1)
	other.Spec.Template.Spec.Containers[0].Image = "nginx:1"
	lease := schema.GroupKind{Group: coordinationv1.GroupName, Kind: "Lease"}
	now := time.Now()
	for _, tt := range []struct {
		name          string
		kind          schema.GroupKind
		before, after client.Object
		want          bool
	}{
		{"made", deploymentKind.GroupKind(), nil, toUnstructured(t, flaggerDeployment(0)), true},
		{"became ready", deploymentKind.GroupKind(), toUnstructured(t, flaggerDeployment(0)), toUnstructured(t, flaggerDeployment(1)), true},
		{"one more pod", deploymentKind.GroupKind(), toUnstructured(t, flaggerDeployment(1)), toUnstructured(t, flaggerDeployment(2)), false},
		{"another namespace", deploymentKind.GroupKind(), toUnstructured(t, flaggerDeployment(1)), toUnstructured(t, flaggerDeployment(1, "-namespace=web")), true},
		{"deleted", deploymentKind.GroupKind(), toUnstructured(t, flaggerDeployment(1)), nil, true},
		{"another program", deploymentKind.GroupKind(), nil, toUnstructured(t, other), false},
		{"lease taken", lease, flaggerLease("", now), flaggerLease("flagger-1_2", now), true},
		{"lease renewed", lease, flaggerLease("flagger-1_2", now), flaggerLease("flagger-1_2", now.Add(time.Second)), false},
		{"lease released", lease, flaggerLease("flagger-1_2", now), flaggerLease("", now), true},
		{"lease deleted", lease, flaggerLease("flagger-1_2", now), nil, true},
		{"a Service", schema.GroupKind{Kind: "Service"}, nil, &corev1.Service{}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := watching.NewFlaggerWatch(nil).IsRelevantChange(tt.kind, tt.before, tt.after); got != tt.want {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}
