package cluster

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	canarycontroller "github.com/serin-dev/serin/internal/canary/controller"
	"github.com/serin-dev/serin/internal/endpoints"
	rolloutcontroller "github.com/serin-dev/serin/internal/rollout/controller"
)

// cachedReader is a client for code that reads from the cache of a controller. It supports the indexes of that cache: for queries
// of an index it reads all objects of a kind and namespace once. It writes nothing, and is valid for one observation.
type cachedReader struct {
	*recordingClient

	indexes map[string]client.IndexerFunc // by kind and field
	cache   *listCache
	// hasMany is true if so many releases are observed that queries of an index are cheaper than a query for each release.
	hasMany bool
}

// listCache contains the lists that a cachedReader has read.
type listCache struct {
	mu    sync.Mutex
	lists map[string]*cachedList
}

// cachedList is one list, which is read once.
type cachedList struct {
	once  sync.Once
	items []runtime.Object
	err   error
}

// newCachedReader creates a reader with the indexes of both controllers.
func newCachedReader(ctx context.Context, c client.WithWatch) (*cachedReader, error) {
	r := &cachedReader{recordingClient: &recordingClient{WithWatch: c}, indexes: map[string]client.IndexerFunc{}, cache: &listCache{lists: map[string]*cachedList{}}}
	for _, index := range []func(context.Context, client.FieldIndexer) error{
		endpoints.Index, rolloutcontroller.IndexOwners, rolloutcontroller.IndexServices, rolloutcontroller.IndexWorkloads, rolloutcontroller.IndexPlaces, canarycontroller.IndexTargets, canarycontroller.IndexPlaces,
	} {
		if err := index(ctx, r); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// IndexField implements client.FieldIndexer.
func (r *cachedReader) IndexField(_ context.Context, object client.Object, field string, extract client.IndexerFunc) error {
	kind, err := r.kind(object)
	if err != nil {
		return err
	}
	r.indexes[kind+" "+field] = extract
	return nil
}

// kind returns the kind and group of an object, or of the items of a list.
func (r *cachedReader) kind(object runtime.Object) (string, error) {
	gvk, err := apiutil.GVKForObject(object, r.Scheme())
	if err != nil {
		return "", fmt.Errorf("read the kind of %T: %w", object, err)
	}
	return strings.TrimSuffix(gvk.Kind, "List") + "." + gvk.Group, nil
}

// List selects the objects of an indexed field from the complete list of the namespace. It sends all other queries to the API
// server.
func (r *cachedReader) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	kind, err := r.kind(list)
	if err != nil {
		return err
	}
	var options client.ListOptions
	options.ApplyOptions(opts)
	extract, value := r.index(kind, options)
	if extract == nil {
		return r.recordingClient.List(ctx, list, opts...)
	}
	read := r.cache.entry(kind + " " + options.Namespace)
	read.once.Do(func() {
		all, _ := list.DeepCopyObject().(client.ObjectList)
		if read.err = r.recordingClient.List(ctx, all, client.InNamespace(options.Namespace)); read.err == nil {
			read.items, read.err = meta.ExtractList(all)
		}
	})
	if read.err != nil {
		return read.err
	}
	var selected []runtime.Object
	for _, item := range read.items {
		object, ok := item.(client.Object)
		if ok && slices.Contains(extract(object), value) && (options.LabelSelector == nil || options.LabelSelector.Matches(labels.Set(object.GetLabels()))) {
			selected = append(selected, item.DeepCopyObject())
		}
	}
	return meta.SetList(list, selected)
}

// index returns the function that extracts the values of the indexed field that the options select, and the selected value; nil:
// the options select no indexed field.
func (r *cachedReader) index(kind string, options client.ListOptions) (extract client.IndexerFunc, value string) {
	if options.FieldSelector == nil {
		return nil, ""
	}
	for _, requirement := range options.FieldSelector.Requirements() {
		if extract := r.indexes[kind+" "+requirement.Field]; extract != nil {
			return extract, requirement.Value
		}
	}
	return nil, ""
}

func (r *listCache) entry(key string) *cachedList {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.lists[key] == nil {
		r.lists[key] = &cachedList{}
	}
	return r.lists[key]
}

// withOwnWrites returns a reader with the same cache and a separate record of writes.
func (r *cachedReader) withOwnWrites() *cachedReader {
	return &cachedReader{recordingClient: &recordingClient{WithWatch: r.WithWatch}, indexes: r.indexes, cache: r.cache, hasMany: r.hasMany}
}
