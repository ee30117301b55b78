// Package explain describes one release to users: its progress, the gates that it waits for, who opens them, and the next steps.
//
// It only formats the views of the state machines (canary.View, rollout.View); it makes no decisions about a release. It knows
// values, and must not know clients, clocks or terminals.
package explain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/labels"

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
	// Provider is the component that splits the traffic: replicas for a Rollout that splits requests by the number of its pods,
	// service for one that switches Services.
	Provider string `json:"provider"`
	// Strategy is canary, ab-testing or blue-green.
	Strategy string `json:"strategy"`

	// Phase of the status; empty for a release that no controller has observed.
	Phase string `json:"phase"`
	// State summarizes the release, in particular whether it requires user action.
	State release.State `json:"state"`
	// Result of the last release; empty while it is in progress.
	Result release.Result `json:"result,omitempty"`
	// TimedOut is true for a Rollout that exceeded its progress deadline and was not aborted. It counts as failed, although it
	// continues if its pods become available later.
	TimedOut bool `json:"timedOut,omitempty"`
	// Message is the message of the status about the phase, or about the reason why the release is blocked.
	Message string `json:"message,omitempty"`
	// Since is the time at which the release entered its phase.
	Since time.Time `json:"since,omitzero"`
	// Suspended is true while spec.suspend of a Canary or spec.paused of a Rollout is true.
	Suspended bool `json:"suspended,omitempty"`
	// Deleting is true once the object was deleted; a Canary then restores the original objects.
	Deleting bool `json:"deleting,omitempty"`

	// Weight is the share of requests that the route sends to the new revision now, in percent.
	Weight int `json:"weight"`
	// Mirrored is true while requests are copied to the canary.
	Mirrored bool `json:"mirrored,omitempty"`
	// Iterations is the number of observation windows that an A/B test or blue/green release has opened; TotalIterations is the
	// desired number, 0 for other strategies.
	Iterations      int `json:"iterations"`
	TotalIterations int `json:"totalIterations,omitempty"`
	// Step is the current step of a Rollout, counted from 1; TotalSteps is the number of steps.
	Step       int `json:"step,omitempty"`
	TotalSteps int `json:"totalSteps,omitempty"`
	// FailedChecks is the number of failed checks; at Threshold, the release is rolled back. Both are 0 for a Rollout, whose
	// metrics have a limit each.
	FailedChecks int `json:"failedChecks"`
	Threshold    int `json:"threshold"`

	// Revision is the last released revision of the target; PromotedRevision is the one that the primary or the stable ReplicaSet
	// runs.
	Revision         string `json:"revision,omitempty"`
	PromotedRevision string `json:"promoted,omitempty"`
	// PromotionFailed is true if the last release failed during its promotion, so that the canary still serves users.
	PromotionFailed bool `json:"promotionFailed,omitempty"`
	// LastFailure is the last release of a Canary, if it failed.
	LastFailure *PastRelease `json:"lastFailure,omitempty"`
	// PrimaryMissing is true for a Canary whose primary does not exist, for example before it is initialized.
	PrimaryMissing bool `json:"primaryMissing,omitempty"`
	// Run identifies this attempt to release the revision.
	Run string `json:"run,omitempty"`

	// Window is the current observation window.
	Window *Window `json:"window,omitempty"`
	// Gates are the conditions before the next transition, in the order in which they are evaluated.
	Gates []Gate `json:"gates,omitempty"`
	// NextStep is what happens when all gates pass; empty while the release is idle.
	NextStep string `json:"nextStep,omitempty"`
	// Steps are all remaining steps, provided that nothing fails and that the release waits only for time.
	Steps []Step `json:"steps,omitempty"`

	// PodProblems describe what prevents pods of a revision from running, one problem for each revision.
	PodProblems []PodProblem `json:"podProblems,omitempty"`

	// Events are the events of the release, and the commands that led to it, that Kubernetes has not deleted yet, oldest first.
	Events []Event `json:"events,omitempty"`
	// Tree is only set if it was requested.
	Tree *Tree `json:"tree,omitempty"`
	// Unread has one sentence for each kind of object that the user has no permission to read; information about them comes from
	// the status.
	Unread []string `json:"unread,omitempty"`

	// approvalGates are the names of the gates of the plan that may wait for an approval.
	approvalGates []string
	// wasHealthy is true for a Rollout of which a revision had all its pods at some time.
	wasHealthy bool
}

// HasFailed reports whether the last release failed: it was rolled back or aborted, or has exceeded its progress deadline.
func (r *Release) HasFailed() bool {
	return r.TimedOut || r.State == release.Idle && r.Result == release.RolledBack
}

