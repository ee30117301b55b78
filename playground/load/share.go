package load

import "math"

// BinomialBounds returns the smallest and the largest number of hits among n requests that chance explains, if each request
// is a hit with probability p: the probability of fewer hits is at most tail, and so is that of more hits. The sums of the
// binomial distribution are exact, so with a tail such as 1e-9 a test practically never fails by chance.
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

// binomialProbability returns the probability of k hits among n. It uses logarithms, because the factors exceed the range of
// float64 from n ≈ 1000 on.
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
