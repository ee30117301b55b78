package rollout

import (
	"github.com/serin-dev/serin/internal/analysis"
	"github.com/serin-dev/serin/internal/queryrunner"
)

// Asked reports that the question for a measurement left a process.
type Asked struct {
	Instance string
	Run      queryrunner.Key
	ID       string
	Question analysis.MeasurementRequest
}

// Answered reports that a measurement came back to the process that had asked.
type Answered struct {
	Instance string
	Run      queryrunner.Key
	ID       string
	Answer   analysis.MeasurementResult
}
