package traffic

import (
	"cmp"
	"maps"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
)

// Fields are the fields of an object that a renderer writes. All others are unknown to it and are preserved, at every depth.
type Fields map[string]Field

// Field describes how a renderer writes one field. The zero value is a field that it writes as a whole: a number, a string, a
// list of those, or an object whose keys users choose.
type Field struct {
	// Fields of the object, or of every object in the list.
	Fields Fields
	// Same identifies the objects of a list: was exists, and now was rendered. Nil: the one whose Fields are equal.
	Same func(was, now map[string]any) bool
}

// Names of the fields, sorted.
func (f Fields) Names() []string { return slices.Sorted(maps.Keys(f)) }

// With is a copy of the fields with more of them.
func (f Fields) With(more Fields) Fields {
	out := maps.Clone(f)
	maps.Copy(out, more)
	return out
}

// WholeFields are fields that a renderer writes as a whole.
func WholeFields(names ...string) Fields {
	out := make(Fields, len(names))
	for _, name := range names {
		out[name] = Field{}
	}
	return out
}

// SameField identifies objects in a list by the value of one field.
func SameField(name string) func(was, now map[string]any) bool {
	return func(was, now map[string]any) bool { return was[name] == now[name] }
}

// OnlyItem identifies objects in a list that has at most one.
func OnlyItem(_, _ map[string]any) bool { return true }

// FieldsOf are the fields of T, which a renderer copies from the spec of a release.
func FieldsOf[T any]() Fields { return fieldsOf(reflect.TypeFor[T]()) }

// fieldsOf is nil for a type without fields. The keys of a map are values that users choose, and no fields.
func fieldsOf(t reflect.Type) Fields {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct {
		return nil
	}
	out := Fields{}
	for f := range t.Fields() {
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" && name != "-" {
			out[name] = Field{Fields: fieldsOf(f.Type)}
		}
	}
	return out
}

// WriteFields sets the fields in obj to the values in want, and removes those that want does not have. Unknown fields of obj are
// preserved, also inside of objects, and of objects in lists, that want has.
func WriteFields(obj, want map[string]any, fields Fields) {
	SetFields(obj, PreserveUnknownFields(want, obj, fields), fields.Names()...)
}

// PreserveUnknownFields is want, with the unknown fields of the object that it replaces.
func PreserveUnknownFields(want, was map[string]any, fields Fields) map[string]any {
	want = runtime.DeepCopyJSON(want) // rendered values may be shared
	copyUnknown(want, was, fields)
	return want
}

// copyUnknown adds the fields that are not the renderer's from the existing object to the rendered one.
func copyUnknown(now, was map[string]any, fields Fields) {
	for name, value := range was {
		field, ours := fields[name]
		rendered, set := now[name]
		switch {
		case ours && set && field.Fields != nil:
			copyUnknownInValue(rendered, value, field)
		case !ours && !set:
			now[name] = runtime.DeepCopyJSONValue(value)
		}
	}
}

func copyUnknownInValue(now, was any, field Field) {
	switch rendered := now.(type) {
	case map[string]any:
		if existing, ok := was.(map[string]any); ok {
			copyUnknown(rendered, existing, field.Fields)
		}
	case []any:
		copyUnknownInItems(Maps(rendered), Maps(was), field)
	}
}

// copyUnknownInItems copies unknown fields for the objects of a list. Each corresponds to at most one existing object: among several
// candidates, the one with the most equal fields.
func copyUnknownInItems(now, was []map[string]any, field Field) {
	same := field.Same
	if same == nil {
		same = func(was, now map[string]any) bool { return equal(was, now, field.Fields) }
	}
	type pair struct{ now, was, equal int }
	var pairs []pair
	for i, rendered := range now {
		for j, existing := range was {
			if same(existing, rendered) {
				pairs = append(pairs, pair{i, j, countEqual(existing, rendered, field.Fields)})
			}
		}
	}
	slices.SortStableFunc(pairs, func(a, b pair) int { return cmp.Compare(b.equal, a.equal) })
	completed, taken := make([]bool, len(now)), make([]bool, len(was))
	for _, p := range pairs {
		if !completed[p.now] && !taken[p.was] {
			copyUnknown(now[p.now], was[p.was], field.Fields)
			completed[p.now], taken[p.was] = true, true
		}
	}
}

// equal compares the fields of two objects that a renderer writes.
func equal(a, b map[string]any, fields Fields) bool { return countEqual(a, b, fields) == len(fields) }

func countEqual(a, b map[string]any, fields Fields) int {
	count := 0
	for name, field := range fields {
		x, inA := a[name]
		y, inB := b[name]
		if inA == inB && equalValues(x, y, field) {
			count++
		}
	}
	return count
}

func equalValues(a, b any, field Field) bool {
	if field.Fields == nil {
		return reflect.DeepEqual(a, b)
	}
	switch x := a.(type) {
	case map[string]any:
		y, ok := b.(map[string]any)
		return ok && equal(x, y, field.Fields)
	case []any:
		y, ok := b.([]any)
		return ok && slices.EqualFunc(x, y, func(one, other any) bool {
			p, isObject := one.(map[string]any)
			q, otherIsObject := other.(map[string]any)
			if !isObject || !otherIsObject {
				return reflect.DeepEqual(one, other)
			}
			return equal(p, q, field.Fields)
		})
	default:
		return reflect.DeepEqual(a, b)
	}
}
