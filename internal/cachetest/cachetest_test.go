package cachetest_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/serin-dev/serin/internal/cachetest"
)

// errorCounter counts the errors of a test instead of failing it.
type errorCounter struct {
	testing.TB
	errors  int
	cleanup func()
}

func (t *errorCounter) Helper()               {}
func (t *errorCounter) Errorf(string, ...any) { t.errors++ }
func (t *errorCounter) Cleanup(f func())      { t.cleanup = f }

func TestAChangeOfASharedObjectFailsTheTest(t *testing.T) {
	for name, c := range map[string]struct {
		options []client.GetOption
		change  bool
		want    int
	}{
		"a change of a shared object": {[]client.GetOption{client.UnsafeDisableDeepCopy}, true, 1},
		"a change of a copy":          {nil, true, 0},
		"no change":                   {[]client.GetOption{client.UnsafeDisableDeepCopy}, false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "cart", Labels: map[string]string{"app": "cart"}}}
			from := fake.NewClientBuilder().WithObjects(service).Build()
			counter := &errorCounter{TB: t}
			cache := cachetest.New(counter)
			read := &unstructured.Unstructured{}
			read.SetAPIVersion("v1")
			read.SetKind("Service")
			if err := cache.Get(t.Context(), from, client.ObjectKeyFromObject(service), read, c.options...); err != nil {
				t.Fatal(err)
			}
			if c.change {
				read.SetLabels(map[string]string{"app": "other"})
			}
			counter.cleanup()
			if counter.errors != c.want {
				t.Errorf("got %d errors, want %d", counter.errors, c.want)
			}
		})
	}
}
