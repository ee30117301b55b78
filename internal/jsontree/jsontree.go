// Package jsontree compares decoded JSON and computes patches, without encoding it.
//
// Values have the types that a decoder returns: map[string]any, []any, string, bool, int64, float64 and nil. Arguments are
// not modified unless a function documents it, and results share memory with them. It must not know what the values mean.
package jsontree

import "reflect"

// Equal reports whether both values have the same JSON. It is fast for maps and lists that both values share.
func Equal(a, b any) bool {
	switch a := a.(type) {
	case map[string]any:
		b, ok := b.(map[string]any)
		return ok && equalMaps(a, b)
	case []any:
		b, ok := b.([]any)
		return ok && equalLists(a, b)
	case string:
		b, ok := b.(string)
		return ok && a == b
	case bool:
		b, ok := b.(bool)
		return ok && a == b
	case int64:
		switch b := b.(type) {
		case int64:
			return a == b
		case float64:
			return float64(a) == b
		}
		return false
	case float64:
		switch b := b.(type) {
		case int64:
			return a == float64(b)
		case float64:
			return a == b
		}
		return false
	case nil:
		return b == nil
	default: // types that no decoder returns, in objects that code has built
		return reflect.DeepEqual(a, b)
	}
}

func equalMaps(a, b map[string]any) bool {
	if len(a) != len(b) || (a == nil) != (b == nil) {
		return false
	}
	if reflect.ValueOf(a).UnsafePointer() == reflect.ValueOf(b).UnsafePointer() {
		return true
	}
	for key, item := range a {
		other, found := b[key]
		if !found || !Equal(item, other) {
			return false
		}
	}
	return true
}

func equalLists(a, b []any) bool {
	if len(a) != len(b) || (a == nil) != (b == nil) {
		return false
	}
	if len(a) > 0 && &a[0] == &b[0] {
		return true
	}
	for i := range a {
		if !Equal(a[i], b[i]) {
			return false
		}
	}
	return true
}

// MergePatch returns the merge patch (RFC 7386) that changes from into to; it is empty if both are equal.
func MergePatch(from, to map[string]any) map[string]any {
	patch := map[string]any{}
	for key, value := range to {
		previous, exists := from[key]
		if exists && Equal(previous, value) {
			continue
		}
		fromObject, wasObject := previous.(map[string]any)
		toObject, isObject := value.(map[string]any)
		if wasObject && isObject && fromObject != nil && toObject != nil {
			patch[key] = MergePatch(fromObject, toObject)
			continue
		}
		patch[key] = value
	}
	for key := range from {
		if _, exists := to[key]; !exists {
			patch[key] = nil
		}
	}
	return patch
}

// PinResourceVersion adds a resourceVersion to a merge patch, so that it applies to that version of an object only. It
// modifies patch and returns it.
func PinResourceVersion(patch map[string]any, version string) map[string]any {
	metadata, ok := patch["metadata"].(map[string]any)
	if !ok {
		metadata = map[string]any{}
		patch["metadata"] = metadata
	}
	metadata["resourceVersion"] = version
	return patch
}
