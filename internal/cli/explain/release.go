// Package explain says of one release where it stands, what it waits for, who opens that, and what follows.
//
// It knows values only: a snapshot, the gates that the status holds, events, a moment. It must not know clients, clocks
// or terminals, and it never decides: what a release does is what canary.Next says.
package explain

import "time"

// Release is what is known of one release. It is the document that commands print with -o json and -o yaml; fields are
// added to it, never renamed or removed. Moments are in UTC.
type Release struct {
	// Name and Namespace of the Canary.
	Name      string `json:"name"`
	Namespace string `json:"namespace"`
	// Target is the workload, as kind/name.
	Target string `json:"target"`
	// Provider carries the traffic.
	Provider string `json:"provider"`
	// Strategy is canary, ab-testing or blue-green.
	Strategy string `json:"strategy"`

	// Phase as the status has it; empty for a Canary that no controller has looked at.
	Phase string `json:"phase"`
	// State says in one word whether somebody has to do something.
	State State `json:"state"`
	// Result is how the last release ended, as far as it has ended.
	Result Result `json:"result,omitempty"`
	// Message is the sentence of the status for its phase, or for what blocks the release.
	Message string `json:"message,omitempty"`
	// Since is when the release entered its phase.
	Since time.Time `json:"since,omitzero"`
	// Suspended is true while spec.suspend is.
	Suspended bool `json:"suspended,omitempty"`
	// Deleting is true once the Canary was deleted and gives back what it took over.
	Deleting bool `json:"deleting,omitempty"`

	// Weight is the canary's share of the requests in per cent, as the route has it now.
	Weight int `json:"weight"`
	// Mirrored is true while requests are copied to the canary.
	Mirrored bool `json:"mirrored,omitempty"`
	// Iterations are the windows of an A/B test or blue/green release that were begun; TotalIterations are those asked
	// for, 0 for other strategies.
	Iterations      int `json:"iterations"`
	TotalIterations int `json:"totalIterations,omitempty"`
	// FailedChecks so far; Threshold of them take the release back.
	FailedChecks int `json:"failedChecks"`
	Threshold    int `json:"threshold"`

	// Revision is the revision of the target that was last taken up, Promoted the one that the primary runs.
	Revision string `json:"revision,omitempty"`
	Promoted string `json:"promoted,omitempty"`
	// Run identifies this attempt to bring the revision into service.
	Run string `json:"run,omitempty"`

	// Window is the observation that is open, if one is.
	Window *Window `json:"window,omitempty"`
	// Gates are the conditions before the next move, in the order in which they are looked at.
	Gates []Gate `json:"gates,omitempty"`
	// NextStep is what happens when all gates pass; empty at rest.
	NextStep string `json:"nextStep,omitempty"`
	// Steps are all moves that follow if nothing fails and nobody has to be waited for.
	Steps []Step `json:"steps,omitempty"`

	// Events of the run, oldest first, as far as Kubernetes still has them.
	Events []Event `json:"events,omitempty"`
	// Unread says what the person who asks may not read, one sentence each; what is said above then comes from the
	// status alone.
	Unread []string `json:"unread,omitempty"`
}

// State of a release.
type State string

// The states.
const (
	// AtRest: nothing is to be released.
	AtRest State = "at-rest"
	// Moving: it goes on by itself.
	Moving State = "moving"
	// Returning: it is being taken back.
	Returning State = "returning"
	// WaitsForPerson: it goes on when a person does something.
	WaitsForPerson State = "waits-for-person"
)

// Result of the last release.
type Result string

// The results. While a release moves there is none.
const (
	Promoted Result = "promoted"
	Failed   Result = "failed"
)

// Window is the observation of one weight or iteration.
type Window struct {
	// Start is when what is observed was in place, End when the checks are asked.
	Start time.Time `json:"start"`
	End   time.Time `json:"end"`
}

// Gate is one condition before the next move.
type Gate struct {
	// Name of the gate, for example canary-ready, window, success-rate.
	Name string `json:"name"`
	// Verdict is pass, ask, wait or fail. A gate that puts a question waits until its turn, and asks while the answer is
	// out; see Last for what was answered before.
	Verdict string `json:"verdict"`
	// Message says what was seen, as a sentence without a full stop.
	Message string `json:"message,omitempty"`
	// Opener is who or what opens the gate: time, cluster, answer or person. Empty when it passes.
	Opener string `json:"opener,omitempty"`
	// Check is true for an entry of spec.analysis.metrics.
	Check bool `json:"check,omitempty"`
	// Asks is whom the question goes to: a webhook without its query, a metric template, a Prometheus.
	Asks string `json:"asks,omitempty"`
	// Do is what a person can do to open the gate.
	Do string `json:"do,omitempty"`
	// Value was measured last, Limit is what it is compared with, Query what gave it, with its variables resolved.
	Value string `json:"value,omitempty"`
	Limit string `json:"limit,omitempty"`
	Query string `json:"query,omitempty"`
	// Last is what the last answer was judged as, pass or fail, where the verdict is about the next one.
	Last string `json:"last,omitempty"`
	// Since is since when the verdict holds, where that is known.
	Since time.Time `json:"since,omitzero"`
	// Until is when time opens the gate, when it is asked again, or the deadline of what is awaited.
	Until time.Time `json:"until,omitzero"`
}

// Step is one move of a release.
type Step struct {
	// Text says the move, for example: weight 40.
	Text string `json:"text"`
	// Weight is the canary's share of requests afterwards, in per cent.
	Weight int `json:"weight"`
	// At is the earliest moment at which it can happen.
	At time.Time `json:"at"`
}

// Event is something that people were told.
type Event struct {
	// At is when it was told last.
	At time.Time `json:"at"`
	// Type is Normal or Warning.
	Type    string `json:"type"`
	Message string `json:"message"`
	// Count is how often it was told.
	Count int `json:"count,omitempty"`
}

// First is the first gate that does not pass, nil when all do.
func (r *Release) First() *Gate {
	for i := range r.Gates {
		if r.Gates[i].Verdict != "pass" {
			return &r.Gates[i]
		}
	}
	return nil
}

// Person is the first gate that a person opens, nil when there is none.
func (r *Release) Person() *Gate {
	for i := range r.Gates {
		if r.Gates[i].Verdict != "pass" && r.Gates[i].Opener == "person" {
			return &r.Gates[i]
		}
	}
	return nil
}

// FullName names the Canary as events do.
func (r *Release) FullName() string { return r.Name + "." + r.Namespace }

// Controller is what was found out about whether somebody acts on releases at all.
type Controller struct {
	// State says how sure that is.
	State ControllerState `json:"state"`
	// Message names the signs, or says what was looked for in vain, in a sentence without a full stop.
	Message string `json:"message"`
}

// ControllerState says whether a controller runs.
type ControllerState string

// The states of a controller.
const (
	// Running: it holds its lease, or its pods are ready.
	Running ControllerState = "running"
	// Active: it wrote a status a moment ago, from wherever it runs.
	Active ControllerState = "active"
	// NotFound: none of these signs is there. One that runs outside of the cluster, without a lease, leaves no sign while
	// it has nothing to do.
	NotFound ControllerState = "not-found"
	// Unknown: the signs may not be read.
	Unknown ControllerState = "unknown"
)

// Note is what a person must know of the controller before all else; empty when it runs.
func (c Controller) Note() string {
	switch c.State {
	case NotFound:
		return "No running controller was found (" + c.Message + "). What is said here is what one would do."
	case Unknown:
		return "Whether a controller runs is not known (" + c.Message + ")."
	default:
		return ""
	}
}
