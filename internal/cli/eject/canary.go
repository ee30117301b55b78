package eject

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/cli/explain"
)

// The steps for a Canary, in their order. The traffic returns in the last one: until then the primary serves.
const (
	// RequestRevert sets spec.revertOnDeletion.
	RequestRevert Action = "request-revert"
	// AwaitFinalizer waits until the controller has added its finalizer.
	AwaitFinalizer Action = "await-finalizer"
	// Suspend sets spec.suspend, so that no release starts.
	Suspend Action = "suspend"
	// AwaitSuspended waits until the controller has reported that the Canary is suspended.
	AwaitSuspended Action = "await-suspended"
	// HandOver makes the objects that clients use independent of the Canary.
	HandOver Action = "hand-over"
	// RestoreTarget sets the template of the target to that of the primary.
	RestoreTarget Action = "restore-target"
	// Delete deletes the release.
	Delete Action = "delete"
	// AwaitGone waits until the release is gone.
	AwaitGone Action = "await-gone"
)

// suspendedGate is the gate with which the controller reports that a Canary is suspended.
const suspendedGate = "suspended"

// Rehearsal is the result of an action with a client that writes nothing.
type Rehearsal struct {
	// Objects are the objects that would be written, as kind and name.
	Objects []string
	// Problem is the reason why the action is impossible; empty: it is possible.
	Problem string
}

// Canary is the observation of a Canary that is to be ejected.
type Canary struct {
	explain.Canary

	Controller explain.Controller
	// ControllerSpecified is true if the user specified the flags of the controller, which implies that it runs.
	ControllerSpecified bool
	// HandOver and RestoreTarget are the rehearsals of these steps.
	HandOver, RestoreTarget Rehearsal

	gone bool
}

// target returns kind and name of the target.
func (c *Canary) target() string {
	return c.Object.Spec.TargetRef.Kind + " " + c.Object.Spec.TargetRef.Name
}

// primary returns kind and name of the primary.
func (c *Canary) primary() string { return c.target() + "-primary" }

// Next implements Release.
func (c *Canary) Next() (Step, error) {
	s := c.Snapshot
	if s.Deleting {
		return c.nextWhileDeleting()
	}
	if problem := c.problem(); problem != "" {
		return Step{}, Refuse(c.Key(), "%s", problem)
	}
	name := c.Object.Name
	switch {
	case !s.Plan.RevertOnDeletion:
		return Step{Action: RequestRevert, Text: "set spec.revertOnDeletion of Canary " + name}, nil
	case !s.Finalizer:
		return Step{Action: AwaitFinalizer, Waits: true, Text: "waiting until Serin has added its finalizer to Canary " + name}, nil
	case !s.Plan.Suspended:
		return Step{Action: Suspend, Text: "suspend Canary " + name + ", so that no release starts"}, nil
	case !c.isReportedSuspended():
		return Step{Action: AwaitSuspended, Waits: true, Text: "waiting until Serin has suspended Canary " + name}, nil
	case len(c.HandOver.Objects) > 0:
		return Step{Action: HandOver, Text: "make " + joinAnd(c.HandOver.Objects) + " independent of the Canary, so that its deletion does not delete them"}, nil
	case !s.Workload.SameTemplate:
		return Step{Action: RestoreTarget, Text: fmt.Sprintf("restore the template of %s, which serves, to %s: the last release failed", c.primary(), c.target())}, nil
	default:
		return Step{Action: Delete, Text: fmt.Sprintf("delete Canary %s: Serin scales up %s, returns all requests to it, and only then removes the primary", name, c.target())}, nil
	}
}

// nextWhileDeleting waits for the controller, which restores the original state before it removes its finalizer.
func (c *Canary) nextWhileDeleting() (Step, error) {
	if c.Snapshot.Finalizer && !c.Snapshot.Plan.RevertOnDeletion {
		return Step{}, Refuse(c.Key(), "it is being deleted without spec.revertOnDeletion: set it to true while the finalizer remains")
	}
	text := "waiting until Serin has returned all requests to " + c.target()
	own := c.Snapshot.Status.Serin
	if own == nil || c.Snapshot.Status.Phase != flaggerv1.CanaryPhaseTerminating {
		return Step{Action: AwaitGone, Waits: true, Text: text}, nil
	}
	isClosed := func(g flaggerv1.GateStatus) bool { return g.Verdict != "pass" && g.Message != "" }
	if i := slices.IndexFunc(own.Gates, isClosed); i >= 0 {
		text += ": " + own.Gates[i].Message
	}
	return Step{Action: AwaitGone, Waits: true, Text: text}, nil
}

// isReportedSuspended reports whether the controller has evaluated the Canary since it is suspended.
func (c *Canary) isReportedSuspended() bool {
	own := c.Snapshot.Status.Serin
	return own != nil && slices.ContainsFunc(own.Gates, func(g flaggerv1.GateStatus) bool { return g.Name == suspendedGate })
}

