package operator

import (
	"net/http"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// mappings is a RESTMapper that remembers what it was asked. Each read of a cache asks for the resource of a kind, and the
// library's mapper looks through all groups for it each time. What was found is kept by that one too, for as long as the
// process lives; what was not found is asked again.
type mappings struct {
	meta.RESTMapper

	mu    sync.RWMutex
	known map[schema.GroupVersionKind]*meta.RESTMapping
}

// newMappings makes one; it is a MapperProvider.
func newMappings(cfg *rest.Config, http *http.Client) (meta.RESTMapper, error) {
	inner, err := apiutil.NewDynamicRESTMapper(cfg, http)
	if err != nil {
		return nil, err
	}
	return remembering(inner), nil
}

func remembering(inner meta.RESTMapper) *mappings {
	return &mappings{RESTMapper: inner, known: map[schema.GroupVersionKind]*meta.RESTMapping{}}
}

// RESTMapping implements meta.RESTMapper.
func (m *mappings) RESTMapping(kind schema.GroupKind, versions ...string) (*meta.RESTMapping, error) {
	if len(versions) != 1 {
		return m.RESTMapper.RESTMapping(kind, versions...)
	}
	of := kind.WithVersion(versions[0])
	m.mu.RLock()
	known := m.known[of]
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
	m.known[of] = found
	return found, nil
}
