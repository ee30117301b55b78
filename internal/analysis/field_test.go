package analysis_test

import (
	"encoding/json"
	"testing"

	"github.com/serin-dev/serin/internal/analysis"
)

func TestFieldValueFollowsPathsAsArgoRolloutsDoes(t *testing.T) {
	var rollout map[string]any
	if err := json.Unmarshal([]byte(`{
		"metadata": {"name": "cart", "namespace": "shop", "uid": "u1", "labels": {"env": "test", "a.b/c": "d"}},
		"spec": {"replicas": 3, "paused": false, "template": {"spec": {"containers": [{"image": "cart:1"}, {"image": "side:2"}]}}, "none": null},
		"status": {"canary": {"weights": {"canary": {"weight": 20}}}}
	}`), &rollout); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		"metadata.name": "cart", "metadata.namespace": "shop", "metadata.uid": "u1",
		"metadata.labels['env']": "test", "metadata.labels['a.b/c']": "d", "metadata.labels['nobody']": "", "metadata.annotations['x']": "",
		"metadata.labels": "a.b/c=\"d\"\nenv=\"test\"", "metadata.annotations": "",
		"spec.replicas": "3", "spec.paused": "false", "spec.template.spec.containers[1].image": "side:2",
		"status.canary.weights.canary.weight": "20",
	} {
		if got, err := analysis.FieldValue(rollout, path); got != want || err != nil {
			t.Errorf("%s: got %q, %v, want %q", path, got, err, want)
		}
	}
	for path, want := range map[string]string{
		"metadata.generation":                     "unsupported fieldPath: metadata.generation",
		"metadata.name['x']":                      "unsupported fieldPath: metadata.name['x']",
		"metadata":                                "unsupported fieldPath: metadata",
		"spec.nobody":                             "invalid path spec.nobody in rollout",
		"spec.replicas.more":                      "invalid path spec.replicas.more in rollout",
		"spec.template.spec.containers[x].image":  "invalid index 'x'",
		"spec.template.spec.containers[2].image":  "index 2 out of range",
		"spec.template.spec.containers[-1].image": "index -1 out of range",
		"spec.template":                           "path spec.template in rollout must terminate in a primitive value",
		"spec.none":                               "path spec.none in rollout must terminate in a primitive value",
		"":                                        "path  in rollout must terminate in a primitive value",
	} {
		if got, err := analysis.FieldValue(rollout, path); err == nil || err.Error() != want {
			t.Errorf("%s: got %q, %v, want %s", path, got, err, want)
		}
	}
}
