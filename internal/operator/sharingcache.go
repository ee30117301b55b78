package operator

import (
	"context"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// sharedKinds are the kinds that both APIs watch from the start. The permissions of one API may not include other kinds, and
// must not prevent the other from starting.
var sharedKinds = map[schema.GroupVersionKind]bool{
	corev1.SchemeGroupVersion.WithKind("Service"):            true,
	appsv1.SchemeGroupVersion.WithKind("Deployment"):         true,
	discoveryv1.SchemeGroupVersion.WithKind("EndpointSlice"): true, // by neither if they may not be read
}

// sharingCache is a cache that reads shared kinds from another cache, so that they are watched, decoded and stored once.
type sharingCache struct {
	cache.Cache
	other  cache.Cache
	scheme *runtime.Scheme
}

// newSharingCache returns a cache.NewCacheFunc. The other cache must have the same namespaces and be started separately.
func (c caches) newSharingCache(other cache.Cache) cache.NewCacheFunc {
	return func(cfg *rest.Config, options cache.Options) (cache.Cache, error) {
		own, err := c.newCache(cfg, options)
		return &sharingCache{Cache: own, other: other, scheme: options.Scheme}, err
	}
}

func (s *sharingCache) cacheFor(object runtime.Object) (cache.Cache, error) {
	kind, err := apiutil.GVKForObject(object, s.scheme)
	if err != nil {
		return nil, err
	}
	kind.Kind = strings.TrimSuffix(kind.Kind, "List")
	return s.cacheForKind(kind), nil
}

func (s *sharingCache) cacheForKind(kind schema.GroupVersionKind) cache.Cache {
	if sharedKinds[kind] {
		return s.other
	}
	return s.Cache
}

// Get implements client.Reader.
func (s *sharingCache) Get(ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
	c, err := s.cacheFor(object)
	if err != nil {
		return err
	}
	return c.Get(ctx, key, object, options...)
}

// List implements client.Reader.
func (s *sharingCache) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	c, err := s.cacheFor(list)
	if err != nil {
		return err
	}
	return c.List(ctx, list, options...)
}

// GetInformer implements cache.Informers.
func (s *sharingCache) GetInformer(ctx context.Context, object client.Object, options ...cache.InformerGetOption) (cache.Informer, error) {
	c, err := s.cacheFor(object)
	if err != nil {
		return nil, err
	}
	return c.GetInformer(ctx, object, options...)
}

// GetInformerForKind implements cache.Informers.
func (s *sharingCache) GetInformerForKind(ctx context.Context, kind schema.GroupVersionKind, options ...cache.InformerGetOption) (cache.Informer, error) {
	return s.cacheForKind(kind).GetInformerForKind(ctx, kind, options...)
}

// RemoveInformer implements cache.Informers.
func (s *sharingCache) RemoveInformer(ctx context.Context, object client.Object) error {
	c, err := s.cacheFor(object)
	if err != nil {
		return err
	}
	return c.RemoveInformer(ctx, object)
}

// IndexField implements client.FieldIndexer.
func (s *sharingCache) IndexField(ctx context.Context, object client.Object, field string, values client.IndexerFunc) error {
	c, err := s.cacheFor(object)
	if err != nil {
		return err
	}
	return c.IndexField(ctx, object, field, values)
}
