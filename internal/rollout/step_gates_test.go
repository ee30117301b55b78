package rollout

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/internal/rollout/pods"
)

func pauseFor(duration string) argov1.CanaryStep {
	return argov1.CanaryStep{Pause: &argov1.RolloutPause{Duration: amount(duration)}}
}

func pausedSinceStatus(since time.Time) argov1.RolloutStatus {
	return argov1.RolloutStatus{
		ControllerPause: true,
		PauseConditions: []argov1.PauseCondition{{Reason: argov1.PauseReasonCanaryPauseStep, StartTime: metav1.NewTime(since)}},
	}
}

// TestPauseHasItsConfiguredDuration although the API stores only whole seconds of its start; unless the fraction of a
// second that Serin stores belongs to another pause, or is missing.
func TestPauseHasItsConfiguredDuration(t *testing.T) {
	began := noon.Add(900 * time.Millisecond)
	stored := pausedSinceStatus(noon)
	stored.Serin = &argov1.SerinStatus{PausedAt: new(metav1.NewMicroTime(began))}
	for name, test := range map[string]struct {
		status argov1.RolloutStatus
		end    time.Time
	}{
		"kept":   {stored, began.Add(10 * time.Second)},
		"pruned": {pausedSinceStatus(noon), noon.Add(10 * time.Second)},
		"another pause": {func() argov1.RolloutStatus {
			s := pausedSinceStatus(noon.Add(time.Minute))
			s.Serin = stored.Serin
			return s
		}(), noon.Add(70 * time.Second)},
		"never serialised": {pausedSinceStatus(began), began.Add(10 * time.Second)},
	} {
		gate := evaluateStepGates(stepState{Now: test.end, Step: pauseFor("10s"), Status: test.status})[0]
		if gate.Verdict != release.Wait {
			t.Errorf("%s: at its end the gate is %+v", name, gate)
		}
		if gate = evaluateStepGates(stepState{Now: test.end.Add(time.Nanosecond), Step: pauseFor("10s"), Status: test.status})[0]; gate.Verdict != release.Pass {
			t.Errorf("%s: after its end the gate is %+v", name, gate)
		}
	}
}

