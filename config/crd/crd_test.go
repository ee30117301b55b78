package crd_test

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/serin-dev/serin/config/crd"
)

func TestYAMLHoldsEveryDefinitionOnce(t *testing.T) {
	stream, err := crd.YAML()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(stream), 4096); ; {
		var object unstructured.Unstructured
		err := decoder.Decode(&object)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, object.GetKind()+" "+object.GetName())
	}
	want := []string{
		"CustomResourceDefinition alertproviders.flagger.app",
		"CustomResourceDefinition canaries.flagger.app",
		"CustomResourceDefinition metrictemplates.flagger.app",
	}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Errorf("definitions (-want +got):\n%s", diff)
	}
}
