package traffic

import (
	"encoding/json"
	"fmt"
	"maps"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// SetFields sets the keys in obj to the values in want, and removes those that want does not have. Other keys are unchanged.
func SetFields(obj, want map[string]any, keys ...string) {
	for _, key := range keys {
		if value, ok := want[key]; ok {
			obj[key] = value
		} else {
			delete(obj, key)
		}
	}
}

// Maps returns the elements of a list that are objects; none for a value that is not a list.
func Maps(list any) []map[string]any {
	items, _ := list.([]any)
	out := make([]map[string]any, 0, len(items))
	for _, item := range items {
		if m, ok := item.(map[string]any); ok {
			out = append(out, m)
		}
	}
	return out
}

// List converts objects to a list of unstructured values.
func List(items []map[string]any) []any {
	out := make([]any, len(items))
	for i, item := range items {
		out[i] = item
	}
	return out
}

// Number converts a number in an object, however it was decoded. An absent one is 0, as in protocol buffers.
func Number(v any) (float64, error) {
	switch n := v.(type) {
	case nil:
		return 0, nil
	case int64:
		return float64(n), nil
	case float64:
		return n, nil
	default:
		return 0, fmt.Errorf("%v is not a number", v)
	}
}

// Value converts v to the generic values of unstructured objects, with the names of its JSON fields.
func Value(v any) (any, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("convert %T: %w", v, err)
	}
	var out any
	if err := utiljson.Unmarshal(text, &out); err != nil {
		return nil, fmt.Errorf("convert %T: %w", v, err)
	}
	return out, nil
}

// Spec is the spec of an object, created where it is missing. It is not a copy.
func Spec(obj *unstructured.Unstructured) map[string]any {
	spec, ok := obj.Object["spec"].(map[string]any)
	if !ok {
		spec = map[string]any{}
		obj.Object["spec"] = spec
	}
	return spec
}

func merged(into, from map[string]string) map[string]string {
	if into == nil {
		into = map[string]string{}
	}
	maps.Copy(into, from)
	return into
}

// RemoveAnnotations removes annotations. If none remains, the field is removed.
func RemoveAnnotations(obj *unstructured.Unstructured, keys ...string) {
	obj.SetAnnotations(without(obj.GetAnnotations(), keys))
}

// RemoveLabels removes labels. If none remains, the field is removed.
func RemoveLabels(obj *unstructured.Unstructured, keys ...string) {
	obj.SetLabels(without(obj.GetLabels(), keys))
}

func without(from map[string]string, keys []string) map[string]string {
	for _, key := range keys {
		delete(from, key)
	}
	if len(from) == 0 {
		return nil
	}
	return from
}
