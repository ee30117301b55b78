// Command crdpods makes the schemas of pods in the CustomResourceDefinitions of argoproj.io as lenient as those of Argo
// Rollouts.
//
// A generated definition with a pod in it repeats the whole reference of Kubernetes, several times, and its validation rules
// of that version of Kubernetes. The command knows the schema of a pod; it must not know the kinds that contain one. It
// removes descriptions, since kubectl explain has them for the Pod, and rules except for types, since the API server
// validates the pods themselves. Quantities of resources and volumes get no schema, since unusual values of these have always
// been accepted.
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
		relaxPods(crd.Spec.Versions[i].Schema.OpenAPIV3Schema)
	}
	return nil
}

// relaxPods relaxes the schemas of pods and Jobs in a schema.
func relaxPods(schema *apiextensionsv1.JSONSchemaProps) {
	if schema == nil {
		return
	}
	if has(schema, "containers") || has(schema, "podFailurePolicy") {
		relax(schema)
		return
	}
	each(schema, relaxPods)
	trimMetadata(schema)
}

func has(schema *apiextensionsv1.JSONSchemaProps, property string) bool {
	_, found := schema.Properties[property]
	return found
}

// each calls do with every direct subschema.
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

// relax retains types, required fields, subschemas and defaults: stored objects, including their defaults, are hashed into
// the names of ReplicaSets.
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
	trimMetadata(schema)
	for _, name := range []string{"limits", "requests"} {
		if has(schema, "limits") {
			schema.Properties[name] = anyValue()
		}
	}
	if has(schema, "containers") {
		schema.Properties["volumes"] = anyValue()
	}
}

// anyValue accepts every value and stores it unchanged.
func anyValue() apiextensionsv1.JSONSchemaProps {
	return apiextensionsv1.JSONSchemaProps{XPreserveUnknownFields: new(true)}
}

// trimMetadata retains the metadata of a pod template that a ReplicaSet copies to its pods. Other metadata would become part of the
// hash.
func trimMetadata(schema *apiextensionsv1.JSONSchemaProps) {
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
