// Package explain says of one release where it stands, what it waits for, who opens that, and what follows.
//
// It knows values only: a snapshot, the gates that the status holds, events, a moment. It must not know clients, clocks
// or terminals, and it never decides: what a release does is what canary.Next says.
package explain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/serin-dev/serin/internal/release"
)

// Release is what is known of one release. It is the document that commands print with -o json and -o yaml; fields are
// added to it, never renamed or removed. Moments are in UTC.
type Release struct {
	// Kind is Canary or Rollout.
	Kind Kind `json:"kind"`
	// Name and Namespace of the object.
	Name      string `json:"name"`
	Namespace string `json:"namespace"`
	// Target is the workload, as kind/name. A Rollout without a workload of its own names itself.
	Target string `json:"target"`
	// Provider carries the traffic.
	Provider string `json:"provider"`
	// Strategy is canary, ab-testing or blue-green. Provider is replicas for a Rollout that shares requests by the number of
	// its pods, and service for one that switches Services.
	Strategy string `json:"strategy"`

	// Phase as the status has it; empty for a release that no controller has looked at.
	Phase string `json:"phase"`
	// State says in one word whether somebody has to do something.
	State release.State `json:"state"`
	// Result is how the last release ended, as far as it has ended.
	Result release.Result `json:"result,omitempty"`
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
	// Step is the current step of a Rollout, counted from 1; TotalSteps are those that it has.
	Step       int `json:"step,omitempty"`
	TotalSteps int `json:"totalSteps,omitempty"`
	// FailedChecks so far; Threshold of them take the release back. A Rollout has none: its metrics have limits of their own.
	FailedChecks int `json:"failedChecks"`
	Threshold    int `json:"threshold"`

	// Revision is the revision of the target that was last taken up, Promoted the one that the primary runs.
	Revision string `json:"revision,omitempty"`
	Promoted string `json:"promoted,omitempty"`
	// PromotionFailed is true where the last release failed during its promotion, so that the new revision still serves.
	PromotionFailed bool `json:"promotionFailed,omitempty"`
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

// describe begins the document of a release with what its view shows. firstEvent is how the first event of a release begins.
func describe(v release.View, around Around, firstEvent string) Release {
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
func newGate(view release.GateView, r *Release, peer Peer) Gate {
	g := Gate{
		Name: view.Name, Verdict: string(view.Verdict), Message: view.Message, Opener: string(view.Opener),
		Value: view.Value, Limit: view.Limit, Query: view.Query, Last: string(view.Last), Since: utc(view.Since), Until: utc(view.Until),
	}
	switch {
	case !g.opensByUser():
	case view.Kind.Command != "":
		g.Do = fmt.Sprintf("serin %s %s/%s -n %s", view.Kind.Command, strings.ToLower(string(r.Kind)), r.Name, r.Namespace)
	case g.Name == peerGate:
		g.Do = peer.Stop
	}
	return g
}

// opensByUser reports whether the gate is closed and the user opens it.
func (g *Gate) opensByUser() bool {
	return g.Verdict != string(release.Pass) && g.Opener == string(release.ByPerson)
}

// utc is a time as the documents have it.
func utc(t time.Time) time.Time {
	if t.IsZero() {
		return time.Time{}
	}
	return t.UTC()
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
		if r.Gates[i].opensByUser() {
			return &r.Gates[i]
		}
	}
	return nil
}

// FullName names the release: a Canary as events do, a Rollout with its kind before that.
func (r *Release) FullName() string {
	name := r.Name + "." + r.Namespace
	if r.Kind == KindRollout {
		return "Rollout " + name
	}
	return name
}

// Argument is how commands name the release.
func (r *Release) Argument() string {
	if r.Kind == KindRollout {
		return "rollout/" + r.Name
	}
	return r.Name
}

// Key names it.
func (r *Release) Key() Key { return Key{r.Kind, r.Namespace, r.Name} }

// Kind of release.
type Kind string

// The kinds.
const (
	KindCanary  Kind = "Canary"
	KindRollout Kind = "Rollout"
)

// Resource is the kind as kubectl names it, with its group.
func (k Kind) Resource() string {
	if k == KindRollout {
		return "rollout.argoproj.io"
	}
	return "canary.flagger.app"
}

// Key names one release.
type Key struct {
	Kind            Kind
	Namespace, Name string
}

// Compare orders by namespace, name and kind.
func (k Key) Compare(other Key) int {
	return cmp.Or(strings.Compare(k.Namespace, other.Namespace), strings.Compare(k.Name, other.Name), cmp.Compare(k.Kind, other.Kind))
}

// Version is what an explanation depends on, beside the moment that it is made for.
type Version struct {
	// Object is the version of the object that was seen.
	Object string
	// Looked is when all that is around it was looked at.
	Looked time.Time
}

// Seen is everything that was found out about one release.
type Seen interface {
	Key() Key
	Version() Version
	// Surroundings are what is known of a release of any kind.
	Surroundings() Around
	// In is the same with other surroundings.
	In(around Around) Seen
	// At says where the release stands at that moment.
	At(now time.Time) Release
}

// Around is what is known of a release of any kind.
type Around struct {
	// Unread says what could not be read, one sentence each.
	Unread []string
	// Events about the release, oldest first.
	Events []Event
	// Peer acts on the release in Serin's stead.
	Peer Peer
}

// Surroundings are these.
func (a Around) Surroundings() Around { return a }

// Peer is another controller that acts on a release while Serin stands back.
type Peer struct {
	// Sign of it, for the middle of a sentence; empty: there is none.
	Sign string
	// Until is when the sign is over by itself; zero: never.
	Until time.Time
	// Stop is the command that stops it; empty: none is known.
	Stop string
}

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
