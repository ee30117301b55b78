package main

import (
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// timeline is one release as observed by a watch. Times are from the clock of this process.
type timeline interface {
	// observe records a state of an object of the release.
	observe(at time.Time, object *unstructured.Unstructured) error
	// changeTemplate records when the API server acknowledged the new version. Earlier observations do not count.
	changeTemplate(at time.Time)
	// isShipped reports whether changeTemplate was called.
	isShipped() bool
	// isStarted reports whether a status contained the new version.
	isStarted() bool
	// phase is the progress of the release, for the log.
	phase() string
	// isIdle reports whether the first version serves, isFinished whether the release of the second one ended.
	isIdle() bool
	isFinished() bool
	// breakdown divides the time of a release that succeeded, or returns why it cannot.
	breakdown(s settings) (timeBreakdown, error)
}

// timeBreakdown contains the parts of the time of one release. Total is the sum of Windows, Cluster, Drain and Lateness, and
// Lateness that of Noticing, Starting, Stepping, Promoting and Ending.
type timeBreakdown struct {
	// Total is the time from the acknowledged change until all users have the new version: phase Succeeded, or Healthy.
	Total time.Duration
	// Windows is the configured observation time.
	Windows time.Duration
	// Cluster is the time in which only pods were created.
	Cluster time.Duration
	// Drain is the time for which pods without traffic were retained.
	Drain time.Duration
	// Lateness is the remaining time, caused by the controller and the API server.
	Lateness time.Duration

	// Noticing is from the change to the first status that knows of it, Starting from there to the first window, Stepping
	// what the windows took longer than was asked for. A Canary is promoted by a copy: Promoting is from the ready primary to
	// the drain, Ending from the end of the drain on.
	Noticing, Starting, Stepping, Promoting, Ending time.Duration
}

// setIfZero records the earliest time of an observation.
func setIfZero(moment *time.Time, at time.Time) {
	if moment.IsZero() {
		*moment = at
	}
}
