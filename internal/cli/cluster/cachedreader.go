package cluster

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	canarycontroller "github.com/serin-dev/serin/internal/canary/controller"
	"github.com/serin-dev/serin/internal/endpoints"
	rolloutcontroller "github.com/serin-dev/serin/internal/rollout/controller"
)

// maxSingleReads is the number of reads of one kind after which all objects of the kind are read at once. Below it, a list might
// transfer many objects of no interest.
const maxSingleReads = 100

// cachedReader is a client for code that reads from the cache of a controller. It supports the indexes of that cache: for queries
// of an index it reads all objects of a kind and namespace once. It writes nothing, and is valid for one observation, in which each
// object has one state.
//
// For many releases, it also reads the other objects so that the number of requests does not grow with the number of releases: after
// many reads of a kind, it lists the kind once. Without the permission to list a kind, and for Secrets and ConfigMaps, whose content is
// large and confidential, it continues with single reads.
type cachedReader struct {
	*recordingClient

	indexes map[string]client.IndexerFunc // by kind and field
	cache   *listCache
	// listsKinds is true if kinds are listed after many reads: those of listedNamespace, or of all namespaces if it is empty.
	listsKinds      bool
	listedNamespace string
	// hasMany is true if so many releases are observed that queries of an index are cheaper than a query for each release.
	hasMany bool
}

// errNotListed means that objects of a kind are read one by one.
var errNotListed = errors.New("objects of this kind are not listed")

