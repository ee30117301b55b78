package actors

import (
	"time"

	"github.com/serin-dev/serin/test/sim"
	"github.com/serin-dev/serin/test/sim/cluster"
)

// How pods run.
var (
	Healthy = cluster.Pods{}
	Stuck   = cluster.Pods{Never: true}
)

// DrawPods draws how the pods of a version run.
func DrawPods(s *sim.Stream) cluster.Pods {
	long, crash := s.Between(10*time.Second, 90*time.Second), s.Between(10*time.Second, 5*time.Minute)
	switch s.Int(0, 11) {
	case 0:
		return Stuck
	case 1:
		return cluster.Pods{Start: func() time.Duration { return long }}
	case 2:
		return cluster.Pods{Crash: crash}
	case 3:
		return cluster.Pods{Crash: crash, Flaps: true}
	default:
		return Healthy
	}
}
