package actors

import (
	"github.com/serin-dev/serin/internal/queryrunner"
	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/test/sim"
)

// QuerySent reports that a query left a process and reached its receiver.
type QuerySent struct {
	Instance string
	Of       queryrunner.Key
	Query    release.Query
}

// QueryAnswered reports that an answer reached the process that had sent the query.
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
	MetricStale  sim.FaultClass = "metric-stale" // the value is that of the version before
)

// MetricFaults are all of them.
var MetricFaults = []sim.FaultClass{MetricNoData, MetricNaN, MetricError, MetricLate, MetricHang, MetricStale}

// Pending counts the questions of each process that have no answer yet.
type Pending map[*sim.Instance]int

// Any is true while a process that lives waits for an answer.
func (o Pending) Any(w *sim.World) bool {
	for _, i := range w.Instances() {
		if o[i] > 0 {
			return true
		}
	}
	return false
}

// DrawFault draws which of the faults strikes an answer; empty: none does. often is how likely each of them is to, where it
// is in a run.
func DrawFault(w *sim.World, s *sim.Stream, often float64, classes ...sim.FaultClass) sim.FaultClass {
	var struck sim.FaultClass
	for _, class := range classes {
		if s.Chance(often) && struck == "" && w.Faults.Has(class) && w.Faults.InjectDrawn(class) {
			struck = class
		}
	}
	return struck
}
