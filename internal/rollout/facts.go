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

// facts are the input of all stages: the snapshot with a sanitized status, and the role of each ReplicaSet. They are
// computed once. Two fields change afterwards: Next removes the place in the queue, and planTraffic updates pluginsUnconfirmed.
type facts struct {
	// Snapshot with a sanitized status, and the next revision of the new ReplicaSet; storedStatus and storedReplicaSets are as they were
	// read.
	Snapshot
	storedStatus      argov1.RolloutStatus
	storedReplicaSets []ReplicaSet
	// new is the ReplicaSet of the template, stable the one that serves users; they may be the same, or missing. others
	// have neither role.
	new, stable ReplicaSet
	others      []ReplicaSet
	// inRollbackWindow is true if the template returned to a revision within the rollback window.
	inRollbackWindow bool
	// pluginsUnconfirmed is true if a router plugin has not confirmed the route: that of the previous decision, or after
	// planTraffic that of this one.
	pluginsUnconfirmed bool
}

func observeFacts(s Snapshot) facts {
	f := facts{Snapshot: s, storedStatus: s.Status, storedReplicaSets: s.ReplicaSets}
	f.Status = sanitizeStatus(s)
	for _, rs := range s.ReplicaSets {
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
		f = f.withRevision(f.nextRevision())
	}
	if f.new.exists() && f.new.Hash == f.Status.StableRS {
		f.stable = f.new
	}
	f.inRollbackWindow = withinRollbackWindow(f)
	f.pluginsUnconfirmed = len(f.RouterPlugins) > 0 && !routeOfPlugins(f.Status).Confirmed
	return f
}

// withRevision sets the revision number of the new ReplicaSet, before an effect writes it.
func (f facts) withRevision(revision int64) facts {
	f.new.Revision = revision
	f.ReplicaSets = slices.Clone(f.ReplicaSets)
	for i := range f.ReplicaSets {
		if f.ReplicaSets[i].Name == f.new.Name {
			f.ReplicaSets[i].Revision = revision
		}
	}
	return f
}

func withinRollbackWindow(f facts) bool {
	if !f.hasDistinctStable() || !f.new.exists() {
		return false
	}
	created := make([]time.Time, 0, len(f.ReplicaSets))
	for _, rs := range f.ReplicaSets {
		created = append(created, rs.Created)
	}
	return isRecentRevision(f.Spec.RollbackWindow, f.new.Created, f.stable.Created, created)
}

// sanitizeStatus returns the status without contradictory values: users and other controllers write it too.
func sanitizeStatus(s Snapshot) argov1.RolloutStatus {
	status := *s.Status.DeepCopy()
	withoutFutureTimes(&status, s.Now)
	withoutPausesOfOtherStrategy(s.Spec.Strategy, &status)
	if isPromoted(status) && status.CurrentPodHash == s.Hash {
		status.Abort, status.PromoteFull = false, false // the release is complete: there is nothing to abort or to promote
	}
	if s.Spec.Strategy.Canary != nil {
		status.CurrentStepIndex = clampStepIndex(s.Spec.Strategy.Canary.Steps, status.CurrentStepIndex)
		withoutPauseOfOtherStep(s.Spec.Strategy.Canary.Steps, &status)
	}
	return status
}

// withoutPauseOfOtherStep removes the pause of a step unless the current step is a pause: a user wrote it, and only the user could
// end it.
func withoutPauseOfOtherStep(steps []argov1.CanaryStep, status *argov1.RolloutStatus) {
	step, ok := pods.StepAt(steps, status.CurrentStepIndex)
	if ok && step.Pause != nil || isPromoted(*status) || !hasPauseReason(*status, argov1.PauseReasonCanaryPauseStep) {
		return
	}
	*status = withoutPause(*status, argov1.PauseReasonCanaryPauseStep)
	if len(status.PauseConditions) == 0 {
		*status = withoutPauses(*status)
	}
}

