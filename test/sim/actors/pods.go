package actors

import (
	"time"

	"github.com/serin-dev/serin/test/sim"
	"github.com/serin-dev/serin/test/sim/cluster"
)

// Behaviours of pods.
var (
	Healthy = cluster.PodBehaviour{}
	Stuck   = cluster.PodBehaviour{NeverReady: true}
)

// DrawPods draws how the pods of a version behave.
func DrawPods(s *sim.Stream) cluster.PodBehaviour {
	long, crash := s.Between(10*time.Second, 90*time.Second), s.Between(10*time.Second, 5*time.Minute)
	switch s.Int(0, 11) {
	case 0:
		return Stuck
	case 1:
		return cluster.PodBehaviour{Start: func() time.Duration { return long }}
	case 2:
		return cluster.PodBehaviour{Crash: crash}
	case 3:
		return cluster.PodBehaviour{Crash: crash, Flaps: true}
	default:
		return Healthy
	}
}