func TestGatesOfEachKindOfStep(t *testing.T) {
	analysis, experiment := argov1.CanaryStep{Analysis: &argov1.RolloutAnalysis{}}, argov1.CanaryStep{Experiment: &argov1.RolloutExperimentStep{}}
	plugin := argov1.CanaryStep{Plugin: &argov1.PluginStep{Name: "a"}}
	ran := func(phase argov1.StepPluginPhase, disabled bool, backoff argov1.DurationString) argov1.RolloutStatus {
		return argov1.RolloutStatus{Canary: argov1.CanaryStatus{StepPluginStatuses: []argov1.StepPluginStatus{
			{Index: 7, Name: "other", Operation: argov1.StepPluginRun, Phase: argov1.StepPluginSuccessful},
			{Index: 0, Name: "a", Operation: argov1.StepPluginRun, Phase: phase, Message: "says", Disabled: disabled, Backoff: backoff, UpdatedAt: &metav1.Time{Time: noon}},
		}}}
	}
	all := stepPods{New: pods.ReplicaSetPods{SpecReplicas: 2, Available: 2}, DesiredNew: 2}
	several := argov1.CanaryStep{SetCanaryScale: scaleTo(2).SetCanaryScale, Pause: pauseFor("10").Pause, SetHeaderRoute: &argov1.SetHeaderRoute{}}
	asked := argov1.RolloutStatus{ControllerPause: true, PauseConditions: []argov1.PauseCondition{{Reason: argov1.PauseReasonInconclusiveAnalysis}}}
	for _, test := range []struct {
		name   string
		v      stepState
		want   string // verdict, gate, opener: message
		detail string
	}{
		{"weight reached", stepState{Step: setWeight(10), Pods: all}, "pass", ""},
		{"weight, pods missing", stepState{Step: setWeight(10), Pods: stepPods{New: pods.ReplicaSetPods{SpecReplicas: 2, Available: 1}, DesiredNew: 2}}, "wait pods cluster: 1 of 2 new pods available", ""},
		{"weight, enough pods", stepState{Step: setWeight(10), Pods: stepPods{Threshold: &argov1.ReplicaProgressThreshold{Type: argov1.ProgressPods, Value: 1}, New: pods.ReplicaSetPods{SpecReplicas: 2, Available: 1}, DesiredNew: 2}}, "pass", ""},
		{"weight, stable pods missing", stepState{Step: setWeight(10), Pods: stepPods{StableCountFixed: true, StableSpecReplicas: 3, StableReplicas: 2, DesiredStable: 3}}, "wait pods cluster: 2 stable pods, 3 desired", ""},
		{"weight, stable pods follow the traffic", stepState{Step: setWeight(10), Pods: stepPods{StableSpecReplicas: 3, StableReplicas: 2, DesiredStable: 3}}, "pass", ""},
		{"weight, others", stepState{Step: setWeight(10), Pods: stepPods{WithoutRouter: true, OthersAvailable: 2}}, "wait pods cluster: 2 pods of other revisions must end first", ""},
		{"weight, others behind a router", stepState{Step: setWeight(10), Pods: stepPods{OthersAvailable: 2}}, "pass", ""},
		{"weight not verified", stepState{Step: setWeight(10), Pods: all, Status: argov1.RolloutStatus{Canary: argov1.CanaryStatus{Weights: &argov1.TrafficWeights{Verified: new(false)}}}}, "wait route-confirmed cluster: the router has not applied the weight yet", ""},
		{"weight verified", stepState{Step: setWeight(10), Pods: all, Status: argov1.RolloutStatus{Canary: argov1.CanaryStatus{Weights: &argov1.TrafficWeights{Verified: new(true)}}}}, "pass", ""},
		{"scale", stepState{Step: scaleTo(2), Pods: stepPods{New: pods.ReplicaSetPods{SpecReplicas: 2, Available: 1}, DesiredNew: 2}}, "wait pods cluster: 1 of 2 new pods available", ""},
		{"pause to begin", stepState{Step: pauseFor("10")}, "wait pause cluster: starts with the next status update", ""},
		{"pause", stepState{Step: pauseFor("10"), Status: pausedSinceStatus(noon)}, "wait pause time: until 12:00:10", ""},
		{"pause at its end", stepState{Step: pauseFor("10"), Status: pausedSinceStatus(noon.Add(-10 * time.Second))}, "wait pause time: until 12:00:00", ""},
		{"pause over", stepState{Step: pauseFor("10"), Status: pausedSinceStatus(noon.Add(-11 * time.Second))}, "pass", ""},
		{"pause of nothing", stepState{Step: pauseFor("0"), Status: pausedSinceStatus(noon.Add(-1))}, "pass", ""},
		{"pause without end", stepState{Step: pauseFor(""), Status: pausedSinceStatus(noon.Add(-time.Hour))}, "wait pause person: until the user promotes the rollout", ""},
		{"pause ended by the user", stepState{Step: pauseFor(""), Status: argov1.RolloutStatus{ControllerPause: true}}, "pass", ""},
		{"pause that cannot be read", stepState{Step: pauseFor("soon"), Status: pausedSinceStatus(noon)}, "fail pause person: invalid duration: correct spec.strategy.canary.steps", ""},
		{"analysis to come", stepState{Step: analysis}, "wait analysis cluster: not started yet", ""},
		{"analysis runs", stepState{Step: analysis, Run: &runResult{Name: "r", Phase: argov1.AnalysisPhaseRunning}}, "wait analysis cluster: r is running", ""},
		{"analysis good", stepState{Step: analysis, Run: &runResult{Name: "r", Phase: argov1.AnalysisPhaseSuccessful}}, "pass", ""},
		{"analysis bad", stepState{Step: analysis, Run: &runResult{Name: "r", Phase: argov1.AnalysisPhaseFailed, Message: "m"}}, "fail analysis person: r is failed: m", "Step-based analysis phase error/failed: m"},
		{"analysis wrong", stepState{Step: analysis, Run: &runResult{Name: "r", Phase: argov1.AnalysisPhaseError}}, "fail analysis person: r is error", "Step-based analysis phase error/failed"},
		{"analysis neither", stepState{Step: analysis, Run: &runResult{Name: "r", Phase: argov1.AnalysisPhaseInconclusive}}, "wait analysis person: r is inconclusive", ""},
		{"experiment bad", stepState{Step: experiment, Experiment: &runResult{Name: "e", Phase: argov1.AnalysisPhaseFailed, Message: "m"}}, "fail experiment person: e is failed: m", "Experiment analysis phase is error/failed: m"},
		{"experiment good", stepState{Step: experiment, Experiment: &runResult{Name: "e", Phase: argov1.AnalysisPhaseSuccessful}}, "pass", ""},
		{"header", stepState{Step: argov1.CanaryStep{SetHeaderRoute: &argov1.SetHeaderRoute{}}}, "wait route cluster: not applied yet", ""},
		{"mirror", stepState{Step: argov1.CanaryStep{SetMirrorRoute: &argov1.SetMirrorRoute{}}, RoutePlanned: true}, "pass", ""},
		{"plugin to be called", stepState{Step: plugin}, "wait plugin cluster: a is not called yet", ""},
		{"plugin is called", stepState{Step: plugin, PluginGate: new(release.NewWaitingGate("plugin", release.ByAnswer, "asked"))}, "wait plugin answer: asked", ""},
		{"plugin good", stepState{Step: plugin, Status: ran(argov1.StepPluginSuccessful, false, "")}, "pass", ""},
		{"plugin disabled", stepState{Step: plugin, Status: ran("", true, "")}, "pass", ""},
		{"plugin bad", stepState{Step: plugin, Status: ran(argov1.StepPluginFailed, false, "")}, "fail plugin person: says", "Step Plugin 1 (a) failed: says"},
		{"scale, pause and route", stepState{Step: several, Status: pausedSinceStatus(noon)}, "wait pause time: until 12:00:10", ""},
		{"scale and route", stepState{Step: argov1.CanaryStep{SetCanaryScale: several.SetCanaryScale, SetHeaderRoute: several.SetHeaderRoute}, Pods: stepPods{DesiredNew: 2}}, "wait pods cluster: 0 of 2 new pods available", ""},
		{"pause over while a person is asked", stepState{Step: pauseFor("10"), Status: asked}, "pass", ""},
		{"nothing", stepState{}, "fail step person: the step is empty: correct spec.strategy.canary.steps", ""},
	} {
		if test.v.Now.IsZero() {
			test.v.Now = noon
		}
		gates := evaluateStepGates(test.v)
		got := "pass"
		if gate := gates.First(); gate != nil {
			got = string(gate.Verdict) + " " + gate.Name + " " + string(gate.Opener) + ": " + gate.Message
		}
		if got != test.want {
			t.Errorf("%s:\ngot  %s\nwant %s", test.name, got, test.want)
		}
		if detail, aborts := stepAbortCause(test.v); detail != test.detail || aborts != (test.detail != "") {
			t.Errorf("%s: aborts %v with %q, want %q", test.name, aborts, detail, test.detail)
		}
	}
}

