package rollout

import argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"

// enough is true when a ReplicaSet has as many pods as a step asks for, or as many of them as a threshold is content
// with. A threshold below zero is none.
func enough(threshold *argov1.ReplicaProgressThreshold, rs Scaled, desired int32) bool {
	if threshold == nil || threshold.Value < 0 {
		return rs.Spec == desired && rs.Available == desired
	}
	switch threshold.Type {
	case argov1.ProgressPods:
		return rs.Available >= threshold.Value
	default: // Percent, and types that only a newer controller knows
		return int64(rs.Available)*100 >= int64(threshold.Value)*int64(desired)
	}
}