// problem returns the reason why the Canary cannot be ejected in its state; empty: it can.
func (c *Canary) problem() string {
	return cmp.Or(controllerProblem(c.Controller, c.OtherController, c.ControllerSpecified), c.blockedProblem(), c.progressProblem(), c.contentProblem())
}

// blockedProblem is about problems because of which the controller does not act on the Canary.
func (c *Canary) blockedProblem() string {
	s := c.Snapshot
	reasons := append([]string{s.TargetConflict, s.Workload.Problem, s.Workload.ScalerProblem, s.Route.Problem}, s.Plan.ValidationErrors...)
	for _, condition := range s.Status.Conditions {
		if condition.Type == flaggerv1.ConditionBlocked && condition.Status == corev1.ConditionTrue && !s.Plan.Suspended {
			reasons = append(reasons, condition.Message)
		}
	}
	if reason := cmp.Or(reasons...); reason != "" {
		return "Serin does not act on it, because of this problem, which must be fixed first: " + reason
	}
	return ""
}

// progressProblem is about a release that is in progress, or about to start.
func (c *Canary) progressProblem() string {
	s := c.Snapshot
	own := s.Status.Serin
	arguments := c.Object.Name + " -n " + c.Object.Namespace
	waitForEnd := "wait for its end with: serin watch " + arguments + " --until done"
	isPinned := own == nil || own.Revision == "" || own.Revision == s.Workload.Target.Revision
	switch s.Status.Phase {
	case flaggerv1.CanaryPhaseInitialized, flaggerv1.CanaryPhaseSucceeded, flaggerv1.CanaryPhaseFailed:
	case "", flaggerv1.CanaryPhaseInitializing:
		return "it is not initialized yet: wait with: serin watch " + arguments + " --until done"
	default:
		return fmt.Sprintf("a release is in progress (%s): %s, or roll it back with: serin abort %s", s.Status.Phase, waitForEnd, arguments)
	}
	switch {
	case own != nil && own.Queue != nil,
		!s.Workload.SameTemplate && (s.Status.Phase != flaggerv1.CanaryPhaseFailed || !isPinned):
		return fmt.Sprintf("%s has a version that was not released yet: %s; or undo the change of %s", c.target(), waitForEnd, c.target())
	case !s.Workload.SameTemplate && s.Route.Canary > 0:
		return fmt.Sprintf("the last release failed, and %d%% of the requests still reach %s: run serin why %s", s.Route.Canary, c.target(), arguments)
	default:
		return ""
	}
}

// contentProblem is about steps that are impossible.
func (c *Canary) contentProblem() string {
	s := c.Snapshot
	switch {
	case s.Plan.Suspended && !s.Finalizer:
		return fmt.Sprintf("it is suspended, so that Serin does not add its finalizer: run serin resume %s -n %s", c.Object.Name, c.Object.Namespace)
	case c.HandOver.Problem != "":
		return c.HandOver.Problem
	case !s.Workload.SameTemplate:
		return c.RestoreTarget.Problem
	default:
		return ""
	}
}

func (c *Canary) after(step Step) Release {
	next := *c
	s := &next.Snapshot
	switch step.Action {
	case RequestRevert:
		s.Plan.RevertOnDeletion = true
	case AwaitFinalizer:
		s.Finalizer = true
	case Suspend:
		s.Plan.Suspended = true
	case AwaitSuspended:
		status := s.Status.DeepCopy()
		if status.Serin == nil {
			status.Serin = &flaggerv1.SerinStatus{}
		}
		status.Serin.Gates = []flaggerv1.GateStatus{{Name: suspendedGate}}
		s.Status = *status
	case HandOver:
		next.HandOver = Rehearsal{}
	case RestoreTarget:
		s.Workload.SameTemplate = true
	case Delete:
		s.Deleting = true
	case AwaitGone:
		next.gone = true
	default: // a Canary has no other steps
	}
	return &next
}

func (c *Canary) isGone() bool { return c.gone }

// Summary implements Release.
func (c *Canary) Summary() []string {
	spec := c.Object.Spec
	out := []string{fmt.Sprintf("%s serves without Serin.", c.target())}
	if spec.AutoscalerRef != nil {
		out = append(out, fmt.Sprintf("%s %s scales it.", spec.AutoscalerRef.Kind, spec.AutoscalerRef.Name))
	}
	return append(out, fmt.Sprintf("Remove Canary %s from your manifests, so that it is not applied again.", c.Object.Name))
}

// joinAnd returns a list as part of a sentence.
func joinAnd(items []string) string {
	if len(items) < 2 {
		return strings.Join(items, "")
	}
	return strings.Join(items[:len(items)-1], ", ") + " and " + items[len(items)-1]
}
