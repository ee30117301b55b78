package load

import "math"

// BinomialBounds are the smallest and the largest number of hits among n requests that chance explains when each is a hit with
// probability p: outside of them lies at most tail of the probability on either side. The sums are exact (binomial), so
// a test may choose a tail such as 1e-9 and never fail by bad luck.
func BinomialBounds(n int, p, tail float64) (low, high int) {
	low, high = 0, n
	for sum := binomialProbability(n, 0, p); low < n && sum <= tail; {
		low++
		sum += binomialProbability(n, low, p)
	}
	for sum := binomialProbability(n, n, p); high > 0 && sum <= tail; {
		high--
		sum += binomialProbability(n, high, p)
	}
	return low, high
}

// binomialProbability of k hits among n, by logarithms, because the factors leave the range of float64 from n ≈ 1000 on.
func binomialProbability(n, k int, p float64) float64 {
	switch {
	case p <= 0 && k == 0, p >= 1 && k == n:
		return 1
	case p <= 0, p >= 1:
		return 0
	}
	all, _ := math.Lgamma(float64(n + 1))
	hits, _ := math.Lgamma(float64(k + 1))
	misses, _ := math.Lgamma(float64(n - k + 1))
	return math.Exp(all - hits - misses + float64(k)*math.Log(p) + float64(n-k)*math.Log1p(-p))
}
