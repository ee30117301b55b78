package v1alpha1_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	"k8s.io/apimachinery/pkg/runtime"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/config/crd/crdtest"
)

// manifest is one object of argoproj.io in a file.
type manifest struct {
	name   string // file and place in it
	object map[string]any
}

func (m manifest) kind() string { return fmt.Sprint(m.object["kind"]) }

// manifests are those in testdata: a few that set every field, and examples as users write them.
func manifests(t *testing.T) []manifest {
	t.Helper()
	files, err := filepath.Glob("testdata/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no manifests found: %v", err)
	}
	var all []manifest
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, documents(t, file, text)...)
	}
	return all
}

func documents(t *testing.T, file string, text []byte) []manifest {
	t.Helper()
	var all []manifest
	reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text)))
	for i := 0; ; i++ {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		all = append(all, manifest{fmt.Sprintf("%s#%d", filepath.Base(file), i), parse(t, document)})
	}
}

func parse(t *testing.T, text []byte) map[string]any {
	t.Helper()
	plain, err := yaml.YAMLToJSON(text)
	if err != nil {
		t.Fatal(err)
	}
	var object map[string]any
	if err := kjson.UnmarshalCaseSensitivePreserveInts(plain, &object); err != nil {
		t.Fatal(err)
	}
	return object
}

func TestSchemasAreStructural(t *testing.T) { crdtest.CheckSchemas(t, v1alpha1.GroupName) }

func TestEveryFieldIsAcceptedAndStored(t *testing.T) {
	servers := crdtest.Servers(t, v1alpha1.GroupName)
	for _, m := range manifests(t) {
		t.Run(m.name, func(t *testing.T) {
			s := servers["v1alpha1/"+m.kind()]
			if _, err := s.Create(t.Context(), m.object); err != nil {
				t.Errorf("refused: %v", err)
			}
			if diff := cmp.Diff(m.object, s.Pruned(m.object)); diff != "" {
				t.Errorf("written and stored (-written +stored):\n%s", diff)
			}
		})
	}
}

// TestManifestsShowEveryField ensures that the other tests, which use the manifests, cover every field.
func TestManifestsShowEveryField(t *testing.T) {
	shown := crdtest.ShownFields{}
	for _, m := range manifests(t) {
		shown.Add(m.kind(), m.object)
	}
	for _, kind := range []string{"Rollout", "ClusterAnalysisTemplate", "AnalysisRun", "Experiment"} {
		shown.RequireAll(t, kind, crdtest.Servers(t, v1alpha1.GroupName)["v1alpha1/"+kind].Structural, "AnalysisRun.spec.metrics")
	}
}