// ApprovalGates returns the names of the gates of the plan that may wait for an approval in a release.
func (r *Release) ApprovalGates() []string { return r.approvalGates }

// AwaitsApprovalOf reports whether the release waits for the approval of a gate.
func (r *Release) AwaitsApprovalOf(gate string) bool {
	return slices.ContainsFunc(r.Gates, func(g Gate) bool { return g.Name == gate && g.AwaitsApproval() })
}

// Window is the interval during which one weight or iteration is observed.
type Window struct {
	// Start is the time at which the route had the weight; End is the time at which the checks are queried.
	Start time.Time `json:"start"`
	End   time.Time `json:"end"`
}

// Gate is one condition before the next transition.
type Gate struct {
	// Name of the gate, for example canary-ready, window, success-rate.
	Name string `json:"name"`
	// Verdict is pass, ask, wait or fail. The verdict of a query is wait until the gates before it pass, and then ask until the
	// query is answered; for the previous answer, see LastVerdict.
	Verdict string `json:"verdict"`
	// Message describes the observed state in a sentence without a full stop.
	Message string `json:"message,omitempty"`
	// Opener names what opens the gate: time, cluster, answer or person (the user); empty if the gate passes. A gate that passes
	// with the opener person is a notice: the user should correct what its message describes.
	Opener string `json:"opener,omitempty"`
	// Check is true for an entry of spec.analysis.metrics.
	Check bool `json:"check,omitempty"`
	// QueryReceiver is the receiver of the query: a webhook (its URL without the query part), a metric template or a Prometheus.
	QueryReceiver string `json:"asks,omitempty"`
	// UserAction is a command, or the description of an action, with which the user opens the gate.
	UserAction string `json:"do,omitempty"`
	// Value is the last measured value, Limit the limit of the check, and Query the query with resolved variables.
	Value string `json:"value,omitempty"`
	Limit string `json:"limit,omitempty"`
	Query string `json:"query,omitempty"`
	// LastVerdict is the verdict on the previous answer, pass or fail, while the next answer is pending.
	LastVerdict string `json:"last,omitempty"`
	// Since is the time of the last change of the verdict; zero: unknown.
	Since time.Time `json:"since,omitzero"`
	// Until is the time at which the gate opens, its query is repeated, or its deadline ends.
	Until time.Time `json:"until,omitzero"`
	// Otherwise describes what happens to a gate that is still closed at Until.
	Otherwise string `json:"otherwise,omitempty"`

	// command is the verb of the command that opens the gate; empty: none does.
	command string
}

// AwaitsApproval reports whether the gate is closed until the user or a webhook approves the next step.
func (g *Gate) AwaitsApproval() bool { return g.waitsForUser() && g.NeedsApproval() }

// NeedsApproval reports whether the user or a webhook has to approve the next step, although the gate may be evaluated later.
func (g *Gate) NeedsApproval() bool {
	return g.Verdict != string(release.Pass) && g.command == "promote"
}

// Step is one remaining step of a release.
type Step struct {
	// Text describes the step, for example: weight 40.
	Text string `json:"text"`
	// Weight is the share of requests of the new revision after the step, in percent.
	Weight int `json:"weight"`
	// At is the earliest time of the step.
	At time.Time `json:"at"`
}

// PodProblem describes what prevents the pods of one revision from running, by the first pod that fails.
type PodProblem struct {
	// Revision is canary or primary for a Canary, new or stable for a Rollout.
	Revision string `json:"revision"`
	Pod      string `json:"pod"`
	// Container and Image are those of the failing container; empty: the pod as a whole fails.
	Container string `json:"container,omitempty"`
	Image     string `json:"image,omitempty"`
	// Reason is the reason that Kubernetes reports, for example ImagePullBackOff.
	Reason string `json:"reason"`
	// Message is the message of the kubelet, the image registry or the scheduler.
	Message string `json:"message,omitempty"`
}

// Summary describes the problem without its message, as the beginning of a sentence.
func (p PodProblem) Summary() string {
	text := "Pod " + p.Pod + " of the " + p.Revision + " revision: "
	if p.Revision == "canary" || p.Revision == "primary" {
		text = "Pod " + p.Pod + " of the " + p.Revision + ": "
	}
	if p.Container != "" {
		text += "container " + p.Container
		if p.Image != "" {
			text += " (image " + p.Image + ")"
		}
		text += ": "
	}
	return text + p.Reason
}

