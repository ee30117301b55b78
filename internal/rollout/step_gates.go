package rollout

import (
	"fmt"
	"slices"
	"strings"
	"time"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/internal/rollout/pods"
)

// StepView is what is known of the current step.
type StepView struct {
	Now time.Time
	// Index and Total of the steps.
	Index, Total int32
	Step         argov1.CanaryStep
	Status       argov1.RolloutStatus
	// Pods are those that the step asks for and those that exist.
	Pods StepPods
	// Run is the AnalysisRun of the step, Experiment its Experiment; nil while there is none.
	Run, Experiment *Judgement
	// Routed is true if the router has the managed route of the step.
	Routed bool
	// Unweighted is why the router was not given the weight of the step; empty: it was.
	Unweighted string
	// Unpublished is the gate of the endpoints that the revision lacks for the traffic of the step; nil: none are missing.
	Unpublished *release.Gate
	// Unserved is the gate of a router that does not serve the weight yet; nil: it does, or cannot tell.
	Unserved *release.Gate
	// DisabledPlugins are those that are configured not to be called.
	DisabledPlugins []string
}

// Judgement is the result of an AnalysisRun or an Experiment so far.
type Judgement struct {
	Name    string
	Phase   argov1.AnalysisPhase
	Message string
	// Planned is true while only its name is decided: it is created once the status has recorded that.
	Planned bool
	// Metric is the one that decides it, as far as it is known.
	Metric Metric
}

// StepPods are the pods of both sides.
type StepPods struct {
	Threshold *argov1.ReplicaProgressThreshold
	New       pods.Scaled
	WantNew   int32
	// StableFixed is true where a stable revision exists whose number of pods does not follow the traffic.
	StableFixed     bool
	StableSpec      int32
	StableThere     int32 // created, whether available or not
	WantStable      int32
	Basic           bool
	OthersAvailable int32
}

// reached returns what is missing until the pods are those that a step asks for; empty: nothing.
func (p StepPods) reached() string {
	switch {
	case !pods.Reached(p.Threshold, p.New, p.WantNew):
		return fmt.Sprintf("%d of %d new pods available", p.New.Available, p.WantNew)
	case p.StableFixed && (p.StableSpec != p.WantStable || p.StableThere != p.WantStable):
		return fmt.Sprintf("%d stable pods, %d wanted", p.StableThere, p.WantStable)
	case p.Basic && p.OthersAvailable > 0:
		return fmt.Sprintf("%d pods of other revisions still exist", p.OthersAvailable)
	default:
		return ""
	}
}

// StepGates evaluates the conditions under which the current step is complete. Where a step has several fields, the
// first of these decides: all of them are carried out, and a pause that also waited for pods would suspend their
// deadline.
func StepGates(v StepView) release.Gates {
	switch step := v.Step; {
	case step.Pause != nil:
		return release.Look(v, pauseOver)
	case step.SetCanaryScale != nil:
		return release.Look(v, podsReached)
	case step.SetWeight != nil:
		return release.Look(v, podsReached, weightVerified)
	case step.Analysis != nil:
		return release.Look(v, analysisSuccessful)
	case step.Experiment != nil:
		return release.Look(v, experimentSuccessful)
	case step.SetHeaderRoute != nil, step.SetMirrorRoute != nil:
		return release.Look(v, routeSet)
	case step.Plugin != nil:
		return release.Look(v, pluginSuccessful)
	default: // validation rejects it
		return release.Gates{release.Fails("step", release.ByPerson, "the step says nothing: correct spec.strategy.canary.steps")}
	}
}

// podsReached waits for the pods that the step asks for.
func podsReached(v StepView) release.Gate {
	if missing := v.Pods.reached(); missing != "" {
		return release.WaitsFor("pods", release.ByCluster, missing)
	}
	return release.Passes("pods", "as the step asks for")
}

// textUnserved is the message about a weight that a router does not serve yet.
const textUnserved = "the router does not serve the weight yet"

// weightVerified waits until the router serves the weight. It passes if the router cannot report that.
func weightVerified(v StepView) release.Gate {
	weights := v.Status.Canary.Weights
	if v.Unweighted != "" {
		return release.WaitsFor("weight", release.ByCluster, v.Unweighted)
	}
	if v.Unpublished != nil {
		return *v.Unpublished
	}
	if v.Unserved != nil {
		return *v.Unserved
	}
	if weights != nil && weights.Verified != nil && !*weights.Verified {
		return release.WaitsFor("weight", release.ByCluster, textUnserved)
	}
	return release.Passes("weight", "")
}

// pauseStep returns the pause of the current step that the status has; nil: none.
func pauseStep(status argov1.RolloutStatus) *argov1.PauseCondition {
	for i := range status.PauseConditions {
		if status.PauseConditions[i].Reason == argov1.PauseReasonCanaryPauseStep {
			return &status.PauseConditions[i]
		}
	}
	return nil
}

