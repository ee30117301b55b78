package controller

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/serin-dev/serin/internal/othercontroller"
	"github.com/serin-dev/serin/internal/rollout"
	"github.com/serin-dev/serin/internal/telemetry"
	"github.com/serin-dev/serin/internal/watching"
)

// argoRolloutsWatch detects Argo Rollouts in a cluster with only these Deployments and Leases.
func argoRolloutsWatch(t *testing.T, objects ...client.Object) *watching.OtherController {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{appsv1.AddToScheme, coordinationv1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	builder := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...)
	if err := watching.NewArgoRolloutsWatch(nil, nil, "").Index(t.Context(), indexes{t, builder}); err != nil {
		t.Fatal(err)
	}
	cluster := builder.Build()
	return watching.NewArgoRolloutsWatch(cluster, cluster, "")
}

// permitAll is an UpdatePermission: every service account has the permission.
func permitAll(context.Context, othercontroller.Account, watching.Resource, string) (bool, error) {
	return true, nil
}

func argoRolloutsDeployment(namespace string, ready int32) *appsv1.Deployment {
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "argo-rollouts"}}
	d.Spec.Template.Spec.ServiceAccountName = "argo-rollouts"
	d.Spec.Template.Spec.Containers = []corev1.Container{{Name: "argo-rollouts", Image: "quay.test/argoproj/argo-rollouts:v1.9.0"}}
	d.Status.ReadyReplicas = ready
	return d
}

// argoRolloutsLease is held by a pod of the Deployment.
func argoRolloutsLease(namespace string, renewed time.Time) *coordinationv1.Lease {
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: othercontroller.ArgoLeaseName("")},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: new("argo-rollouts-1_2"), LeaseDurationSeconds: new(int32(15)), RenewTime: &metav1.MicroTime{Time: renewed},
		},
	}
}

// TestATenantCannotFakeAnArgoRollouts: a Deployment and a Lease in one namespace do not stop the Rollouts of another, unless their
// service account may write Rollouts there.
func TestATenantCannotFakeAnArgoRollouts(t *testing.T) {
	for name, ready := range map[string]int32{"ready pods": 1, "a held Lease": 0} {
		t.Run(name, func(t *testing.T) {
			p := newFakeCluster(t, cart, cartService)
			watch := argoRolloutsWatch(t, argoRolloutsDeployment("mallory", ready), argoRolloutsLease("mallory", p.clock.Now()))
			permitted := "mallory"
			watch.IsPermitted = func(_ context.Context, account othercontroller.Account, resource watching.Resource, namespace string) (bool, error) {
				if want := (othercontroller.Account{Namespace: "mallory", Name: "argo-rollouts"}); account != want || resource != watching.RolloutStatus {
					t.Errorf("queried whether %+v may update %+v", account, resource)
				}
				return namespace == permitted, nil
			}
			p.reconciler.OtherController = watch
			check := func(when, namespace string, want bool) {
				t.Helper()
				if sign, err := watch.ActingSign(t.Context(), namespace, p.clock.Now()); err != nil || (sign.Text != "") != want {
					t.Errorf("%s, namespace %s: %+v, %v", when, namespace, sign, err)
				}
			}

			check("forged", "mallory", true)
			p.settle()
			if got, want := p.replicaSetNames(), []string{"cart:1=2"}; !slices.Equal(got, want) {
				t.Errorf("forged: ReplicaSets %v, want %v", got, want)
			}
			watch.Scope.Namespaces = []string{"argo-rollouts"}
			check("in a namespace that is not configured", "mallory", false)
			watch.Scope.Namespaces = []string{"mallory"}
			check("in a namespace that the administrator configured", "shop", true)

			watch.Scope.Namespaces, permitted = nil, "shop"
			p.edit(withImage("cart:2"))
			p.writes = nil
			if _, err := p.reconcile(); err != nil {
				t.Fatal(err)
			}
			if len(p.writes) > 0 {
				t.Errorf("permitted to write Rollouts: wrote %v", p.writes)
			}
			p.waitForEvent("LeftToArgoRollouts")
		})
	}
}

// TestACededRolloutIsReconciledAgainAndHasCurrentSeries: no watch notifies of the permissions of Argo Rollouts' service account, and
// the gates of Serin's own release no longer apply.
func TestACededRolloutIsReconciledAgainAndHasCurrentSeries(t *testing.T) {
	p := newFakeCluster(t, cart, cartService)
	registry := prometheus.NewRegistry()
	p.configure(func(parts *Parts) { parts.Metrics = telemetry.New(registry) })
	p.settle()
	p.edit(withImage("cart:2"))
	p.settle()
	if !rollout.IsOwnRelease(p.rollout().Status) {
		t.Fatalf("Serin has no release in progress: %+v", p.rollout().Status)
	}
	p.reconciler.OtherController = argoRolloutsWatch(t, argoRolloutsDeployment("argo-rollouts", 1))
	p.reconciler.OtherController.IsPermitted = permitAll
	check := func(when, available string) {
		t.Helper()
		result, err := p.reconcile()
		if err != nil || result.RequeueAfter <= 0 {
			t.Errorf("%s: requeued after %s, %v", when, result.RequeueAfter, err)
		}
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		var series strings.Builder
		for _, family := range families {
			if _, err := expfmt.MetricFamilyToText(&series, family); err != nil {
				t.Fatal(err)
			}
		}
		if got := series.String(); strings.Count(got, "serin_gate_waiting_since_timestamp_seconds{") != 1 || !strings.Contains(got, `serin_gate_waiting_since_timestamp_seconds{gate="peer",`) ||
			!strings.Contains(got, `rollout_info_replicas_available{name="cart",namespace="shop"} `+available+"\n") {
			t.Errorf("%s, with %s available pods:\n%s", when, available, got)
		}
	}
	check("a release of Serin", "2")
	object := p.rollout()
	object.Status.Serin, object.Status.AvailableReplicas = nil, 7
	if err := p.client.Status().Update(t.Context(), object); err != nil {
		t.Fatal(err)
	}
	check("a release of Argo Rollouts", "7")
}
