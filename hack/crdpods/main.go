// Command crdpods makes the schemas of pods in the definitions of argoproj.io as lenient as those of their first author.
//
// A definition with a pod in it repeats the whole reference of Kubernetes, several times, and with it rules of the
// Kubernetes that it was generated from. It knows what a pod looks like; it must not know the kinds it is found in.
// Descriptions go, since kubectl explain has them with the Pod; rules beyond types go, since the API server checks the
// pods themselves; amounts of resources and volumes have no schema, since what is odd in them was always stored.
package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/serin-dev/serin/hack/internal/crdfile"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: crdpods DIRECTORY")
		os.Exit(2)
	}
	if err := rewriteAll(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func rewriteAll(directory string) error {
	paths, err := filepath.Glob(filepath.Join(directory, "*.yaml"))
	if err != nil {
		return fmt.Errorf("list definitions: %w", err)
	}
	if len(paths) == 0 {
		return fmt.Errorf("no definitions in %s", directory)
	}
	for _, path := range paths {
		if err := crdfile.Rewrite(path, lenient); err != nil {
			return err
		}
	}
	return nil
}

// lenient makes the pods in all versions of a definition lenient.
func lenient(crd *apiextensionsv1.CustomResourceDefinition) error {
	for i := range crd.Spec.Versions {
		find(crd.Spec.Versions[i].Schema.OpenAPIV3Schema)
	}
	return nil
}

// find makes the pods and Jobs lenient that it finds in a schema.
func find(schema *apiextensionsv1.JSONSchemaProps) {
	if schema == nil {
		return
	}
	if has(schema, "containers") || has(schema, "podFailurePolicy") {
		relax(schema)
		return
	}
	each(schema, find)
	trim(schema)
}

func has(schema *apiextensionsv1.JSONSchemaProps, property string) bool {
	_, found := schema.Properties[property]
	return found
}

// each calls do with every schema right below one.
func each(schema *apiextensionsv1.JSONSchemaProps, do func(*apiextensionsv1.JSONSchemaProps)) {
	for name, property := range schema.Properties {
		do(&property)
		schema.Properties[name] = property
	}
	if schema.Items != nil {
		do(schema.Items.Schema)
	}
	if schema.AdditionalProperties != nil {
		do(schema.AdditionalProperties.Schema)
	}
}

// relax leaves types, required fields, what holds a schema together, and defaults: what is stored, with them, is hashed
// into the names of ReplicaSets.
func relax(schema *apiextensionsv1.JSONSchemaProps) {
	if schema == nil {
		return
	}
	if schema.XIntOrString {
		*schema = apiextensionsv1.JSONSchemaProps{XIntOrString: true}
		return
	}
	*schema = apiextensionsv1.JSONSchemaProps{
		Type: schema.Type, Format: schema.Format, Required: schema.Required, Default: schema.Default,
		Properties: schema.Properties, Items: schema.Items, AdditionalProperties: schema.AdditionalProperties,
		XPreserveUnknownFields: schema.XPreserveUnknownFields, XEmbeddedResource: schema.XEmbeddedResource,
	}
	each(schema, relax)
	trim(schema)
	for _, name := range []string{"limits", "requests"} {
		if has(schema, "limits") {
			schema.Properties[name] = anything()
		}
	}
	if has(schema, "containers") {
		schema.Properties["volumes"] = anything()
	}
}

// anything takes every value and keeps it as it is.
func anything() apiextensionsv1.JSONSchemaProps {
	return apiextensionsv1.JSONSchemaProps{XPreserveUnknownFields: new(true)}
}

// trim leaves of the metadata of a pod template what a ReplicaSet gives to its pods. The rest would be hashed.
func trim(schema *apiextensionsv1.JSONSchemaProps) {
	spec := schema.Properties["spec"]
	if !has(&spec, "containers") {
		return
	}
	metadata := schema.Properties["metadata"]
	maps.DeleteFunc(metadata.Properties, func(name string, _ apiextensionsv1.JSONSchemaProps) bool {
		return name != "labels" && name != "annotations"
	})
	schema.Properties["metadata"] = metadata
}
