package sim

import (
	"hash/fnv"
	"math/rand/v2"
	"time"
)

// Draws are the random choices of one run. Each component draws from its own named stream, so that removing one component from
// a run does not change the choices of the others.
type Draws struct{ seed uint64 }

// Stream returns the stream with the given name. Calling it again returns a stream that starts from the beginning.
func (d Draws) Stream(name string) *Stream {
	sum := fnv.New64a()
	_, _ = sum.Write([]byte(name)) // never fails
	return &Stream{rand.New(rand.NewPCG(d.seed, sum.Sum64()))}
}

// Stream is a sequence of random choices.
type Stream struct{ r *rand.Rand }

// Chance returns true with probability p, from 0 to 1.
func (s *Stream) Chance(p float64) bool { return s.r.Float64() < p }

// Int draws an integer from low to high, both inclusive.
func (s *Stream) Int(low, high int) int { return low + s.r.IntN(high-low+1) }

// Between draws a duration from low to high, uniformly distributed.
func (s *Stream) Between(low, high time.Duration) time.Duration {
	if high <= low {
		return low
	}
	return low + time.Duration(s.r.Int64N(int64(high-low)))
}

// Skewed draws a duration from low to high, in most cases close to low.
func (s *Stream) Skewed(low, high time.Duration) time.Duration {
	f := s.r.Float64()
	return low + time.Duration(f*f*f*float64(high-low))
}

// Pick draws one of the values.
func Pick[T any](s *Stream, values ...T) T { return values[s.r.IntN(len(values))] }
