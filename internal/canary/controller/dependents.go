package controller

import (
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// thing is one object that a Canary depends on, whether it exists or not.
type thing struct {
	kind            schema.GroupKind
	namespace, name string
}

// dependents knows which Canaries must be looked at when an object changes. What one Canary depends on is replaced as a
// whole at each pass, so that it never grows.
type dependents struct {
	mu     sync.Mutex
	by     map[thing]map[types.NamespacedName]bool
	things map[types.NamespacedName][]thing
}

func newDependents() *dependents {
	return &dependents{by: map[thing]map[types.NamespacedName]bool{}, things: map[types.NamespacedName][]thing{}}
}

// set says what the Canary depends on from now on.
func (d *dependents) set(key types.NamespacedName, things []thing) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if slices.Equal(d.things[key], things) {
		return // the usual case
	}
	d.drop(key)
	if len(things) == 0 {
		return
	}
	d.things[key] = things
	for _, t := range things {
		if d.by[t] == nil {
			d.by[t] = map[types.NamespacedName]bool{}
		}
		d.by[t][key] = true
	}
}

func (d *dependents) forget(key types.NamespacedName) { d.set(key, nil) }

func (d *dependents) drop(key types.NamespacedName) {
	for _, t := range d.things[key] {
		delete(d.by[t], key)
		if len(d.by[t]) == 0 {
			delete(d.by, t)
		}
	}
	delete(d.things, key)
}

// of are the Canaries that depend on an object, sorted: the same change must always lead to the same order.
func (d *dependents) of(t thing) []types.NamespacedName {
	d.mu.Lock()
	defer d.mu.Unlock()
	keys := make([]types.NamespacedName, 0, len(d.by[t]))
	for key := range d.by[t] {
		keys = append(keys, key)
	}
	slices.SortFunc(keys, func(a, b types.NamespacedName) int { return strings.Compare(a.String(), b.String()) })
	return keys
}
