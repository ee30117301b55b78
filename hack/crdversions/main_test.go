package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	"github.com/serin-dev/serin/hack/internal/crdfile"
)

const generated = `---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  annotations:
    helm.sh/resource-policy: keep
  name: canaries.flagger.app
spec:
  group: flagger.app
  names:
    kind: Canary
    plural: canaries
  scope: Namespaced
  versions:
  - name: v1beta1
    schema:
      openAPIV3Schema:
        description: A Canary.
        properties:
          spec:
            description: The desired state.
            properties:
              hosts:
                items:
                  description: A host.
                  type: string
                type: array
              labels:
                additionalProperties:
                  description: A label.
                  type: string
                type: object
            type: object
        type: object
    served: true
    storage: true
    subresources:
      status: {}
`

func TestOlderVersionsServeTheSchemaOfTheStoredOneWithoutDescriptions(t *testing.T) {
	extended, err := crdfile.Changed([]byte(generated), addVersions)
	if err != nil {
		t.Fatal(err)
	}
	var definition apiextensionsv1.CustomResourceDefinition
	if err := yaml.UnmarshalStrict(extended, &definition); err != nil {
		t.Fatal(err)
	}
	var names []string
	for i, version := range definition.Spec.Versions {
		names = append(names, version.Name)
		if !version.Served || version.Storage != (i == 0) || version.Deprecated != (i > 0) {
			t.Errorf("%s: served=%t storage=%t deprecated=%t", version.Name, version.Served, version.Storage, version.Deprecated)
		}
		text, err := yaml.Marshal(version.Schema)
		if err != nil {
			t.Fatal(err)
		}
		if described := strings.Contains(string(text), "description"); described != (i == 0) {
			t.Errorf("%s: has descriptions: %t", version.Name, described)
		}
		if !strings.Contains(string(text), "additionalProperties") || !strings.Contains(string(text), "hosts") {
			t.Errorf("%s lost fields:\n%s", version.Name, text)
		}
	}
	if diff := cmp.Diff([]string{"v1beta1", "v1alpha3", "v1alpha2", "v1alpha1"}, names); diff != "" {
		t.Errorf("versions (-want +got):\n%s", diff)
	}
}

func TestRewriteTwiceChangesNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "flagger.app_canaries.yaml")
	if err := os.WriteFile(path, []byte(generated), 0o600); err != nil {
		t.Fatal(err)
	}
	var written []string
	for range 2 {
		if err := crdfile.Rewrite(path, addVersions); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		written = append(written, string(text))
	}
	if diff := cmp.Diff(written[0], written[1]); diff != "" {
		t.Errorf("second time (-first +second):\n%s", diff)
	}
}

func TestInvalidDefinitionsAreRefused(t *testing.T) {
	for _, definition := range []string{strings.Replace(generated, "storage: true", "storage: false", 1), "spec: [", "what: ever"} {
		if extended, err := crdfile.Changed([]byte(definition), addVersions); err == nil {
			t.Errorf("got\n%s\nwant an error for\n%s", extended, definition)
		}
	}
}
