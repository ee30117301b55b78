package release

// The way back of a rollback: how much of the traffic the version before carries while it has not all of its pods. The APIs
// share this arithmetic, so that a Canary and a Rollout in the same cluster roll back alike.

// PodsForAllTraffic is the number of pods that carry all the traffic once it is back: as many as carried it when the way back began,
// and no more than are asked for. asked alone says nothing about the need: an autoscaler may ask for four times the pods in a
// cluster that has no room, and the users would stay on the broken version until it has.
func PodsForAllTraffic(asked, carriedBy int32) int32 { return min(asked, max(carriedBy, 1)) }

// CarriedWeight is the share of total, rounded down, that the available pods carry where enough pods carry all of it. Where no pod
// is enough, all of it is carried: there is nothing to wait for.
func CarriedWeight(total, available, enough int32) int32 {
	if enough <= 0 {
		return total
	}
	return int32(min(int64(total), max(int64(total)*int64(available)/int64(enough), 0))) //nolint:gosec // at most total
}
