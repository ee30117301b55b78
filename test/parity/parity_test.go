package parity

import (
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

const root = "../.."

// serin reads the names of Serin once for all tests.
var serin = sync.OnceValues(func() (*own, error) { return newOwn(root) })

func TestThePageIsThatOfTheCode(t *testing.T) {
	tables, err := Compare(root)
	if err != nil {
		t.Fatalf("%v\ncorrect test/parity/states.yaml, and then run: make generate", err)
	}
	projects, err := Projects()
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(Page(root))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(Render(projects, tables), string(page)); diff != "" {
		t.Errorf("docs/parity.md is out of date, run: make generate (-code +page):\n%s", diff)
	}
}

// unreadFields are the fields of the API that no code names, with the reason.
var unreadFields = map[string]string{
	"v1beta1.AutoscalerReference.APIVersion": "the kind decides", "v1beta1.IngressReference.APIVersion": "the provider decides", "v1beta1.IngressReference.Kind": "the provider decides",
	"v1beta1.RouteReference.APIVersion": "the provider decides", "v1beta1.RouteReference.Kind": "the provider decides",
	"v1beta1.UpstreamReference.APIVersion": "the provider decides", "v1beta1.UpstreamReference.Kind": "the provider decides",
	"v1beta1.AlertProvider.Status": unwritten, "v1beta1.AlertProviderStatus.Conditions": unwritten, "v1beta1.MetricTemplate.Status": unwritten, "v1beta1.MetricTemplateStatus.Conditions": unwritten,
	"v1alpha1.ValueFrom.FieldRef": "only arguments of an analysis in a Rollout can refer to a field, as in Argo Rollouts",
}

const unwritten = "nothing writes this status, as in Flagger"

// TestTheCodeReadsEachFieldOfTheAPI: a field without effect misleads users.
func TestTheCodeReadsEachFieldOfTheAPI(t *testing.T) {
	own, err := serin()
	if err != nil {
		t.Fatal(err)
	}
	fields := slices.Sorted(maps.Values(own.code.declared))
	for field := range unreadFields {
		if !slices.Contains(fields, field) {
			t.Errorf("unreadFields contains %s, which does not exist: remove it", field)
		}
	}
	for _, field := range fields {
		isOfObject := strings.HasPrefix(field, "v") && !strings.HasSuffix(field, "List.Items")
		if isOfObject && !own.code.references[field] && !isConsumedWhole(field) && unreadFields[field] == "" {
			t.Errorf("no code reads %s: remove it, or add it to unreadFields with the reason", field)
		}
	}
}

func TestMistakesInTheStatesAreReported(t *testing.T) {
	own, err := serin()
	if err != nil {
		t.Fatal(err)
	}
	projects := []Project{{Name: "Flagger", Groups: []Group{
		{Type: "field", Of: "Canary", Names: "spec.provider\nspec.nonsense\nspec.ingressRef.kind\n"},
		{Type: "flag", Of: "controller", Names: "namespace\nnonsense\nzap-replace-globals\n"},
		{Type: "command", Of: "serin", Names: "get --watch\nget --nonsense\n"},
		{Type: "metric", Of: "controller", Names: "nonsense\n"},
	}}}
	field := func(name string, of statement) statement {
		of.Type, of.Names = "field", []string{name}
		return of
	}
	for _, test := range []struct {
		name       string
		statements []statement
		want       string
	}{
		{"no state", nil, "field of Canary: spec.nonsense: Serin does not serve it (the schema has no such field), and states.yaml has no reason"},
		{"not read", nil, "field of Canary: spec.ingressRef.kind: Serin does not serve it (no code reads v1beta1.IngressReference.Kind)"},
		{"no flag", nil, "flag of controller: nonsense: Serin does not serve it (no such flag)"},
		{"no flag of a command", nil, "get --nonsense: Serin does not serve it"},
		{"unknown name", []statement{{Type: "field", Names: []string{"spec.nonsense", "spec.other"}, State: NotServed, Why: "?"}}, "there is no field spec.other of the projects: remove it"},
		{"served", []statement{field("spec.provider", statement{State: NotServed, Why: "?"})}, "spec.provider: the code of Serin serves it: remove it"},
		{"no reason", []statement{field("spec.nonsense", statement{State: NotServed})}, "spec.nonsense: the state has no reason"},
		{"unknown state", []statement{field("spec.nonsense", statement{State: "perhaps"})}, `spec.nonsense: the state "perhaps" is unknown`},
		{"no evidence", []statement{field("spec.nonsense", statement{State: Served})}, "spec.nonsense: it does not follow from the code, so the state needs evidence"},
		{"wrong evidence", []statement{{Type: "metric", Names: []string{"nonsense"}, State: Served, Evidence: "go.mod: nonsense"}}, `evidence: go.mod does not contain "nonsense"`},
		{"no command", []statement{{Type: "command", Names: []string{"get --nonsense"}, State: Differs, As: "got"}}, `there is no command "got" of Serin`},
		{"no metric", []statement{{Type: "metric", Names: []string{"nonsense"}, State: Differs, As: "serin_nonsense"}}, `there is no metric "serin_nonsense" of Serin`},
		{"no field that differs", []statement{field("spec.nonsense", statement{State: Differs, Why: "?"})}, "spec.nonsense: the schema of Serin has no such field"},
		{"no flag that is accepted", []statement{{Type: "flag", Names: []string{"nonsense"}, State: Accepted, Why: "?"}}, "nonsense: the controller has no such flag"},
		{"two states", []statement{field("spec.nonsense", statement{State: NotServed, Why: "?"}), field("spec.*", statement{State: Differs, Why: "?"})}, "spec.nonsense: states.yaml has several states"},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := compare(root, own, projects, test.statements)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %s", err, test.want)
			}
		})
	}
}

