// Package encodedcache makes caches store unstructured objects as JSON. Decoded, an object consists of maps, which need about four
// times the memory, and nearly all cached objects belong to releases that are idle. Objects that were used recently remain decoded
// as well, so that a release in progress does not decode an object in each reconciliation.
//
// A cache with the informers of this package behaves like one with those of the library. The package must not know the kinds of
// objects, or who reads them.
package encodedcache

import (
	"bytes"
	"encoding/json"
	"fmt"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/tools/cache"
)

// storedObject is the stored form of an object. It implements metav1.ObjectMetaAccessor, through which stores find its key.
type storedObject struct {
	// text contains namespace, name, resource version and JSON, in one allocation: short strings would be scattered among the garbage of
	// the decoding.
	text []byte
	// name, resourceVersion and json are where these begin in text.
	name, resourceVersion, json int
	// decoded is nil unless the object was used recently.
	decoded atomic.Pointer[unstructured.Unstructured]
	// replaced is the number of handlers that have received the next version.
	replaced atomic.Int32
}

func newStoredObject(object *unstructured.Unstructured) (*storedObject, error) {
	s, text := &storedObject{}, &bytes.Buffer{}
	text.WriteString(object.GetNamespace())
	s.name = text.Len()
	text.WriteString(object.GetName())
	s.resourceVersion = text.Len()
	text.WriteString(object.GetResourceVersion())
	s.json = text.Len()
	if err := json.NewEncoder(text).Encode(object.Object); err != nil {
		return nil, fmt.Errorf("encode %s %s.%s: %w", object.GetKind(), object.GetName(), object.GetNamespace(), err)
	}
	s.text = text.Bytes()
	return s, nil
}

// GetObjectMeta implements metav1.ObjectMetaAccessor. It returns only what identifies the object and its version.
func (s *storedObject) GetObjectMeta() metav1.Object {
	return &metav1.ObjectMeta{
		Namespace: string(s.text[:s.name]), Name: string(s.text[s.name:s.resourceVersion]), ResourceVersion: string(s.text[s.resourceVersion:s.json]),
	}
}

// informer is an informer whose store contains stored objects, and whose readers and handlers receive the objects themselves.
// These are shared and must not be modified, as those of every informer.
type informer struct {
	cache.SharedIndexInformer
	recent *Recent
	// handlers is the number of event handlers.
	handlers atomic.Int32
}

// NewInformer is a function for the options of a cache. Objects that are not unstructured are stored as they are.
func (r *Recent) NewInformer(source cache.ListerWatcher, example runtime.Object, resync time.Duration, indexers cache.Indexers) cache.SharedIndexInformer {
	i := cache.NewSharedIndexInformer(source, example, resync, indexers)
	if _, generic := example.(*unstructured.Unstructured); !generic {
		return i
	}
	return &informer{SharedIndexInformer: i, recent: r}
}

// SetTransform implements cache.SharedInformer: objects are encoded after their transformation, which may be nil.
func (i *informer) SetTransform(transform cache.TransformFunc) error {
	return i.SharedIndexInformer.SetTransform(func(object any) (any, error) {
		if transform != nil {
			var err error
			if object, err = transform(object); err != nil {
				return nil, err
			}
		}
		generic, ok := object.(*unstructured.Unstructured)
		if !ok {
			return object, nil
		}
		stored, err := newStoredObject(generic)
		if err != nil {
			return nil, err
		}
		stored.decoded.Store(generic)
		i.recent.add(stored)
		return stored, nil
	})
}

// decode returns the object of a stored object, and everything else as it is.
func (i *informer) decode(object any) any {
	stored, ok := object.(*storedObject)
	if !ok {
		return object
	}
	if decoded := stored.decoded.Load(); decoded != nil {
		return decoded
	}
	decoded := &unstructured.Unstructured{}
	if err := utiljson.Unmarshal(stored.text[stored.json:], &decoded.Object); err != nil {
		panic(err) // not the JSON that newStoredObject has written: a programming error
	}
	stored.decoded.Store(decoded)
	i.recent.add(stored)
	return decoded
}

func (i *informer) decodeAll(objects []any) []any {
	decoded := make([]any, 0, len(objects))
	for _, object := range objects {
		decoded = append(decoded, i.decode(object))
	}
	return decoded
}

