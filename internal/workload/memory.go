package workload

import (
	"maps"
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/serin-dev/serin/internal/ownwrites"
)

// memory caches state between reconciliations for each Canary: checksums of configuration, never the content, and what
// was last derived from templates. It is dropped with the Canary.
type memory struct {
	mu sync.Mutex
	of map[types.NamespacedName]*remembered
}

type remembered struct {
	sums    map[types.UID]summed
	derived derived
}

type summed struct {
	version string
	sums    sums
	used    bool // since the last sweep
}

func (m *memory) entry(key types.NamespacedName) *remembered {
	if m.of == nil {
		m.of = map[types.NamespacedName]*remembered{}
	}
	if m.of[key] == nil {
		m.of[key] = &remembered{sums: map[types.UID]summed{}}
	}
	return m.of[key]
}

// sums returns the checksums of this version of the object, if they are known. A live read may be newer than the cache
// that this object comes from; in that case the newer one counts.
func (m *memory) sums(key types.NamespacedName, obj metav1.Object) (sums, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	known, found := m.entry(key).sums[obj.GetUID()]
	if !found || known.version != obj.GetResourceVersion() && !ownwrites.Older(obj.GetResourceVersion(), known.version) {
		return sums{}, false
	}
	known.used = true
	m.entry(key).sums[obj.GetUID()] = known
	return known.sums, true
}

// sweep drops entries that were not used since the last sweep: sources that the target no longer refers to.
func (m *memory) sweep(key types.NamespacedName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	known := m.entry(key).sums
	for uid, entry := range known {
		if !entry.used {
			delete(known, uid)
			continue
		}
		entry.used = false
		known[uid] = entry
	}
}

func (m *memory) keep(key types.NamespacedName, obj metav1.Object, s sums) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.entry(key).sums[obj.GetUID()] = summed{version: obj.GetResourceVersion(), sums: s, used: true}
}

// derived returns the last derived state, whatever its inputs were.
func (m *memory) derived(key types.NamespacedName) derived {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.entry(key).derived
}

func (m *memory) derive(key types.NamespacedName, known derived) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.entry(key).derived = known
}

func (m *memory) forget(key types.NamespacedName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.of, key)
}

// keys returns the Canaries with cached state.
func (m *memory) keys() []types.NamespacedName {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Collect(maps.Keys(m.of))
}
