package rollout

import (
	"fmt"
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
}

// Judgement is what an AnalysisRun or an Experiment has come to.
type Judgement struct {
	Name    string
	Phase   argov1.AnalysisPhase
	Message string
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

// LookAtStep is every condition before the current step is complete.
func LookAtStep(v StepView) release.Gates {
	switch step := v.Step; {
	case step.SetWeight != nil:
		return release.Look(v, podsReached, weightVerified)
	case step.SetCanaryScale != nil:
		return release.Look(v, podsReached)
	case step.Pause != nil:
		return release.Look(v, pauseOver)
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

// weightVerified is open unless a router can tell whether it does what it was told, and does not.
func weightVerified(v StepView) release.Gate {
	weights := v.Status.Canary.Weights
	if weights != nil && weights.Verified != nil && !*weights.Verified {
		return release.WaitsFor("weight", release.ByCluster, "the router does not serve the weight yet")
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
	case began == nil && v.Status.ControllerPause:
		return release.Passes("pause", "ended by a person")
	case began == nil:
		return release.WaitsFor("pause", release.ByCluster, "begins with the next status")
	case indefinite(*v.Step.Pause):
		return release.WaitsFor("pause", release.ByPerson, "until a person promotes the rollout")
	}
	length, err := seconds(*v.Step.Pause.Duration)
	if err != nil {
		return release.Fails("pause", release.ByPerson, "its duration cannot be read: correct spec.strategy.canary.steps")
	}
	end := began.StartTime.Add(time.Duration(length) * time.Second)
	if v.Now.After(end) {
		return release.Passes("pause", "for "+v.Step.Pause.Duration.String())
	}
	// It is over strictly after its end, of which the API keeps whole seconds.
	return release.WaitsUntil("pause", release.Later(end, v.Now).Add(time.Nanosecond), "until "+end.UTC().Format(time.TimeOnly))
}

func analysisSuccessful(v StepView) release.Gate { return judged("analysis", v.Run) }

func experimentSuccessful(v StepView) release.Gate { return judged("experiment", v.Experiment) }

// judged is opened by what an AnalysisRun or an Experiment comes to; an inconclusive one needs a person.
func judged(name string, j *Judgement) release.Gate {
	if j == nil {
		return release.WaitsFor(name, release.ByCluster, "has not begun")
	}
	says := fmt.Sprintf("%s is %s", j.Name, strings.ToLower(string(j.Phase)))
	if j.Message != "" {
		says += ": " + j.Message
	}
	switch j.Phase {
	case argov1.AnalysisPhaseSuccessful:
		return release.Passes(name, says)
	case argov1.AnalysisPhaseFailed, argov1.AnalysisPhaseError:
		return release.Fails(name, release.ByPerson, says)
	case argov1.AnalysisPhaseInconclusive:
		return release.WaitsFor(name, release.ByPerson, says)
	default: // Pending, Running, not seen yet, and phases that only a newer controller writes
		return release.WaitsFor(name, release.ByCluster, says)
	}
}

func routeSet(v StepView) release.Gate {
	if !v.Routed {
		return release.WaitsFor("route", release.ByCluster, "not set yet")
	}
	return release.Passes("route", "set")
}

// pluginSuccessful looks at what the plugin of the step said last.
func pluginSuccessful(v StepView) release.Gate {
	for _, s := range v.Status.Canary.StepPluginStatuses {
		if s.Index != v.Index || s.Operation != argov1.StepPluginRun {
			continue
		}
		switch {
		case s.Disabled:
			return release.Passes("plugin", s.Name+" is disabled")
		case s.Phase == argov1.StepPluginSuccessful:
			return release.Passes("plugin", s.Message)
		case s.Phase == argov1.StepPluginFailed:
			return release.Fails("plugin", release.ByPerson, s.Message)
		default: // Running, Error, which is tried again, and phases that only a newer controller writes
			return againAt(v, s)
		}
	}
	return release.WaitsFor("plugin", release.ByCluster, "has not been called")
}

// defaultPluginBackoff is how long after a call a plugin is called again that says nothing of it.
const defaultPluginBackoff = 30 * time.Second

func againAt(v StepView, s argov1.StepPluginStatus) release.Gate {
	backoff, err := time.ParseDuration(string(s.Backoff))
	if err != nil || backoff <= 0 {
		backoff = defaultPluginBackoff
	}
	at := v.Now.Add(backoff)
	if s.UpdatedAt != nil {
		at = s.UpdatedAt.Add(backoff)
	}
	if !at.After(v.Now) {
		return release.WaitsFor("plugin", release.ByCluster, "is to be called again")
	}
	return release.WaitsUntil("plugin", at, fmt.Sprintf("%s is %s", s.Name, strings.ToLower(string(s.Phase))))
}

// AbortDetail is why a step that failed aborts the release; false while it has not failed.
func AbortDetail(v StepView) (string, bool) {
	failed := func(j *Judgement) bool {
		return j != nil && (j.Phase == argov1.AnalysisPhaseFailed || j.Phase == argov1.AnalysisPhaseError)
	}
	with := func(text, message string) (string, bool) {
		if message != "" {
			text += ": " + message
		}
		return text, true
	}
	switch step := v.Step; {
	case step.Analysis != nil && failed(v.Run):
		return with("Step-based analysis phase error/failed", v.Run.Message)
	case step.Experiment != nil && failed(v.Experiment):
		return with("Experiment analysis phase is error/failed", v.Experiment.Message)
	case step.Plugin != nil:
		for _, s := range v.Status.Canary.StepPluginStatuses {
			if s.Index == v.Index && s.Operation == argov1.StepPluginRun && s.Phase == argov1.StepPluginFailed {
				return fmt.Sprintf("Step Plugin %d (%s) failed: %s", s.Index+1, s.Name, s.Message), true
			}
		}
	}
	return "", false
}

// stepCompleted is what people are told of a step that is done. done is how many are.
func stepCompleted(done, total int32, step argov1.CanaryStep) string {
	return fmt.Sprintf("Rollout step %d/%d completed (%s)", done, total, stepText(step))
}
