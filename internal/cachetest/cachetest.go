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
	objects map[name]held
}

type name struct {
	kind schema.GroupVersionKind
	key  client.ObjectKey
}

// held is an object that was given away, and as it was then.
type held struct{ given, was *unstructured.Unstructured }

// New makes a cache that looks, at the end of the test, whether anybody changed what was given away.
func New(tb testing.TB) *Cache {
	tb.Helper()
	c := &Cache{tb: tb, objects: map[name]held{}}
	tb.Cleanup(func() {
		for _, object := range c.objects {
			c.check(object)
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
	of := name{read.GroupVersionKind(), key}
	last, found := c.objects[of]
	if found {
		c.check(last)
	}
	if !found || !reflect.DeepEqual(last.was, read) {
		last = held{given: read.DeepCopy(), was: read.DeepCopy()}
		c.objects[of] = last
	}
	*read = *last.given
	return nil
}

func (c *Cache) check(object held) {
	c.tb.Helper()
	if !reflect.DeepEqual(object.was, object.given) {
		c.tb.Errorf("%s %s of the cache was changed:\n%s", object.was.GetKind(), object.was.GetName(), cmp.Diff(object.was, object.given))
	}
}
