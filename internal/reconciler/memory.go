package reconciler

import (
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Memory is what a reconciler remembers of each object between reconciliations. All of it may be lost: it saves requests and
// improves explanations. E is what only one kind remembers; its zero value is the memory of an object that was never reconciled.
// A Memory is safe for concurrent use.
type Memory[E any] struct {
	// Explanations decides when a status is written only to say what its object waits for.
	Explanations Explanations

	mu      sync.Mutex
	entries map[types.NamespacedName]*entry[E]
}

type entry[E any] struct {
	own E
	// wake is the time for which the next reconciliation was scheduled; zero: none was.
	wake    time.Time
	retries Retries
	waits   map[string]wait // by name of the gate
}

// entry returns the entry of an object, which it creates. The caller has the lock.
func (m *Memory[E]) entry(key types.NamespacedName) *entry[E] {
	if m.entries == nil {
		m.entries = map[types.NamespacedName]*entry[E]{}
	}
	if m.entries[key] == nil {
		m.entries[key] = &entry[E]{}
	}
	return m.entries[key]
}

// Do calls f with what only this kind remembers of an object. f must not call the Memory.
func (m *Memory[E]) Do(key types.NamespacedName, f func(own *E)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f(&m.entry(key).own)
}

// Own returns what only this kind remembers of an object.
func (m *Memory[E]) Own(key types.NamespacedName) (own E) {
	m.Do(key, func(e *E) { own = *e })
	return own
}

// Forget drops everything about an object, such as one that was deleted.
func (m *Memory[E]) Forget(key types.NamespacedName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.entries, key)
}

// Keys returns the objects that are remembered.
func (m *Memory[E]) Keys() []types.NamespacedName {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Collect(maps.Keys(m.entries))
}

// ScheduleWake records the time at which the state machine asked to decide again; zero: it did not.
func (m *Memory[E]) ScheduleWake(key types.NamespacedName, at time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.entry(key).wake = at
}

// Lateness returns by how much a reconciliation is later than it was scheduled for. It is not due if an event caused the
// reconciliation. A scheduled time counts once.
func (m *Memory[E]) Lateness(key types.NamespacedName, now time.Time) (by time.Duration, due bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.entry(key)
	if e.wake.IsZero() || now.Before(e.wake) {
		return 0, false
	}
	by = now.Sub(e.wake)
	e.wake = time.Time{}
	return by, true
}

// RetryAt counts a failure and returns the time of the next attempt.
func (m *Memory[E]) RetryAt(key types.NamespacedName, of Trouble, now time.Time) time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.entry(key).retries.Again(of, now)
}

// Retry counts a failure, or ends a row of failures. It returns the time of the next attempt; zero: none is needed.
func (m *Memory[E]) Retry(key types.NamespacedName, of Trouble, failed bool, now time.Time) time.Time {
	if failed {
		return m.RetryAt(key, of, now)
	}
	m.Succeeded(key, of)
	return time.Time{}
}

// Succeeded ends a row of failures.
func (m *Memory[E]) Succeeded(key types.NamespacedName, of Trouble) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if e := m.entries[key]; e != nil {
		e.retries.Succeeded(of)
	}
}
