package reconciler

import (
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Memory is the state of each object that a reconciler remembers between reconciliations. All of it may be lost: it only saves
// requests and improves explanations. E is the state that is specific to one kind; its zero value is that of an object that was
// never reconciled. A Memory is safe for concurrent use.
type Memory[E any] struct {
	// Explanations configures when a status is written only to show the reason of a wait.
	Explanations ExplanationPolicy

	mu      sync.Mutex
	entries map[types.NamespacedName]*entry[E]
}

type entry[E any] struct {
	own E
	// wake is the time for which the next reconciliation is scheduled; zero means none.
	wake    time.Time
	retries Retries
	waits   map[string]wait // by name of the gate
}

// entry returns the entry of an object and creates it if necessary. The caller has the lock.
func (m *Memory[E]) entry(key types.NamespacedName) *entry[E] {
	if m.entries == nil {
		m.entries = map[types.NamespacedName]*entry[E]{}
	}
	if m.entries[key] == nil {
		m.entries[key] = &entry[E]{}
	}
	return m.entries[key]
}

// Do calls f with the kind's own state of an object. f must not call the Memory.
func (m *Memory[E]) Do(key types.NamespacedName, f func(own *E)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f(&m.entry(key).own)
}

// Own returns the kind's own state of an object.
func (m *Memory[E]) Own(key types.NamespacedName) (own E) {
	m.Do(key, func(e *E) { own = *e })
	return own
}

// Forget drops the state of an object, for example after its deletion.
func (m *Memory[E]) Forget(key types.NamespacedName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.entries, key)
}

// Keys returns the objects that have state.
func (m *Memory[E]) Keys() []types.NamespacedName {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Collect(maps.Keys(m.entries))
}

// ScheduleWake records the time at which the state machine requests the next decision; zero means none.
func (m *Memory[E]) ScheduleWake(key types.NamespacedName, at time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.entry(key).wake = at
}

// Lateness returns the delay of a reconciliation after its scheduled time. due is false if an event caused the reconciliation
// earlier. A scheduled time counts once.
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
func (m *Memory[E]) RetryAt(key types.NamespacedName, kind FailureKind, now time.Time) time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.entry(key).retries.NextAttempt(kind, now)
}

// Retry counts a failure, or resets the backoff after a success. It returns the time of the next attempt; zero means that none
// is needed.
func (m *Memory[E]) Retry(key types.NamespacedName, kind FailureKind, failed bool, now time.Time) time.Time {
	if failed {
		return m.RetryAt(key, kind, now)
	}
	m.ResetBackoff(key, kind)
	return time.Time{}
}

// ResetBackoff records a success.
func (m *Memory[E]) ResetBackoff(key types.NamespacedName, kind FailureKind) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if e := m.entries[key]; e != nil {
		e.retries.Reset(kind)
	}
}
