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

// told takes the complaints of a test.
type told struct {
	testing.TB
	errors  int
	cleanup func()
}

func (t *told) Helper()               {}
func (t *told) Errorf(string, ...any) { t.errors++ }
func (t *told) Cleanup(end func())    { t.cleanup = end }

func TestWhoChangesWhatTheCacheGaveIsFound(t *testing.T) {
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
			told := &told{TB: t}
			cache := cachetest.New(told)
			read := &unstructured.Unstructured{}
			read.SetAPIVersion("v1")
			read.SetKind("Service")
			if err := cache.Get(t.Context(), from, client.ObjectKeyFromObject(service), read, c.options...); err != nil {
				t.Fatal(err)
			}
			if c.change {
				read.SetLabels(map[string]string{"app": "other"})
			}
			told.cleanup()
			if told.errors != c.want {
				t.Errorf("got %d complaints, want %d", told.errors, c.want)
			}
		})
	}
}
