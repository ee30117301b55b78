package cluster

import (
	"maps"
	"strconv"
	"strings"
)

// Accessors for objects in the form of decoded JSON.

func object(parent map[string]any, path ...string) map[string]any {
	for _, field := range path {
		parent, _ = parent[field].(map[string]any)
	}
	return parent
}

// objects returns the objects in a list.
func objects(parent map[string]any, field string) []map[string]any {
	items, _ := parent[field].([]any)
	out := make([]map[string]any, 0, len(items))
	for _, item := range items {
		if one, ok := item.(map[string]any); ok {
			out = append(out, one)
		}
	}
	return out
}

func text(parent map[string]any, field string) string {
	s, _ := parent[field].(string)
	return s
}

// number returns an integer, or the default if there is none.
func number(parent map[string]any, field string, absent int) int {
	switch n := parent[field].(type) {
	case int64:
		return int(n)
	case float64:
		return int(n)
	default:
		return absent
	}
}

// fraction returns an integer, or a percentage of a total, rounded up or down.
func fraction(value any, total int, up bool) int {
	switch v := value.(type) {
	case int64:
		return int(v)
	case string:
		percent, err := strconv.Atoi(strings.TrimSuffix(v, "%"))
		if err != nil {
			return 0
		}
		if up {
			return (total*percent + 99) / 100
		}
		return total * percent / 100
	default:
		return 0
	}
}

// matches reports whether the labels match the selector. An empty selector matches nothing.
func matches(selector, labels map[string]any) bool {
	for key, value := range selector {
		if labels[key] != value {
			return false
		}
	}
	return len(selector) > 0
}

// shallow returns a copy of the top level. A missing object becomes an empty one.
func shallow(of map[string]any) map[string]any {
	out := make(map[string]any, len(of)+1)
	maps.Copy(out, of)
	return out
}

// with returns a copy of an object with one field set.
func with(of map[string]any, field string, value any) map[string]any {
	out := shallow(of)
	out[field] = value
	return out
}
