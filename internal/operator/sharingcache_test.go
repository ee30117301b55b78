package operator

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/cache/informertest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
)

// Kinds that both APIs watch from the start are cached once. Other kinds may be forbidden to one API and belong to its own cache.
func TestKindsOfBothAPIsAreWatchedOnce(t *testing.T) {
	ofKind := func(kind schema.GroupVersionKind) client.Object {
		object := &unstructured.Unstructured{}
		object.SetGroupVersionKind(kind)
		return object
	}
	for name, c := range map[string]struct {
		object client.Object
		shared bool
	}{
		"Service":       {ofKind(corev1.SchemeGroupVersion.WithKind("Service")), true},
		"typed Service": {&corev1.Service{}, true},
		"Deployment":    {ofKind(appsv1.SchemeGroupVersion.WithKind("Deployment")), true},
		"ReplicaSet":    {&appsv1.ReplicaSet{}, false},
		"Rollout":       {&argov1.Rollout{}, false},
		"ConfigMap":     {&corev1.ConfigMap{}, false},
		"a route":       {ofKind(networkingv1.SchemeGroupVersion.WithKind("Ingress")), false},
	} {
		t.Run(name, func(t *testing.T) {
			own, other := &informertest.FakeInformers{Scheme: Scheme()}, &informertest.FakeInformers{Scheme: Scheme()}
			s := &sharingCache{Cache: own, other: other, scheme: Scheme()}
			if _, err := s.GetInformer(t.Context(), c.object); err != nil {
				t.Fatal(err)
			}
			if got := len(other.InformersByGVK) == 1; got != c.shared || len(own.InformersByGVK) == len(other.InformersByGVK) {
				t.Errorf("watched by the shared cache: %t, by its own: %t; want the shared one: %t", got, len(own.InformersByGVK) == 1, c.shared)
			}
		})
	}
	s := &sharingCache{Cache: &informertest.FakeInformers{}, other: &informertest.FakeInformers{}, scheme: Scheme()}
	for list, want := range map[client.ObjectList]any{&corev1.ServiceList{}: s.other, &argov1.RolloutList{}: s.Cache} {
		if got, err := s.cacheFor(list); err != nil || got != want {
			t.Errorf("%T is cached by %p, %v, want %p", list, got, err, want)
		}
	}
}
