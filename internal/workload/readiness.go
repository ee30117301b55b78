package workload

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Readiness is whether all pods of a workload have its newest template, and enough of them are available.
type Readiness struct {
	// Ready is true when both apply.
	Ready bool
	// RequiredAvailable is the required number of available pods; set when Ready is true.
	RequiredAvailable int32
	// DeadlineExceeded is true when the progress deadline of Kubernetes is exceeded. A release has its own deadline elsewhere.
	DeadlineExceeded bool
	// Message says what is missing; empty when ready.
	Message string
}

// requiredAvailable returns the required number of available pods. It is at least one: a share of few pods may round to zero,
// but a workload without pods cannot serve requests.
func requiredAvailable(pods int64, threshold int) int64 {
	return max(percentOfReplicas(pods, threshold), min(pods, 1))
}

// percentOfReplicas returns a percentage of replicas, rounded down. It is computed in 32-bit floats as in Flagger, so that both
// have the same result.
func percentOfReplicas(replicas int64, percent int) int64 {
	return int64(float32(replicas) * (float32(percent) / float32(100)))
}

func conditionReason(obj *unstructured.Unstructured, kind string) string {
	conditions, _, _ := unstructured.NestedFieldNoCopy(obj.Object, "status", "conditions")
	for _, condition := range jsonObjects(conditions) {
		if condition["type"] == kind {
			reason, _ := condition["reason"].(string)
			return reason
		}
	}
	return ""
}

// intOrDefault returns a whole number, or the default when there is none.
func intOrDefault(obj map[string]any, absent int64, path ...string) int64 {
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
