package operator

import (
	"net/http"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// cachingMapper is a RESTMapper that caches its results. Each read of a cache looks up the resource of a kind, and the
// library's mapper searches all groups each time. Like that one, it caches found resources for the life of the process,
// and looks up missing ones again.
type cachingMapper struct {
	meta.RESTMapper

	mu    sync.RWMutex
	known map[schema.GroupVersionKind]*meta.RESTMapping
}

// newCachingMapper returns a caching mapper; it is a MapperProvider.
func newCachingMapper(cfg *rest.Config, http *http.Client) (meta.RESTMapper, error) {
	inner, err := apiutil.NewDynamicRESTMapper(cfg, http)
	if err != nil {
		return nil, err
	}
	return wrapMapper(inner), nil
}

func wrapMapper(inner meta.RESTMapper) *cachingMapper {
	return &cachingMapper{RESTMapper: inner, known: map[schema.GroupVersionKind]*meta.RESTMapping{}}
}

// RESTMapping implements meta.RESTMapper.
func (m *cachingMapper) RESTMapping(kind schema.GroupKind, versions ...string) (*meta.RESTMapping, error) {
	if len(versions) != 1 {
		return m.RESTMapper.RESTMapping(kind, versions...)
	}
	gvk := kind.WithVersion(versions[0])
	m.mu.RLock()
	known := m.known[gvk]
	m.mu.RUnlock()
	if known != nil {
		return known, nil
	}
	found, err := m.RESTMapper.RESTMapping(kind, versions...)
	if err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.known[gvk] = found
	return found, nil
}
