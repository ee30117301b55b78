package canary

import (
	"slices"
	"time"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/release"
)

// keepStatus leaves the status unchanged, except that it removes a condition Blocked whose reason no longer exists. The condition
// of a refused step remains until the step is retried.
func keepStatus(s Snapshot, gates release.Gates, effects ...release.Effect) Decision {
	d := Decision{Status: s.Status, Effects: effects, Gates: gates, Queries: gates.Queries(), Wake: gates.Wake()}
	for _, gate := range gates {
		for _, event := range gate.Events {
			if event.Persistent {
				d.Events = append(d.Events, event)
			}
		}
	}
	blocked := findCondition(s.Status, flaggerv1.ConditionBlocked)
	if blocked != nil && blocked.Reason != reasonRefusedStep && !s.Deleting && !s.Plan.Suspended {
		e := s.edit()
		e.effects, e.events = d.Effects, d.Events
		return e.decision(gates)
	}
	return d
}

// wakeNoLaterThan brings the wake-up of a decision forward to latest; the zero time changes nothing.
func wakeNoLaterThan(d Decision, latest time.Time) Decision {
	if !latest.IsZero() && (d.Wake.IsZero() || latest.Before(d.Wake)) {
		d.Wake = latest
	}
	return d
}

// mutesAlerts reports whether the webhook of a gate has muteAlert set.
func (p *Plan) mutesAlerts(gateName string) bool {
	return slices.ContainsFunc(p.Hooks, func(hook flaggerv1.CanaryWebhook) bool {
		return hookGateName(hook) == gateName && hook.MuteAlert
	})
}

// withAlert adds an alert to the last event, unless alerts are muted.
func withAlert(events []release.Event, muted bool, severity release.Severity, message string) []release.Event {
	if n := len(events); n > 0 && !muted {
		events[n-1].Alert = &release.Alert{Severity: severity, Message: message}
	}
	return events
}
