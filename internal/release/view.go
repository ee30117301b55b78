package release

import (
	"slices"
	"strings"
	"time"
)

// View describes one release to users. The state machine of each kind creates it from the same snapshot and with the
// same functions as its decisions; commands format it and derive nothing, except for the remaining time of a running analysis.
type View struct {
	// Phase of the status; empty if no controller has observed the release.
	Phase string
	// Since is when the release entered its phase; zero: unknown.
	Since  time.Time
	State  State
	Result Result
	// Message of the status about its phase, or about what blocks the release.
	Message string
	// Revision is the newest revision of the release, Promoted the one that serves users.
	Revision, Promoted string
	// PromotionFailed is true if the last release failed during its promotion, so that the new revision still serves
	// users.
	PromotionFailed bool
	// TimedOut is true if the release exceeded its progress deadline and was not aborted: it continues only if its pods become
	// available later.
	TimedOut bool
	// Weight is the share of requests that the route currently sends to the new revision, in percent.
	Weight int
	// Mirrored is true while requests are copied to the new revision.
	Mirrored bool
	// Step is the current one of TotalSteps: an iteration of a Canary, a step of a Rollout. Both are 0 without steps.
	Step, TotalSteps int
	// Window is the open observation window; nil: none is open.
	Window *Window
	// Gates are the conditions before the next transition, in the order in which they are evaluated.
	Gates []GateView
	// ApprovalGates are the names of all gates of the plan that may wait for an approval, in any release.
	ApprovalGates []string
	// Upcoming are the steps that follow if nothing fails and nothing but time delays the release; none while the
	// release is idle, or while another controller acts on it.
	Upcoming []Step
}

// State of a release. Its values are part of the output of commands.
type State string

// The states.
const (
	// Idle: there is nothing to release.
	Idle State = "at-rest"
	// InProgress: the release continues without user action.
	InProgress State = "moving"
	// RollingBack: traffic returns to the previous revision.
	RollingBack State = "returning"
	// WaitsForUser: the release continues only after user action.
	WaitsForUser State = "waits-for-person"
)

// Result of the last release.
type Result string

// The results. A release in progress has none.
const (
	Promoted   Result = "promoted"
	RolledBack Result = "failed"
)

// Window is the observation of one weight or iteration.
type Window struct{ Start, End time.Time }

// Step is a future action of a release.
type Step struct {
	Text string
	// Weight is the share of requests that the new revision receives afterwards, in percent.
	Weight int
	// At is the earliest time of the action.
	At time.Time
}

// GateView is a gate as users see it: with additional information from the stored status.
type GateView struct {
	Gate

	// Kind of the gate; zero if only a newer version of Serin writes the gate.
	Kind GateKind
	// Request is the content of the query of the gate, also before the query is sent; nil: the gate has none. Its type
	// belongs to the kind of release.
	Request any
	// LastVerdict is the verdict on the previous answer while the next answer is pending.
	LastVerdict Verdict
	// Since is the time of the last change of the verdict; zero: unknown.
	Since time.Time
	// Run is the AnalysisRun that the gate evaluates; empty: none.
	Run string
}

// WaitsForUser reports whether one of the gates requires user action.
func (v *View) WaitsForUser() bool {
	return slices.ContainsFunc(v.Gates, func(g GateView) bool { return g.Verdict != Pass && g.Opener == ByUser })
}

// TimedGatesOpenAt returns the time at which all gates that time opens are open: the earliest time of the next step of a Rollout. That
// of a Canary is the first one of Upcoming.
func (v *View) TimedGatesOpenAt(now time.Time) time.Time {
	at := now
	for _, gate := range v.Gates {
		if gate.Verdict != Pass && gate.Opener == ByTime && !gate.Kind.Informational {
			at = LaterOf(at, gate.Until)
		}
	}
	return at
}

// GateKind describes one gate of a state machine. Each machine lists its own (canary.GateKinds, rollout.GateKinds). The
// views, the commands, docs/gates.md and the tests use these lists, so that no other list of names exists.
type GateKind struct {
	// Name as in docs/gates.md: HOOK is a placeholder for the name of a webhook, METRIC for that of a metric.
	Name string
	// Openers are all openers of the gate, without those of its query: an answer, and the cluster before the query is
	// sent. None for a gate that always passes.
	Openers []Opener
	// Sections are the anchors of the headings in docs/gates.md below which the gate is described.
	Sections []string
	// Command is the serin command with which the user opens the gate; empty: the message describes the action.
	Command string
	// Queries is true if the gate sends a query.
	Queries bool
	// OncePerRun is true if an approval is valid until the end of the release, and not only for one window.
	OncePerRun bool
	// Informational is true if the gate delays no step of the release, even while it does not pass.
	Informational bool
	// Observes is the part of the snapshot that the gate depends on.
	Observes Part
}

// Part is a part of a snapshot that the user of a command may have no permission to read. A snapshot without it
// contains the values that follow from the status.
type Part string

// The parts of a snapshot.
const (
	WorkloadPart Part = "workload"
	RoutePart    Part = "route"
)

const (
	hookPlaceholder   = "HOOK"
	metricPlaceholder = "METRIC"
)

// describes reports whether a gate with that name is of this kind.
func (k GateKind) describes(name string) bool {
	if prefix, ok := strings.CutSuffix(k.Name, hookPlaceholder); ok {
		return strings.HasPrefix(name, prefix)
	}
	return k.Name == name
}

// GateKinds is the list of all gates of one state machine.
type GateKinds []GateKind

// Of returns the kind of the gate with that name; zero: the list does not contain it.
func (k GateKinds) Of(name string) GateKind {
	i := slices.IndexFunc(k, func(kind GateKind) bool { return kind.describes(name) })
	if i < 0 {
		return GateKind{}
	}
	return k[i]
}

// OfMetric returns the kind of the gates that are named after metrics.
func (k GateKinds) OfMetric() GateKind { return k.Of(metricPlaceholder) }