// newCachedReader creates a reader with the indexes of both controllers.
func newCachedReader(ctx context.Context, c client.WithWatch) (*cachedReader, error) {
	r := &cachedReader{recordingClient: &recordingClient{WithWatch: c}, indexes: map[string]client.IndexerFunc{}, cache: newListCache()}
	for _, index := range []func(context.Context, client.FieldIndexer) error{
		endpoints.Index, rolloutcontroller.IndexOwners, rolloutcontroller.IndexServices, rolloutcontroller.IndexWorkloads, rolloutcontroller.IndexQueueEntries, canarycontroller.IndexTargets, canarycontroller.IndexQueueEntries,
	} {
		if err := index(ctx, r); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// newReaderOf creates a reader for the observation of several releases.
func newReaderOf(ctx context.Context, c client.WithWatch, releases []client.Object) (*cachedReader, error) {
	r, err := newCachedReader(ctx, c)
	if err != nil {
		return nil, err
	}
	r.listsKinds, r.hasMany = true, len(releases) > maxSingleReads
	if len(releases) > 0 && !slices.ContainsFunc(releases, func(o client.Object) bool { return o.GetNamespace() != releases[0].GetNamespace() }) {
		r.listedNamespace = releases[0].GetNamespace()
	}
	return r, nil
}

// withOwnWrites returns a reader with the same cache and a separate record of writes.
func (r *cachedReader) withOwnWrites() *cachedReader {
	out := *r
	out.recordingClient = &recordingClient{WithWatch: r.WithWatch}
	return &out
}

// IndexField implements client.FieldIndexer.
func (r *cachedReader) IndexField(_ context.Context, object client.Object, field string, extract client.IndexerFunc) error {
	gvk, err := r.kind(object)
	if err != nil {
		return err
	}
	r.indexes[indexKey(gvk, field)] = extract
	return nil
}

func indexKey(gvk schema.GroupVersionKind, field string) string {
	return gvk.GroupKind().String() + " " + field
}

// kind returns the kind of an object, or of the items of a list.
func (r *cachedReader) kind(object runtime.Object) (schema.GroupVersionKind, error) {
	gvk, err := apiutil.GVKForObject(object, r.Scheme())
	if err != nil {
		return schema.GroupVersionKind{}, fmt.Errorf("read the kind of %T: %w", object, err)
	}
	gvk.Kind = strings.TrimSuffix(gvk.Kind, "List")
	return gvk, nil
}

// Get implements client.Reader.
func (r *cachedReader) Get(ctx context.Context, key client.ObjectKey, into client.Object, opts ...client.GetOption) error {
	gvk, err := r.kind(into)
	if err != nil {
		return err
	}
	var options client.GetOptions
	options.ApplyOptions(opts)
	all, err := r.listedObjects(ctx, gvk, into, key.Namespace, false)
	if err != nil || options.Raw != nil {
		return r.recordingClient.Get(ctx, key, into, opts...)
	}
	found := all.byName[key]
	if found == nil {
		return apierrors.NewNotFound(schema.GroupResource{Group: gvk.Group, Resource: strings.ToLower(gvk.Kind)}, key.Name)
	}
	reflect.ValueOf(into).Elem().Set(reflect.ValueOf(found.DeepCopyObject()).Elem())
	return nil
}

// List implements client.Reader. It sends queries of fields without an index, and for a part of a list, to the API server.
func (r *cachedReader) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	gvk, err := r.kind(list)
	if err != nil {
		return err
	}
	var options client.ListOptions
	options.ApplyOptions(opts)
	item, err := r.newItem(gvk, list)
	field, value := r.indexedField(gvk, options)
	isOther := field == "" && (options.FieldSelector != nil || options.Limit > 0 || options.Continue != "" || options.Raw != nil)
	if err != nil || isOther {
		return r.recordingClient.List(ctx, list, opts...)
	}
	isWhole := field != "" || options.LabelSelector == nil
	all, err := r.listedObjects(ctx, gvk, item, options.Namespace, isWhole && options.Namespace == r.listedNamespace)
	if err != nil && field != "" {
		all, err = r.objectsOf(ctx, gvk, item, options.Namespace)
		if err != nil {
			return err
		}
	}
	if err != nil {
		return r.recordingClient.List(ctx, list, opts...)
	}
	var selected []runtime.Object
	for _, object := range all.find(options.Namespace, options.LabelSelector, field, value, r.indexes[indexKey(gvk, field)]) {
		selected = append(selected, object.DeepCopyObject())
	}
	return meta.SetList(list, selected)
}

// indexedField returns the indexed field that the options select, and the selected value; empty: they select none.
func (r *cachedReader) indexedField(gvk schema.GroupVersionKind, options client.ListOptions) (field, value string) {
	if options.FieldSelector == nil {
		return "", ""
	}
	for _, requirement := range options.FieldSelector.Requirements() {
		if r.indexes[indexKey(gvk, requirement.Field)] != nil {
			return requirement.Field, requirement.Value
		}
	}
	return "", ""
}

// listedObjects returns the objects of a kind that is listed for all releases, or an error if they are read one by one. With isWhole,
// the caller needs all of them.
func (r *cachedReader) listedObjects(ctx context.Context, gvk schema.GroupVersionKind, item client.Object, namespace string, isWhole bool) (*cachedList, error) {
	_, isMetadata := item.(*metav1.PartialObjectMetadata)
	isConfidential := gvk.Group == "" && (gvk.Kind == "Secret" || gvk.Kind == "ConfigMap")
	if !r.listsKinds || namespace == "" || r.listedNamespace != "" && namespace != r.listedNamespace || isConfidential && !isMetadata {
		return nil, errNotListed
	}
	if reads := r.cache.countRead(listedKind{gvk, reflect.TypeOf(item), ""}); !isWhole && reads <= maxSingleReads {
		return nil, errNotListed
	}
	return r.objectsOf(ctx, gvk, item, r.listedNamespace)
}

// objectsOf returns all objects of a kind and namespace, or of all namespaces, which are listed once.
func (r *cachedReader) objectsOf(ctx context.Context, gvk schema.GroupVersionKind, item client.Object, namespace string) (*cachedList, error) {
	all := r.cache.entry(listedKind{gvk, reflect.TypeOf(item), namespace})
	all.once.Do(func() {
		var objects []client.Object
		if objects, all.err = r.listAll(ctx, gvk, item, client.InNamespace(namespace)); all.err == nil {
			all.fill(objects)
		}
	})
	return all, all.err
}

// listAll reads all objects of a kind.
func (r *cachedReader) listAll(ctx context.Context, gvk schema.GroupVersionKind, item client.Object, opts ...client.ListOption) (out []client.Object, err error) {
	next := ""
	for {
		list, err := r.newList(gvk, item)
		if err != nil {
			return nil, err
		}
		if err := r.recordingClient.List(ctx, list, append(opts, client.Limit(pageSize), client.Continue(next))...); err != nil {
			return nil, err
		}
		err = meta.EachListItem(list, func(object runtime.Object) error {
			one, ok := object.(client.Object)
			if !ok {
				return errNotListed
			}
			if metadata, ok := one.(*metav1.PartialObjectMetadata); ok {
				metadata.SetGroupVersionKind(gvk)
			}
			out = append(out, one)
			return nil
		})
		if next = list.GetContinue(); err != nil || next == "" {
			return out, err
		}
	}
}

// newItem returns an empty object of a kind in the representation of a list.
func (r *cachedReader) newItem(gvk schema.GroupVersionKind, list client.ObjectList) (client.Object, error) {
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
		return nil, errNotListed
	}
	return item, nil
}

// newList returns an empty list of a kind in the representation of an object.
func (r *cachedReader) newList(gvk schema.GroupVersionKind, item client.Object) (client.ObjectList, error) {
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
		return nil, errNotListed
	}
	return list, nil
}
