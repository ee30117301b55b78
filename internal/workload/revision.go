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

// revisionPrefix is the format of the hash below. A new format needs a new prefix, and the old one must remain readable:
// the status of Canaries contains it.
const revisionPrefix = "s1-"

// workloadRevision returns the hash of what a workload runs: its pod template as the API server stores it, and the checksums
// of its tracked configuration. It hashes canonical JSON and no Go structs, so that no version of a library or of Serin
// changes it (adoption R1); a golden table in the tests verifies that.
func workloadRevision(template map[string]any, configs map[string]string) (string, error) {
	if configs == nil {
		configs = map[string]string{}
	}
	return hashRevision(map[string]any{"template": withoutDefaults(template), "configs": configs})
}

// hashRevision returns the hash of the parts of a revision.
func hashRevision(what map[string]any) (string, error) {
	text, err := canonicalJSON(what)
	if err != nil {
		return "", fmt.Errorf("hash what is released: %w", err)
	}
	sum := sha256.Sum256(text)
	return revisionPrefix + hex.EncodeToString(sum[:16]), nil
}

// withoutDefaults removes what the user did not set: nulls, and the creationTimestamp of templates, which API servers up to 1.33
// stored as null and later ones do not. An upgrade of the cluster must not be a new revision. The result shares values
// with the template and must not be changed.
func withoutDefaults(template map[string]any) map[string]any {
	kept, _ := withoutNulls(template).(map[string]any)
	metadata, _ := kept["metadata"].(map[string]any)
	if _, dated := metadata["creationTimestamp"]; !dated {
		return kept
	}
	kept, metadata = maps.Clone(kept), maps.Clone(metadata)
	delete(metadata, "creationTimestamp")
	kept["metadata"] = metadata
	return kept
}

// withoutNulls shares unchanged parts with the value, which nearly always has no nulls.
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

// hasNulls reports whether a field or an item is null.
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

// canonicalJSON has sorted keys, no white space and no escapes that JSON does not ask for.
func canonicalJSON(value any) ([]byte, error) {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		return nil, err
	}
	return bytes.TrimRight(text.Bytes(), "\n"), nil
}
