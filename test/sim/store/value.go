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

// Values in this file are those of decoded JSON: map[string]any, []any, string, bool, int64, float64, nil. Stored values are
// never modified, so that versions share their unchanged parts, and identity is a quick test for equality.

// clone copies an external value, in the form that it would have after encoding and decoding.
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

// number returns a float as a decoder of JSON does: integral ones become integers.
func number(f float64) any {
	if f == math.Trunc(f) && math.Abs(f) < 1<<63 {
		return int64(f)
	}
	return f
}

// decoded encodes and decodes a value that is not a JSON value.
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

// integralFloats converts integral floats to integers, in place.
func integralFloats(value any) any {
	switch v := value.(type) {
	case map[string]any:
		for key, item := range v {
			switch item.(type) {
			case map[string]any, []any, float64:
				v[key] = integralFloats(item)
			}
		}
	case []any:
		for i, item := range v {
			v[i] = integralFloats(item)
		}
	case float64:
		return number(v)
	}
	return value
}

// copyOf returns a copy of a stored value that may be modified.
func copyOf(value any) any {
	switch v := value.(type) {
	case map[string]any:
		return copiedMap(v)
	case []any:
		out := make([]any, len(v))
		for i, item := range v {
			out[i] = copyOf(item)
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
			out[key] = copyOf(item)
		}
	}
	return out
}

// identical reports whether two values are identical; it does not compare their contents.
func identical(a, b any) bool {
	switch a := a.(type) {
	case map[string]any:
		b, ok := b.(map[string]any)
		return ok && identicalMap(a, b)
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

func identicalMap(a, b map[string]any) bool {
	return reflect.ValueOf(a).UnsafePointer() == reflect.ValueOf(b).UnsafePointer()
}

// graft returns the old value if the new one is equal, and otherwise a value that shares its equal parts with the old one. It
// modifies the new value.
func graft(value, old any) any {
	if identical(value, old) {
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
			if !identical(shared, before) {
				equal = false
			}
			if !identical(shared, item) {
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
			equal = equal && identical(v[i], o[i])
		}
		if equal {
			return old
		}
	}
	return value
}

// mergePatch applies a merge patch (RFC 7386) to a target. The result shares its unchanged parts with the target; the patch becomes
// part of it.
func mergePatch(target any, patch map[string]any) map[string]any {
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
			out[key] = mergePatch(out[key], value)
		default:
			out[key] = value
		}
	}
	return out
}

// object returns a field that is an object, or nil.
func object(parent map[string]any, path ...string) map[string]any {
	for _, field := range path {
		parent, _ = parent[field].(map[string]any)
	}
	return parent
}

// items returns the objects of a field that is a list.
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

// list returns a field that is a list, or nil.
func list(parent map[string]any, field string) []any {
	l, _ := parent[field].([]any)
	return l
}

func sortedKeys(m map[string]any) []string { return slices.Sorted(maps.Keys(m)) }

// encoded returns a text in the encoding of bytes in JSON.
func encoded(plain string) string { return base64.StdEncoding.EncodeToString([]byte(plain)) }

// setDefault sets a field if it is absent.
func setDefault(parent map[string]any, field string, value any) {
	if _, found := parent[field]; !found {
		parent[field] = value
	}
}
