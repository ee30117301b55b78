package release

// During a rollback, traffic returns to the previous revision as its pods become available. Both APIs share this
// arithmetic, so that Canaries and Rollouts roll back alike.

// PodsForAllTraffic returns the number of pods that carry all traffic after a rollback: as many as carried it when the
// rollback began, but at least one and at most the desired number. The desired number alone is not a measure: an
// autoscaler may request four times the pods in a cluster without capacity, and the users would remain on the broken
// version until it has capacity.
func PodsForAllTraffic(desired, carriedBy int32) int32 { return min(desired, max(carriedBy, 1)) }

// CarriedWeight returns the share of total, rounded down, that the available pods can carry if enough pods carry all of
// it. If enough is 0, it returns total: there is nothing to wait for.
func CarriedWeight(total, available, enough int32) int32 {
	if enough <= 0 {
		return total
	}
	return int32(min(int64(total), max(int64(total)*int64(available)/int64(enough), 0))) //nolint:gosec // at most total
}
