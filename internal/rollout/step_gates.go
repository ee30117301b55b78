package rollout

import (
	"fmt"
	"slices"
	"strings"
	"time"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/release"
)

// StepView is what is known of the current step.
type StepView struct {
	Now time.Time
	// Index and Total of the steps.
	Index, Total int32
	Step         argov1.CanaryStep
	Status       argov1.RolloutStatus
	// Pods are what the step asks for and what is there.
	Pods StepPods
	// Run is the AnalysisRun of the step, Experiment its Experiment; nil while there is none.
	Run, Experiment *Judgement
	// Routed is true when the managed route of the step is as it says.
	Routed bool
	// Unweighted is why the router has not been told the weight of the step; empty: it has.
	Unweighted string
	// Unpublished is the gate of the endpoints that the revision lacks for the traffic of the step; nil: none are missing.
	Unpublished *release.Gate
	// Unserved is what the router that was told it still lacks; nil: nothing, or it is not known here.
	Unserved *release.Gate
	// DisabledPlugins are configured not to be called.
	DisabledPlugins []string
}

// Judgement is what an AnalysisRun or an Experiment has come to.
type Judgement struct {
	Name    string
	Phase   argov1.AnalysisPhase
	Message string
	// Planned is true while only its name is noted: it is made when the status has that.
	Planned bool
}

// StepPods are the pods of both sides.
type StepPods struct {
	Threshold *argov1.ReplicaProgressThreshold
	New       Scaled
	WantNew   int32
	// Stable pods are looked at where there is a stable revision whose number does not follow the traffic.
	StableFixed     bool
	StableSpec      int32
	StableThere     int32 // created, whether available or not
	WantStable      int32
	Basic           bool
	OthersAvailable int32
}

// reached says what is missing until the pods are what a step asks for; empty: nothing.
func (p StepPods) reached() string {
	switch {
	case !enough(p.Threshold, p.New, p.WantNew):
		return fmt.Sprintf("%d of %d new pods available", p.New.Available, p.WantNew)
	case p.StableFixed && (p.StableSpec != p.WantStable || p.StableThere != p.WantStable):
		return fmt.Sprintf("%d stable pods, %d wanted", p.StableThere, p.WantStable)
	case p.Basic && p.OthersAvailable > 0:
		return fmt.Sprintf("%d pods of other revisions to go", p.OthersAvailable)
	default:
		return ""
	}
}

// LookAtStep is every condition before the current step is complete. Of a step that says several things the first of these
// decides: all of them are carried out, and a pause that waited for pods as well would keep the deadline from them.
func LookAtStep(v StepView) release.Gates {
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
	default: // validation refuses it
		return release.Gates{release.Fails("step", release.ByPerson, "the step says nothing: correct spec.strategy.canary.steps")}
	}
}

// podsReached is opened by the cluster.
func podsReached(v StepView) release.Gate {
	if missing := v.Pods.reached(); missing != "" {
		return release.WaitsFor("pods", release.ByCluster, missing)
	}
	return release.Passes("pods", "as the step asks for")
}

// textUnserved is what people read of a weight that a router has not taken up.
const textUnserved = "the router does not serve the weight yet"

// weightVerified is open unless a router can tell whether it does what it was told, and does not.
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

// pauseStep is the pause of the current step as the status has it; nil when there is none.
func pauseStep(status argov1.RolloutStatus) *argov1.PauseCondition {
	for i := range status.PauseConditions {
		if status.PauseConditions[i].Reason == argov1.PauseReasonCanaryPauseStep {
			return &status.PauseConditions[i]
		}
	}
	return nil
}

// pauseOver is opened by time, or by a person who takes the pause away. Until the pause is in the status it has not begun.
func pauseOver(v StepView) release.Gate {
	began := pauseStep(v.Status)
	switch {
	case began == nil && v.Status.ControllerPause && len(v.Status.PauseConditions) == 0:
		return release.Passes("pause", "ended by a person")
	case began == nil && undecided(v.Status):
		return release.Passes("pause", "is over")
	case began == nil:
		return release.WaitsFor("pause", release.ByCluster, "begins with the next status")
	case indefinite(*v.Step.Pause):
		return release.WaitsFor("pause", release.ByPerson, "until a person promotes the rollout")
	}
	length, err := seconds(*v.Step.Pause.Duration)
	if err != nil {
		return release.Fails("pause", release.ByPerson, "its duration cannot be read: correct spec.strategy.canary.steps")
	}
	end := pausedSince(v.Status, *began).Add(time.Duration(length) * time.Second)
	if v.Now.After(end) {
		return release.Passes("pause", "for "+v.Step.Pause.Duration.String())
	}
	// It is over strictly after its end.
	return release.WaitsUntil("pause", release.Later(end, v.Now).Add(time.Nanosecond), "until "+end.UTC().Format(time.TimeOnly))
}

func analysisSuccessful(v StepView) release.Gate {
	return v.Run.opens(release.Passes("analysis", ""))
}

func experimentSuccessful(v StepView) release.Gate {
	return v.Experiment.opens(release.Passes("experiment", ""))
}

// opens is a gate that is opened by what an AnalysisRun or an Experiment comes to; an inconclusive one needs a person.
func (j *Judgement) opens(gate release.Gate) release.Gate {
	if j == nil {
		gate.Verdict, gate.Opener, gate.Message = release.Wait, release.ByCluster, "has not begun"
		return gate
	}
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
	default: // Pending, Running, not seen yet, and phases that only a newer controller writes
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

// plugin is what the plugin of the step has come to; nil while it has not been called.
func (v StepView) plugin() *argov1.StepPluginStatus {
	for i, s := range v.Status.Canary.StepPluginStatuses {
		if s.Index == v.Index && s.Operation == argov1.StepPluginRun {
			return &v.Status.Canary.StepPluginStatuses[i]
		}
	}
	return nil
}

// pluginRetry is how long after it was found missing a plugin is looked for again.
const pluginRetry = 30 * time.Second

// pluginSuccessful looks at what the plugin of the step said last. Serin runs no plugins: what another controller was told
// counts, and who is disabled need not be asked.
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

// AbortDetail is why a step that failed aborts the release; false while it has not failed.
func AbortDetail(v StepView) (string, bool) {
	switch step := v.Step; {
	case step.Analysis != nil:
		return v.Run.against("Step-based analysis phase error/failed")
	case step.Experiment != nil:
		return v.Experiment.against("Experiment analysis phase is error/failed")
	case step.Plugin != nil:
		if s := v.plugin(); s != nil && s.Phase == argov1.StepPluginFailed {
			return fmt.Sprintf("Step Plugin %d (%s) failed: %s", s.Index+1, s.Name, s.Message), true
		}
	}
	return "", false
}

// stepCompleted is what people are told of a step that is done. done is how many are.
func stepCompleted(done, total int32, step argov1.CanaryStep) string {
	return fmt.Sprintf("Rollout step %d/%d completed (%s)", done, total, stepText(step))
}

// against is what people read of a judgement that takes a release back; false where it does not.
func (j *Judgement) against(text string) (string, bool) {
	if j == nil || j.Phase != argov1.AnalysisPhaseFailed && j.Phase != argov1.AnalysisPhaseError {
		return "", false
	}
	if j.Message != "" {
		text += ": " + j.Message
	}
	return text, true
}