// newRelease returns the description of a release with the fields that its view determines.
func newRelease(v release.View, shared SharedObservation, bounds eventBounds) Release {
	r := Release{
		Phase: v.Phase, State: v.State, Result: v.Result, Message: v.Message, Since: toUTC(v.Since), TimedOut: v.TimedOut,
		Weight: v.Weight, Mirrored: v.Mirrored, Revision: v.Revision, PromotedRevision: v.Promoted, PromotionFailed: v.PromotionFailed,
		PodProblems: shared.PodProblems, Events: eventsOfRelease(shared.Events, bounds), Unread: slices.Clone(shared.Unread),
		approvalGates: v.ApprovalGates,
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

// missingObjectActions are the remedies for objects that a Canary names and that do not exist, by gate. The messages of these gates
// are those of Flagger, which have none.
var missingObjectActions = map[string]string{
	"target":     "create it, or correct spec.targetRef",
	"autoscaler": "create it, or correct spec.autoscalerRef",
}

// newGate formats a gate, with the command with which the user opens it.
func newGate(view release.GateView, r *Release, other OtherController) Gate {
	g := Gate{
		Name: view.Name, Verdict: string(view.Verdict), Message: view.Message, Opener: string(view.Opener),
		Value: view.Value, Limit: view.Limit, Query: view.Query, LastVerdict: string(view.LastVerdict), Since: toUTC(view.Since), Until: toUTC(view.Until), Otherwise: view.Otherwise,
		command: view.Kind.Command,
	}
	switch {
	case !g.waitsForUser():
	case view.Kind.Command != "":
		g.UserAction = fmt.Sprintf("serin %s %s/%s -n %s", view.Kind.Command, strings.ToLower(string(r.Kind)), r.Name, r.Namespace)
	case g.Name == otherControllerGate:
		g.UserAction = other.StopCommand
	case r.Kind == KindCanary && strings.HasSuffix(g.Message, "not found"):
		g.UserAction = missingObjectActions[g.Name]
	}
	return g
}

// nameApprovals replaces the command that promotes by the one that approves one gate, and records it with its name. With several
// approvals for the same step of a Canary, that command is refused, because it would skip the others.
func (r *Release) nameApprovals() {
	var approvals []*Gate
	for i := range r.Gates {
		if r.Gates[i].NeedsApproval() {
			approvals = append(approvals, &r.Gates[i])
		}
	}
	if r.Kind == KindCanary && len(approvals) > 1 {
		return
	}
	for _, g := range approvals {
		if g.AwaitsApproval() {
			g.UserAction = fmt.Sprintf("serin approve %s/%s %s -n %s", strings.ToLower(string(r.Kind)), r.Name, shellWord(g.Name), r.Namespace)
		}
	}
}

// completeMessages replaces the messages that a gate of the status contains without their middle, because their length is limited there,
// by the complete text in a condition or an event.
func (r *Release) completeMessages(conditions []string) {
	texts := slices.Clone(conditions)
	for _, event := range slices.Backward(r.Events) {
		texts = append(texts, event.Message)
	}
	for i := range r.Gates {
		beginning, end, isCut := strings.Cut(r.Gates[i].Message, release.Ellipsis)
		if !isCut || beginning == "" {
			continue
		}
		for _, text := range texts {
			_, rest, begins := strings.Cut(text, beginning)
			at := strings.LastIndex(rest, end)
			if !begins || at < 0 {
				continue
			}
			if complete := beginning + rest[:at] + end; complete != r.Gates[i].Message {
				r.Gates[i].Message = complete
				break
			}
		}
	}
}

// waitsForUser reports whether the gate is closed until the user opens it.
func (g *Gate) waitsForUser() bool {
	return g.Verdict != string(release.Pass) && g.Opener == string(release.ByUser)
}

// IsNotice reports whether the gate passes although the user should correct something.
func (g *Gate) IsNotice() bool {
	return g.Verdict == string(release.Pass) && g.Opener == string(release.ByUser)
}

// toUTC converts a time to UTC; the zero time is unchanged.
func toUTC(t time.Time) time.Time {
	if t.IsZero() {
		return time.Time{}
	}
	return t.UTC()
}

// ClosedGate returns the first gate that does not pass; nil: all pass.
func (r *Release) ClosedGate() *Gate {
	for i := range r.Gates {
		if r.Gates[i].Verdict != "pass" {
			return &r.Gates[i]
		}
	}
	return nil
}

// DeadlineGate returns the gate of the progress deadline, or else the first gate that does not pass; nil: all pass.
func (r *Release) DeadlineGate() *Gate {
	if i := slices.IndexFunc(r.Gates, func(g Gate) bool { return g.Name == deadlineGate }); i >= 0 {
		return &r.Gates[i]
	}
	return r.ClosedGate()
}

// UserGate returns the first gate that the user must open; nil: there is none.
func (r *Release) UserGate() *Gate {
	for i := range r.Gates {
		if r.Gates[i].waitsForUser() {
			return &r.Gates[i]
		}
	}
	return nil
}

// FullName returns the name of the release in texts: NAME.NAMESPACE as in Flagger's events, with the kind for a Rollout.
func (r *Release) FullName() string {
	name := r.Name + "." + r.Namespace
	if r.Kind == KindRollout {
		return "Rollout " + name
	}
	return name
}

// Argument returns the name of the release as an argument of commands.
func (r *Release) Argument() string {
	if r.Kind == KindRollout {
		return "rollout/" + r.Name
	}
	return r.Name
}

// Key returns the key of the release.
func (r *Release) Key() Key { return Key{r.Kind, r.Namespace, r.Name} }

// Kind is a kind of release, or of an object of a release that users command separately.
type Kind string

// The kinds.
const (
	KindCanary  Kind = "Canary"
	KindRollout Kind = "Rollout"

	KindAnalysisRun Kind = "AnalysisRun"
	KindExperiment  Kind = "Experiment"
)

// Resource returns the singular resource with its group, as kubectl prints it.
func (k Kind) Resource() string {
	if k == KindCanary {
		return "canary.flagger.app"
	}
	return strings.ToLower(string(k)) + ".argoproj.io"
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

// Version identifies the observed state that a description depends on. In addition, a description depends on the time.
type Version struct {
	// Object is the resource version of the observed object.
	Object string
	// Observed is the time at which the related objects were observed.
	Observed time.Time
}

// Observation is the observed state of one release.
type Observation interface {
	// Key identifies the release.
	Key() Key
	// Version identifies the observed state.
	Version() Version
	// Shared returns the part that releases of every kind have.
	Shared() SharedObservation
	// WithShared returns a copy of the observation with another shared part.
	WithShared(shared SharedObservation) Observation
	// Tree returns the tree of the release at that time. The objects are those that the observation does not contain.
	Tree(objects TreeObjects, now time.Time) Tree
	// Images returns the images of both revisions, as far as they are known.
	Images() Images
	// QueueState returns whether the release may start; nil: the number of releases in progress is not limited, or unknown.
	QueueState() *release.QueueState
	// QueueEntry returns whether the release is in progress or waits for its start, according to its status.
	QueueEntry() release.QueueEntry
	// TimedGates returns the gates in the status for which the next step waits until a time.
	TimedGates() []TimedGate
	// Measurements returns the values of the checks of the described release that the cluster retains.
	Measurements(r *Release) []Series
	// Describe describes the release at that time.
	Describe(now time.Time) Release
}

// SharedObservation is the part of an observation that releases of every kind have.
type SharedObservation struct {
	// Unread has one sentence for each kind of object that could not be read.
	Unread []string
	// Events are the events about the release, oldest first.
	Events []Event
	// OtherController is the controller that acts on the release instead of Serin.
	OtherController OtherController
	// UnreadyPods select the pods of revisions that are not ready. PodProblems are the problems of those pods.
	UnreadyPods []labels.Selector
	PodProblems []PodProblem
}

// Shared implements Observation.
func (s SharedObservation) Shared() SharedObservation { return s }

// OtherController describes a controller that acts on a release instead of Serin.
type OtherController struct {
	// Sign describes how it was detected, as part of a sentence; empty: there is no other controller.
	Sign string
	// Until is the time at which the sign expires; zero: never.
	Until time.Time
	// StopCommand is the command that stops it; empty: unknown.
	StopCommand string
}

// Controller reports whether a controller acts on the releases.
type Controller struct {
	// State is the state of the controller, as far as it is known.
	State ControllerState `json:"state"`
	// Message names the signs that were found or searched for, in a sentence without a full stop.
	Message string `json:"message"`
}

// ControllerState describes whether a controller runs.
type ControllerState string

// The states of a controller.
const (
	// Running: it holds its lease, or its pods are ready.
	Running ControllerState = "running"
	// Active: it wrote a status recently; it may run outside the cluster.
	Active ControllerState = "active"
	// NotFound: there is no sign of a controller. One that runs outside the cluster without a lease cannot be detected while it is
	// idle.
	NotFound ControllerState = "not-found"
	// Unknown: there is no permission to look for it.
	Unknown ControllerState = "unknown"
)

// Note returns the message that commands print first if no running controller is known; empty while one runs.
func (c Controller) Note() string {
	switch c.State {
	case NotFound:
		return "No running controller was found (" + c.Message + "). The following is computed from the current state of the cluster."
	case Unknown:
		return "It is unknown whether a controller is running (" + c.Message + ")."
	default:
		return ""
	}
}
