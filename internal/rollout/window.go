package rollout

import (
	"time"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
)

// isRecentRevision reports whether a release returns to a revision that is recent enough to skip all steps: the new
// ReplicaSet is older than the stable one, and fewer revisions than the window allows were created between them.
//
// others are the creation times of all ReplicaSets of the Rollout, without those of experiments. They may include the
// two.
func isRecentRevision(window *argov1.RollbackWindowSpec, newSet, stable time.Time, others []time.Time) bool {
	if window == nil || window.Revisions <= 0 || !newSet.Before(stable) {
		return false
	}
	var between int32
	for _, created := range others {
		if created.After(newSet) && created.Before(stable) {
			between++
		}
	}
	return between < window.Revisions
}
