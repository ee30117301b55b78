package main

import (
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// timeline is one release as a watch saw it. Moments are those of this process's clock.
type timeline interface {
	// observe takes in a state of an object of the release.
	observe(at time.Time, object *unstructured.Unstructured) error
	// changeTemplate is told when the API server had acknowledged the new version; nothing before it counts.
	changeTemplate(at time.Time)
	// phase is how far it is, for people.
	phase() string
	// isIdle says that what was made first serves, and over that everything that belongs to the change has happened.
	isIdle() bool
	isFinished() bool
	// breakdown divides the time of a release that succeeded, or says why it cannot.
	breakdown(s settings) (timeBreakdown, error)
}

// timeBreakdown say what the time of one release was spent on. Total is the sum of Windows, Cluster, Drain and Lateness, and
// Lateness that of Noticing, Starting, Stepping, Promoting and Ending.
type timeBreakdown struct {
	// Total is from the acknowledged change until the new version is what everybody gets: phase Succeeded, or Healthy.
	Total time.Duration
	// Windows is the observation that was asked for.
	Windows time.Duration
	// Cluster is the time in which pods were made, and nothing else was to be done.
	Cluster time.Duration
	// Drain is the time for which pods without traffic were kept.
	Drain time.Duration
	// Lateness is the rest: what Serin, and the API server under it, took.
	Lateness time.Duration

	// Noticing is from the change to the first status that knows of it, Starting from there to the first window, Stepping
	// what the windows took longer than was asked for. A Canary is promoted by a copy: Promoting is from the ready primary to
	// the drain, Ending from the end of the drain on.
	Noticing, Starting, Stepping, Promoting, Ending time.Duration
}

// setIfZero keeps the earliest moment at which something was seen.
func setIfZero(moment *time.Time, at time.Time) {
	if moment.IsZero() {
		*moment = at
	}
}
