package rollout

import (
	"fmt"
	"strings"
	"time"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/internal/rollout/pods"
)

// stepState is the state of the current step.
type stepState struct {
	Now time.Time
	// Index of the step, and total number of steps.
	Index, Total int32
	Step         argov1.CanaryStep
	Status       argov1.RolloutStatus
	// Pods are the pods that the step requires and the existing ones.
	Pods stepPods
	// Run is the AnalysisRun of the step, Experiment its Experiment; nil while there is none.
	Run, Experiment *runResult
	// RoutePlanned is true if this decision sets the route of the step, with its managed routes.
	RoutePlanned bool
	// WeightShortfall is the reason why the router was not given the weight of the step; empty: it was.
	WeightShortfall string
	// CanaryEndpointsGate is the gate about missing endpoints of the revision for the traffic of the step; nil: none are
	// missing.
	CanaryEndpointsGate *release.Gate
	// RouterGate is the gate of a router that has not applied the weight yet; nil: it has, or cannot report it.
	RouterGate *release.Gate
	// RouterPluginGate is the gate of a router plugin that has not confirmed the route yet; nil: there is none, or all have.
	RouterPluginGate *release.Gate
	// PluginGate is the gate of a step plugin without a final result; nil: the status contains the result.
	PluginGate *release.Gate
}

// runResult is the result of an AnalysisRun or an Experiment so far.
type runResult struct {
	Name    string
	Phase   argov1.AnalysisPhase
	Message string
	// Planned is true if only its name is decided: it is created once the status has recorded the name.
	Planned bool
	// Metric is the metric that decides the result, if it is known.
	Metric Metric
}

// stepPods are the pods of both sides.
type stepPods struct {
	Threshold  *argov1.ReplicaProgressThreshold
	New        pods.ReplicaSetPods
	DesiredNew int32
	// StableCountFixed is true if a stable revision exists whose number of pods does not depend on the traffic.
	StableCountFixed   bool
	StableSpecReplicas int32
	StableReplicas     int32 // created, available or not
	DesiredStable      int32
	WithoutRouter      bool
	OthersAvailable    int32
}

// missingPods describes the pods that the step still requires; empty: none.
func (p stepPods) missingPods() string {
	switch {
	case !pods.IsReached(p.Threshold, p.New, p.DesiredNew):
		return fmt.Sprintf("%d of %d new pods available", p.New.Available, p.DesiredNew)
	case p.StableCountFixed && (p.StableSpecReplicas != p.DesiredStable || p.StableReplicas != p.DesiredStable):
		return fmt.Sprintf("%d stable pods, %d desired", p.StableReplicas, p.DesiredStable)
	case p.WithoutRouter && p.OthersAvailable > 0:
		return release.Count(int(p.OthersAvailable), "pod") + " of other revisions must end first"
	default:
		return ""
	}
}

// evaluateStepGates evaluates the conditions under which the current step is complete. If a step has several fields,
// all of them take effect, but only the first of these cases decides when the step is complete: a pause that also
// waited for pods would suspend their progress deadline.
func evaluateStepGates(v stepState) release.Gates {
	switch step := v.Step; {
	case step.Pause != nil:
		return release.EvaluateGates(v, stepPauseEnded)
	case step.SetCanaryScale != nil:
		return release.EvaluateGates(v, stepPodsAvailable)
	case step.SetWeight != nil:
		return release.EvaluateGates(v, stepPodsAvailable, weightVerified)
	case step.Analysis != nil:
		return release.EvaluateGates(v, analysisSuccessful)
	case step.Experiment != nil:
		return release.EvaluateGates(v, experimentSuccessful)
	case step.SetHeaderRoute != nil, step.SetMirrorRoute != nil:
		return release.EvaluateGates(v, managedRouteSet)
	case step.Plugin != nil:
		return release.EvaluateGates(v, pluginSuccessful)
	default: // validation rejects it
		return release.Gates{release.NewFailedGate("step", release.ByUser, "the step is empty: correct spec.strategy.canary.steps")}
	}
}

// stepPodsAvailable waits for the pods that the step requires.
func stepPodsAvailable(v stepState) release.Gate {
	if missing := v.Pods.missingPods(); missing != "" {
		return release.NewWaitingGate("pods", release.ByCluster, missing)
	}
	return release.NewPassingGate("pods", "as required by the step")
}

// textWeightNotApplied is the message about a weight that a router has not applied yet.
const textWeightNotApplied = "the router has not applied the weight yet"

// weightVerified waits until the router has applied the weight. It passes if the router cannot report that.
func weightVerified(v stepState) release.Gate {
	weights := v.Status.Canary.Weights
	if v.WeightShortfall != "" {
		return release.NewWaitingGate("stable-capacity", release.ByCluster, v.WeightShortfall)
	}
	if v.CanaryEndpointsGate != nil {
		return *v.CanaryEndpointsGate
	}
	if v.RouterPluginGate != nil {
		return *v.RouterPluginGate
	}
	if v.RouterGate != nil {
		return *v.RouterGate
	}
	if weights != nil && weights.Verified != nil && !*weights.Verified {
		return release.NewWaitingGate(GateRouteConfirmed, release.ByCluster, textWeightNotApplied)
	}
	return release.NewPassingGate(GateRouteConfirmed, "")
}

