package workload

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
)

// revisionPrefix identifies the format of the hash. A new format needs a new prefix, and the old one must remain readable,
// because the status of Canaries contains it.
const revisionPrefix = "s1-"

// workloadRevision returns the hash of a workload's pod template as the API server stores it, and of the checksums of its tracked
// configuration. It hashes canonical JSON and no Go structs, so that no version of a library or of Serin changes it (adoption
// R1); a golden table in the tests verifies that.
func workloadRevision(template map[string]any, configs map[string]string) (string, error) {
	if configs == nil {
		configs = map[string]string{}
	}
	return hashRevision(map[string]any{"template": withoutDefaults(template), "configs": configs})
}

// hashRevision returns the hash of the parts of a revision.
func hashRevision(parts map[string]any) (string, error) {
	text, err := canonicalJSON(parts)
	if err != nil {
		return "", fmt.Errorf("hash a revision: %w", err)
	}
	sum := sha256.Sum256(text)
	return revisionPrefix + hex.EncodeToString(sum[:16]), nil
}

// withoutDefaults removes values that the user did not set: nulls, and the creationTimestamp of templates, which API servers up to
// 1.33 stored as null and later ones do not. An upgrade of the cluster must not be a new revision. The result shares values
// with the template and must not be changed.
func withoutDefaults(template map[string]any) map[string]any {
	result, _ := withoutNulls(template).(map[string]any)
	metadata, _ := result["metadata"].(map[string]any)
	if _, found := metadata["creationTimestamp"]; !found {
		return result
	}
	result, metadata = maps.Clone(result), maps.Clone(metadata)
	delete(metadata, "creationTimestamp")
	result["metadata"] = metadata
	return result
}

// withoutNulls returns a value without nulls. It shares unchanged parts with the value, which rarely has nulls.
func withoutNulls(value any) any {
	if !hasNulls(value) {
		return value
	}
	switch value := value.(type) {
	case map[string]any:
		kept := make(map[string]any, len(value))
		for key, item := range value {
			if item != nil {
				kept[key] = withoutNulls(item)
			}
		}
		return kept
	case []any:
		kept := make([]any, len(value))
		for i, item := range value {
			kept[i] = withoutNulls(item)
		}
		return kept
	default:
		return value
	}
}

// hasNulls reports whether any field or item is null.
func hasNulls(value any) bool {
	switch value := value.(type) {
	case map[string]any:
		for _, item := range value {
			if item == nil || hasNulls(item) {
				return true
			}
		}
	case []any:
		return slices.ContainsFunc(value, hasNulls)
	}
	return false
}

// canonicalJSON encodes a value with sorted keys, without white space, and without escapes that JSON does not require.
func canonicalJSON(value any) ([]byte, error) {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		return nil, err
	}
	return bytes.TrimRight(text.Bytes(), "\n"), nil
}
