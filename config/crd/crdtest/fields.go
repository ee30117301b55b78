package crdtest

import (
	"maps"
	"slices"
	"testing"

	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
)

// ShownFields are the paths of the fields that manifests contain, without the indexes of lists.
type ShownFields map[string]bool

// Add adds the fields of a value at a path, for example an object at its kind.
func (s ShownFields) Add(path string, value any) {
	s[path] = true
	switch value := value.(type) {
	case map[string]any:
		for name, inner := range value {
			s.Add(path+"."+name, inner)
		}
	case []any:
		for _, inner := range value {
			s.Add(path, inner)
		}
	}
}

// RequireAll fails the test for each field of a schema that no manifest contains. The fields of pods and Jobs belong to
// Kubernetes; those below the excepted paths are shown at another path.
func (s ShownFields) RequireAll(t *testing.T, path string, schema *structuralschema.Structural, except ...string) {
	t.Helper()
	for _, field := range fieldPaths(schema, path, except) {
		if !s[field] {
			t.Errorf("no manifest shows %s", field)
		}
	}
}

func fieldPaths(s *structuralschema.Structural, path string, except []string) []string {
	if s.Properties["containers"].Type != "" || s.Properties["podFailurePolicy"].Type != "" || slices.Contains(except, path) {
		return []string{path}
	}
	all := []string{path}
	if s.Items != nil {
		return append(all, fieldPaths(s.Items, path, except)...)
	}
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		property := s.Properties[name]
		all = append(all, fieldPaths(&property, path+"."+name, except)...)
	}
	return all
}
