// Package explain describes one release to users: its progress, what it waits for, who opens that, and what follows.
//
// It formats the views of the state machines (canary.View, rollout.View), and derives nothing about a release. It knows values only.
// It must not know clients, clocks or terminals.
package explain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/serin-dev/serin/internal/release"
)

// Release describes one release. It is the document that commands print with -o json and -o yaml; fields are added to it, never
// renamed or removed. Times are in UTC.
type Release struct {
	// Kind is Canary or Rollout.
	Kind Kind `json:"kind"`
	// Name and Namespace of the object.
	Name      string `json:"name"`
	Namespace string `json:"namespace"`
	// Target is the workload, as kind/name; for a Rollout without workloadRef, the Rollout.
	Target string `json:"target"`
	// Provider divides the traffic.
	Provider string `json:"provider"`
	// Strategy is canary, ab-testing or blue-green. Provider is replicas for a Rollout that divides requests by the number of its
	// pods, and service for one that switches Services.
	Strategy string `json:"strategy"`

	// Phase of the status; empty for a release that no controller has observed.
	Phase string `json:"phase"`
	// State summarizes whether user action is required.
	State release.State `json:"state"`
	// Result of the last release; empty while it is in progress.
	Result release.Result `json:"result,omitempty"`
	// Message of the status about its phase, or about what blocks the release.
	Message string `json:"message,omitempty"`
	// Since is when the release entered its phase.
	Since time.Time `json:"since,omitzero"`
	// Suspended is true while spec.suspend is.
	Suspended bool `json:"suspended,omitempty"`
	// Deleting is true once the object was deleted; a Canary then restores the original objects.
	Deleting bool `json:"deleting,omitempty"`

	// Weight is the share of requests of the new revision, in percent, as the route has it now.
	Weight int `json:"weight"`
	// Mirrored is true while requests are copied to the canary.
	Mirrored bool `json:"mirrored,omitempty"`
	// Iterations is the number of windows of an A/B test or blue/green release that were opened; TotalIterations is the desired
	// number, 0 for other strategies.
	Iterations      int `json:"iterations"`
	TotalIterations int `json:"totalIterations,omitempty"`
	// Step is the current step of a Rollout, counted from 1; TotalSteps is their number.
	Step       int `json:"step,omitempty"`
	TotalSteps int `json:"totalSteps,omitempty"`
	// FailedChecks so far; at Threshold, the release is rolled back. A Rollout has none: each of its metrics has a limit.
	FailedChecks int `json:"failedChecks"`
	Threshold    int `json:"threshold"`

	// Revision is the last released revision of the target, Promoted the one that the primary runs.
	Revision string `json:"revision,omitempty"`
	Promoted string `json:"promoted,omitempty"`
	// PromotionFailed is true if the last release failed during its promotion, so that the new revision still serves.
	PromotionFailed bool `json:"promotionFailed,omitempty"`
	// Run identifies this attempt to release the revision.
	Run string `json:"run,omitempty"`

	// Window is the current observation window.
	Window *Window `json:"window,omitempty"`
	// Gates are the conditions before the next transition, in the order in which they are evaluated.
	Gates []Gate `json:"gates,omitempty"`
	// NextStep is what happens when all gates pass; empty while the release is idle.
	NextStep string `json:"nextStep,omitempty"`
	// Steps are all following steps, if nothing fails and the release waits only for time.
	Steps []Step `json:"steps,omitempty"`

	// Events of the release, oldest first, as far as Kubernetes still has them.
	Events []Event `json:"events,omitempty"`
	// Unread are the objects that the user has no permission to read, one sentence each; information about them comes from the
	// status.
	Unread []string `json:"unread,omitempty"`
}

// Window is the observation of one weight or iteration.
type Window struct {
	// Start is when the route had the weight, End when the checks are queried.
	Start time.Time `json:"start"`
	End   time.Time `json:"end"`
}