// findStepPause returns the pause of the current step in the status; nil: none.
func findStepPause(status argov1.RolloutStatus) *argov1.PauseCondition {
	for i := range status.PauseConditions {
		if status.PauseConditions[i].Reason == argov1.PauseReasonCanaryPauseStep {
			return &status.PauseConditions[i]
		}
	}
	return nil
}

// stepPauseEnded waits until a pause has elapsed, or until the user ends it. A pause starts when the status contains
// it.
func stepPauseEnded(v stepState) release.Gate {
	began := findStepPause(v.Status)
	switch {
	case began == nil && v.Status.ControllerPause && len(v.Status.PauseConditions) == 0:
		return release.NewPassingGate("pause", "ended by the user")
	case began == nil && awaitsUserDecision(v.Status):
		return release.NewPassingGate("pause", "elapsed")
	case began == nil:
		return release.NewWaitingGate("pause", release.ByCluster, "starts with the next status update")
	case isIndefinite(*v.Step.Pause):
		return release.NewWaitingGate("pause", release.ByUser, "until the user promotes the rollout")
	}
	length, err := parsePauseSeconds(*v.Step.Pause.Duration)
	if err != nil {
		return release.NewFailedGate("pause", release.ByUser, "invalid duration: correct spec.strategy.canary.steps")
	}
	end := pausedSince(v.Status, *began).Add(time.Duration(length) * time.Second)
	if v.Now.After(end) {
		return release.NewPassingGate("pause", "for "+v.Step.Pause.Duration.String())
	}
	// Argo Rollouts ends a pause strictly after its duration.
	return release.NewTimedGate("pause", release.LaterOf(end, v.Now).Add(time.Nanosecond), "until "+end.UTC().Format(time.TimeOnly))
}

func analysisSuccessful(v stepState) release.Gate {
	return v.Run.evaluateGate(release.NewPassingGate("analysis", ""))
}

func experimentSuccessful(v stepState) release.Gate {
	return v.Experiment.evaluateGate(release.NewPassingGate("experiment", ""))
}

// evaluateGate returns the gate of an AnalysisRun or an Experiment. An inconclusive one requires a decision of the
// user.
func (r *runResult) evaluateGate(gate release.Gate) release.Gate {
	if r == nil {
		gate.Verdict, gate.Opener, gate.Message = release.Wait, release.ByCluster, "not started yet"
		return gate
	}
	gate.Value, gate.Limit, gate.Query = r.Metric.Value, r.Metric.Limit, r.Metric.Query
	gate.Message = fmt.Sprintf("%s is %s", r.Name, strings.ToLower(string(r.Phase)))
	if r.Phase == "" {
		gate.Message = r.Name + " has not started yet"
	}
	if r.Message != "" {
		gate.Message += ": " + r.Message
	}
	switch r.Phase {
	case argov1.AnalysisPhaseSuccessful:
	case argov1.AnalysisPhaseFailed, argov1.AnalysisPhaseError:
		gate.Verdict, gate.Opener = release.Fail, release.ByUser
	case argov1.AnalysisPhaseInconclusive:
		gate.Verdict, gate.Opener = release.Wait, release.ByUser
	default: // Pending, Running, not observed yet, and phases that only a newer controller writes
		gate.Verdict, gate.Opener = release.Wait, release.ByCluster
	}
	return gate
}

func managedRouteSet(v stepState) release.Gate {
	if v.CanaryEndpointsGate != nil {
		return *v.CanaryEndpointsGate
	}
	if !v.RoutePlanned {
		return release.NewWaitingGate("route", release.ByCluster, "not applied yet")
	}
	if v.RouterPluginGate != nil {
		return *v.RouterPluginGate
	}
	return release.NewPassingGate("route", "set")
}

// stepAbortCause returns the cause with which a failed step aborts the release; false: the step has not failed.
func stepAbortCause(v stepState) (string, bool) {
	switch step := v.Step; {
	case step.Analysis != nil:
		return v.Run.failureCause("Step-based analysis phase error/failed")
	case step.Experiment != nil:
		return v.Experiment.failureCause("Experiment analysis phase is error/failed")
	case step.Plugin != nil:
		if s := v.pluginStatus(); s != nil && s.Phase == argov1.StepPluginFailed {
			return fmt.Sprintf("Step Plugin %d (%s) failed: %s", s.Index+1, s.Name, s.Message), true
		}
	}
	return "", false
}

// stepCompletedText is the message about a completed step. done is the number of completed steps.
func stepCompletedText(done, total int32, step argov1.CanaryStep) string {
	return fmt.Sprintf("Rollout step %d/%d completed (%s)", done, total, DescribeStep(step))
}

// failureCause returns the cause with which an analysis aborts a release; false: it does not.
func (r *runResult) failureCause(text string) (string, bool) {
	if r == nil || r.Phase != argov1.AnalysisPhaseFailed && r.Phase != argov1.AnalysisPhaseError {
		return "", false
	}
	if r.Message != "" {
		text += ": " + r.Message
	}
	return text, true
}