func TestStatesFollowFromTheCode(t *testing.T) {
	own, err := serin()
	if err != nil {
		t.Fatal(err)
	}
	projects := []Project{{Groups: []Group{{Type: "flag", Of: "controller", Names: "namespace\nzap-replace-globals\nnonsense\n"}, {Type: "field", Of: "Rollout", Names: "spec.template PodTemplateSpec\nspec.paused\n"}}}}
	statements := []statement{
		{Type: "flag", Names: []string{"nonsense"}, State: NotServed, Why: "It is nonsense.", Until: "go.mod"},
		{Type: "flag", Names: []string{"namespace"}, State: NotServed, Why: "Not built.", Pending: true},
		{Type: "field", Names: []string{"spec.paused"}, State: Refused, Why: "Not built.", Until: "go.mod"},
	}
	tables, err := compare(root, own, projects, statements)
	if err != nil {
		t.Fatal(err)
	}
	want := []Table{
		{Type: "flag", Of: "controller", Rows: []Row{{"namespace", Served, ""}, {"zap-replace-globals", Accepted, "There is one logger."}, {"nonsense", NotServed, "It is nonsense."}}},
		{Type: "field", Of: "Rollout", Rows: []Row{{"spec.template PodTemplateSpec", Served, ""}, {"spec.paused", Served, ""}}},
	}
	if diff := cmp.Diff(want, tables); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestFieldPathsAreTheFieldsWithoutOthers(t *testing.T) {
	const text = `
spec:
  names: {kind: Fleet}
  versions:
  - {name: v1alpha1, schema: {openAPIV3Schema: {properties: {old: {type: string}}}}}
  - name: v1
    storage: true
    schema:
      openAPIV3Schema:
        properties:
          kind: {type: string}
          metadata: {type: object}
          spec:
            properties:
              paused: {type: boolean}
              labels: {additionalProperties: {type: string}}
              hosts: {items: {type: string}}
              steps: {items: {properties: {weight: {type: integer}}}}
              headers: {additionalProperties: {properties: {exact: {type: string}}}}
              template: {properties: {metadata: {type: object}, spec: {properties: {containers: {items: {properties: {image: {type: string}}}}}}}}
              job: {properties: {spec: {properties: {template: {type: object}}}}}
`
	var definition Definition
	if err := yaml.Unmarshal([]byte(text), &definition); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"spec.headers.*.exact", "spec.hosts", "spec.job.spec JobSpec", "spec.labels", "spec.paused", "spec.steps[].weight", "spec.template PodTemplateSpec",
	}
	got := FieldPaths(definition.StoredSchema())
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for _, path := range got {
		name, _, _ := strings.Cut(path, " ")
		if !hasPath(definition.StoredSchema(), pathSegments(name)) {
			t.Errorf("the schema has no %s", name)
		}
	}
	if hasPath(definition.StoredSchema(), pathSegments("spec.steps[].pause")) {
		t.Error("the schema has a field that does not exist")
	}
}
