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

	"github.com/serin-dev/serin/internal/encodedcache"
)

// nonBlockingCache is a cache that does not wait for kinds that may not be read. The library's cache waits for the first list
// of a kind for as long as a reconciliation may last, so that a few releases with a kind without permissions would
// block all workers.
type nonBlockingCache struct {
	cache.Cache
	scheme *runtime.Scheme
	mapper meta.RESTMapper

	mu     sync.Mutex
	denied map[schema.GroupResource]error
	// synced contains the views that have been listed.
	synced sync.Map
}

// cacheView is a kind in the representation in which a cache stores it.
type cacheView struct {
	goType reflect.Type
	// kind is empty if the Go type determines it.
	kind schema.GroupVersionKind
}

func newCacheView(object client.Object) cacheView {
	v := cacheView{goType: reflect.TypeOf(object)}
	switch object.(type) {
	case *unstructured.Unstructured, *metav1.PartialObjectMetadata:
		v.kind = object.GetObjectKind().GroupVersionKind()
	}
	return v
}

// listPollInterval is the interval of checks whether a first list has arrived, or was denied.
const listPollInterval = 10 * time.Millisecond

// caches creates the caches of this process, for one or several clusters.
type caches struct{ recent *encodedcache.Recent }

// newCache is a cache.NewCacheFunc that returns a nonBlockingCache, which stores unstructured objects encoded. A caller that sets a
// handler of watch errors must report denied kinds itself.
func (c caches) newCache(cfg *rest.Config, options cache.Options) (cache.Cache, error) {
	r := &nonBlockingCache{scheme: options.Scheme, mapper: options.Mapper, denied: map[schema.GroupResource]error{}}
	handleError := options.DefaultWatchErrorHandler
	if handleError == nil {
		handleError = toolscache.DefaultWatchErrorHandler
	}
	options.DefaultWatchErrorHandler = func(ctx context.Context, reflector *toolscache.Reflector, err error) {
		r.recordDenied(err)
		handleError(ctx, reflector, err)
	}
	options.NewInformer = c.recent.NewInformer
	inner, err := cache.New(cfg, options)
	if err != nil {
		return nil, err
	}
	r.Cache = inner
	return r, nil
}

// recordDenied records that the API server denies access to a kind.
func (r *nonBlockingCache) recordDenied(err error) {
	status, ok := errors.AsType[*apierrors.StatusError](err)
	if !ok || !apierrors.IsForbidden(err) || status.ErrStatus.Details == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.denied[schema.GroupResource{Group: status.ErrStatus.Details.Group, Resource: status.ErrStatus.Details.Kind}] = err
}

// Get implements client.Reader. If the API server denies the list of the kind, it returns that error.
func (r *nonBlockingCache) Get(ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
	view := newCacheView(object)
	if _, synced := r.synced.Load(view); !synced {
		if err := r.waitForFirstList(ctx, object); err != nil {
			return err
		}
		r.synced.Store(view, true)
	}
	return r.Cache.Get(ctx, key, object, options...)
}

// waitForFirstList waits for the first list of a kind, or for its denial. A kind that was listed remains readable, although its
// objects may be outdated, as with every interrupted watch.
func (r *nonBlockingCache) waitForFirstList(ctx context.Context, object client.Object) error {
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
	waitErr := wait.PollUntilContextCancel(ctx, listPollInterval, true, func(context.Context) (bool, error) {
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
		return waitErr
	}
}
