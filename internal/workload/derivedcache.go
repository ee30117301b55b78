package workload

import (
	"maps"
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/serin-dev/serin/internal/readyourwrites"
)

// derivedCache caches state of each Canary between reconciliations: checksums of configuration, never the content, and the state
// that was last derived from templates.
type derivedCache struct {
	mu      sync.Mutex
	entries map[types.NamespacedName]*cacheEntry
}

type cacheEntry struct {
	sums    map[types.UID]cachedChecksums
	derived derivedState
}

type cachedChecksums struct {
	version string
	sums    checksums
	used    bool // since the last sweep
}

func (m *derivedCache) entryFor(key types.NamespacedName) *cacheEntry {
	if m.entries == nil {
		m.entries = map[types.NamespacedName]*cacheEntry{}
	}
	if m.entries[key] == nil {
		m.entries[key] = &cacheEntry{sums: map[types.UID]cachedChecksums{}}
	}
	return m.entries[key]
}

// checksumsFor returns the checksums of this version of the object, if they are known. A live read may be newer than the cache
// that this object comes from; in that case the newer one counts.
func (m *derivedCache) checksumsFor(key types.NamespacedName, obj metav1.Object) (checksums, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	known, found := m.entryFor(key).sums[obj.GetUID()]
	if !found || known.version != obj.GetResourceVersion() && !readyourwrites.IsOlder(obj.GetResourceVersion(), known.version) {
		return checksums{}, false
	}
	known.used = true
	m.entryFor(key).sums[obj.GetUID()] = known
	return known.sums, true
}

// dropUnused drops entries that were not used since the last sweep: sources that the target no longer refers to.
func (m *derivedCache) dropUnused(key types.NamespacedName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	known := m.entryFor(key).sums
	for uid, entry := range known {
		if !entry.used {
			delete(known, uid)
			continue
		}
		entry.used = false
		known[uid] = entry
	}
}

func (m *derivedCache) store(key types.NamespacedName, obj metav1.Object, s checksums) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.entryFor(key).sums[obj.GetUID()] = cachedChecksums{version: obj.GetResourceVersion(), sums: s, used: true}
}

// lastDerived returns the last derived state, whatever its inputs were.
func (m *derivedCache) lastDerived(key types.NamespacedName) derivedState {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.entryFor(key).derived
}

func (m *derivedCache) storeDerived(key types.NamespacedName, known derivedState) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.entryFor(key).derived = known
}

func (m *derivedCache) dropCanary(key types.NamespacedName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.entries, key)
}

// keys returns the Canaries with cached state.
func (m *derivedCache) keys() []types.NamespacedName {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Collect(maps.Keys(m.entries))
}
