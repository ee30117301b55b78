package rollout

import (
	"time"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
)

// InRollbackWindow is true when a release goes back to a revision that is recent enough to skip all steps: the new
// ReplicaSet is older than the stable one, and fewer than the window of revisions were made between them.
//
// others are when all ReplicaSets of the Rollout were made, those of experiments apart; the two may be among them.
func InRollbackWindow(window *argov1.RollbackWindowSpec, newSet, stable time.Time, others []time.Time) bool {
	if window == nil || window.Revisions <= 0 || !newSet.Before(stable) {
		return false
	}
	var between int32
	for _, made := range others {
		if made.After(newSet) && made.Before(stable) {
			between++
		}
	}
	return between < window.Revisions
}
