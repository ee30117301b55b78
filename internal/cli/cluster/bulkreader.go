package cluster

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// maxSingleReads is the number of reads of one kind after which all objects of the kind are read at once. Below it, a list might
// transfer many objects of no interest.
const maxSingleReads = 100

// bulkReader reads the objects that releases refer to, so that the number of requests does not grow with the number of releases: after
// many reads of a kind, it lists the kind once. It is valid for one observation, in which each object has one state.
//
// Without the permission to list a kind, and for Secrets and ConfigMaps, whose content is large and confidential, it continues with
// single reads.
type bulkReader struct {
	client.WithWatch
	namespace string // in which it lists; empty: in all

	mu    sync.Mutex
	kinds map[listedKind]*bulkKind
}

// listedKind is a kind in one representation.
type listedKind struct {
	gvk            schema.GroupVersionKind
	representation reflect.Type
}

// bulkKind contains all objects of a kind, once they were read.
type bulkKind struct {
	reads  int
	once   sync.Once
	byName map[types.NamespacedName]client.Object
	err    error
}

// errNotListable means that objects of a kind are read one by one.
var errNotListable = errors.New("objects of this kind are not listed")

func newBulkReader(c client.WithWatch, objects []client.Object) *bulkReader {
	r := &bulkReader{WithWatch: c, kinds: map[listedKind]*bulkKind{}}
	if len(objects) > 0 && !slices.ContainsFunc(objects, func(o client.Object) bool { return o.GetNamespace() != objects[0].GetNamespace() }) {
		r.namespace = objects[0].GetNamespace()
	}
	return r
}

// Get implements client.Reader.
func (r *bulkReader) Get(ctx context.Context, key client.ObjectKey, into client.Object, opts ...client.GetOption) error {
	gvk, err := apiutil.GVKForObject(into, r.Scheme())
	if err != nil {
		return fmt.Errorf("read the kind of %T: %w", into, err)
	}
	var options client.GetOptions
	options.ApplyOptions(opts)
	all, err := r.read(ctx, gvk, into, key.Namespace, false)
	if err != nil || options.Raw != nil {
		return r.WithWatch.Get(ctx, key, into, opts...)
	}
	found := all[key]
	if found == nil {
		return apierrors.NewNotFound(schema.GroupResource{Group: gvk.Group, Resource: strings.ToLower(gvk.Kind)}, key.Name)
	}
	reflect.ValueOf(into).Elem().Set(reflect.ValueOf(found.DeepCopyObject()).Elem())
	return nil
}

// List implements client.Reader.
func (r *bulkReader) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	gvk, err := apiutil.GVKForObject(list, r.Scheme())
	if err != nil {
		return fmt.Errorf("read the kind of %T: %w", list, err)
	}
	gvk.Kind = strings.TrimSuffix(gvk.Kind, "List")
	var options client.ListOptions
	options.ApplyOptions(opts)
	if options.FieldSelector != nil || options.Limit > 0 || options.Continue != "" || options.Raw != nil {
		return r.WithWatch.List(ctx, list, opts...)
	}
	item, err := r.newItem(gvk, list)
	if err != nil {
		return r.WithWatch.List(ctx, list, opts...)
	}
	all, err := r.read(ctx, gvk, item, options.Namespace, options.LabelSelector == nil && options.Namespace == r.namespace)
	if err != nil {
		return r.WithWatch.List(ctx, list, opts...)
	}
	var selected []runtime.Object
	for key, object := range all {
		if key.Namespace == options.Namespace && (options.LabelSelector == nil || options.LabelSelector.Matches(labels.Set(object.GetLabels()))) {
			selected = append(selected, object.DeepCopyObject())
		}
	}
	slices.SortFunc(selected, func(a, b runtime.Object) int { return strings.Compare(nameOf(a), nameOf(b)) })
	return meta.SetList(list, selected)
}

func nameOf(object runtime.Object) string {
	accessor, err := meta.Accessor(object)
	if err != nil {
		return ""
	}
	return accessor.GetName()
}

// newItem returns an empty object of a kind in the representation of a list.
func (r *bulkReader) newItem(gvk schema.GroupVersionKind, list client.ObjectList) (client.Object, error) {
	switch list.(type) {
	case *unstructured.UnstructuredList:
		return &unstructured.Unstructured{}, nil
	case *metav1.PartialObjectMetadataList:
		return &metav1.PartialObjectMetadata{}, nil
	}
	created, err := r.Scheme().New(gvk)
	if err != nil {
		return nil, err
	}
	item, ok := created.(client.Object)
	if !ok {
		return nil, errNotListable
	}
	return item, nil
}

// read returns all objects of a kind, or an error if they are read one by one. With isList, the caller needs all of them.
func (r *bulkReader) read(ctx context.Context, gvk schema.GroupVersionKind, item client.Object, namespace string, isList bool) (map[types.NamespacedName]client.Object, error) {
	_, isMetadata := item.(*metav1.PartialObjectMetadata)
	isConfidential := gvk.Group == "" && (gvk.Kind == "Secret" || gvk.Kind == "ConfigMap")
	if namespace == "" || r.namespace != "" && namespace != r.namespace || isConfidential && !isMetadata {
		return nil, errNotListable
	}
	kind := listedKind{gvk, reflect.TypeOf(item)}
	r.mu.Lock()
	if r.kinds[kind] == nil {
		r.kinds[kind] = &bulkKind{}
	}
	all := r.kinds[kind]
	all.reads++
	isSingle := !isList && all.reads <= maxSingleReads
	r.mu.Unlock()
	if isSingle {
		return nil, errNotListable
	}
	all.once.Do(func() { all.byName, all.err = r.listAll(ctx, gvk, item) })
	return all.byName, all.err
}

// listAll reads all objects of a kind.
func (r *bulkReader) listAll(ctx context.Context, gvk schema.GroupVersionKind, item client.Object) (map[types.NamespacedName]client.Object, error) {
	out, next := map[types.NamespacedName]client.Object{}, ""
	for {
		list, err := r.newList(gvk, item)
		if err != nil {
			return nil, err
		}
		if err := r.WithWatch.List(ctx, list, client.InNamespace(r.namespace), client.Limit(pageSize), client.Continue(next)); err != nil {
			return nil, err
		}
		err = meta.EachListItem(list, func(object runtime.Object) error {
			one, ok := object.(client.Object)
			if !ok {
				return errNotListable
			}
			if metadata, ok := one.(*metav1.PartialObjectMetadata); ok {
				metadata.SetGroupVersionKind(gvk)
			}
			out[client.ObjectKeyFromObject(one)] = one
			return nil
		})
		if next = list.GetContinue(); err != nil || next == "" {
			return out, err
		}
	}
}

// newList returns an empty list of a kind in the representation of an object.
func (r *bulkReader) newList(gvk schema.GroupVersionKind, item client.Object) (client.ObjectList, error) {
	gvk.Kind += "List"
	switch item.(type) {
	case *unstructured.Unstructured:
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(gvk)
		return list, nil
	case *metav1.PartialObjectMetadata:
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(gvk)
		return list, nil
	}
	created, err := r.Scheme().New(gvk)
	if err != nil {
		return nil, err
	}
	list, ok := created.(client.ObjectList)
	if !ok {
		return nil, errNotListable
	}
	return list, nil
}
