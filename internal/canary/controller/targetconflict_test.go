package controller

import (
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/canary"
	"github.com/serin-dev/serin/internal/workload"
)

// TestOneOfTheCanariesOfATargetReleasesIt verifies which of two Canaries waits for the other: exactly one of them must.
func TestOneOfTheCanariesOfATargetReleasesIt(t *testing.T) {
	created := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	newCanary := func(name string, uid types.UID, age time.Duration) *flaggerv1.Canary {
		c := cartCanary()
		c.Name, c.UID, c.CreationTimestamp = name, uid, metav1.NewTime(created.Add(-age))
		return c
	}
	meta := func(name string, owner *flaggerv1.Canary) metav1.ObjectMeta {
		m := metav1.ObjectMeta{Namespace: "shop", Name: name}
		if owner != nil {
			m.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(owner, flaggerv1.SchemeGroupVersion.WithKind(flaggerv1.CanaryKind))}
		}
		return m
	}
	primary := func(owner *flaggerv1.Canary) client.Object {
		return &appsv1.Deployment{ObjectMeta: meta("cart-primary", owner)}
	}
	service := func(name string, owner *flaggerv1.Canary) client.Object {
		return &corev1.Service{ObjectMeta: meta(name, owner)}
	}
	takenOver := func(by *flaggerv1.Canary) client.Object {
		s := service("cart", nil)
		s.SetAnnotations(map[string]string{"serin.dev/original": `{"canary":"shop/` + by.Name + `","spec":{}}`})
		return s
	}
	low, high, older := newCanary("cart", "a", 0), newCanary("cart-twin", "b", 0), newCanary("cart-old", "c", time.Second)
	elsewhere := newCanary("cart-elsewhere", "d", 0)
	elsewhere.Spec.Service.Name = "shop"

	for name, test := range map[string]struct {
		winner, loser *flaggerv1.Canary
		objects       []client.Object
	}{
		"the older one":                              {older, low, nil},
		"the lower UID of one second":                {low, high, nil},
		"the owner of the primary":                   {high, low, []client.Object{primary(high)}},
		"the owner of the primary, though younger":   {low, older, []client.Object{primary(low)}},
		"the owner of the canary's Service":          {high, low, []client.Object{service("cart-canary", high)}},
		"the owner of the primary's Service":         {high, low, []client.Object{service("cart-canary", nil), service("cart-primary", high)}},
		"the one that took over a Service":           {high, low, []client.Object{takenOver(high)}},
		"the owner of the primary, not of a Service": {high, low, []client.Object{primary(high), takenOver(low)}},
		"the owner of a Service of another name":     {elsewhere, low, []client.Object{service("shop-canary", elsewhere)}},
		"both own a Service":                         {low, elsewhere, []client.Object{service("cart-canary", low), service("shop-canary", elsewhere)}},
		"the primary is an orphan":                   {low, high, []client.Object{primary(nil)}},
		"the primary of a Canary that is gone":       {low, high, []client.Object{primary(newCanary("cart-twin", "gone", 0))}},
	} {
		t.Run(name, func(t *testing.T) {
			s := scheme(t)
			if err := appsv1.AddToScheme(s); err != nil {
				t.Fatal(err)
			}
			objects := append([]client.Object{test.winner.DeepCopy(), test.loser.DeepCopy()}, test.objects...)
			c := fake.NewClientBuilder().WithScheme(s).WithObjects(objects...).Build()
			o := Observer{Client: c, Workloads: &workload.Workloads{Client: c, APIReader: c}}
			for _, observed := range []struct {
				canary *flaggerv1.Canary
				want   string
			}{
				{test.winner, ""},
				{test.loser, "Canary " + test.winner.Name + " already releases Deployment cart, so " + test.loser.Name + " does nothing: delete one of the two, or point it at another target"},
			} {
				s := observation{object: observed.canary, snapshot: canary.Snapshot{}}
				if err := o.findTargetConflict(t.Context(), &s); err != nil {
					t.Fatal(err)
				}
				if got := s.snapshot.TargetConflict; got != observed.want {
					t.Errorf("%s: got %q, want %q", observed.canary.Name, got, observed.want)
				}
			}
		})
	}
}

// TestAFormerTargetIsReleasedByNoOtherCanaryBeforeItsReleaseEnds: a user points a Canary at another target during a release, or before
// its deletion, and another Canary has the former target.
func TestAFormerTargetIsReleasedByNoOtherCanaryBeforeItsReleaseEnds(t *testing.T) {
	former, other := cartCanary(), cartCanary()
	former.Spec.TargetRef.Name = "basket"
	former.Status.Phase = flaggerv1.CanaryPhaseProgressing
	former.Status.Serin = &flaggerv1.SerinStatus{Revision: "r2", Promoted: "r1", Shape: "canary/kubernetes/Deployment/cart"}
	former.CreationTimestamp = metav1.NewTime(time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC))
	other.Name, other.UID = "other", "other"
	other.CreationTimestamp = metav1.NewTime(former.CreationTimestamp.Add(-time.Hour)) // the owner of the primary precedes an older Canary
	s := scheme(t)
	if err := appsv1.AddToScheme(s); err != nil {
		t.Fatal(err)
	}
	primary := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{
		Namespace: "shop", Name: "cart-primary",
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(former, flaggerv1.SchemeGroupVersion.WithKind(flaggerv1.CanaryKind))},
	}}
	ended := former.DeepCopy()
	ended.Status.Phase = flaggerv1.CanaryPhaseFailed
	deleted := ended.DeepCopy()
	deleted.DeletionTimestamp, deleted.Finalizers = new(metav1.NewTime(former.CreationTimestamp.Add(time.Hour))), []string{finalizer}
	pruned := former.DeepCopy()
	var err error
	if pruned.Status, err = flaggerv1.EncodeState(former.Status); err != nil {
		t.Fatal(err)
	}
	pruned.Status.Serin = nil
	for _, test := range []struct {
		name   string
		former *flaggerv1.Canary
		want   bool
	}{{"in progress", former, true}, {"in progress, with a status of Flagger's schema", pruned, true}, {"ended", ended, false}, {"deleted", deleted, true}} {
		c := fake.NewClientBuilder().WithScheme(s).WithObjects(test.former.DeepCopy(), other.DeepCopy(), primary.DeepCopy()).Build()
		o := Observer{Client: c, Workloads: &workload.Workloads{Client: c, APIReader: c}}
		s := observation{object: other, snapshot: canary.Snapshot{}}
		if err := o.findTargetConflict(t.Context(), &s); err != nil {
			t.Fatal(err)
		}
		if got := s.snapshot.TargetConflict; (got != "") != test.want {
			t.Errorf("%s: the other Canary has the conflict %q, want one: %v", test.name, got, test.want)
		}
	}
}
