package explain

import (
	"reflect"
	"strings"
	"time"
)

// List is the document of get -o json and -o yaml. Fields are added to it, never renamed or removed.
type List struct {
	// Controller reports whether a controller acts on the releases.
	Controller Controller `json:"controller"`
	// Releases are sorted by namespace, name and kind, or have the order of the names in the arguments.
	Releases []Release `json:"releases"`
	// Unread has one sentence for each kind of release that the user has no permission to list.
	Unread []string `json:"unread,omitempty"`
}

// Explanation is the document of why -o json and -o yaml. Fields are added to it, never renamed or removed.
type Explanation struct {
	// Controller reports whether a controller acts on the release.
	Controller Controller `json:"controller"`
	// Sentences explain why the release is waiting, or its state if it is not waiting; one paragraph each.
	Sentences []string `json:"sentences"`
	// Release is the explained release.
	Release Release `json:"release"`
}

// FleetRelease is one release in the list of the dashboard. Fields are added to it, never renamed or removed.
type FleetRelease struct {
	Kind      Kind   `json:"kind"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Group is what the release requires.
	Group Group `json:"group"`
	// Phase of the status, Strategy and Provider as in Release.
	Phase    string `json:"phase"`
	Strategy string `json:"strategy"`
	Provider string `json:"provider"`
	// Images are those of the revision that serves users, and of the new one.
	Images Images `json:"images,omitzero"`
	// Weight is the share of requests that the route sends to the new revision now, in percent.
	Weight   int  `json:"weight"`
	Mirrored bool `json:"mirrored,omitempty"`
	// Step counts from 1. It is the current step of a Rollout, or the observation window of an A/B test; TotalSteps is their number.
	Step       int `json:"step,omitempty"`
	TotalSteps int `json:"totalSteps,omitempty"`
	// Weights are those of the remaining steps, in percent.
	Weights      []int `json:"weights,omitempty"`
	FailedChecks int   `json:"failedChecks"`
	Threshold    int   `json:"threshold"`
	// Checks are the verdicts on the last answers of its checks.
	Checks []FleetCheck `json:"checks,omitempty"`
	// Gate is the first gate that the release waits for, or else empty; Opener as in Gate. Text describes it, or the result of the
	// last release, in a sentence without a full stop. Until is the time at which the gate opens, or its deadline ends.
	Gate   string    `json:"gate,omitempty"`
	Opener string    `json:"opener,omitempty"`
	Text   string    `json:"text"`
	Until  time.Time `json:"until,omitzero"`
	// Since is the time since which it waits, or since which it has had its phase.
	Since time.Time `json:"since,omitzero"`
	// End is the earliest end of the release if nothing fails; zero: it is idle, or not known.
	End       time.Time `json:"end,omitzero"`
	Suspended bool      `json:"suspended,omitempty"`
	// Place in the queue; nil: the release is not in the queue, or its place is unknown.
	Place *Place `json:"place,omitempty"`
}

// FleetCheck is the verdict on the last answer of a check: pass, fail, or empty if there was no answer yet.
type FleetCheck struct {
	Name    string `json:"name"`
	Verdict string `json:"verdict,omitempty"`
}

// NewFleetRelease summarizes a described release.
func NewFleetRelease(observed Observation, r *Release) FleetRelease {
	f := FleetRelease{
		Kind: r.Kind, Namespace: r.Namespace, Name: r.Name, Group: GroupOf(r), Phase: r.Phase, Strategy: r.Strategy, Provider: r.Provider,
		Images: observed.Images(), Weight: r.Weight, Mirrored: r.Mirrored, Step: r.Step, TotalSteps: r.TotalSteps,
		FailedChecks: r.FailedChecks, Threshold: r.Threshold, Suspended: r.Suspended, Since: waitsSince(r), Text: fleetText(r),
	}
	if len(f.Images.New) == 0 && r.LastFailure != nil {
		f.Images.New = r.LastFailure.Images
	}
	if r.TotalIterations > 0 {
		f.Step, f.TotalSteps = r.Iterations, r.TotalIterations
	}
	for i, step := range r.Steps {
		f.Weights = append(f.Weights, step.Weight)
		if i == len(r.Steps)-1 {
			f.End = step.At
		}
	}
	for _, gate := range r.Gates {
		if !gate.Check {
			continue
		}
		check := FleetCheck{Name: gate.Name, Verdict: gate.LastVerdict}
		if gate.Verdict == "pass" || gate.Verdict == "fail" {
			check.Verdict = gate.Verdict
		}
		f.Checks = append(f.Checks, check)
	}
	if gate := r.awaitedGate(); gate != nil {
		f.Gate, f.Opener, f.Until = gate.Name, gate.Opener, gate.Until
	}
	if queue := observed.QueueState(); f.Group == Queued && queue != nil && queue.Position > 0 {
		f.Place = &Place{Position: queue.Position, Waiting: queue.Waiting}
	}
	return f
}

// awaitedGate returns the gate that the release waits for: the first one that the user opens, or else the first closed one; nil: it
// waits for nothing.
func (r *Release) awaitedGate() *Gate {
	if gate := r.UserGate(); gate != nil {
		return gate
	}
	return r.ClosedGate()
}

// fleetText describes what a release waits for, or else its state. It contains no relative times, which would be outdated soon.
func fleetText(r *Release) string {
	gate := r.awaitedGate()
	switch {
	case len(r.PodProblems) > 0:
		return strings.TrimSuffix(r.PodProblems[0].Summary(), ".")
	case gate != nil && gate.Message != "":
		return strings.TrimSuffix(joinLines(gate.Message), ".") + valueText(*gate)
	case gate != nil:
		return gate.Name + valueText(*gate)
	case r.LastFailure != nil && r.LastFailure.Cause != nil:
		return strings.TrimSuffix(joinLines(r.LastFailure.Cause.Message), ".")
	case r.NextStep != "":
		return "Next: " + r.NextStep
	default:
		return strings.TrimSuffix(joinLines(r.Message), ".")
	}
}

// Equal reports whether two summaries are the same, apart from the end, which moves while a release waits.
func (f FleetRelease) Equal(other FleetRelease) bool {
	f.End = other.End
	return reflect.DeepEqual(f, other)
}