// withoutFutureTimes replaces times in the future by the current time. They exist if a clock was set back after they
// were written; without the correction, pauses, deadlines and delays of plugins would be longer by the difference.
func withoutFutureTimes(status *argov1.RolloutStatus, now time.Time) {
	for i := range status.PauseConditions {
		if c := &status.PauseConditions[i]; c.StartTime.After(now) {
			c.StartTime = metav1.NewTime(now)
		}
	}
	for i := range status.Canary.StepPluginStatuses {
		if p := &status.Canary.StepPluginStatuses[i]; p.UpdatedAt != nil && p.UpdatedAt.After(now) {
			p.UpdatedAt = new(metav1.NewTime(now))
		}
	}
	for i := range status.Conditions {
		if c := &status.Conditions[i]; c.LastUpdateTime.After(now) {
			c.LastUpdateTime = metav1.NewTime(now)
		}
	}
}

// withoutPausesOfOtherStrategy removes pauses that only the other strategy starts and ends: after a change of strategy
// they would never end. Their removal does not count as a promotion by the user.
func withoutPausesOfOtherStrategy(strategy argov1.RolloutStrategy, status *argov1.RolloutStatus) {
	var otherReasons []argov1.PauseReason
	switch {
	case strategy.BlueGreen != nil:
		otherReasons = []argov1.PauseReason{argov1.PauseReasonCanaryPauseStep, argov1.PauseReasonInconclusiveExperiment}
	case strategy.Canary != nil:
		otherReasons = []argov1.PauseReason{argov1.PauseReasonBlueGreenPause}
	}
	wasPaused := len(status.PauseConditions) > 0
	status.PauseConditions = slices.DeleteFunc(status.PauseConditions, func(c argov1.PauseCondition) bool { return slices.Contains(otherReasons, c.Reason) })
	if wasPaused && len(status.PauseConditions) == 0 {
		status.PauseConditions, status.ControllerPause = nil, false
	}
}

// clampStepIndex returns a valid index of a step, or the position after the last one; users patch it. Nil without
// steps, and before a release has started.
func clampStepIndex(steps []argov1.CanaryStep, index *int32) *int32 {
	if index == nil || len(steps) == 0 {
		return nil
	}
	return new(min(max(*index, 0), int32(len(steps)))) //nolint:gosec // a list in one object
}

func (rs ReplicaSet) exists() bool { return rs.Name != "" }

func (rs ReplicaSet) podNumbers() pods.ReplicaSetPods {
	return pods.ReplicaSetPods{SpecReplicas: rs.SpecReplicas, Available: rs.Available}
}

// hasDistinctStable reports whether a stable revision exists that is not the new one.
func (f facts) hasDistinctStable() bool { return f.stable.exists() && f.stable.Hash != f.Hash }

func (f facts) replicas() int32 { return valueOr(f.Spec.Replicas, 1) }

func (f facts) findReplicaSet(hash string) ReplicaSet {
	for _, rs := range f.ReplicaSets {
		if hash != "" && rs.Hash == hash {
			return rs
		}
	}
	return ReplicaSet{}
}

