package oracle

import (
	"reflect"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/serin-dev/serin/test/sim/actors"
	"github.com/serin-dev/serin/test/sim/store"
)

// Ownership distinguishes the objects of Serin from those of users.
type Ownership struct {
	// Kinds are kinds of objects that are releases, or always belong to Serin.
	Kinds []schema.GroupKind
	// Owned reports whether an object has the owner that Serin sets.
	Owned func(*store.Version) bool
	// MayChange reports whether a field of a user's object, given as a path of at most two levels, is documented to change.
	MayChange func(e Write, path string) bool
}

// UserObjects is I8: Serin changes only documented fields of a user's object, and never deletes it.
type UserObjects struct {
	*Ledger
	EventsOnly
	Ownership
}

// Observe implements Checker.
func (c *UserObjects) Observe(event any) {
	e, ok := event.(Write)
	if !ok || !e.BySerin || e.Old == nil || e.Subresource == "status" || slices.Contains(c.Kinds, e.Kind) || c.Owned(e.Old) {
		return
	}
	if e.Type == store.Deleted {
		c.Violate("I8", "", "Serin deleted %s %s, which it does not own", e.Kind.Kind, e.Key.Name)
		return
	}
	if owner := actors.ControllerOf(e.Old.Meta()); owner.UID != "" {
		c.Violate("I8", "", "Serin changed %s %s, which belongs to %s %s", e.Kind.Kind, e.Key.Name, owner.Kind, owner.UID)
		return
	}
	for _, path := range Differences(e.Old.Content(), e.New.Content(), "", 2) {
		switch path {
		case "metadata/resourceVersion", "metadata/generation", "metadata/managedFields":
			continue // written by the API server
		}
		if !c.MayChange(e, path) {
			c.Violate("I8", "", "Serin changed %s of %s %s, which belongs to the user", path, e.Kind.Kind, e.Key.Name)
		}
	}
}

// CreatedOwned is the part of I27 about new objects: each object that Serin creates has an owner.
type CreatedOwned struct {
	*Ledger
	EventsOnly
	Ownership
}

// Observe implements Checker.
func (c *CreatedOwned) Observe(event any) {
	if e, ok := event.(Write); ok && e.BySerin && e.Type == store.Added && !c.Owned(e.New) {
		c.Violate("I27", "", "%s %s was created without an owner", e.Kind.Kind, e.Key.Name)
	}
}

// Differences returns the paths, down to a depth, at which two objects differ.
func Differences(before, after map[string]any, at string, depth int) []string {
	var out []string
	compare := func(field string) {
		x, y := before[field], after[field]
		if SameMap(x, y) || reflect.DeepEqual(x, y) {
			return
		}
		nested, isMap := x.(map[string]any)
		other, areMaps := y.(map[string]any)
		if depth > 1 && isMap && areMaps {
			out = append(out, Differences(nested, other, at+field+"/", depth-1)...)
		} else {
			out = append(out, at+field)
		}
	}
	for field := range before {
		compare(field)
	}
	for field := range after {
		if _, known := before[field]; !known {
			compare(field)
		}
	}
	slices.Sort(out)
	return out
}

// SameMap reports whether two values are the same map. Versions of an object share the parts that did not change.
func SameMap(a, b any) bool {
	x, y := reflect.ValueOf(a), reflect.ValueOf(b)
	return x.IsValid() && y.IsValid() && x.Kind() == reflect.Map && y.Kind() == reflect.Map && x.Pointer() == y.Pointer()
}