// AddIndexers implements cache.SharedIndexInformer.
func (i *informer) AddIndexers(indexers cache.Indexers) error {
	decoding := cache.Indexers{}
	for name, index := range indexers {
		decoding[name] = func(object any) ([]string, error) { return index(i.decode(object)) }
	}
	return i.SharedIndexInformer.AddIndexers(decoding)
}

// AddEventHandler implements cache.SharedInformer.
func (i *informer) AddEventHandler(handler cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	return i.SharedIndexInformer.AddEventHandler(i.decodingHandler(handler))
}

// AddEventHandlerWithResyncPeriod implements cache.SharedInformer.
func (i *informer) AddEventHandlerWithResyncPeriod(handler cache.ResourceEventHandler, period time.Duration) (cache.ResourceEventHandlerRegistration, error) {
	return i.SharedIndexInformer.AddEventHandlerWithResyncPeriod(i.decodingHandler(handler), period)
}

// AddEventHandlerWithOptions implements cache.SharedInformer.
func (i *informer) AddEventHandlerWithOptions(handler cache.ResourceEventHandler, options cache.HandlerOptions) (cache.ResourceEventHandlerRegistration, error) {
	return i.SharedIndexInformer.AddEventHandlerWithOptions(i.decodingHandler(handler), options)
}

func (i *informer) decodingHandler(handler cache.ResourceEventHandler) decodingHandler {
	i.handlers.Add(1)
	return decodingHandler{handler, i}
}

// decodingHandler decodes the objects that a handler receives.
type decodingHandler struct {
	handler  cache.ResourceEventHandler
	informer *informer
}

// OnAdd implements cache.ResourceEventHandler.
func (h decodingHandler) OnAdd(object any, isInInitialList bool) {
	h.handler.OnAdd(h.informer.decode(object), isInInitialList)
}

// OnUpdate implements cache.ResourceEventHandler. After the last handler, nothing reads the previous version again. One that was
// removed never receives it: then the version remains decoded until others replace it.
func (h decodingHandler) OnUpdate(before, after any) {
	h.handler.OnUpdate(h.informer.decode(before), h.informer.decode(after))
	if previous, ok := before.(*storedObject); ok && before != after && previous.replaced.Add(1) >= h.informer.handlers.Load() {
		previous.decoded.Store(nil)
	}
}

// OnDelete implements cache.ResourceEventHandler.
func (h decodingHandler) OnDelete(object any) {
	if missed, ok := object.(cache.DeletedFinalStateUnknown); ok {
		missed.Obj = h.informer.decode(missed.Obj)
		h.handler.OnDelete(missed)
		return
	}
	h.handler.OnDelete(h.informer.decode(object))
}

// GetStore implements cache.SharedInformer.
func (i *informer) GetStore() cache.Store { return i.GetIndexer() }

// GetIndexer implements cache.SharedIndexInformer.
func (i *informer) GetIndexer() cache.Indexer {
	return decodingIndexer{i.SharedIndexInformer.GetIndexer(), i}
}

// decodingIndexer decodes the objects that are read.
type decodingIndexer struct {
	cache.Indexer
	informer *informer
}

// List implements cache.Store.
func (d decodingIndexer) List() []any { return d.informer.decodeAll(d.Indexer.List()) }

// Get implements cache.Store.
func (d decodingIndexer) Get(object any) (found any, exists bool, err error) {
	found, exists, err = d.Indexer.Get(object)
	return d.informer.decode(found), exists, err
}

// GetByKey implements cache.Store.
func (d decodingIndexer) GetByKey(key string) (found any, exists bool, err error) {
	found, exists, err = d.Indexer.GetByKey(key)
	return d.informer.decode(found), exists, err
}

// Index implements cache.Indexer.
func (d decodingIndexer) Index(name string, object any) ([]any, error) {
	found, err := d.Indexer.Index(name, object)
	return d.informer.decodeAll(found), err
}

// ByIndex implements cache.Indexer.
func (d decodingIndexer) ByIndex(name, value string) ([]any, error) {
	found, err := d.Indexer.ByIndex(name, value)
	return d.informer.decodeAll(found), err
}
