package operator

import (
	"context"
	"errors"
	"reflect"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// readable is a cache that does not wait for kinds that may not be read. The library's cache waits for the first list
// of a kind for as long as a reconciliation may last, so that a few releases with a kind without permissions would
// block all workers.
type readable struct {
	cache.Cache
	scheme *runtime.Scheme
	mapper meta.RESTMapper

	mu     sync.Mutex
	denied map[schema.GroupResource]error
	// shown contains the views that were listed once.
	shown sync.Map
}

// view is a kind in the representation in which a cache stores it.
type view struct {
	form reflect.Type
	// kind is empty if the representation determines it.
	kind schema.GroupVersionKind
}

func viewOf(object client.Object) view {
	v := view{form: reflect.TypeOf(object)}
	switch object.(type) {
	case *unstructured.Unstructured, *metav1.PartialObjectMetadata:
		v.kind = object.GetObjectKind().GroupVersionKind()
	}
	return v
}

// firstLook is the interval of checks whether a first list has arrived, or was denied.
const firstLook = 10 * time.Millisecond

// newReadable returns such a cache; it implements cache.NewCacheFunc. A caller that sets a handler of watch errors must
// report denied kinds itself.
func newReadable(cfg *rest.Config, options cache.Options) (cache.Cache, error) {
	r := &readable{scheme: options.Scheme, mapper: options.Mapper, denied: map[schema.GroupResource]error{}}
	tell := options.DefaultWatchErrorHandler
	if tell == nil {
		tell = toolscache.DefaultWatchErrorHandler
	}
	options.DefaultWatchErrorHandler = func(ctx context.Context, reflector *toolscache.Reflector, err error) {
		r.note(err)
		tell(ctx, reflector, err)
	}
	inner, err := cache.New(cfg, options)
	if err != nil {
		return nil, err
	}
	r.Cache = inner
	return r, nil
}

// note records that the API server denies access to a kind.
func (r *readable) note(err error) {
	status, ok := errors.AsType[*apierrors.StatusError](err)
	if !ok || !apierrors.IsForbidden(err) || status.ErrStatus.Details == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.denied[schema.GroupResource{Group: status.ErrStatus.Details.Group, Resource: status.ErrStatus.Details.Kind}] = err
}

// Get implements client.Reader. If the API server denies the list of the kind, it returns that error.
func (r *readable) Get(ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
	of := viewOf(object)
	if _, shown := r.shown.Load(of); !shown {
		if err := r.listed(ctx, object); err != nil {
			return err
		}
		r.shown.Store(of, true)
	}
	return r.Cache.Get(ctx, key, object, options...)
}

// listed waits for the first list of a kind, or for its denial. A kind that was listed once remains readable, although
// its objects may be outdated, as with every interrupted watch.
func (r *readable) listed(ctx context.Context, object client.Object) error {
	informer, err := r.GetInformer(ctx, object, cache.BlockUntilSynced(false))
	if err != nil || informer.HasSynced() {
		return err
	}
	gvk, err := apiutil.GVKForObject(object, r.scheme)
	if err != nil {
		return err
	}
	mapping, err := r.mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
	if err != nil {
		return err
	}
	var denied error
	waited := wait.PollUntilContextCancel(ctx, firstLook, true, func(context.Context) (bool, error) {
		r.mu.Lock()
		defer r.mu.Unlock()
		denied = r.denied[mapping.Resource.GroupResource()]
		return denied != nil || informer.HasSynced(), nil
	})
	switch {
	case informer.HasSynced():
		return nil
	case denied != nil:
		return denied
	default:
		return waited
	}
}
