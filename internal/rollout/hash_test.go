package rollout

import (
	"encoding/json"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
)

func TestPodHashNeverChanges(t *testing.T) {
	const delay = `{"metadata":{"labels":{"app":"canary-scaledowndelay"}},"spec":{"containers":[{"name":"canary-scaledowndelay","image":"nginx:1.19-alpine","ports":[{"name":"http","containerPort":80,"protocol":"TCP"}],"resources":{"requests":{"cpu":"5m","memory":"16Mi"}}}]}}`
	const dynamic = `{"metadata":{"labels":{"app":"dynamic-stable-scale"}},"spec":{"containers":[{"name":"dynamic-stable-scale","image":"nginx:1.19-alpine","ports":[{"name":"http","containerPort":80,"protocol":"TCP"}],"resources":{"requests":{"cpu":"5m","memory":"16Mi"}}}],"readinessGates":[{"conditionType":"argoproj.io/e2e-readiness"}]}}`
	hash := func(text string, collisions *int32) string {
		var template corev1.PodTemplateSpec
		if err := json.Unmarshal([]byte(text), &template); err != nil {
			t.Fatal(err)
		}
		got, err := PodHash(template, collisions)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	if got := hash(delay, nil); got != "674d8cf959" {
		t.Errorf("hash %s, want 674d8cf959", got)
	}
	if got := hash(dynamic, nil); got != "6b56c8cdb4" {
		t.Errorf("hash %s, want 6b56c8cdb4", got)
	}
	seen := map[string]bool{hash(delay, nil): true}
	for count := range int32(3) {
		if got := hash(delay, &count); seen[got] {
			t.Errorf("collision %d gives %s again", count, got)
		} else {
			seen[got] = true
		}
	}
}

func TestStepHashNeverChanges(t *testing.T) {
	for text, want := range map[string]string{
		`null`: "5ffbfbbd64", `[{setWeight: 10}, {pause: {}}]`: "849b756fd4",
	} {
		var steps []argov1.CanaryStep
		if err := yaml.UnmarshalStrict([]byte(text), &steps); err != nil {
			t.Fatal(err)
		}
		if got, err := StepHash(steps); err != nil || got != want {
			t.Errorf("%s: hash %s (%v), want %s", text, got, err, want)
		}
	}
}
