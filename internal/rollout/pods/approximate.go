package pods

// ReplicaCounts are the numbers of pods of the new and of the stable revision.
type ReplicaCounts struct{ Canary, Stable int32 }

// approximateWeight returns the numbers of pods whose ratio is closest to a weight, for Rollouts without a router,
// whose pods divide the requests.
//
// With surge, one additional pod is used if its ratio is closer: 45 of 100 on 10 pods is 5 of 11. Strictly between 0
// and maxWeight, each side has at least one pod, unless there is one replica and no surge. Of equally close candidates,
// the first one is chosen: rounded up before rounded down, and without the additional pod before with it.
func approximateWeight(n, weight, maxWeight, surge int32) ReplicaCounts {
	if n <= 0 || maxWeight <= 0 {
		return ReplicaCounts{}
	}
	weight = max(min(weight, maxWeight), 0)
	// In units of 1/maxWeight of a pod, so that nothing is rounded before the comparison.
	exact := int64(n) * int64(weight)
	up, down := int32((exact+int64(maxWeight)-1)/int64(maxWeight)), int32(exact/int64(maxWeight)) //nolint:gosec // at most n
	mayBeEmpty := weight == maxWeight || weight == 0 || n == 1 && surge == 0

	best, found := ReplicaCounts{Canary: 0, Stable: n}, false
	consider := func(canary, total int32) {
		if c := (ReplicaCounts{Canary: canary, Stable: total - canary}); !found || isCloser(c, best, weight, maxWeight) {
			best, found = c, true
		}
	}
	if up < n || mayBeEmpty {
		consider(up, n)
	}
	if !isTied(n, weight, maxWeight) && (down != 0 || mayBeEmpty) {
		consider(down, n)
	}
	if surge <= 0 {
		return best
	}
	consider(up, n+1)
	if !isTied(n+1, weight, maxWeight) && (down != 0 || mayBeEmpty) {
		consider(down, n+1)
	}
	return best
}

// isTied reports whether a weight lies exactly between two numbers of pods.
func isTied(total, weight, maxWeight int32) bool {
	return 2*(int64(total)*int64(weight)%int64(maxWeight)) == int64(maxWeight)
}

// isCloser reports whether the ratio of a is strictly closer to the weight than that of b.
func isCloser(a, b ReplicaCounts, weight, maxWeight int32) bool {
	totalA, totalB := int64(a.Canary+a.Stable), int64(b.Canary+b.Stable)
	return deviation(a, weight, maxWeight)*totalB < deviation(b, weight, maxWeight)*totalA
}

// deviation returns the distance between the ratio and the weight, multiplied by the number of pods.
func deviation(c ReplicaCounts, weight, maxWeight int32) int64 {
	distance := int64(c.Canary)*int64(maxWeight) - int64(weight)*int64(c.Canary+c.Stable)
	return max(distance, -distance)
}
