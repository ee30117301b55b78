package canary

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/release"
)

// Decision is the result of Next: the status, effects, gates, queries and events.
type Decision = release.Decision[flaggerv1.CanaryStatus]

// FillStamps sets the times of a status that only the reconciler knows: at is when the last effect was applied.
func FillStamps(status *flaggerv1.CanaryStatus, plan Plan, stamps []release.Stamp, at time.Time) {
	if len(stamps) == 0 {
		return
	}
	if status.Serin == nil {
		status.Serin = &flaggerv1.SerinStatus{}
	}
	moment := metav1.NewMicroTime(at)
	for _, stamp := range stamps {
		switch stamp {
		case release.StampWindow:
			if status.Serin.Window == nil {
				status.Serin.Window = &flaggerv1.AnalysisWindow{}
			}
			status.Serin.Window.Start = moment
		case release.StampDrain:
			until := metav1.NewMicroTime(at.Add(plan.Drain))
			status.Serin.DrainUntil = &until
		case release.StampSince:
			status.Serin.Since = &moment
		case release.StampTrafficEnded:
			status.Serin.LastTraffic = &moment
		default: // a stamp of another kind of release
		}
	}
}

// wakeNoLaterThan brings the wake-up of a decision forward to latest; the zero time changes nothing.
func wakeNoLaterThan(d Decision, latest time.Time) Decision {
	if !latest.IsZero() && (d.Wake.IsZero() || latest.Before(d.Wake)) {
		d.Wake = latest
	}
	return d
}

// withAlert adds an alert to the last event, unless alerts are muted.
func withAlert(events []release.Event, muted bool, severity release.Severity, message string) []release.Event {
	if n := len(events); n > 0 && !muted {
		events[n-1].Alert = &release.Alert{Severity: severity, Message: message}
	}
	return events
}
