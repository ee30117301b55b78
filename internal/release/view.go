package release

import (
	"slices"
	"strings"
	"time"
)

// View is what users are shown of one release. The state machine of each kind makes it, from the same snapshot and with the same
// functions as its decisions; commands format it and derive nothing.
type View struct {
	// Phase of the status; empty for a release that no controller has observed.
	Phase string
	// Since is when the release entered its phase; zero: unknown.
	Since  time.Time
	State  State
	Result Result
	// Message of the status about its phase, or about what blocks the release.
	Message string
	// Revision is the newest one that was taken up, Promoted the one that serves users.
	Revision, Promoted string
	// PromotionFailed is true where the last release failed during its promotion, so that the new revision still serves.
	PromotionFailed bool
	// Weight is the share of requests of the new revision, in percent, as the route has it now.
	Weight int
	// Mirrored is true while requests are copied to the new revision.
	Mirrored bool
	// Step is the current one of TotalSteps: an iteration of a Canary, a step of a Rollout. Both are 0 where there are none.
	Step, TotalSteps int
	// Window is the open observation window; nil: none is open.
	Window *Window
	// Gates are the conditions before the next transition, in the order in which they are evaluated.
	Gates []GateView
	// Upcoming are the steps that follow if nothing fails and only time has to be waited for; none while the release is idle, or
	// while another controller acts on it.
	Upcoming []Step
}

// State of a release. The values are part of the documents that commands print.
type State string

// The states.
const (
	// Idle: there is nothing to release.
	Idle State = "at-rest"
	// InProgress: the release continues without user action.
	InProgress State = "moving"
	// RollingBack: traffic returns to the previous revision.
	RollingBack State = "returning"
	// WaitsForUser: the release continues after user action.
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

// Step is something that a release does after everything before it is complete.
type Step struct {
	Text string
	// Weight is the share of requests of the new revision afterwards, in percent.
	Weight int
	// At is the earliest time at which it can happen.
	At time.Time
}

// GateView is a gate as users see it: together with what the stored status adds to it.
type GateView struct {
	Gate

	// Kind of the gate; zero for one that only a newer version of Serin writes.
	Kind GateKind
	// Question is what the gate asks, also before its turn; nil: it asks nothing. Its type belongs to the kind of release.
	Question any
	// Last is the verdict on the previous answer, while the next one is awaited.
	Last Verdict
	// Since is the time since which the verdict applies; zero: unknown.
	Since time.Time
	// Run is the AnalysisRun that the gate evaluates; empty: none.
	Run string
}

// WaitsForUser reports whether the user has to open one of the gates.
func (v *View) WaitsForUser() bool {
	return slices.ContainsFunc(v.Gates, func(g GateView) bool { return g.Verdict != Pass && g.Opener == ByUser })
}

// EarliestStep is the time before which time alone prevents the next step.
func (v *View) EarliestStep(now time.Time) time.Time {
	at := now
	for _, gate := range v.Gates {
		if gate.Verdict != Pass && gate.Opener == ByTime && !gate.Kind.Informational {
			at = LaterOf(at, gate.Until)
		}
	}
	return at
}

// GateKind describes one gate of a state machine. Each machine lists its own (canary.GateKinds, rollout.GateKinds). The views,
// the commands, docs/gates.md and the tests of all of them use these lists, so that no list of names exists anywhere else.
type GateKind struct {
	// Name as docs/gates.md spells it: HOOK stands for the name of a webhook, METRIC for that of a metric.
	Name string
	// Openers are all that can open the gate; none for a gate that always passes. Those of its query are not among them: an
	// answer, and the cluster before the turn of the query.
	Openers []Opener
	// Sections are the anchors of the headings in docs/gates.md below which the gate is described.
	Sections []string
	// Command is the serin command with which the user opens the gate; empty: the message says what to do.
	Command string
	// Queries is true of a gate that sends a query.
	Queries bool
	// OncePerRun is true of a query whose approval is valid until the end of the release, and not only for one window.
	OncePerRun bool
	// Informational is true of a gate that delays no step of the release, even while it does not pass.
	Informational bool
	// Observes is the part of the snapshot that decides about the gate.
	Observes Part
}

// Part of a snapshot that the reader of a cluster may have no permission to read. A snapshot without it has values that the
// status implies.
type Part string

// The parts.
const (
	WorkloadPart Part = "workload"
	RoutePart    Part = "route"
)

const (
	hookPlaceholder   = "HOOK"
	metricPlaceholder = "METRIC"
)

// describes reports whether a gate of that name is of this kind.
func (k GateKind) describes(name string) bool {
	if prefix, ok := strings.CutSuffix(k.Name, hookPlaceholder); ok {
		return strings.HasPrefix(name, prefix)
	}
	return k.Name == name
}

// GateKinds is the list of all gates of one state machine.
type GateKinds []GateKind

// Of returns the kind of the gate with that name; zero: it is not in the list.
func (k GateKinds) Of(name string) GateKind {
	i := slices.IndexFunc(k, func(kind GateKind) bool { return kind.describes(name) })
	if i < 0 {
		return GateKind{}
	}
	return k[i]
}

// OfMetric returns the kind of the gates that are named after metrics.
func (k GateKinds) OfMetric() GateKind { return k.Of(metricPlaceholder) }
