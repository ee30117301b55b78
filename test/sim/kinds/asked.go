package kinds

import "github.com/serin-dev/serin/test/sim"

// The troubles of metrics services.
const (
	MetricNoData sim.Class = "metric-nodata"
	MetricNaN    sim.Class = "metric-nan"
	MetricError  sim.Class = "metric-error" // 5xx, 4xx, no connection
	MetricLate   sim.Class = "metric-late"
	MetricHang   sim.Class = "metric-hang"
	MetricStale  sim.Class = "metric-stale" // the value is that of the version before
)

// MetricTroubles are all of them.
var MetricTroubles = []sim.Class{MetricNoData, MetricNaN, MetricError, MetricLate, MetricHang, MetricStale}

// Out counts the questions of each process that have no answer yet.
type Out map[*sim.Instance]int

// Waited is true while a process that lives waits for an answer.
func (o Out) Waited(w *sim.World) bool {
	for _, i := range w.Instances() {
		if o[i] > 0 {
			return true
		}
	}
	return false
}

// Strikes draws which of the troubles strikes an answer; empty: none does. often is how likely each of them is to, where it
// is in a history.
func Strikes(w *sim.World, s *sim.Stream, often float64, classes ...sim.Class) sim.Class {
	var struck sim.Class
	for _, class := range classes {
		if s.Chance(often) && struck == "" && w.Trouble.Has(class) && w.Trouble.Occurs(class) {
			struck = class
		}
	}
	return struck
}