// Gate is one condition before the next transition.
type Gate struct {
	// Name of the gate, for example canary-ready, window, success-rate.
	Name string `json:"name"`
	// Verdict is pass, ask, wait or fail. A query waits until the gates before it pass, and asks until it is answered; see Last for
	// the previous answer.
	Verdict string `json:"verdict"`
	// Message describes the observed state, as a sentence without a full stop.
	Message string `json:"message,omitempty"`
	// Opener is what opens the gate: time, cluster, answer or person. Empty when it passes.
	Opener string `json:"opener,omitempty"`
	// Check is true for an entry of spec.analysis.metrics.
	Check bool `json:"check,omitempty"`
	// Asks is the receiver of the query: a webhook without the query of its URL, a metric template, a Prometheus.
	Asks string `json:"asks,omitempty"`
	// Do is what the user can do to open the gate.
	Do string `json:"do,omitempty"`
	// Value was measured last, Limit is what it is compared with, Query is its query with resolved variables.
	Value string `json:"value,omitempty"`
	Limit string `json:"limit,omitempty"`
	Query string `json:"query,omitempty"`
	// Last is the verdict on the previous answer, pass or fail, while the next one is awaited.
	Last string `json:"last,omitempty"`
	// Since is the time since which the verdict applies; zero: unknown.
	Since time.Time `json:"since,omitzero"`
	// Until is when time opens the gate, when its query is repeated, or the deadline.
	Until time.Time `json:"until,omitzero"`
	// Otherwise is what happens at the deadline while the gate is closed.
	Otherwise string `json:"otherwise,omitempty"`
}

// Step is something that a release does after everything before it is complete.
type Step struct {
	// Text describes the step, for example: weight 40.
	Text string `json:"text"`
	// Weight is the share of requests of the new revision afterwards, in percent.
	Weight int `json:"weight"`
	// At is the earliest time at which it can happen.
	At time.Time `json:"at"`
}

// Event is a Kubernetes event about the release.
type Event struct {
	// At is when it occurred last.
	At time.Time `json:"at"`
	// Type is Normal or Warning.
	Type    string `json:"type"`
	Message string `json:"message"`
	// Count is how often it occurred.
	Count int `json:"count,omitempty"`
}

// describe begins the document of a release with what its view shows. firstEvent is how the first event of a release begins.
func describe(v release.View, around Context, firstEvent string) Release {
	r := Release{
		Phase: v.Phase, State: v.State, Result: v.Result, Message: v.Message, Since: utc(v.Since),
		Weight: v.Weight, Mirrored: v.Mirrored, Revision: v.Revision, Promoted: v.Promoted, PromotionFailed: v.PromotionFailed,
		Events: eventsSince(around.Events, firstEvent), Unread: slices.Clone(around.Unread),
	}
	if v.Window != nil {
		r.Window = &Window{Start: v.Window.Start.UTC(), End: v.Window.End.UTC()}
	}
	for _, step := range v.Upcoming {
		step.At = step.At.UTC()
		r.Steps = append(r.Steps, Step(step))
	}
	if len(r.Steps) > 0 {
		r.NextStep = r.Steps[0].Text
	}
	return r
}

// eventsSince are the events from the newest one that begins with a text.
func eventsSince(events []Event, beginning string) []Event {
	for i, event := range slices.Backward(events) {
		if strings.HasPrefix(event.Message, beginning) {
			return slices.Clone(events[i:])
		}
	}
	return slices.Clone(events)
}

// newGate formats a gate, with the command by which the user opens it.
func newGate(view release.GateView, r *Release, other OtherController) Gate {
	g := Gate{
		Name: view.Name, Verdict: string(view.Verdict), Message: view.Message, Opener: string(view.Opener),
		Value: view.Value, Limit: view.Limit, Query: view.Query, Last: string(view.LastVerdict), Since: utc(view.Since), Until: utc(view.Until), Otherwise: view.Otherwise,
	}
	switch {
	case !g.opensByUser():
	case view.Kind.Command != "":
		g.Do = fmt.Sprintf("serin %s %s/%s -n %s", view.Kind.Command, strings.ToLower(string(r.Kind)), r.Name, r.Namespace)
	case g.Name == peerGate:
		g.Do = other.Stop
	}
	return g
}

// opensByUser reports whether the gate is closed and the user opens it.
func (g *Gate) opensByUser() bool {
	return g.Verdict != string(release.Pass) && g.Opener == string(release.ByUser)
}

