package store

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"unsafe"

	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// Values here are those of decoded JSON: map[string]any, []any, string, bool, int64, float64, nil. Whatever is stored is
// never changed afterwards, so versions share what did not change between them, and identity is the quick way to see it.

// clone copies a value from outside, in the form that it would have after its way over the wire.
func clone(value any) any {
	switch v := value.(type) {
	case map[string]any:
		if v == nil {
			return nil
		}
		return cloneMap(v)
	case []any:
		if v == nil {
			return nil
		}
		out := make([]any, len(v))
		for i, item := range v {
			out[i] = clone(item)
		}
		return out
	case nil, string, bool, int64:
		return v
	case float64:
		return number(v)
	case int:
		return int64(v)
	case int32:
		return int64(v)
	default:
		return decoded(v)
	}
}

func cloneMap(value map[string]any) map[string]any {
	out := maps.Clone(value) // faster than adding field by field
	for key, item := range value {
		switch item.(type) {
		case nil, string, bool, int64:
		default:
			out[key] = clone(item)
		}
	}
	return out
}

// number is a float as a decoder of JSON gives it back: whole ones are integers.
func number(f float64) any {
	if f == math.Trunc(f) && math.Abs(f) < 1<<63 {
		return int64(f)
	}
	return f
}

// decoded takes a value that is none of JSON's through JSON.
func decoded(value any) any {
	text, err := json.Marshal(value)
	if err != nil {
		panic(fmt.Sprintf("store: %T in an object has no JSON: %v", value, err))
	}
	var out any
	if err := utiljson.Unmarshal(text, &out); err != nil {
		panic(fmt.Sprintf("store: the JSON of %T does not decode: %v", value, err))
	}
	return out
}

// whole makes integers of whole floats, in place.
func whole(value any) any {
	switch v := value.(type) {
	case map[string]any:
		for key, item := range v {
			switch item.(type) {
			case map[string]any, []any, float64:
				v[key] = whole(item)
			}
		}
	case []any:
		for i, item := range v {
			v[i] = whole(item)
		}
	case float64:
		return number(v)
	}
	return value
}

// copied is a copy of a stored value, for someone who may change it.
func copied(value any) any {
	switch v := value.(type) {
	case map[string]any:
		return copiedMap(v)
	case []any:
		out := make([]any, len(v))
		for i, item := range v {
			out[i] = copied(item)
		}
		return out
	default:
		return v
	}
}

func copiedMap(value map[string]any) map[string]any {
	out := maps.Clone(value)
	for key, item := range value {
		switch item.(type) {
		case map[string]any, []any:
			out[key] = copied(item)
		}
	}
	return out
}

// same is true for one and the same value; it does not look into two that are only equal.
func same(a, b any) bool {
	switch a := a.(type) {
	case map[string]any:
		b, ok := b.(map[string]any)
		return ok && sameMap(a, b)
	case []any:
		b, ok := b.([]any)
		return ok && len(a) == len(b) && unsafe.SliceData(a) == unsafe.SliceData(b)
	default:
		switch b.(type) {
		case map[string]any, []any:
			return false
		}
		return a == b
	}
}

func sameMap(a, b map[string]any) bool {
	return reflect.ValueOf(a).UnsafePointer() == reflect.ValueOf(b).UnsafePointer()
}

// graft gives back the old value where the new one is equal, and a new one that shares with the old what is equal in
// both. It changes the new one.
func graft(value, old any) any {
	if same(value, old) {
		return old
	}
	switch v := value.(type) {
	case map[string]any:
		o, ok := old.(map[string]any)
		if !ok {
			return value
		}
		equal := len(v) == len(o)
		for key, item := range v {
			before, had := o[key]
			if !had {
				equal = false
				continue
			}
			shared := graft(item, before)
			if !same(shared, before) {
				equal = false
			}
			if !same(shared, item) {
				v[key] = shared
			}
		}
		if equal {
			return old
		}
	case []any:
		o, ok := old.([]any)
		if !ok {
			return value
		}
		equal := len(v) == len(o)
		for i := range min(len(v), len(o)) {
			v[i] = graft(v[i], o[i])
			equal = equal && same(v[i], o[i])
		}
		if equal {
			return old
		}
	}
	return value
}

// merged is the target after a merge patch (RFC 7386). It shares with the target what the patch does not touch; the
// patch becomes part of it.
func merged(target any, patch map[string]any) map[string]any {
	into, _ := target.(map[string]any)
	out := maps.Clone(into)
	if out == nil {
		out = make(map[string]any, len(patch))
	}
	for key, value := range patch {
		switch value := value.(type) {
		case nil:
			delete(out, key)
		case map[string]any:
			out[key] = merged(out[key], value)
		default:
			out[key] = value
		}
	}
	return out
}

// object is a field that is an object; nil when it is not.
func object(parent map[string]any, path ...string) map[string]any {
	for _, field := range path {
		parent, _ = parent[field].(map[string]any)
	}
	return parent
}

// items are the objects of a field that is a list.
func items(parent map[string]any, field string) []map[string]any {
	list, _ := parent[field].([]any)
	out := make([]map[string]any, 0, len(list))
	for _, item := range list {
		if m, ok := item.(map[string]any); ok {
			out = append(out, m)
		}
	}
	return out
}

func text(parent map[string]any, field string) string {
	s, _ := parent[field].(string)
	return s
}

func integer(parent map[string]any, field string, otherwise int64) int64 {
	if n, ok := parent[field].(int64); ok {
		return n
	}
	return otherwise
}

// list is a field that is a list; nil when it is not.
func list(parent map[string]any, field string) []any {
	l, _ := parent[field].([]any)
	return l
}

func sortedKeys(m map[string]any) []string { return slices.Sorted(maps.Keys(m)) }

// encoded is a text as bytes are written in JSON.
func encoded(plain string) string { return base64.StdEncoding.EncodeToString([]byte(plain)) }

// missing sets a field that is absent.
func missing(parent map[string]any, field string, value any) {
	if _, found := parent[field]; !found {
		parent[field] = value
	}
}
