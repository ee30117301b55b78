// Command crdversions adds the old versions of flagger.app to the CustomResourceDefinition of Canary that controller-gen
// wrote.
//
// It knows which versions were ever published; it must not know fields. There is no conversion webhook, so an object is
// stored as it was sent, and a version with fewer fields would prune the others: each old version therefore gets the schema
// of the newest, without its descriptions, which would make the definition too large for kubectl apply.
package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/serin-dev/serin/hack/internal/crdfile"
)

// olderCanaries are the versions of Canary before v1beta1, newest first.
var olderCanaries = []string{"v1alpha3", "v1alpha2", "v1alpha1"}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: crdversions DIRECTORY")
		os.Exit(2)
	}
	path := filepath.Join(os.Args[1], "flagger.app_canaries.yaml")
	if err := crdfile.Rewrite(path, addVersions); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// addVersions adds the old versions after the stored version. A definition that has them already is unchanged.
func addVersions(crd *apiextensionsv1.CustomResourceDefinition) error {
	stored := slices.IndexFunc(crd.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool { return v.Storage })
	if stored < 0 {
		return errors.New("no storage version")
	}
	newest := crd.Spec.Versions[stored]
	versions := []apiextensionsv1.CustomResourceDefinitionVersion{newest}
	for _, name := range olderCanaries {
		versions = append(versions, olderVersion(newest, name, crd.Spec.Group))
	}
	crd.Spec.Versions = versions
	return nil
}

// olderVersion is the newest version under an older name.
func olderVersion(newest apiextensionsv1.CustomResourceDefinitionVersion, name, group string) apiextensionsv1.CustomResourceDefinitionVersion {
	older := *newest.DeepCopy()
	older.Name = name
	older.Storage = false
	older.Deprecated = true
	warning := fmt.Sprintf("%s/%s Canary is an old version: write %s/%s, with spec.analysis for spec.canaryAnalysis",
		group, name, group, newest.Name)
	older.DeprecationWarning = &warning
	withoutDescriptions(older.Schema.OpenAPIV3Schema)
	return older
}

// withoutDescriptions removes the descriptions of a schema and of all schemas in it.
func withoutDescriptions(schema *apiextensionsv1.JSONSchemaProps) {
	if schema == nil {
		return
	}
	schema.Description = ""
	for name, property := range schema.Properties {
		withoutDescriptions(&property)
		schema.Properties[name] = property
	}
	if schema.Items != nil {
		withoutDescriptions(schema.Items.Schema)
	}
	if schema.AdditionalProperties != nil {
		withoutDescriptions(schema.AdditionalProperties.Schema)
	}
}
