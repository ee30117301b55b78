// Package eject decides how a release leaves Serin without an outage: which step is next, given what is observed.
//
// A step is taken only if the state after it serves, so that an ejection may be interrupted after each of them, and continues with
// the next observation. The package knows values only. It must not know clients, terminals, nor how a release decides.
package eject

import (
	"fmt"
	"slices"

	"github.com/serin-dev/serin/internal/cli/explain"
)

// Action is a kind of step.
type Action string

// Step is the next step of an ejection.
type Step struct {
	Action Action
	// Waits is true if nothing is to be done but to observe the release again.
	Waits bool
	// Text describes the step for the user: an action in the imperative, or what is waited for.
	Text string
}

// Release is the observation of a release that is to be ejected.
type Release interface {
	// Key returns the key of the release.
	Key() explain.Key
	// Next returns the next step. A *RefusedError means that the user must act first.
	Next() (Step, error)
	// after returns the release as it will be observed after a step.
	after(Step) Release
	// isGone reports whether the release does not exist any longer, according to after.
	isGone() bool
	// Summary describes what serves and what the user has to do after the ejection, one sentence each.
	Summary() []string
}

// RefusedError means that a release cannot be ejected in its state. Its text is a complete message for the user.
type RefusedError struct{ text string }

func (e *RefusedError) Error() string { return e.text }

// Refuse returns a *RefusedError about a release.
func Refuse(key explain.Key, format string, args ...any) error {
	return &RefusedError{fmt.Sprintf("%s %s in namespace %s cannot be ejected now: ", key.Kind, key.Name, key.Namespace) + fmt.Sprintf(format, args...)}
}

// maxSteps is more than any ejection has.
const maxSteps = 20

// Plan returns all remaining steps of an ejection if nothing else changes.
func Plan(r Release) ([]Step, error) {
	var steps []Step
	for !r.isGone() && len(steps) < maxSteps {
		step, err := r.Next()
		if err != nil {
			return nil, err
		}
		steps = append(steps, step)
		r = r.after(step)
	}
	return steps, nil
}

// Actions returns the steps that change something.
func Actions(steps []Step) []Step {
	return slices.DeleteFunc(slices.Clone(steps), func(s Step) bool { return s.Waits })
}

// controllerProblem returns the reason why no Serin would carry out its part; empty: there is one.
func controllerProblem(controller explain.Controller, other explain.OtherController, isSpecified bool) string {
	switch {
	case other.Sign != "":
		return fmt.Sprintf("another controller acts on it (%s): stop that controller, or follow docs/leaving.md", other.Sign)
	case controller.State == explain.NotFound && !isSpecified:
		return fmt.Sprintf("Serin must be running to return the traffic, and no running controller was found (%s): start it; "+
			"if it runs outside of this cluster, set --controller-flags; without Serin, follow docs/leaving.md", controller.Message)
	default:
		return ""
	}
}
