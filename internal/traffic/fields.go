package traffic

import (
	"cmp"
	"maps"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
)

// Fields are the fields of an object that a renderer writes. All others belong to somebody else, at every depth.
type Fields map[string]Field

// Field is what a renderer writes of one field. The zero value is a field that it writes whole: a number, a text, a list
// of those, or an object whose keys users choose.
type Field struct {
	// Fields of the object, or of every object in the list.
	Fields Fields
	// Same says which object in a list is which: was exists, and now was rendered. Nil: the one whose Fields are equal.
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

// Whole are fields that a renderer writes whole.
func Whole(names ...string) Fields {
	out := make(Fields, len(names))
	for _, name := range names {
		out[name] = Field{}
	}
	return out
}

// By identifies objects in a list by the value of one field.
func By(name string) func(was, now map[string]any) bool {
	return func(was, now map[string]any) bool { return was[name] == now[name] }
}

// Sole identifies objects in a list that has one at most.
func Sole(_, _ map[string]any) bool { return true }

// FieldsOf are the fields of T, which a renderer writes as a user gives them in a spec.
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

// Write sets the fields in obj as want has them, and removes those that want does not have. What obj has besides survives,
// also inside of objects and of objects in lists that are still wanted.
func Write(obj, want map[string]any, fields Fields) {
	want = runtime.DeepCopyJSON(want) // what is rendered may be shared
	carry(want, obj, fields)
	Own(obj, want, fields.Names()...)
}

// Merged is what is wanted, with what belongs to somebody else in an object that it replaces.
func Merged(want, was map[string]any, fields Fields) map[string]any {
	want = runtime.DeepCopyJSON(want)
	carry(want, was, fields)
	return want
}

// carry adds to an object that was rendered what is not the renderer's in the one that exists.
func carry(now, was map[string]any, fields Fields) {
	for name, value := range was {
		field, ours := fields[name]
		rendered, set := now[name]
		switch {
		case ours && set && field.Fields != nil:
			carryValue(rendered, value, field)
		case !ours && !set:
			now[name] = runtime.DeepCopyJSONValue(value)
		}
	}
}

func carryValue(now, was any, field Field) {
	switch rendered := now.(type) {
	case map[string]any:
		if existing, ok := was.(map[string]any); ok {
			carry(rendered, existing, field.Fields)
		}
	case []any:
		carryItems(Maps(rendered), Maps(was), field)
	}
}

// carryItems does it for the objects of a list, each of which stands for one that exists at most: where several may be meant,
// the one with the most fields that are equal.
func carryItems(now, was []map[string]any, field Field) {
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
	carried, taken := make([]bool, len(now)), make([]bool, len(was))
	for _, p := range pairs {
		if !carried[p.now] && !taken[p.was] {
			carry(now[p.now], was[p.was], field.Fields)
			carried[p.now], taken[p.was] = true, true
		}
	}
}

// equal compares what a renderer writes of two objects.
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
			p, object := one.(map[string]any)
			q, too := other.(map[string]any)
			if !object || !too {
				return reflect.DeepEqual(one, other)
			}
			return equal(p, q, field.Fields)
		})
	default:
		return reflect.DeepEqual(a, b)
	}
}
