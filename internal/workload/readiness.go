package workload

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Readiness says whether the pods of a workload are all of its newest template, and enough of them available.
type Readiness struct {
	// Ready is true when they are.
	Ready bool
	// Enough is how many of them must be available; set when they are.
	Enough int32
	// Exceeded is true when Kubernetes itself gave the rollout up. Deadlines of a release are counted elsewhere.
	Exceeded bool
	// Message says what is missing; empty when ready.
	Message string
}

// enoughOf is how many of the updated pods must be available. A share of few pods may come to none, but what has no pod
// cannot answer a request.
func enoughOf(pods int64, threshold int) int64 { return max(share(pods, threshold), min(pods, 1)) }

// share is a percentage of replicas, cut to a whole number. It is reckoned in 32-bit floats as Flagger does, so that
// both agree on the same pods.
func share(replicas int64, percent int) int64 {
	return int64(float32(replicas) * (float32(percent) / float32(100)))
}

func conditionReason(obj *unstructured.Unstructured, kind string) string {
	conditions, _, _ := unstructured.NestedFieldNoCopy(obj.Object, "status", "conditions")
	for _, condition := range objects(conditions) {
		if condition["type"] == kind {
			reason, _ := condition["reason"].(string)
			return reason
		}
	}
	return ""
}

// integer reads a whole number, or the default when there is none.
func integer(obj map[string]any, absent int64, path ...string) int64 {
	value, found, err := unstructured.NestedFieldNoCopy(obj, path...)
	if !found || err != nil {
		return absent
	}
	switch number := value.(type) {
	case int64:
		return number
	case float64: // a decoder that knows only floats
		return int64(number)
	default:
		return absent
	}
}
