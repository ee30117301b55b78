// Package jsontree compares decoded JSON and says what changed, without encoding it.
//
// Values are those that a decoder gives: map[string]any, []any, string, bool, int64, float64 and nil. What is given is
// never changed, and what is given back shares with it. It must not know what the values are about.
package jsontree

import "reflect"

// Equal is true when both have the same JSON. It is quick where parts of both are one and the same value.
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
	default: // no decoder gives these, but hands may
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

// MergePatch is the merge patch (RFC 7386) that makes one object of another; empty when both are equal.
func MergePatch(from, to map[string]any) map[string]any {
	patch := map[string]any{}
	for key, now := range to {
		was, had := from[key]
		if had && Equal(was, now) {
			continue
		}
		before, old := was.(map[string]any)
		after, object := now.(map[string]any)
		if old && object && before != nil && after != nil {
			patch[key] = MergePatch(before, after)
			continue
		}
		patch[key] = now
	}
	for key := range from {
		if _, stays := to[key]; !stays {
			patch[key] = nil
		}
	}
	return patch
}

// PinResourceVersion is a merge patch that takes effect on that version of an object only. The patch becomes part of it.
func PinResourceVersion(patch map[string]any, version string) map[string]any {
	metadata, ok := patch["metadata"].(map[string]any)
	if !ok {
		metadata = map[string]any{}
		patch["metadata"] = metadata
	}
	metadata["resourceVersion"] = version
	return patch
}
