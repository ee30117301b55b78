package workload

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Readiness is the readiness of the pods of a workload.
type Readiness struct {
	// Ready is true if all pods have the newest template and enough of them are available.
	Ready bool
	// RequiredAvailable is the required number of available pods; it is set if Ready is true.
	RequiredAvailable int32
	// DeadlineExceeded is true if the Deployment has exceeded its progress deadline. The deadline of a release is independent of it.
	DeadlineExceeded bool
	// Message describes the missing condition; empty if ready.
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

// intOrDefault returns an integer of an object, or the default if there is none.
func intOrDefault(obj map[string]any, absent int64, path ...string) int64 {
	value, found, err := unstructured.NestedFieldNoCopy(obj, path...)
	if !found || err != nil {
		return absent
	}
	switch number := value.(type) {
	case int64:
		return number
	case float64: // from a JSON decoder without integers
		return int64(number)
	default:
		return absent
	}
}
