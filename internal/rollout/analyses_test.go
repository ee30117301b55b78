package rollout

import (
	"testing"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
)

// evaluatingSteps are the steps that create an object which decides about them. It is never changed.
var evaluatingSteps = map[string]argov1.CanaryStep{
	"analysis": {Analysis: analysed}, "experiment": {Experiment: &argov1.RolloutExperimentStep{}},
}

// worldInStep returns a world whose second revision is in its only step.
func worldInStep(t *testing.T, step argov1.CanaryStep) *world {
	t.Helper()
	w := newWorld(argov1.RolloutSpec{Replicas: new(int32(2)), Strategy: argov1.RolloutStrategy{Canary: &argov1.CanaryStrategy{Steps: []argov1.CanaryStep{step}}}})
	w.settle(t)
	w.template = "v2"
	w.generation++
	w.settle(t)
	return w
}

// TestRunWithNumberedNameIsUsed: if another object has the name in the status, the run that was created under a
// numbered name is evaluated, and is neither created nor terminated again.
func TestRunWithNumberedNameIsUsed(t *testing.T) {
	for name, step := range evaluatingSteps {
		t.Run(name, func(t *testing.T) {
			w := worldInStep(t, step)
			for i := range w.runs {
				w.runs[i].Name += ".1"
			}
			for i := range w.experiments {
				w.experiments[i].Name += "-1"
			}
			if len(w.runs)+len(w.experiments) != 1 {
				t.Fatalf("made %v and %v", w.runs, w.experiments)
			}
			d := Next(w.snapshot(t))
			for _, effect := range d.Effects {
				switch effect.(type) {
				case AnalysisRunExists, AnalysisRunTerminated, AnalysisRunDeleted, ExperimentExists, ExperimentTerminated, ExperimentDeleted:
					t.Errorf("wants that %s", effect)
				}
			}
			var judges string
			if run := d.Status.Canary.CurrentStepAnalysisRunStatus; run != nil {
				judges = run.Name
			}
			if judges += d.Status.Canary.CurrentExperiment; judges != "cart-hash-v2-2-0.1" && judges != "cart-hash-v2-2-0-1" {
				t.Errorf("%q judges", judges)
			}
		})
	}
}

// TestRecordedNameIsKept: a run or an Experiment with a numbered name may exist before the watch delivers it. Its name does not
// change because the object with the name without a number was deleted in between: both would exist.
func TestRecordedNameIsKept(t *testing.T) {
	for name, step := range evaluatingSteps {
		t.Run(name, func(t *testing.T) {
			w := worldInStep(t, step)
			w.runs, w.experiments = nil, nil
			recorded := &w.status.Canary
			if recorded.CurrentExperiment != "" {
				recorded.CurrentExperiment += "-1"
			} else {
				recorded.CurrentStepAnalysisRunStatus = &argov1.RolloutAnalysisRunStatus{Name: recorded.CurrentStepAnalysisRunStatus.Name + ".1"}
			}
			var created []string
			for _, effect := range Next(w.snapshot(t)).Effects {
				switch e := effect.(type) {
				case AnalysisRunExists:
					created = append(created, e.Name)
				case ExperimentExists:
					created = append(created, e.Name)
				}
			}
			if len(created) != 1 || created[0] != "cart-hash-v2-2-0.1" && created[0] != "cart-hash-v2-2-0-1" {
				t.Errorf("creates %q", created)
			}
		})
	}
}

// TestExperimentSurvivesNewRevisionNumber: a template that was replaced and returned before the next status write has a
// higher revision number, and the Experiment that was created for its step is still evaluated.
func TestExperimentSurvivesNewRevisionNumber(t *testing.T) {
	steps := []argov1.CanaryStep{{Experiment: &argov1.RolloutExperimentStep{}}, {Experiment: &argov1.RolloutExperimentStep{}}}
	for name, tc := range map[string]struct {
		current string
		judges  string
	}{
		"of an earlier number":                 {"cart-hash-v2-1-0", "cart-hash-v2-1-0"},
		"of an earlier number, with a number":  {"cart-hash-v2-1-0-1", "cart-hash-v2-1-0-1"},
		"of another step":                      {"cart-hash-v2-2-1", "cart-hash-v2-2-0"},
		"of another template with a like name": {"cart-hash-v22-2-0", "cart-hash-v2-2-0"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(argov1.RolloutSpec{Replicas: new(int32(2)), Strategy: argov1.RolloutStrategy{Canary: &argov1.CanaryStrategy{Steps: steps}}})
			w.settle(t)
			w.template = "v2"
			w.generation++
			w.settle(t)
			w.experiments[0].Name, w.status.Canary.CurrentExperiment = tc.current, tc.current
			if got := Next(w.snapshot(t)).Status.Canary.CurrentExperiment; got != tc.judges {
				t.Errorf("%q judges, want %q", got, tc.judges)
			}
		})
	}
}

