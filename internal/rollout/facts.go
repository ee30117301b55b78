package rollout

import (
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/internal/rollout/pods"
)

// facts contain what is known about a Rollout before any decision: the snapshot with a sanitized status, and the role
// of each ReplicaSet. They are computed once and never changed; every stage reads them.
type facts struct {
	// Snapshot with a sanitized status; stored is the status as it was read.
	Snapshot
	stored argov1.RolloutStatus
	// new is the ReplicaSet of the template, stable the one that serves users; both may be one, or missing. others are
	// neither.
	new, stable ReplicaSet
	others      []ReplicaSet
	// inWindow is true when the template returned to a revision within the rollback window.
	inWindow bool
}

func observe(s Snapshot) facts {
	f := facts{Snapshot: s, stored: s.Status}
	f.Status = sanitize(s)
	for _, rs := range s.Sets {
		switch {
		case rs.Hash != "" && rs.Hash == s.Hash:
			f.new = rs
		case rs.Hash != "" && rs.Hash == f.Status.StableRS:
			f.stable = rs
		default:
			f.others = append(f.others, rs)
		}
	}
	if f.new.exists() {
		f = f.withRevision(f.revision())
	}
	if f.new.exists() && f.new.Hash == f.Status.StableRS {
		f.stable = f.new
	}
	f.inWindow = withinRollbackWindow(f)
	return f
}

// withRevision sets the revision number of the new ReplicaSet, before an effect writes it.
func (f facts) withRevision(revision int64) facts {
	f.new.Revision = revision
	f.Sets = slices.Clone(f.Sets)
	for i := range f.Sets {
		if f.Sets[i].Name == f.new.Name {
			f.Sets[i].Revision = revision
		}
	}
	return f
}

func withinRollbackWindow(f facts) bool {
	if !f.distinct() || !f.new.exists() {
		return false
	}
	created := make([]time.Time, 0, len(f.Sets))
	for _, rs := range f.Sets {
		created = append(created, rs.Created)
	}
	return InRollbackWindow(f.Spec.RollbackWindow, f.new.Created, f.stable.Created, created)
}

// sanitize returns the status without contradictory values: users and other controllers write it too.
func sanitize(s Snapshot) argov1.RolloutStatus {
	status := *s.Status.DeepCopy()
	withoutFutureTimes(&status, s.Now)
	withoutPausesOfOtherStrategy(s.Spec.Strategy, &status)
	if promoted(status) && status.CurrentPodHash == s.Hash {
		status.Abort, status.PromoteFull = false, false // the release is complete: there is nothing to abort or to promote
	}
	if s.Spec.Strategy.Canary != nil {
		status.CurrentStepIndex = withinSteps(s.Spec.Strategy.Canary.Steps, status.CurrentStepIndex)
		withoutPauseOfOtherStep(s.Spec.Strategy.Canary.Steps, &status)
	}
	return status
}

// withoutPauseOfOtherStep removes the pause of a step while the current step is none: a user wrote it, and only the
// user could end it.
func withoutPauseOfOtherStep(steps []argov1.CanaryStep, status *argov1.RolloutStatus) {
	step, ok := pods.StepAt(steps, status.CurrentStepIndex)
	if !ok || step.Pause != nil || promoted(*status) || !pausedFor(*status, argov1.PauseReasonCanaryPauseStep) {
		return
	}
	*status = withoutPause(*status, argov1.PauseReasonCanaryPauseStep)
	if len(status.PauseConditions) == 0 {
		*status = withoutPauses(*status)
	}
}

// withoutFutureTimes replaces times in the future by the current time. They exist if a clock was set back after they
// were written; without the correction, pauses and deadlines would be longer by the difference.
func withoutFutureTimes(status *argov1.RolloutStatus, now time.Time) {
	for i := range status.PauseConditions {
		if c := &status.PauseConditions[i]; c.StartTime.After(now) {
			c.StartTime = metav1.NewTime(now)
		}
	}
	for i := range status.Conditions {
		if c := &status.Conditions[i]; c.LastUpdateTime.After(now) {
			c.LastUpdateTime = metav1.NewTime(now)
		}
	}
}

// withoutPausesOfOtherStrategy removes pauses that only the other strategy begins and ends: after a change of strategy
// nothing would end them. Their removal does not count as a promotion by the user.
func withoutPausesOfOtherStrategy(strategy argov1.RolloutStrategy, status *argov1.RolloutStatus) {
	var foreign []argov1.PauseReason
	switch {
	case strategy.BlueGreen != nil:
		foreign = []argov1.PauseReason{argov1.PauseReasonCanaryPauseStep, argov1.PauseReasonInconclusiveExperiment}
	case strategy.Canary != nil:
		foreign = []argov1.PauseReason{argov1.PauseReasonBlueGreenPause}
	}
	wasPaused := len(status.PauseConditions) > 0
	status.PauseConditions = slices.DeleteFunc(status.PauseConditions, func(c argov1.PauseCondition) bool { return slices.Contains(foreign, c.Reason) })
	if wasPaused && len(status.PauseConditions) == 0 {
		status.PauseConditions, status.ControllerPause = nil, false
	}
}

// withinSteps returns an index that names a step, or the position after the last one; users patch it. Nil without
// steps, and before a release has begun.
func withinSteps(steps []argov1.CanaryStep, index *int32) *int32 {
	if index == nil || len(steps) == 0 {
		return nil
	}
	return new(min(max(*index, 0), int32(len(steps)))) //nolint:gosec // a list in one object
}

func (rs ReplicaSet) exists() bool { return rs.Name != "" }

