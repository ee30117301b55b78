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

func TestYAMLHoldsEveryDefinitionOfAGroupOnce(t *testing.T) {
	for group, want := range map[string][]string{
		"flagger.app": {"alertproviders", "canaries", "metrictemplates"},
		"argoproj.io": {"analysisruns", "analysistemplates", "clusteranalysistemplates", "experiments", "rollouts"},
	} {
		stream, err := crd.YAML(group)
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
		for i := range want {
			want[i] = "CustomResourceDefinition " + want[i] + "." + group
		}
		if diff := cmp.Diff(want, names); diff != "" {
			t.Errorf("definitions of %s (-want +got):\n%s", group, diff)
		}
	}
}

func TestThereAreNoDefinitionsOfOtherGroups(t *testing.T) {
	_, err := crd.YAML("apps")
	if want := `there are definitions of argoproj.io and flagger.app, none of "apps"`; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}
