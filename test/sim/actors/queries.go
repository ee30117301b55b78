package actors

import (
	"github.com/serin-dev/serin/internal/queryrunner"
	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/test/sim"
)

// QuerySent reports that a process sent a query, and that it reached its receiver.
type QuerySent struct {
	Instance string
	Key      queryrunner.Key
	Query    release.Query
}

// QueryAnswered reports that an answer reached the process that sent the query.
type QueryAnswered struct {
	QuerySent

	Answer release.Answer
}

// The faults of metrics services.
const (
	MetricNoData sim.FaultClass = "metric-nodata"
	MetricNaN    sim.FaultClass = "metric-nan"
	MetricError  sim.FaultClass = "metric-error" // 5xx, 4xx, no connection
	MetricLate   sim.FaultClass = "metric-late"
	MetricHang   sim.FaultClass = "metric-hang"
	MetricStale  sim.FaultClass = "metric-stale" // the value is that of the previous version
)

// MetricFaults are all faults of metrics services.
var MetricFaults = []sim.FaultClass{MetricNoData, MetricNaN, MetricError, MetricLate, MetricHang, MetricStale}

// Pending counts the queries of each process that have no answer yet.
type Pending map[*sim.Instance]int

// Any reports whether a running process waits for an answer.
func (p Pending) Any(w *sim.World) bool {
	for _, i := range w.Instances() {
		if p[i] > 0 {
			return true
		}
	}
	return false
}

// DrawFault draws which of the faults affects an answer, or returns "". rate is the probability of each class that is included
// in the run.
func DrawFault(w *sim.World, s *sim.Stream, rate float64, classes ...sim.FaultClass) sim.FaultClass {
	var drawn sim.FaultClass
	for _, class := range classes {
		if s.Chance(rate) && drawn == "" && w.Faults.Has(class) && w.Faults.InjectDrawn(class) {
			drawn = class
		}
	}
	return drawn
}
