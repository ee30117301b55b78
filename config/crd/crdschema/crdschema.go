// Package crdschema reads the schemas in the definitions of config/crd, in the form in which an API server uses them.
//
// It must not know a kind, or the meaning of its fields.
package crdschema

import (
	"fmt"
	"maps"
	"slices"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"sigs.k8s.io/yaml"

	"github.com/serin-dev/serin/config/crd"
)

// Definitions returns the definitions of a group by kind.
func Definitions(group string) (map[string]*apiextensions.CustomResourceDefinition, error) {
	files, err := crd.Files(group)
	if err != nil {
		return nil, err
	}
	found := map[string]*apiextensions.CustomResourceDefinition{}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		var written apiextensionsv1.CustomResourceDefinition
		if err := yaml.UnmarshalStrict(files[name], &written); err != nil {
			return nil, fmt.Errorf("read %s: %w", name, err)
		}
		apiextensionsv1.SetDefaults_CustomResourceDefinition(&written)
		apiextensionsv1.SetDefaults_CustomResourceDefinitionSpec(&written.Spec)
		definition := &apiextensions.CustomResourceDefinition{}
		if err := apiextensionsv1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(&written, definition, nil); err != nil {
			return nil, fmt.Errorf("convert %s: %w", name, err)
		}
		found[definition.Spec.Names.Kind] = definition
	}
	return found, nil
}

// Schema is the schema of one version of a kind.
type Schema struct {
	Structural *structuralschema.Structural
	Validator  validation.SchemaValidator
}

// New returns the schema of one version of a definition.
func New(definition *apiextensions.CustomResourceDefinition, version string) (Schema, error) {
	schema, err := apiextensions.GetSchemaForVersion(definition, version)
	if err != nil {
		return Schema{}, fmt.Errorf("read the schema of %s: %w", definition.Name, err)
	}
	structural, err := structuralschema.NewStructural(schema.OpenAPIV3Schema)
	if err != nil {
		return Schema{}, fmt.Errorf("read the schema of %s: %w", definition.Name, err)
	}
	validator, _, err := validation.NewSchemaValidator(schema.OpenAPIV3Schema)
	if err != nil {
		return Schema{}, fmt.Errorf("read the schema of %s: %w", definition.Name, err)
	}
	return Schema{Structural: structural, Validator: validator}, nil
}