func TestTemplatesAndRunsHaveTheSameMetrics(t *testing.T) {
	servers := crdtest.Servers(t, v1alpha1.GroupName)
	metrics := func(kind string) any {
		m := servers["v1alpha1/"+kind].Structural.Properties["spec"].Properties["metrics"]
		m.Description = ""
		text, err := json.Marshal(m.ToKubeOpenAPI())
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	for _, kind := range []string{"AnalysisTemplate", "AnalysisRun"} {
		if diff := cmp.Diff(metrics("ClusterAnalysisTemplate"), metrics(kind)); diff != "" {
			t.Errorf("metrics of %s (-ClusterAnalysisTemplate +%s):\n%s", kind, kind, diff)
		}
	}
}

func TestDefinitionsMatchThoseOfArgoRollouts(t *testing.T) {
	type promise struct {
		Plural, Short, Scope string
		Status, Scale        bool
		Columns              []string
	}
	want := map[string]promise{
		"Rollout": {
			"rollouts", "ro", "Namespaced", true, true,
			[]string{
				"Desired .spec.replicas", "Current .status.replicas", "Up-to-date .status.updatedReplicas",
				"Available .status.availableReplicas", "Age .metadata.creationTimestamp",
			},
		},
		"AnalysisTemplate":        {"analysistemplates", "at", "Namespaced", false, false, []string{"Age .metadata.creationTimestamp"}},
		"ClusterAnalysisTemplate": {"clusteranalysistemplates", "cat", "Cluster", false, false, []string{"Age .metadata.creationTimestamp"}},
		"AnalysisRun":             {"analysisruns", "ar", "Namespaced", false, false, []string{"Status .status.phase", "Age .metadata.creationTimestamp"}},
		"Experiment":              {"experiments", "exp", "Namespaced", false, false, []string{"Status .status.phase", "Age .metadata.creationTimestamp"}},
	}
	got := map[string]promise{}
	for kind, definition := range crdtest.Definitions(t, v1alpha1.GroupName) {
		if policy := definition.Annotations["helm.sh/resource-policy"]; policy != "keep" {
			t.Errorf("%s: annotation helm.sh/resource-policy is %q, want keep", kind, policy)
		}
		p := promise{Plural: definition.Spec.Names.Plural, Short: strings.Join(definition.Spec.Names.ShortNames, " "), Scope: string(definition.Spec.Scope)}
		columns, err := apiextensions.GetColumnsForVersion(definition, "v1alpha1")
		if err != nil {
			t.Fatal(err)
		}
		for _, column := range columns {
			p.Columns = append(p.Columns, column.Name+" "+column.JSONPath)
		}
		resources, err := apiextensions.GetSubresourcesForVersion(definition, "v1alpha1")
		if err != nil {
			t.Fatal(err)
		}
		if resources != nil {
			p.Status, p.Scale = resources.Status != nil, resources.Scale != nil
		}
		if p.Scale {
			scale := resources.Scale
			if scale.SpecReplicasPath != ".spec.replicas" || scale.StatusReplicasPath != ".status.HPAReplicas" || *scale.LabelSelectorPath != ".status.selector" {
				t.Errorf("%s is scaled by %+v", kind, scale)
			}
		}
		got[kind] = p
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("definitions (-want +got):\n%s", diff)
	}
}

func TestSelectorCannotBeChanged(t *testing.T) {
	s := crdtest.Servers(t, v1alpha1.GroupName)["v1alpha1/Rollout"]
	old := parse(t, []byte("{apiVersion: argoproj.io/v1alpha1, kind: Rollout, metadata: {name: a}, spec: {selector: {matchLabels: {app: a}}}}"))
	changed := runtime.DeepCopyJSON(old)
	changed["spec"].(map[string]any)["selector"] = map[string]any{"matchLabels": map[string]any{"app": "b"}}
	if _, err := s.Update(t.Context(), changed, old); err == nil || !strings.Contains(err.Error(), ".spec.selector is immutable") {
		t.Errorf("changed selector: got %v, want an error", err)
	}
	scaled := runtime.DeepCopyJSON(old)
	scaled["spec"].(map[string]any)["replicas"] = int64(3)
	if _, err := s.Update(t.Context(), scaled, old); err != nil {
		t.Errorf("changed replicas: got %v, want no error", err)
	}
}

// TestOddRolloutsAreStored: the CRD of Argo Rollouts accepts them, and users learn of the mistake from the controller.
func TestOddRolloutsAreStored(t *testing.T) {
	s := crdtest.Servers(t, v1alpha1.GroupName)["v1alpha1/Rollout"]
	for name, spec := range map[string]string{
		"an empty spec":               `{}`,
		"both strategies":             `{"strategy":{"canary":{},"blueGreen":{"activeService":"a"}}}`,
		"a step with two fields":      `{"strategy":{"canary":{"steps":[{"setWeight":10,"pause":{}}]}}}`,
		"an empty step":               `{"strategy":{"canary":{"steps":[{}]}}}`,
		"a weight out of range":       `{"strategy":{"canary":{"steps":[{"setWeight":1000}]}}}`,
		"negative numbers":            `{"replicas":-1,"minReadySeconds":-1,"progressDeadlineSeconds":-1}`,
		"an invalid quantity":         `{"template":{"spec":{"containers":[{"name":"a","resources":{"limits":{"memory":"invalid"}}}]}}}`,
		"a quantity that is a number": `{"template":{"spec":{"containers":[{"name":"a","resources":{"requests":{"cpu":0.001}}}]}}}`,
		"limits that are a list":      `{"template":{"spec":{"containers":[{"name":"a","resources":{"limits":[]}}]}}}`,
		"a template without a pod":    `{"template":{"metadata":{"labels":{"a":"b"}}}}`,
		"ports without protocol":      `{"template":{"spec":{"containers":[{"name":"a","ports":[{"containerPort":80},{"containerPort":80}]}]}}}`,
		"an unknown scale down":       `{"workloadRef":{"kind":"Thing","scaleDown":"sometimes"}}`,
	} {
		var fields map[string]any
		if err := kjson.UnmarshalCaseSensitivePreserveInts([]byte(spec), &fields); err != nil {
			t.Fatal(err)
		}
		object := map[string]any{"apiVersion": "argoproj.io/v1alpha1", "kind": "Rollout", "metadata": map[string]any{"name": "odd"}, "spec": fields}
		if _, err := s.Create(t.Context(), object); err != nil {
			t.Errorf("%s was refused: %v", name, err)
		}
	}
}