// selectedHash returns the hash that a Service selects.
func (f facts) selectedHash(service string) string {
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

func (f facts) rollingLimits() pods.RollingLimits {
	if b := f.Spec.Strategy.BlueGreen; b != nil {
		return pods.NewRollingLimits(f.replicas(), nil, b.MaxUnavailable)
	}
	c := f.Spec.Strategy.Canary
	return pods.NewRollingLimits(f.replicas(), c.MaxSurge, c.MaxUnavailable)
}

func (f facts) stepProgress() pods.StepProgress {
	return pods.StepProgress{
		Steps: f.steps(), Index: f.Status.CurrentStepIndex, Aborted: f.Status.Abort,
		FullyPromoted: f.Status.PromoteFull || !f.hasDistinctStable(),
	}
}

// nextRevision returns the revision number of the new ReplicaSet: higher than all others.
func (f facts) nextRevision() int64 {
	revision := f.new.Revision
	for _, rs := range f.ReplicaSets {
		if rs.Hash != f.Hash {
			revision = max(revision, rs.Revision+1)
		}
	}
	return max(revision, 1)
}

// freezeReason returns the reason why nothing is scaled and no Service is switched; empty: there is none.
func (f facts) freezeReason() string {
	switch {
	case f.Spec.Paused:
		return "spec.paused is true"
	case hasPauseReason(f.Status, argov1.PauseReasonInconclusiveAnalysis):
		return "an analysis is inconclusive"
	default:
		return ""
	}
}

func hasPauseReason(status argov1.RolloutStatus, reason argov1.PauseReason) bool {
	return slices.ContainsFunc(status.PauseConditions, func(c argov1.PauseCondition) bool { return c.Reason == reason })
}

// replicasChanged reports whether spec.replicas changed since the pods were last scaled. Only numbers of pods change
// then.
func (f facts) replicasChanged() bool {
	outdated := func(rs ReplicaSet) bool {
		return rs.SpecReplicas > 0 && rs.RolloutReplicas != nil && *rs.RolloutReplicas != f.replicas()
	}
	return f.freezeReason() == "" && (outdated(f.new) || outdated(f.stable))
}

// templateOrStepsChanged reports whether the template or the steps differ from those of the release that the status
// describes.
func (f facts) templateOrStepsChanged() bool {
	templateChanged := f.Status.CurrentPodHash != "" && f.Status.CurrentPodHash != f.Hash
	return templateChanged || f.Spec.Strategy.Canary != nil && f.Status.CurrentStepHash != f.StepHash
}

// routerUnconfirmed reports whether a router has not applied the weights yet, or load balancers have not registered
// the pods of the active Service yet.
func (f facts) routerUnconfirmed() bool {
	return f.usesRouter() && f.pluginsUnconfirmed || (f.usesRouter() || f.Spec.Strategy.BlueGreen != nil) && !valueOr(f.Route.Confirmed, true)
}

// observedWorkloadGeneration returns the generation of the workload that contains the template; empty if the Rollout
// contains it.
func (f facts) observedWorkloadGeneration() string {
	switch {
	case f.Spec.WorkloadRef == nil:
		return ""
	case f.Workload == nil:
		return f.WorkloadGenerationAnnotation
	default:
		return f.Workload.Generation
	}
}

// outcome is the contribution of a stage to the decision, in addition to the value that the next stage takes. Effects
// are in groups, in the order in which they must be reached.
type outcome struct {
	// upkeepEffects apply in every state, scaleUpEffects create pods, trafficEffects shift traffic and start or end
	// analyses, removalEffects remove what is unused afterwards.
	upkeepEffects, scaleUpEffects, trafficEffects, removalEffects []release.Effect
	gates                                                         release.Gates
	events                                                        []release.Event
}

// joinOutcomes returns the contributions of stages, in order.
func joinOutcomes(stages ...outcome) outcome {
	var all outcome
	for _, stage := range stages {
		all.upkeepEffects = append(all.upkeepEffects, stage.upkeepEffects...)
		all.scaleUpEffects = append(all.scaleUpEffects, stage.scaleUpEffects...)
		all.trafficEffects = append(all.trafficEffects, stage.trafficEffects...)
		all.removalEffects = append(all.removalEffects, stage.removalEffects...)
		all.gates = append(all.gates, stage.gates...)
		all.events = append(all.events, stage.events...)
	}
	return all
}

func gateOutcome(gates ...release.Gate) outcome { return outcome{gates: gates} }

// newDecision returns a decision. If it changes the status, the Rollout is requeued immediately and evaluated with the
// new status.
func newDecision(f facts, status argov1.RolloutStatus, o outcome) Decision {
	d := Decision{
		Status: status, Queries: o.gates.Queries(), Effects: slices.Concat(o.upkeepEffects, o.scaleUpEffects, o.trafficEffects, o.removalEffects),
		Gates: o.gates, Events: o.events, Wake: o.gates.Wake(),
	}
	if !equalExceptExplanations(f.storedStatus, status) {
		d.Wake = f.Now
	}
	return d
}

// observedGeneration returns the current generation as the status records it.
func (f facts) observedGeneration() string { return fmt.Sprint(f.Generation) }
