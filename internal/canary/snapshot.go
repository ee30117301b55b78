package canary

import (
	"strconv"
	"time"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/release"
)

// Snapshot is the observed state of a Canary at one moment. Its methods are the facts that most stages need: about the
// traffic (traffic.go), the primary (primary.go), the revisions (revision.go), what is in progress (intent.go), the commands of
// the user (commands.go) and the IDs of a run (ids.go). All else that is derived from it is a function of its subject: a gate, a
// query, an effect, or a fact about one stage, such as an unfinished promotion (unfinished.go).
type Snapshot struct {
	Now        time.Time
	UID        string
	Generation int64
	Plan       Plan
	Status     flaggerv1.CanaryStatus
	// Deleting is true once the user deleted the Canary; Finalizer while it has Serin's finalizer.
	Deleting, Finalizer bool
	// TargetConflict is the message for the user if Serin must not act on this Canary although its plan is valid, because another
	// Canary or a Rollout releases its target; empty: no conflict.
	TargetConflict string
	// NextTarget is the target that spec.targetRef names, as kind/name, if Plan and Workload are those of the former target, which a
	// release still uses; empty: they are those of spec.targetRef. See WithFormerTarget.
	NextTarget string
	// OtherController is another controller that acts on this Canary.
	OtherController OtherController
	// MissingReferences are messages about referenced metric templates and Secrets that do not exist.
	MissingReferences []string
	// MissingAlertProviders are messages about alert providers that do not exist: the release runs, but their alerts are not sent.
	MissingAlertProviders []string
	// ApexFormerEndpoints is the number of endpoints that Kubernetes publishes for the apex Service although the Service no longer
	// selects them: those of the target during the initialization, and of the primary during the deletion. It is not observed in
	// other phases.
	ApexFormerEndpoints int32
	// Command is the user's command, as in CommandAnnotation; empty: none.
	Command string
	// CommandBy is the user who sent the command, and the reason; empty: not known.
	CommandBy string
	Workload  Workload
	Route     Route
	Answers   release.Answers
	// Queue contains whether this release may start in addition to those in progress; nil if their number is not limited.
	Queue *release.QueueState
}

// OtherController is a Flagger that acts on a Canary. Serin must not act on it at the same time: the two would revert each
// other's changes.
type OtherController struct {
	// Sign is the evidence for it, worded for the middle of a sentence; empty: there is no other controller.
	Sign string
	// Until is when that evidence expires; zero: never.
	Until time.Time
}

// Acts reports whether there is another controller.
func (o OtherController) Acts() bool { return o.Sign != "" }

// Confirmation reports whether the router serves the written route.
type Confirmation string

// The confirmations. Many routers report nothing.
const (
	Confirmed   Confirmation = "yes"
	Unconfirmed Confirmation = "no"
	CannotTell  Confirmation = "cannot-tell"
)

// Route is the observed route.
type Route struct {
	// Found is false when the route does not exist yet.
	Found bool
	// Problem is the reason why it cannot be read; empty: none.
	Problem string
	// Canary is the weight that the route has now, 0 to 100.
	Canary   int
	Mirrored bool
	// OtherMatches is true if that weight applies to other requests than the plan intends.
	OtherMatches bool
	Confirmation
	// Reason explains why the route is not confirmed.
	Reason string
	// Unreported is a parent of the route about which no router has reported.
	Unreported Unreported
}

// Unreported is a parent of a route, such as a Gateway, about which no router has reported in the status of the route. The zero
// value: there is none.
type Unreported struct {
	// Message describes the problem for users; empty: there is none.
	Message string
	// Since is the time from which the report is missing.
	Since time.Time
}

// serin returns status.serin; the zero value if there is none.
func (s *Snapshot) serin() flaggerv1.SerinStatus {
	if s.Status.Serin == nil {
		return flaggerv1.SerinStatus{}
	}
	return *s.Status.Serin
}

// clampToNow replaces a time in the future by now: a clock that was set back must not extend a window.
func (s *Snapshot) clampToNow(t time.Time) time.Time {
	if t.After(s.Now) {
		return s.Now
	}
	return t
}

// observationWindow is the observation window of the status; the zero value: none is open.
type observationWindow struct {
	open  bool
	start time.Time
	// unobserved is true for a window without a length: in the last window of blue/green without a router nothing changes for users,
	// so there is nothing to observe. A window that follows because of a failed check or a closed gate has the regular length,
	// because the check or the gate would otherwise be queried again at once, in a loop.
	unobserved bool
	length     time.Duration
}

// currentWindow returns the open observation window.
func (s *Snapshot) currentWindow() observationWindow {
	window := s.serin().Window
	if window == nil {
		return observationWindow{}
	}
	return observationWindow{open: true, start: window.Start.Time, unobserved: window.Unobserved, length: s.Plan.Interval}
}

// end returns the time from which the queries of the window may be sent; zero: at once.
func (w observationWindow) end() time.Time {
	if !w.open || w.unobserved {
		return time.Time{}
	}
	return w.start.Add(w.length)
}

// attempt identifies the window in the IDs of its queries.
func (w observationWindow) attempt() string {
	if !w.open {
		return "first"
	}
	return strconv.FormatInt(w.start.UnixMicro(), 36)
}