// TestTerminatedRunIsNotEvaluated: a release that starts again terminates the current analysis and is evaluated by
// another one, even if the list does not show the termination yet.
func TestTerminatedRunIsNotEvaluated(t *testing.T) {
	for name, stale := range map[string]bool{"as the cluster is": false, "by an old list": true} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(argov1.RolloutSpec{Replicas: new(int32(1)), Strategy: argov1.RolloutStrategy{Canary: &argov1.CanaryStrategy{
				Steps: []argov1.CanaryStep{{SetCanaryScale: &argov1.SetCanaryScale{Replicas: new(int32(1))}}, {Analysis: analysed}},
			}}})
			w.settle(t)
			w.template = "v2"
			w.generation++
			w.settle(t)
			if len(w.runs) != 1 || w.runs[0].Name != "cart-hash-v2-2-1" {
				t.Fatalf("runs %v", w.runs)
			}
			w.status.CurrentPodHash = "ffffffffff" // written by a user
			for range 4 {
				w.reconcile(t)
				w.runs[0].Terminated = w.runs[0].Terminated && !stale
			}
			if now := w.status.Canary.CurrentStepAnalysisRunStatus; now == nil || now.Name != "cart-hash-v2-2-1.1" {
				t.Errorf("judged by %+v, of %+v", now, w.runs)
			}
		})
	}
}

// TestAStartedRunIsUsed instead of a second one for the same purpose. The new revision is 3.
func TestAStartedRunIsUsed(t *testing.T) {
	for _, test := range []struct {
		name     string
		run      AnalysisRun
		suffix   string
		recorded string
		want     bool
	}{
		{name: "its name is not recorded", run: AnalysisRun{Name: "cart-hash-3"}, want: true},
		{name: "the ReplicaSet was recreated with a lower revision", run: AnalysisRun{Name: "cart-hash-4.1"}, want: true},
		{name: "of an earlier release", run: AnalysisRun{Name: "cart-hash-2"}},
		{name: "terminated when the recorded name was chosen", run: AnalysisRun{Name: "cart-hash-3.1"}, recorded: "cart-hash-3.2"},
		{name: "its name is recorded", run: AnalysisRun{Name: "cart-hash-3.2"}, recorded: "cart-hash-3.2", want: true},
		{name: "terminated when a name of a higher revision was recorded", run: AnalysisRun{Name: "cart-hash-3"}, recorded: "cart-hash-4.2"},
		{name: "of a step", run: AnalysisRun{Name: "cart-hash-3-1"}, suffix: "-1", want: true},
		{name: "of another step", run: AnalysisRun{Name: "cart-hash-3-2"}, suffix: "-1"},
		{name: "of no step", run: AnalysisRun{Name: "cart-hash-3"}, suffix: "-1"},
		{name: "of another revision of the pod template", run: AnalysisRun{Name: "cart-hash-3", Hash: "other"}},
		{name: "created by users", run: AnalysisRun{Name: "cart-hash-3.x"}},
		{name: "completed", run: AnalysisRun{Name: "cart-hash-3", Phase: argov1.AnalysisPhaseSuccessful}},
		{name: "terminated", run: AnalysisRun{Name: "cart-hash-3", Terminated: true}},
		{name: "deleted", run: AnalysisRun{Name: "cart-hash-3", Deleting: true}},
	} {
		t.Run(test.name, func(t *testing.T) {
			run, request := test.run, analysisRequest{kind: argov1.TypeBackground, suffix: test.suffix}
			if run.Hash == "" {
				run.Hash = "hash"
			}
			run.Type = request.kind
			if test.recorded != "" {
				request.recordedRun = &argov1.RolloutAnalysisRunStatus{Name: test.recorded}
			}
			f := facts{Snapshot: Snapshot{Name: "cart", Hash: "hash", AnalysisRuns: []AnalysisRun{run}}}
			f.new.Revision = 3
			if got := findStartedRun(f, request); (got != nil) != test.want {
				t.Errorf("got %v, want one: %t", got, test.want)
			}
		})
	}
}
