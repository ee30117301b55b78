package operator

import (
	"context"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/canary/controller"
	rolloutcontroller "github.com/serin-dev/serin/internal/rollout/controller"
	"github.com/serin-dev/serin/internal/workload"
)

// clientIndexer adds the indexes of a cache to a fake client.
type clientIndexer struct{ builder *fake.ClientBuilder }

func (i clientIndexer) IndexField(_ context.Context, object client.Object, field string, values client.IndexerFunc) error {
	i.builder.WithIndex(object, field, values)
	return nil
}

// TestOneAPIReleasesAWorkload verifies which of a Canary and a Rollout with one workload waits for the other: exactly one of them must.
func TestOneAPIReleasesAWorkload(t *testing.T) {
	created := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	meta := func(name string, uid types.UID, age time.Duration) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: "shop", Name: name, UID: uid, CreationTimestamp: metav1.NewTime(created.Add(-age))}
	}
	for name, test := range map[string]struct {
		canaryUID, rolloutUID types.UID
		canaryAge, rolloutAge time.Duration
		primary, replicaSets  bool
		canaryReleases        bool
	}{
		"the older Canary":                          {canaryUID: "b", rolloutUID: "a", canaryAge: time.Second, canaryReleases: true},
		"the older Rollout":                         {canaryUID: "a", rolloutUID: "b", rolloutAge: time.Second},
		"the lower UID of one second":               {canaryUID: "a", rolloutUID: "b", canaryReleases: true},
		"the Canary that has begun":                 {canaryUID: "b", rolloutUID: "a", primary: true, canaryReleases: true},
		"the Rollout that has begun":                {canaryUID: "a", rolloutUID: "b", replicaSets: true},
		"the Canary that has begun, though younger": {canaryUID: "b", rolloutUID: "a", rolloutAge: time.Second, primary: true, canaryReleases: true},
		"both have begun":                           {canaryUID: "a", rolloutUID: "b", primary: true, replicaSets: true, canaryReleases: true},
	} {
		t.Run(name, func(t *testing.T) {
			c := &flaggerv1.Canary{ObjectMeta: meta("cart", test.canaryUID, test.canaryAge)}
			c.Spec.TargetRef = flaggerv1.TargetReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "cart"}
			r := &argov1.Rollout{ObjectMeta: meta("cart", test.rolloutUID, test.rolloutAge)}
			r.Spec.WorkloadRef = &argov1.ObjectRef{APIVersion: "apps/v1", Kind: "Deployment", Name: "cart"}
			if test.replicaSets {
				r.Status.CurrentPodHash = "6d4c"
			}
			builder := fake.NewClientBuilder().WithScheme(Scheme()).WithObjects(c, r)
			if test.primary {
				primary := &appsv1.Deployment{ObjectMeta: meta("cart-primary", "p", 0)}
				primary.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(c, flaggerv1.SchemeGroupVersion.WithKind(flaggerv1.CanaryKind))}
				builder.WithObjects(primary)
			}
			for _, index := range []func(context.Context, client.FieldIndexer) error{controller.IndexTargets, rolloutcontroller.IndexWorkloads} {
				if err := index(t.Context(), clientIndexer{builder}); err != nil {
					t.Fatal(err)
				}
			}
			cluster := builder.Build()
			conflicts := apiConflicts{workloads: &workload.Workloads{Client: cluster, APIReader: cluster}}
			conflicts.setCanaries(cluster)
			conflicts.setRollouts(cluster)
			ofCanary, err := conflicts.conflictingRollout(t.Context(), c)
			if err != nil {
				t.Fatal(err)
			}
			ofRollout, err := conflicts.conflictingCanary(t.Context(), r)
			if err != nil {
				t.Fatal(err)
			}
			if (ofCanary == "") != test.canaryReleases || (ofRollout == "") == test.canaryReleases {
				t.Errorf("Canary: %q, Rollout: %q", ofCanary, ofRollout)
			}
		})
	}
}
