package traffictest

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/google/go-cmp/cmp"
	structural "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// unknownField is a field that no definition has. Its value is the path of its object, so that a field at another position is
// noticed.
const unknownField = "fieldOfOthers"

// unknownMetadata are keys that other tools write in maps of metadata.
var unknownMetadata = map[string]string{"labels": "theirs", "annotations": "example.com/theirs"}

// shape is the definition of a value.
type shape interface {
	// fields reports whether the value is an object whose fields are defined. In other objects a key is a value that a user
	// chose, such as the name of a header, and not a field.
	fields() bool
	// field is the shape of a field; nil if it is not defined.
	field(name string) shape
	// item is the shape of the items of a list.
	item() shape
}

// structuralShape is the shape in a CustomResourceDefinition.
type structuralShape struct{ schema *structural.Structural }

func (s structuralShape) fields() bool { return len(s.schema.Properties) > 0 }

func (s structuralShape) field(name string) shape {
	if property, ok := s.schema.Properties[name]; ok {
		return structuralShape{&property}
	}
	return nil
}

func (s structuralShape) item() shape {
	if s.schema.Items == nil {
		return nil
	}
	return structuralShape{s.schema.Items}
}

// typeShape is the shape of a kind that is built into API servers.
type typeShape struct{ goType reflect.Type }

func (s typeShape) fields() bool { return s.goType.Kind() == reflect.Struct }

func (s typeShape) field(name string) shape {
	if !s.fields() {
		return nil
	}
	for f := range s.goType.Fields() {
		if tag, _, _ := strings.Cut(f.Tag.Get("json"), ","); tag == name {
			return typeShape{pointed(f.Type)}
		} else if tag == "" && f.Anonymous {
			if found := (typeShape{pointed(f.Type)}).field(name); found != nil {
				return found
			}
		}
	}
	return nil
}

func (s typeShape) item() shape {
	if s.goType.Kind() != reflect.Slice {
		return nil
	}
	return typeShape{pointed(s.goType.Elem())}
}

func pointed(t reflect.Type) reflect.Type {
	if t.Kind() == reflect.Pointer {
		return t.Elem()
	}
	return t
}

// specOf is the shape of the spec of an object; nil if it is not defined.
func (a *Admission) specOf(obj *unstructured.Unstructured) shape {
	k, ok := a.kinds[obj.GroupVersionKind()]
	switch {
	case !ok:
		return nil
	case k.built != nil:
		return typeShape{pointed(reflect.TypeOf(k.built()))}.field("spec")
	default:
		return structuralShape{k.structural}.field("spec")
	}
}

// visit calls see for every object inside of value whose fields are defined, the outer ones first.
func visit(path string, value any, s shape, see func(path string, object map[string]any)) {
	if s == nil {
		return
	}
	switch v := value.(type) {
	case map[string]any:
		if !s.fields() {
			return
		}
		see(path, v)
		for _, name := range slices.Sorted(maps.Keys(v)) {
			visit(path+"."+name, v[name], s.field(name), see)
		}
	case []any:
		for i, item := range v {
			visit(fmt.Sprintf("%s[%d]", path, i), item, s.item(), see)
		}
	}
}

// unknowns adds unknown fields to objects, and finds those that were lost.
type unknowns struct {
	admission *Admission
	// exempt are values that the release writes as a whole, as kind and path.
	exempt []string
	// sides are the names of the two Services.
	sides []string
	// follows reports whether the spec of an object is copied from one of the user's, so that fields that other tools set in
	// the copy are not preserved.
	follows func(*unstructured.Unstructured) bool
}

func (u unknowns) visit(obj *unstructured.Unstructured, see func(path string, object map[string]any)) {
	if u.admission == nil {
		return
	}
	top := u.follows != nil && u.follows(obj)
	visit("spec", obj.Object["spec"], u.admission.specOf(obj), func(path string, object map[string]any) {
		if top && path != "spec" {
			return
		}
		if !slices.ContainsFunc(u.exempt, func(exempt string) bool { return strings.HasPrefix(obj.GetKind()+" "+path, exempt) }) {
			see(path, object)
		}
	})
}

// add returns a copy of the object with an unknown field in every object inside of it.
func (u unknowns) add(obj *unstructured.Unstructured) *unstructured.Unstructured {
	if obj == nil {
		return nil
	}
	out := obj.DeepCopy()
	u.visit(out, func(path string, object map[string]any) { object[unknownField] = path })
	out.Object[unknownField] = "top"
	if err := unstructured.SetNestedField(out.Object, "status", "status", unknownField); err != nil {
		panic(err)
	}
	for field, key := range unknownMetadata {
		if err := unstructured.SetNestedField(out.Object, "metadata", "metadata", field, key); err != nil {
			panic(err)
		}
	}
	return out
}