// pauseOver waits for the end of a pause, or for the user who ends it. Until the status has the pause, it has not
// begun.
func pauseOver(v StepView) release.Gate {
	began := pauseStep(v.Status)
	switch {
	case began == nil && v.Status.ControllerPause && len(v.Status.PauseConditions) == 0:
		return release.Passes("pause", "ended by the user")
	case began == nil && undecided(v.Status):
		return release.Passes("pause", "is over")
	case began == nil:
		return release.WaitsFor("pause", release.ByCluster, "begins with the next status")
	case indefinite(*v.Step.Pause):
		return release.WaitsFor("pause", release.ByPerson, "until the user promotes the rollout")
	}
	length, err := seconds(*v.Step.Pause.Duration)
	if err != nil {
		return release.Fails("pause", release.ByPerson, "its duration cannot be read: correct spec.strategy.canary.steps")
	}
	end := pausedSince(v.Status, *began).Add(time.Duration(length) * time.Second)
	if v.Now.After(end) {
		return release.Passes("pause", "for "+v.Step.Pause.Duration.String())
	}
	// Argo Rollouts ends a pause strictly after its duration.
	return release.WaitsUntil("pause", release.Later(end, v.Now).Add(time.Nanosecond), "until "+end.UTC().Format(time.TimeOnly))
}

func analysisSuccessful(v StepView) release.Gate {
	return v.Run.opens(release.Passes("analysis", ""))
}

func experimentSuccessful(v StepView) release.Gate {
	return v.Experiment.opens(release.Passes("experiment", ""))
}

// opens returns the gate of an AnalysisRun or an Experiment: an inconclusive one needs a decision of the user.
func (j *Judgement) opens(gate release.Gate) release.Gate {
	if j == nil {
		gate.Verdict, gate.Opener, gate.Message = release.Wait, release.ByCluster, "has not begun"
		return gate
	}
	gate.Value, gate.Limit, gate.Query = j.Metric.Value, j.Metric.Limit, j.Metric.Query
	gate.Message = fmt.Sprintf("%s is %s", j.Name, strings.ToLower(string(j.Phase)))
	if j.Phase == "" {
		gate.Message = j.Name + " has not begun"
	}
	if j.Message != "" {
		gate.Message += ": " + j.Message
	}
	switch j.Phase {
	case argov1.AnalysisPhaseSuccessful:
	case argov1.AnalysisPhaseFailed, argov1.AnalysisPhaseError:
		gate.Verdict, gate.Opener = release.Fail, release.ByPerson
	case argov1.AnalysisPhaseInconclusive:
		gate.Verdict, gate.Opener = release.Wait, release.ByPerson
	default: // Pending, Running, not observed yet, and phases that only a newer controller writes
		gate.Verdict, gate.Opener = release.Wait, release.ByCluster
	}
	return gate
}

func routeSet(v StepView) release.Gate {
	if v.Unpublished != nil {
		return *v.Unpublished
	}
	if !v.Routed {
		return release.WaitsFor("route", release.ByCluster, "not set yet")
	}
	return release.Passes("route", "set")
}

// plugin returns the status of the plugin of the step; nil while it has not been called.
func (v StepView) plugin() *argov1.StepPluginStatus {
	for i, s := range v.Status.Canary.StepPluginStatuses {
		if s.Index == v.Index && s.Operation == argov1.StepPluginRun {
			return &v.Status.Canary.StepPluginStatuses[i]
		}
	}
	return nil
}

// pluginRetry is the interval at which a missing plugin is looked for again.
const pluginRetry = 30 * time.Second

// pluginSuccessful evaluates the last status of the plugin of the step. Serin runs no plugins: what they returned to
// another controller counts, and a disabled one passes.
func pluginSuccessful(v StepView) release.Gate {
	s := v.plugin()
	switch {
	case s != nil && s.Disabled:
		return release.Passes("plugin", s.Name+" is disabled")
	case s != nil && s.Phase == argov1.StepPluginSuccessful:
		return release.Passes("plugin", s.Message)
	case s != nil && s.Phase == argov1.StepPluginFailed:
		return release.Fails("plugin", release.ByPerson, s.Message)
	case slices.Contains(v.DisabledPlugins, v.Step.Plugin.Name):
		return release.WaitsFor("plugin", release.ByCluster, "is disabled, which the next status says")
	}
	gate := release.Fails("plugin", release.ByPerson, v.Step.Plugin.Name+" is not configured")
	gate.Until = v.Now.Add(pluginRetry)
	gate.Events = []release.Event{{
		Type: release.Warning, Reason: reasonReconciliation, Standing: true,
		Message: fmt.Sprintf("Reconciliation failed with error: step plugin %s is not configured", v.Step.Plugin.Name),
	}}
	return gate
}

// AbortDetail returns why a failed step aborts the release; false while it has not failed.
func AbortDetail(v StepView) (string, bool) {
	switch step := v.Step; {
	case step.Analysis != nil:
		return v.Run.failure("Step-based analysis phase error/failed")
	case step.Experiment != nil:
		return v.Experiment.failure("Experiment analysis phase is error/failed")
	case step.Plugin != nil:
		if s := v.plugin(); s != nil && s.Phase == argov1.StepPluginFailed {
			return fmt.Sprintf("Step Plugin %d (%s) failed: %s", s.Index+1, s.Name, s.Message), true
		}
	}
	return "", false
}

// stepCompleted is the message about a completed step. done is the number of completed steps.
func stepCompleted(done, total int32, step argov1.CanaryStep) string {
	return fmt.Sprintf("Rollout step %d/%d completed (%s)", done, total, stepText(step))
}

// failure returns why an analysis aborts a release; false where it does not.
func (j *Judgement) failure(text string) (string, bool) {
	if j == nil || j.Phase != argov1.AnalysisPhaseFailed && j.Phase != argov1.AnalysisPhaseError {
		return "", false
	}
	if j.Message != "" {
		text += ": " + j.Message
	}
	return text, true
}
