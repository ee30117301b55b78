package workload

import (
	"testing"

	"github.com/cockroachdb/datadriven"
	"sigs.k8s.io/yaml"
)

// The status of Canaries contains the hashes in testdata/revision. A failure here means that after an upgrade of Serin every
// workload would count as changed: use a new prefix for the new format, and never rewrite the file.
func TestRevisionsNeverChange(t *testing.T) {
	datadriven.RunTest(t, "testdata/revision", func(t *testing.T, data *datadriven.TestData) string {
		var in struct {
			Template map[string]any    `json:"template"`
			Configs  map[string]string `json:"configs"`
		}
		must(t, yaml.Unmarshal([]byte(data.Input), &in))
		template, _ := withIntegers(in.Template).(map[string]any)
		revision, err := workloadRevision(template, in.Configs)
		must(t, err)
		return revision + "\n"
	})
}

func TestRevisionDependsOnNothingButContent(t *testing.T) {
	template := func(text string) map[string]any {
		var object map[string]any
		must(t, yaml.Unmarshal([]byte(text), &object))
		return withIntegers(object).(map[string]any)
	}
	plain := template(`{metadata: {labels: {app: cart}}, spec: {containers: [{name: a, image: "a:1", resources: {}}]}}`)
	of := func(template map[string]any, configs map[string]string) string {
		revision, err := workloadRevision(template, configs)
		must(t, err)
		return revision
	}
	want := of(plain, nil)
	for name, same := range map[string]string{
		"an older API server": of(template(`{metadata: {creationTimestamp: null, labels: {app: cart}}, spec: {containers: [{name: a, image: "a:1", resources: {}}]}}`), nil),
		"another order":       of(template(`{spec: {containers: [{resources: {}, image: "a:1", name: a}]}, metadata: {labels: {app: cart}}}`), nil),
		"no configuration":    of(plain, map[string]string{}),
	} {
		if same != want {
			t.Errorf("%s: got %s, want %s", name, same, want)
		}
	}
	for name, other := range map[string]string{
		"another image": of(template(`{metadata: {labels: {app: cart}}, spec: {containers: [{name: a, image: "a:2", resources: {}}]}}`), nil),
		"an annotation": of(template(`{metadata: {labels: {app: cart}, annotations: {kubectl.kubernetes.io/restartedAt: now}}, spec: {containers: [{name: a, image: "a:1", resources: {}}]}}`), nil),
		"configuration": of(plain, map[string]string{"configmap/a": "1"}),
	} {
		if other == want {
			t.Errorf("%s: got the same revision", name)
		}
	}
}
