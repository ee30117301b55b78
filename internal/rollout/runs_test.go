package rollout

import (
	"testing"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
)

// TestWhatGotAnotherNameIsUsed: where somebody else has the name that the status says, what was made under one with a number
// is what judges, and nothing is made or ended for it again.
func TestWhatGotAnotherNameIsUsed(t *testing.T) {
	for name, step := range map[string]argov1.CanaryStep{
		"analysis": {Analysis: analysed}, "experiment": {Experiment: &argov1.RolloutExperimentStep{}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(argov1.RolloutSpec{Replicas: new(int32(2)), Strategy: argov1.RolloutStrategy{Canary: &argov1.CanaryStrategy{Steps: []argov1.CanaryStep{step}}}})
			w.settle(t)
			w.template = "v2"
			w.generation++
			w.settle(t)
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
				case RunExists, RunTerminated, RunGone, ExperimentExists, ExperimentTerminated, ExperimentGone:
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