// utc converts a time for documents.
func utc(t time.Time) time.Time {
	if t.IsZero() {
		return time.Time{}
	}
	return t.UTC()
}

// ClosedGate is the first gate that does not pass; nil if all do.
func (r *Release) ClosedGate() *Gate {
	for i := range r.Gates {
		if r.Gates[i].Verdict != "pass" {
			return &r.Gates[i]
		}
	}
	return nil
}

// UserGate is the first gate that the user must open; nil if there is none.
func (r *Release) UserGate() *Gate {
	for i := range r.Gates {
		if r.Gates[i].opensByUser() {
			return &r.Gates[i]
		}
	}
	return nil
}

// FullName is the name of the release in texts: as in events for a Canary, with its kind for a Rollout.
func (r *Release) FullName() string {
	name := r.Name + "." + r.Namespace
	if r.Kind == KindRollout {
		return "Rollout " + name
	}
	return name
}

// Argument is the name of the release as an argument of commands.
func (r *Release) Argument() string {
	if r.Kind == KindRollout {
		return "rollout/" + r.Name
	}
	return r.Name
}

// Key identifies the release.
func (r *Release) Key() Key { return Key{r.Kind, r.Namespace, r.Name} }

// Kind of release.
type Kind string

// The kinds.
const (
	KindCanary  Kind = "Canary"
	KindRollout Kind = "Rollout"
)

// Resource is the kind as in kubectl, with its group.
func (k Kind) Resource() string {
	if k == KindRollout {
		return "rollout.argoproj.io"
	}
	return "canary.flagger.app"
}

// Key identifies one release.
type Key struct {
	Kind            Kind
	Namespace, Name string
}

// Compare orders by namespace, name and kind.
func (k Key) Compare(other Key) int {
	return cmp.Or(strings.Compare(k.Namespace, other.Namespace), strings.Compare(k.Name, other.Name), cmp.Compare(k.Kind, other.Kind))
}

// Version identifies the observed state that a description depends on, in addition to its time.
type Version struct {
	// Object is the resource version of the observed object.
	Object string
	// Observed is when the objects around it were observed.
	Observed time.Time
}

// Observation is everything that was observed of one release.
type Observation interface {
	Key() Key
	Version() Version
	// SharedContext are what is observed for releases of every kind.
	SharedContext() Context
	// WithContext is the same observation with other surroundings.
	WithContext(around Context) Observation
	// Describe describes the release at that time.
	Describe(now time.Time) Release
}

// Context is what is observed for releases of every kind.
type Context struct {
	// Unread are the objects that could not be read, one sentence each.
	Unread []string
	// Events about the release, oldest first.
	Events []Event
	// OtherController acts on the release instead of Serin.
	OtherController OtherController
}

// SharedContext implements Observation.
func (a Context) SharedContext() Context { return a }

// OtherController is another controller that acts on a release, so that Serin does not.
type OtherController struct {
	// Sign is how it was detected, for the middle of a sentence; empty: there is none.
	Sign string
	// Until is when the sign expires; zero: never.
	Until time.Time
	// Stop is the command that stops it; empty: unknown.
	Stop string
}

// Controller describes whether a controller acts on the releases.
type Controller struct {
	// State of the controller, as far as it is known.
	State ControllerState `json:"state"`
	// Message names what was found, or what was searched for, in a sentence without a full stop.
	Message string `json:"message"`
}

// ControllerState is whether a controller runs.
type ControllerState string

// The states of a controller.
const (
	// Running: it holds its lease, or its pods are ready.
	Running ControllerState = "running"
	// Active: it wrote a status recently, from wherever it runs.
	Active ControllerState = "active"
	// NotFound: there is neither. A controller that runs outside the cluster, without a lease, cannot be detected while it is idle.
	NotFound ControllerState = "not-found"
	// Unknown: there is no permission to look for it.
	Unknown ControllerState = "unknown"
)

// Note is the first information for the user about the controller; empty while it runs.
func (c Controller) Note() string {
	switch c.State {
	case NotFound:
		return "No running controller was found (" + c.Message + "). This is what a controller would do."
	case Unknown:
		return "It is unknown whether a controller is running (" + c.Message + ")."
	default:
		return ""
	}
}
