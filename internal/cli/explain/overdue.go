package explain

import (
	"time"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/canary"
	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/internal/rollout"
)

// RecordedAfter is the time after which the status contains what a release waits for, at the latest: the controller does not write
// the status for shorter waits. Within it, an elapsed gate in the status does not mean that the controller is late.
const RecordedAfter = 30 * time.Second

// TimedGate is a gate in the status of a release that time opens.
type TimedGate struct {
	Name  string
	Until time.Time
}

// overdueSince returns the time at which the next step of a release was due, if the controller has recorded nothing since; zero: no
// step is overdue. The status does not contain when past steps were due, so their lateness is unknown.
//
// A step is due when the last of its timed gates has elapsed. At that time, the controller evaluates the release, and the gate of the
// status passes or is followed by what the step waits for instead, after RecordedAfter at the latest.
func overdueSince(r *Release, gates []TimedGate, otherController bool, now time.Time) time.Time {
	if r.Suspended || otherController || r.State == release.Idle {
		return time.Time{} // the controller does not act on it
	}
	var due time.Time
	for _, gate := range gates {
		due = release.LaterOf(due, gate.Until)
	}
	if due.IsZero() || now.Sub(due) <= RecordedAfter {
		return time.Time{}
	}
	return due
}

// TimedGates implements Observation.
func (observed *Canary) TimedGates() []TimedGate {
	var gates []argov1.GateStatus
	if own := observed.Snapshot.Status.Serin; own != nil {
		for _, gate := range own.Gates {
			gates = append(gates, argov1.GateStatus(gate))
		}
	}
	return timedGates(gates, canary.GateKinds())
}

// TimedGates implements Observation.
func (observed *Rollout) TimedGates() []TimedGate {
	var gates []argov1.GateStatus
	if own := observed.Snapshot.Status.Serin; own != nil {
		gates = own.Gates
	}
	return timedGates(gates, rollout.GateKinds())
}

// timedGates returns the gates that delay the next step until a time.
func timedGates(gates []argov1.GateStatus, kinds release.GateKinds) []TimedGate {
	var out []TimedGate
	for _, gate := range gates {
		if gate.Verdict == string(release.Wait) && gate.Opener == string(release.ByTime) && gate.Until != nil && !kinds.Of(gate.Name).Informational {
			out = append(out, TimedGate{gate.Name, gate.Until.Time})
		}
	}
	return out
}