// TestNoStepIsADeadEnd: every waiting step has an opener, and one that time opens has a time.
func TestNoStepIsADeadEnd(t *testing.T) {
	phases := []argov1.AnalysisPhase{"", argov1.AnalysisPhasePending, argov1.AnalysisPhaseRunning, argov1.AnalysisPhaseSuccessful, argov1.AnalysisPhaseFailed, argov1.AnalysisPhaseError, argov1.AnalysisPhaseInconclusive, "Newer"}
	steps := []argov1.CanaryStep{
		{},
		setWeight(10), scaleTo(3), pauseFor(""), pauseFor("0"), pauseFor("10"), pauseFor("-5"), pauseFor("soon"),
		{Analysis: &argov1.RolloutAnalysis{}},
		{Experiment: &argov1.RolloutExperimentStep{}},
		{Plugin: &argov1.PluginStep{}},
		{SetHeaderRoute: &argov1.SetHeaderRoute{}},
		{SetMirrorRoute: &argov1.SetMirrorRoute{}},
	}
	rapid.Check(t, func(t *rapid.T) {
		v := stepState{
			Now: noon, Step: rapid.SampledFrom(steps).Draw(t, "step"), RoutePlanned: rapid.Bool().Draw(t, "routed"),
			Pods: stepPods{
				New: pods.ReplicaSetPods{SpecReplicas: rapid.Int32Range(0, 3).Draw(t, "spec"), Available: rapid.Int32Range(0, 3).Draw(t, "available")}, DesiredNew: rapid.Int32Range(0, 3).Draw(t, "want"),
				WithoutRouter: rapid.Bool().Draw(t, "basic"), OthersAvailable: rapid.Int32Range(0, 1).Draw(t, "others"),
			},
		}
		if rapid.Bool().Draw(t, "held") {
			v.Status = pausedSinceStatus(noon.Add(time.Duration(rapid.IntRange(-20, 20).Draw(t, "since")) * time.Second))
		}
		v.Status.ControllerPause = rapid.Bool().Draw(t, "controller pause")
		if rapid.Bool().Draw(t, "judged") {
			v.Run = &runResult{Name: "r", Phase: rapid.SampledFrom(phases).Draw(t, "phase")}
			v.Experiment = v.Run
		}
		if rapid.Bool().Draw(t, "called") {
			v.Status.Canary.StepPluginStatuses = []argov1.StepPluginStatus{{
				Operation: argov1.StepPluginRun, Phase: rapid.SampledFrom([]argov1.StepPluginPhase{"", "Running", "Error", "Failed", "Successful", "Newer"}).Draw(t, "plugin"),
				Backoff: rapid.SampledFrom([]argov1.DurationString{"", "1s", "-1s", "never"}).Draw(t, "backoff"),
			}}
		}
		gates := evaluateStepGates(v)
		if len(gates) == 0 {
			t.Fatalf("%s looks at nothing", DescribeStep(v.Step))
		}
		for _, gate := range gates {
			switch {
			case gate.Verdict == release.Pass:
			case gate.Opener == "":
				t.Fatalf("%s: nobody opens %+v", DescribeStep(v.Step), gate)
			case gate.Opener == release.ByTime && !gate.Until.After(v.Now):
				t.Fatalf("%s: time opens %+v, which is past", DescribeStep(v.Step), gate)
			}
		}
	})
}

func TestTextOfCompletedSteps(t *testing.T) {
	if got, want := stepCompletedText(1, 4, setWeight(50)), "Rollout step 1/4 completed (setWeight: 50)"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// TestAPromotionWithOtherReplicasIsNotLost: a user ends a pause and changes the replicas before the next reconciliation, which only
// scales.
func TestAPromotionWithOtherReplicasIsNotLost(t *testing.T) {
	w := worldInFirstPause(t, 4, setWeight(50), pauseFor(""), setWeight(75), pauseFor(""))
	w.generation++
	w.spec.Replicas = new(int32(6))
	w.promote()
	w.settle(t)
	if got := *w.status.CurrentStepIndex; got != 3 {
		t.Errorf("step %d, want the next pause, 3", got)
	}
}