// lost compares an object with what is rendered of it, and describes the unknown fields that were lost or changed. plain is
// rendered of the object without these fields, and marked with them. It is empty if no field is lost and nothing else
// differs.
func (u unknowns) lost(before, plain, marked *unstructured.Unstructured) string {
	if before == nil || plain == nil {
		return "" // created again, or deleted
	}
	if diff := cmp.Diff(plain.Object, u.without(marked.Object)); diff != "" {
		return "unknown fields change the rendered object (-without +with):\n" + diff
	}
	wants := u.add(plain) // the objects in which a field could be
	var out []string
	findLost(u, "", before.Object, plain.Object, wants.Object, marked.Object, &out)
	return strings.Join(out, "\n")
}

// findLost compares, in objects that exist before and after, the wanted unknown fields with the existing ones.
func findLost(u unknowns, path string, before, plain, wants, marked any, lost *[]string) {
	switch want := wants.(type) {
	case map[string]any:
		was, wasObject := before.(map[string]any)
		now, isObject := plain.(map[string]any)
		got, _ := marked.(map[string]any)
		if !wasObject || !isObject {
			return
		}
		for _, key := range slices.Sorted(maps.Keys(want)) {
			if _, value := want[key].(string); value && (key == unknownField || slices.Contains(slices.Collect(maps.Values(unknownMetadata)), key)) {
				if got[key] == nil {
					*lost = append(*lost, fmt.Sprintf("%s.%s is lost", path, key))
				}
				continue
			}
			if old, ok := was[key]; ok {
				findLost(u, path+"."+key, old, now[key], want[key], got[key], lost)
			}
		}
	case []any:
		was, _ := before.([]any)
		now, _ := plain.([]any)
		got, _ := marked.([]any)
		for i, j := range u.pairs(was, now) {
			findLost(u, fmt.Sprintf("%s[%d]", path, i), was[j], now[i], want[i], got[i], lost)
		}
	}
}

// pairs maps items of a list, by index, to their previous index. An item is the same if all its strings are; otherwise, if it
// is the only one that names the same sides for the same requests.
func (u unknowns) pairs(before, after []any) map[int]int {
	out := map[int]int{}
	match := func(identity func(any) string) {
		for i, item := range after {
			if _, done := out[i]; done || identity(item) == "" {
				continue
			}
			same := func(items []any, taken func(int) bool) (places []int) {
				for k, other := range items {
					if !taken(k) && identity(other) == identity(item) {
						places = append(places, k)
					}
				}
				return places
			}
			now := same(after, func(k int) bool { _, done := out[k]; return done })
			was := same(before, func(k int) bool { return slices.Contains(slices.Collect(maps.Values(out)), k) })
			if len(now) == 1 && len(was) == 1 {
				out[i] = was[0]
			}
		}
	}
	match(func(item any) string { return texts(item, func(string) bool { return true }) })
	match(func(item any) string {
		sides := texts(item, func(text string) bool {
			return slices.ContainsFunc(u.sides, func(side string) bool { return strings.Contains(text, side) })
		})
		object, ok := item.(map[string]any)
		if !ok || sides == "" {
			return ""
		}
		for _, key := range []string{"name", "match", "matches", "matchers", "conditions", "http", "httpRoute"} {
			condition := object[key]
			if rule, ok := condition.(map[string]any); ok && rule["match"] != nil {
				condition = rule["match"]
			}
			sides += " " + texts(condition, func(string) bool { return true })
		}
		return sides
	})
	return out
}

// texts are the selected strings inside of a value, with the names of the fields on their paths.
func texts(value any, selected func(string) bool) string {
	switch v := value.(type) {
	case string:
		if selected(v) {
			return fmt.Sprintf("%q", v)
		}
	case map[string]any:
		var parts []string
		for _, key := range slices.Sorted(maps.Keys(v)) {
			if text := texts(v[key], selected); text != "" {
				parts = append(parts, key+":"+text)
			}
		}
		return strings.Join(parts, " ")
	case []any:
		var parts []string
		for _, item := range v {
			if text := texts(item, selected); text != "" {
				parts = append(parts, text)
			}
		}
		return strings.Join(parts, " ")
	}
	return ""
}

// without returns a value without the unknown fields.
func (u unknowns) without(value any) any {
	switch v := value.(type) {
	case map[string]any:
		out := map[string]any{}
		for key, inside := range v {
			if key == unknownField || slices.Contains(slices.Collect(maps.Values(unknownMetadata)), key) {
				continue
			}
			out[key] = u.without(inside)
			if emptied, ok := out[key].(map[string]any); ok && len(emptied) == 0 && slices.Contains([]string{"status", "labels", "annotations"}, key) {
				delete(out, key) // created for an unknown field
			}
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, inside := range v {
			out[i] = u.without(inside)
		}
		return out
	default:
		return value
	}
}

// inside returns the objects inside of the spec of a copy with an unknown field, and those without.
func (u unknowns) inside(obj *unstructured.Unstructured) (with, without []string) {
	u.follows = nil
	u.visit(obj, func(path string, object map[string]any) {
		switch {
		case path == "spec": // of the copy itself
		case object[unknownField] == nil:
			without = append(without, path)
		default:
			with = append(with, path)
		}
	})
	return with, without
}
