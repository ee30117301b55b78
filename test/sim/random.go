package sim

import (
	"hash/fnv"
	"math/rand/v2"
	"time"
)

// Draws are the choices of one run. Every chooser draws from a stream of its own, named after it, so that taking one
// chooser out of a run leaves the choices of all others as they were.
type Draws struct{ seed uint64 }

// Stream is the stream of that name; asked for twice, it begins anew.
func (d Draws) Stream(name string) *Stream {
	sum := fnv.New64a()
	_, _ = sum.Write([]byte(name)) // never fails
	return &Stream{rand.New(rand.NewPCG(d.seed, sum.Sum64()))}
}

// Stream is a sequence of choices.
type Stream struct{ r *rand.Rand }

// Chance is true with probability p, from 0 to 1.
func (s *Stream) Chance(p float64) bool { return s.r.Float64() < p }

// Int is from low to high, both included.
func (s *Stream) Int(low, high int) int { return low + s.r.IntN(high-low+1) }

// Between is from low to high, evenly.
func (s *Stream) Between(low, high time.Duration) time.Duration {
	if high <= low {
		return low
	}
	return low + time.Duration(s.r.Int64N(int64(high-low)))
}

// Skewed is from low to high, mostly near low.
func (s *Stream) Skewed(low, high time.Duration) time.Duration {
	f := s.r.Float64()
	return low + time.Duration(f*f*f*float64(high-low))
}

// Pick is one of the values.
func Pick[T any](s *Stream, values ...T) T { return values[s.r.IntN(len(values))] }
