// Package cachetest adds the sharing of a cache to a fake API server: like a cache that is read without deep copies, it returns
// the same object to all callers. A test whose code changes such an object fails.
//
// It is for tests. It must not know the purpose of the objects.
package cachetest

import (
	"context"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Cache returns the same object to all callers that request no deep copy, until the object changes in the API server.
type Cache struct {
	tb      testing.TB
	objects map[objectKey]sharedObject
}

type objectKey struct {
	kind schema.GroupVersionKind
	key  client.ObjectKey
}

// sharedObject is an object that Get has returned, with a copy of its original state.
type sharedObject struct{ object, original *unstructured.Unstructured }

// New returns a cache that verifies at the end of the test that no shared object was changed.
func New(tb testing.TB) *Cache {
	tb.Helper()
	c := &Cache{tb: tb, objects: map[objectKey]sharedObject{}}
	tb.Cleanup(func() {
		for _, object := range c.objects {
			c.verifyUnchanged(object)
		}
	})
	return c
}

// Get reads an object from the API server.
func (c *Cache) Get(ctx context.Context, from client.Reader, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
	err := from.Get(ctx, key, object, options...)
	read, ok := object.(*unstructured.Unstructured)
	shared := (&client.GetOptions{}).ApplyOptions(options).UnsafeDisableDeepCopy
	if err != nil || !ok || shared == nil || !*shared {
		return err
	}
	id := objectKey{read.GroupVersionKind(), key}
	last, found := c.objects[id]
	if found {
		c.verifyUnchanged(last)
	}
	if !found || !reflect.DeepEqual(last.original, read) {
		last = sharedObject{object: read.DeepCopy(), original: read.DeepCopy()}
		c.objects[id] = last
	}
	*read = *last.object
	return nil
}

func (c *Cache) verifyUnchanged(object sharedObject) {
	c.tb.Helper()
	if !reflect.DeepEqual(object.original, object.object) {
		c.tb.Errorf("%s %s of the cache was changed:\n%s", object.original.GetKind(), object.original.GetName(), cmp.Diff(object.original, object.object))
	}
}
