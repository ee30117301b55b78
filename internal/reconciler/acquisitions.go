package reconciler

import (
	"maps"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// acquisitions records in which acquisition of its shard each object was last reconciled. If a shard is lost and acquired again
// before the queue has processed its objects, nothing else reveals that another process has acted in between. The zero value
// is empty.
type acquisitions struct {
	mu      sync.Mutex
	entries map[types.NamespacedName]int
}

// record reports whether this is the first reconciliation of an object in this acquisition of its shard.
func (a *acquisitions) record(key types.NamespacedName, acquisition int) (first bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.entries == nil {
		a.entries = map[types.NamespacedName]int{}
	}
	first = a.entries[key] != acquisition
	a.entries[key] = acquisition
	return first
}

func (a *acquisitions) forget(key types.NamespacedName) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.entries, key)
}

func (a *acquisitions) keys() []types.NamespacedName {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Collect(maps.Keys(a.entries))
}
