package knative_test

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"pgregory.net/rapid"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/traffic"
	"github.com/serin-dev/serin/internal/traffic/knative"
	"github.com/serin-dev/serin/internal/traffic/traffictest"
)

func TestContract(t *testing.T) {
	admission := traffictest.NewAdmissionOf(t, "knative.dev/serving", "config/core/300-resources/service.yaml")
	for name, shares := range map[string][]any{
		"no shares":       nil,
		"all to latest":   {map[string]any{"latestRevision": true, "percent": int64(100)}},
		"with an address": {map[string]any{"latestRevision": true, "percent": int64(100), "tag": "next"}, map[string]any{"revisionName": "cart-00001", "tag": "old"}},
	} {
		t.Run(name, func(t *testing.T) {
			traffictest.Run(t, knative.New(), traffictest.Options{
				Provider: "knative", Admission: admission, Canary: service,
				Given: func(t traffic.Target) []*unstructured.Unstructured { return given(t, shares) },
			})
		})
	}
}

// service sets a Knative Service as the target.
func service(_ *rapid.T, c *flaggerv1.Canary) {
	c.Spec.TargetRef = flaggerv1.TargetReference{APIVersion: "serving.knative.dev/v1", Kind: "Service", Name: "cart"}
}

// given is the initialized Service of a user, which has no route yet.
func given(t traffic.Target, shares []any) []*unstructured.Unstructured {
	spec := map[string]any{"template": map[string]any{"spec": map[string]any{"containers": []any{map[string]any{"image": "cart:1"}}}}}
	if shares != nil {
		spec["traffic"] = shares
	}
	obj := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "serving.knative.dev/v1", "kind": "Service",
		"metadata": map[string]any{
			"name": t.Canary.Spec.TargetRef.Name, "namespace": t.Namespace,
			"annotations": map[string]any{"flagger.app/primary-revision": "cart-00001", "note": "mine"},
		},
		"spec":   spec,
		"status": map[string]any{"latestReadyRevisionName": "cart-00001"},
	}}
	return []*unstructured.Unstructured{obj.DeepCopy()}
}

func TestGolden(t *testing.T) { traffictest.Golden(t, knative.New(), "knative", "testdata/golden") }

// TestRecorded compares with the traffic targets that Flagger wrote.
func TestRecorded(t *testing.T) { traffictest.Recorded(t, knative.New(), "knative", 10, nil) }
