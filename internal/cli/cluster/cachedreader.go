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

// cachedReader reads from the API server what a controller reads from caches: it has their indexes, and reads each list of a namespace once,
// for all queries. It writes nothing, and is valid for one observation.
type cachedReader struct {
	*recordingClient

	indexes map[string]client.IndexerFunc // by kind and field
	read    *listCache
}

// listCache contains the lists that were read.
type listCache struct {
	mu    sync.Mutex
	lists map[string]*listing
}

// listing is a list that was read.
type listing struct {
	once  sync.Once
	items []runtime.Object
	err   error
}

// newLens creates a lens with the indexes of both controllers.
func newLens(ctx context.Context, c client.WithWatch) (*cachedReader, error) {
	l := &cachedReader{recordingClient: &recordingClient{WithWatch: c}, indexes: map[string]client.IndexerFunc{}, read: &listCache{lists: map[string]*listing{}}}
	for _, index := range []func(context.Context, client.FieldIndexer) error{
		endpoints.Index, rolloutcontroller.IndexOwners, rolloutcontroller.IndexServices, rolloutcontroller.IndexWorkloads, rolloutcontroller.IndexPlaces, canarycontroller.IndexTargets, canarycontroller.IndexPlaces,
	} {
		if err := index(ctx, l); err != nil {
			return nil, err
		}
	}
	return l, nil
}

// IndexField implements client.FieldIndexer.
func (l *cachedReader) IndexField(_ context.Context, object client.Object, field string, of client.IndexerFunc) error {
	kind, err := l.kind(object)
	if err != nil {
		return err
	}
	l.indexes[kind+" "+field] = of
	return nil
}

// kind names the kind of an object or a list.
func (l *cachedReader) kind(object runtime.Object) (string, error) {
	gvk, err := apiutil.GVKForObject(object, l.Scheme())
	if err != nil {
		return "", fmt.Errorf("name the kind of %T: %w", object, err)
	}
	return strings.TrimSuffix(gvk.Kind, "List") + "." + gvk.Group, nil
}

// List answers a query to an index from the complete list of the namespace; the API server answers all others.
func (l *cachedReader) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	kind, err := l.kind(list)
	if err != nil {
		return err
	}
	var options client.ListOptions
	options.ApplyOptions(opts)
	of, value := l.index(kind, options)
	if of == nil {
		return l.recordingClient.List(ctx, list, opts...)
	}
	read := l.read.listing(kind + " " + options.Namespace)
	read.once.Do(func() {
		all, _ := list.DeepCopyObject().(client.ObjectList)
		if read.err = l.recordingClient.List(ctx, all, client.InNamespace(options.Namespace)); read.err == nil {
			read.items, read.err = meta.ExtractList(all)
		}
	})
	if read.err != nil {
		return read.err
	}
	var wanted []runtime.Object
	for _, item := range read.items {
		object, is := item.(client.Object)
		if is && slices.Contains(of(object), value) && (options.LabelSelector == nil || options.LabelSelector.Matches(labels.Set(object.GetLabels()))) {
			wanted = append(wanted, item.DeepCopyObject())
		}
	}
	return meta.SetList(list, wanted)
}

// index is the index of a query, and the value that the query searches for; nil: none.
func (l *cachedReader) index(kind string, options client.ListOptions) (of client.IndexerFunc, value string) {
	if options.FieldSelector == nil {
		return nil, ""
	}
	for _, requirement := range options.FieldSelector.Requirements() {
		if of := l.indexes[kind+" "+requirement.Field]; of != nil {
			return of, requirement.Value
		}
	}
	return nil, ""
}

func (r *listCache) listing(key string) *listing {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.lists[key] == nil {
		r.lists[key] = &listing{}
	}
	return r.lists[key]
}

// withOwnWrites is the same lens with a separate record of writes.
func (l *cachedReader) withOwnWrites() *cachedReader {
	return &cachedReader{recordingClient: &recordingClient{WithWatch: l.WithWatch}, indexes: l.indexes, read: l.read}
}