func (rs ReplicaSet) scaled() pods.Scaled { return pods.Scaled{Spec: rs.Spec, Available: rs.Available} }

// distinct reports whether a stable revision exists that is not the new one.
func (f facts) distinct() bool { return f.stable.exists() && f.stable.Hash != f.Hash }

func (f facts) replicas() int32 { return value(f.Spec.Replicas, 1) }

func (f facts) replicaSet(hash string) ReplicaSet {
	for _, rs := range f.Sets {
		if hash != "" && rs.Hash == hash {
			return rs
		}
	}
	return ReplicaSet{}
}

// selected is the hash that a Service selects.
func (f facts) selected(service string) string {
	return f.Services[service].Selector[argov1.PodTemplateHashLabel]
}

// usesRouter reports whether a router divides the traffic.
func (f facts) usesRouter() bool {
	c := f.Spec.Strategy.Canary
	return c != nil && c.TrafficRouting != nil
}

func (f facts) steps() []argov1.CanaryStep {
	if f.Spec.Strategy.Canary == nil {
		return nil
	}
	return f.Spec.Strategy.Canary.Steps
}

func (f facts) maxWeight() int32 { return pods.MaxWeight(f.Spec.Strategy.Canary) }

func (f facts) limits() pods.Limits {
	if b := f.Spec.Strategy.BlueGreen; b != nil {
		return pods.NewLimits(f.replicas(), nil, b.MaxUnavailable)
	}
	c := f.Spec.Strategy.Canary
	return pods.NewLimits(f.replicas(), c.MaxSurge, c.MaxUnavailable)
}

func (f facts) progress() pods.Progress {
	return pods.Progress{
		Steps: f.steps(), Index: f.Status.CurrentStepIndex, Aborted: f.Status.Abort,
		All: f.Status.PromoteFull || !f.distinct(),
	}
}

// revision is the number of the new ReplicaSet: above all others, whatever it was before.
func (f facts) revision() int64 {
	revision := f.new.Revision
	for _, rs := range f.Sets {
		if rs.Hash != f.Hash {
			revision = max(revision, rs.Revision+1)
		}
	}
	return max(revision, 1)
}

// frozen returns why nothing is scaled and no Service is switched; empty: nothing prevents it.
func (f facts) frozen() string {
	switch {
	case f.Spec.Paused:
		return "spec.paused is true"
	case pausedFor(f.Status, argov1.PauseReasonInconclusiveAnalysis):
		return "an analysis is inconclusive"
	default:
		return ""
	}
}

func pausedFor(status argov1.RolloutStatus, reason argov1.PauseReason) bool {
	return slices.ContainsFunc(status.PauseConditions, func(c argov1.PauseCondition) bool { return c.Reason == reason })
}

// rescaled reports whether spec.replicas changed since the pods were scaled last. Then only numbers of pods change.
func (f facts) rescaled() bool {
	outdated := func(rs ReplicaSet) bool { return rs.Spec > 0 && rs.Desired != nil && *rs.Desired != f.replicas() }
	return f.frozen() == "" && (outdated(f.new) || outdated(f.stable))
}

// changed reports whether the template or the steps differ from those of the release that the status describes.
func (f facts) changed() bool {
	retemplated := f.Status.CurrentPodHash != "" && f.Status.CurrentPodHash != f.Hash
	return retemplated || f.Spec.Strategy.Canary != nil && f.Status.CurrentStepHash != f.StepHash
}

// routerLags reports whether the router does not serve the configured weights yet, or load balancers do not reach the
// pods of the active Service yet.
func (f facts) routerLags() bool {
	return (f.usesRouter() || f.Spec.Strategy.BlueGreen != nil) && !value(f.Router.Confirmed, true)
}

// workloadGeneration is the generation of the workload that has the template; empty where the Rollout has it itself.
func (f facts) workloadGeneration() string {
	switch {
	case f.Spec.WorkloadRef == nil:
		return ""
	case f.Workload == nil:
		return f.WorkloadGeneration
	default:
		return f.Workload.Generation
	}
}

// outcome is the contribution of a stage to the decision, besides the value that the next stage takes. Effects are in
// groups, in the order in which they must be reached.
type outcome struct {
	// always are effects for every state, scaleUp effects that create pods, route effects that shift traffic and start or
	// end analyses, remove effects that remove what is unused by then.
	always, scaleUp, route, remove []release.Effect
	gates                          release.Gates
	events                         []release.Event
}

// join returns the contributions of stages, in order.
func join(stages ...outcome) outcome {
	var all outcome
	for _, s := range stages {
		all.always = append(all.always, s.always...)
		all.scaleUp = append(all.scaleUp, s.scaleUp...)
		all.route = append(all.route, s.route...)
		all.remove = append(all.remove, s.remove...)
		all.gates = append(all.gates, s.gates...)
		all.events = append(all.events, s.events...)
	}
	return all
}

func gated(gates ...release.Gate) outcome { return outcome{gates: gates} }

// decide returns a decision. If it changes the status, the Rollout is requeued at once and evaluated with the new
// status.
func decide(f facts, status argov1.RolloutStatus, o outcome) Decision {
	d := Decision{
		Status: status, Effects: slices.Concat(o.always, o.scaleUp, o.route, o.remove),
		Gates: o.gates, Events: o.events, Wake: o.gates.Wake(),
	}
	if !remembers(f.stored, status) {
		d.Wake = f.Now
	}
	return d
}

// generation is the observed generation of a status that is written now.
func (f facts) generation() string { return fmt.Sprint(f.Generation) }
