package analysis

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// FieldValue returns the value of a field of a Rollout. rollout is its decoded JSON. Paths that begin with metadata
// have the syntax of the downward API: metadata.name, metadata.labels['env'], metadata.annotations. All other paths
// consist of fields and indices: spec.template.spec.containers[0].image. FieldValue fails if the path does not exist,
// or refers to an object or a list.
func FieldValue(rollout map[string]any, path string) (string, error) {
	if rest, ok := strings.CutPrefix(path, "metadata"); ok && (rest == "" || rest[0] == '.') {
		metadata, _ := rollout["metadata"].(map[string]any)
		return metadataFieldValue(metadata, path, strings.TrimPrefix(rest, "."))
	}
	var value any = rollout
	for _, step := range strings.FieldsFunc(path, func(r rune) bool { return r == '.' || r == '[' || r == ']' }) {
		switch tree := value.(type) {
		case map[string]any:
			next, ok := tree[step]
			if !ok {
				return "", fmt.Errorf("invalid path %s in rollout", path)
			}
			value = next
		case []any:
			i, err := strconv.Atoi(step)
			if err != nil {
				return "", fmt.Errorf("invalid index '%s'", step)
			}
			if i < 0 || i >= len(tree) {
				return "", fmt.Errorf("index %d out of range", i)
			}
			value = tree[i]
		default:
			return "", fmt.Errorf("invalid path %s in rollout", path)
		}
	}
	switch value.(type) {
	case map[string]any, []any, nil:
		return "", fmt.Errorf("path %s in rollout must terminate in a primitive value", path)
	default:
		return fmt.Sprint(value), nil
	}
}

func metadataFieldValue(metadata map[string]any, path, field string) (string, error) {
	name, subscript, subscripted := strings.Cut(field, "['")
	values, _ := metadata[name].(map[string]any)
	switch {
	case (name == "labels" || name == "annotations") && subscripted && strings.HasSuffix(subscript, "']"):
		value, _ := values[strings.TrimSuffix(subscript, "']")].(string)
		return value, nil
	case (name == "labels" || name == "annotations") && !subscripted:
		lines := make([]string, 0, len(values))
		for _, key := range slices.Sorted(maps.Keys(values)) {
			lines = append(lines, fmt.Sprintf("%s=%q", key, values[key]))
		}
		return strings.Join(lines, "\n"), nil
	case name == "name", name == "namespace", name == "uid":
		if subscripted {
			break
		}
		value, _ := metadata[name].(string)
		return value, nil
	}
	return "", fmt.Errorf("unsupported fieldPath: %s", path)
}
