package rollout

// Split is how the pods are shared between the new revision and the stable one.
type Split struct{ Canary, Stable int32 }

// approximate finds the numbers of pods that come nearest to a weight, where pods are all that shares the traffic.
//
// With room for a surge one pod more may be used when that comes nearer: 45 of 100 on 10 pods is 5 of 11. Between the
// ends neither side is without a pod, except with one replica and no surge. Of equally good ones the first holds: rounded
// up before rounded down, and without the additional pod before with it.
func approximate(n, weight, most, surge int32) Split {
	if n <= 0 || most <= 0 {
		return Split{}
	}
	weight = max(min(weight, most), 0)
	// In units of 1/most of a pod, so that nothing is rounded before it is compared.
	exact := int64(n) * int64(weight)
	up, down := int32((exact+int64(most)-1)/int64(most)), int32(exact/int64(most)) //nolint:gosec // n at most
	emptyFine := weight == most || weight == 0 || n == 1 && surge == 0

	best, found := Split{Canary: 0, Stable: n}, false
	consider := func(canary, total int32) {
		if s := (Split{Canary: canary, Stable: total - canary}); !found || nearer(s, best, weight, most) {
			best, found = s, true
		}
	}
	if up < n || emptyFine {
		consider(up, n)
	}
	if !tied(n, weight, most) && (down != 0 || emptyFine) {
		consider(down, n)
	}
	if surge <= 0 {
		return best
	}
	consider(up, n+1)
	if !tied(n+1, weight, most) && (down != 0 || emptyFine) {
		consider(down, n+1)
	}
	return best
}

// tied is true when a weight falls right between two numbers of pods.
func tied(total, weight, most int32) bool {
	return 2*(int64(total)*int64(weight)%int64(most)) == int64(most)
}

// nearer is true when the share of a is strictly nearer to the weight than that of b.
func nearer(a, b Split, weight, most int32) bool {
	totalA, totalB := int64(a.Canary+a.Stable), int64(b.Canary+b.Stable)
	return off(a, weight, most)*totalB < off(b, weight, most)*totalA
}

// off is how far the share of a split is from the weight, times its number of pods.
func off(s Split, weight, most int32) int64 {
	distance := int64(s.Canary)*int64(most) - int64(weight)*int64(s.Canary+s.Stable)
	return max(distance, -distance)
}
