package pods

import argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"

// IsReached reports whether a ReplicaSet has the desired number of pods, or as many of them as replicaProgressThreshold
// requires. A negative threshold is ignored.
func IsReached(threshold *argov1.ReplicaProgressThreshold, rs ReplicaSetPods, desired int32) bool {
	if threshold == nil || threshold.Value < 0 {
		return rs.SpecReplicas == desired && rs.Available == desired
	}
	switch threshold.Type {
	case argov1.ProgressPods:
		return rs.Available >= threshold.Value
	default: // Percent, and types that only a newer version of the API has
		return int64(rs.Available)*100 >= int64(threshold.Value)*int64(desired)
	}
}
