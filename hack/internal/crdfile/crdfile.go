// Package crdfile modifies CustomResourceDefinitions in files. It knows the format of such files, and no particular resource.
package crdfile

import (
	"bytes"
	"fmt"
	"os"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

// Rewrite applies a change to the definition in a file. A file in which nothing changes is not written.
func Rewrite(path string, change func(*apiextensionsv1.CustomResourceDefinition) error) error {
	old, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("read definition: %w", err)
	}
	changed, err := Changed(old, change)
	if err != nil {
		return fmt.Errorf("change definition in %s: %w", path, err)
	}
	if bytes.Equal(old, changed) {
		return nil
	}
	if err := os.WriteFile(path, changed, 0o644); err != nil {
		return fmt.Errorf("write definition: %w", err)
	}
	return nil
}

// Changed applies a change to a CustomResourceDefinition in YAML, and returns the result as YAML.
func Changed(definition []byte, change func(*apiextensionsv1.CustomResourceDefinition) error) ([]byte, error) {
	var crd apiextensionsv1.CustomResourceDefinition
	if err := yaml.UnmarshalStrict(definition, &crd); err != nil {
		return nil, err
	}
	if err := change(&crd); err != nil {
		return nil, err
	}
	body, err := yaml.Marshal(file{
		APIVersion: crd.APIVersion,
		Kind:       crd.Kind,
		Metadata:   metadata{Annotations: crd.Annotations, Name: crd.Name},
		Spec:       crd.Spec,
	})
	if err != nil {
		return nil, err
	}
	return append([]byte("---\n"), body...), nil
}

// file is a CustomResourceDefinition as it is written to a file: without the status, which only an API server writes.
type file struct {
	APIVersion string                                       `json:"apiVersion"`
	Kind       string                                       `json:"kind"`
	Metadata   metadata                                     `json:"metadata"`
	Spec       apiextensionsv1.CustomResourceDefinitionSpec `json:"spec"`
}

type metadata struct {
	Annotations map[string]string `json:"annotations,omitempty"`
	Name        string            `json:"name"`
}
