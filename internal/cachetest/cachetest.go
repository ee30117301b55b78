// Package cachetest makes a fake API server hand out its own objects, as a cache does that is asked for no copies, and
// fails the test whose code changes one of them.
//
// It is for tests. It must not know what the objects are for.
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

// Cache gives everybody who asks for no copy the same object, for as long as it does not change.
type Cache struct {
	tb      testing.TB
	objects map[objectKey]sharedObject
}

type objectKey struct {
	kind schema.GroupVersionKind
	key  client.ObjectKey
}

// sharedObject is an object that was given away, and as it was then.
type sharedObject struct{ object, original *unstructured.Unstructured }

// New makes a cache that looks, at the end of the test, whether anybody changed what was given away.
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
	of := objectKey{read.GroupVersionKind(), key}
	last, found := c.objects[of]
	if found {
		c.verifyUnchanged(last)
	}
	if !found || !reflect.DeepEqual(last.original, read) {
		last = sharedObject{object: read.DeepCopy(), original: read.DeepCopy()}
		c.objects[of] = last
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
