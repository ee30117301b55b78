package main

import (
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The phases of a Canary that are measured.
const (
	initialized = "Initialized"
	progressing = "Progressing"
	finalising  = "Finalising"
	succeeded   = "Succeeded"
	failed      = "Failed"
)

// canaryStatus is the part of a Canary's status that tells the time.
type canaryStatus struct {
	Phase        string `json:"phase"`
	FailedChecks int    `json:"failedChecks"`
	Serin        struct {
		Window *struct {
			Start metav1.MicroTime `json:"start"`
		} `json:"window"`
		DrainUntil *metav1.MicroTime `json:"drainUntil"`
	} `json:"serin"`
}

// timeline is one release as a watch saw it. Moments are those of this process's clock, but for the starts of windows
// and the end of the drain, which Serin writes; both run on one machine. A moment that has not come is zero.
type timeline struct {
	// phase is the last one seen.
	phase        string
	failedChecks int
	// patched is when the API server had acknowledged the new version; nothing before it counts.
	patched     time.Time
	progressing time.Time
	// scaledUp and canaryReady enclose the time in which the cluster makes the canary's pods.
	scaledUp, canaryReady time.Time
	windows               []time.Time
	// copied and primaryReady enclose the time in which the cluster renews the primary's pods.
	copied, primaryReady time.Time
	drainUntil           time.Time
	ended                time.Time
}

// seeCanary takes in a status of the Canary.
func (t *timeline) seeCanary(at time.Time, s canaryStatus) {
	t.phase = s.Phase
	t.failedChecks = max(t.failedChecks, s.FailedChecks)
	switch s.Phase {
	case progressing:
		first(&t.progressing, at)
		if window := s.Serin.Window; window != nil && !slices.ContainsFunc(t.windows, window.Start.Time.Equal) {
			t.windows = append(t.windows, window.Start.Time)
		}
	case finalising:
		if s.Serin.DrainUntil != nil {
			t.drainUntil = s.Serin.DrainUntil.Time
		}
	case succeeded, failed:
		first(&t.ended, at)
	}
}

// seeTarget takes in a state of the Deployment that was changed.
func (t *timeline) seeTarget(at time.Time, d *appsv1.Deployment) {
	if image(d) != newVersion || *d.Spec.Replicas == 0 {
		return
	}
	first(&t.scaledUp, at)
	if ready(d) {
		first(&t.canaryReady, at)
	}
}

// seePrimary takes in a state of the copy that serves users.
func (t *timeline) seePrimary(at time.Time, d *appsv1.Deployment) {
	if image(d) != newVersion {
		return
	}
	first(&t.copied, at)
	if ready(d) {
		first(&t.primaryReady, at)
	}
}

// first keeps the earliest moment at which something was seen.
func first(moment *time.Time, at time.Time) {
	if moment.IsZero() {
		*moment = at
	}
}

func image(d *appsv1.Deployment) string { return d.Spec.Template.Spec.Containers[0].Image }

// ready says that all pods of a Deployment are of its newest template and available: from here on it is not the
// cluster that a release waits for.
func ready(d *appsv1.Deployment) bool {
	wanted, s := *d.Spec.Replicas, d.Status
	return s.ObservedGeneration >= d.Generation && s.UpdatedReplicas >= wanted && s.Replicas <= s.UpdatedReplicas && s.AvailableReplicas >= s.UpdatedReplicas
}

// parts say what the time of one release was spent on. Total is the sum of Windows, Cluster, Drain and Lateness, and
// Lateness that of Noticing, Starting, Stepping, Promoting and Ending.
type parts struct {
	// Total is from the acknowledged change to the phase Succeeded.
	Total time.Duration
	// Windows is the observation that was asked for.
	Windows time.Duration
	// Cluster is the time in which pods were made, and nothing else was to be done.
	Cluster time.Duration
	// Drain is the time for which pods without traffic were kept.
	Drain time.Duration
	// Lateness is the rest: what Serin, and the API server under it, took.
	Lateness time.Duration

	// Noticing is from the change to the phase Progressing, Starting from there to the first window, Stepping what the
	// windows took longer than was asked for, Promoting from the ready primary to the drain, Ending from the end of the
	// drain on.
	Noticing, Starting, Stepping, Promoting, Ending time.Duration
}

// parts divides the time of a release that succeeded.
func (t *timeline) parts(window time.Duration) (parts, error) {
	switch {
	case t.phase != succeeded:
		return parts{}, fmt.Errorf("it ended in phase %s with %d failed checks", t.phase, t.failedChecks)
	case t.patched.IsZero() || t.progressing.IsZero() || t.scaledUp.IsZero() || t.canaryReady.IsZero() || len(t.windows) == 0 || t.copied.IsZero() || t.primaryReady.IsZero() || t.drainUntil.IsZero():
		return parts{}, fmt.Errorf("a watch missed a part of it: %+v", *t)
	}
	opened := t.windows[0]
	drainFrom := t.drainUntil.Add(-drain)
	p := parts{
		Total:     t.ended.Sub(t.patched),
		Windows:   time.Duration(len(t.windows)) * window,
		Cluster:   t.canaryReady.Sub(t.scaledUp) + t.primaryReady.Sub(t.copied),
		Drain:     drain,
		Noticing:  t.progressing.Sub(t.patched),
		Starting:  t.scaledUp.Sub(t.progressing) + opened.Sub(t.canaryReady),
		Promoting: drainFrom.Sub(t.primaryReady),
		Ending:    t.ended.Sub(t.drainUntil),
	}
	p.Stepping = t.copied.Sub(opened) - p.Windows
	p.Lateness = p.Total - p.Windows - p.Cluster - p.Drain
	return p, nil
}
