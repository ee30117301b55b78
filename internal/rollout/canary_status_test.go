package rollout

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
)

// views draws what a Rollout may look like, also what no healthy cluster shows.
func views(t *rapid.T) CanaryView {
	kinds := []argov1.CanaryStep{{}, setWeight(0), setWeight(50), pauseFor(""), pauseFor("5"), {Analysis: &argov1.RolloutAnalysis{}}, {Plugin: &argov1.PluginStep{}}}
	phases := []argov1.AnalysisPhase{"", argov1.AnalysisPhaseRunning, argov1.AnalysisPhaseSuccessful, argov1.AnalysisPhaseFailed, argov1.AnalysisPhaseInconclusive}
	hashes := []string{"a", "b", "c", ""}
	v := CanaryView{
		Now: noon, Name: "cart", Generation: 3, StepHash: rapid.SampledFrom([]string{"s", "t"}).Draw(t, "steps now"),
		New: rapid.SampledFrom(hashes).Draw(t, "new"), InWindow: rapid.Bool().Draw(t, "in window"),
		Spec: argov1.RolloutSpec{
			Replicas: new(rapid.Int32Range(0, 3).Draw(t, "replicas")), Paused: rapid.Bool().Draw(t, "paused"),
			ProgressDeadlineAbort: rapid.Bool().Draw(t, "abort late"),
			Strategy: argov1.RolloutStrategy{Canary: &argov1.CanaryStrategy{
				Steps: rapid.SliceOfN(rapid.SampledFrom(kinds), 0, 3).Draw(t, "steps"),
			}},
		},
		Status: argov1.RolloutStatus{
			Abort: rapid.Bool().Draw(t, "abort"), PromoteFull: rapid.Bool().Draw(t, "full"), ControllerPause: rapid.Bool().Draw(t, "controller pause"),
			CurrentPodHash: rapid.SampledFrom(hashes).Draw(t, "current"), StableRS: rapid.SampledFrom(hashes).Draw(t, "stable"),
			CurrentStepHash: rapid.SampledFrom([]string{"s", "t", ""}).Draw(t, "steps then"), ObservedGeneration: rapid.SampledFrom([]string{"3", "2", "x"}).Draw(t, "observed"),
		},
	}
	if rapid.Bool().Draw(t, "has index") {
		v.Status.CurrentStepIndex = new(rapid.Int32Range(-2, 5).Draw(t, "index"))
	}
	if rapid.Bool().Draw(t, "held") {
		since := noon.Add(-time.Duration(rapid.IntRange(0, 20).Draw(t, "since")) * time.Second)
		v.Status.PauseConditions = []argov1.PauseCondition{{Reason: argov1.PauseReasonCanaryPauseStep, StartTime: metav1.NewTime(since)}}
	}
	if rapid.Bool().Draw(t, "has progressed") {
		reason := rapid.SampledFrom([]string{reasonUpdated, reasonAborted, reasonPaused, reasonDeadlineExceeded, reasonProgressed}).Draw(t, "progress")
		v.Status.Conditions = conditions{}.with(progressing(truth(true), reason, ""), noon.Add(-time.Duration(rapid.IntRange(0, 20).Draw(t, "ago"))*time.Minute))
	}
	for i, hash := range hashes[:3] {
		pods := rapid.Int32Range(0, 3).Draw(t, "pods")
		rs := ReplicaSet{
			Name: "cart-" + hash, Hash: hash, Revision: int64(i), Spec: pods, Replicas: pods, Ready: pods,
			Available: rapid.Int32Range(0, pods).Draw(t, "available"),
		}
		if rapid.Bool().Draw(t, "delayed") {
			rs.Deadline = noon.Add(time.Minute)
		}
		v.Sets = append(v.Sets, rs)
	}
	if rapid.Bool().Draw(t, "judged") {
		v.Step.Run = &Judgement{Name: "r", Phase: rapid.SampledFrom(phases).Draw(t, "run")}
	}
	if rapid.Bool().Draw(t, "judged beside") {
		v.Background = &Judgement{Name: "b", Phase: rapid.SampledFrom(phases).Draw(t, "background")}
	}
	return v.at(v.Status)
}

// at is the view with another status, and the step that it is at.
func (v CanaryView) at(status argov1.RolloutStatus) CanaryView {
	v.Status = status
	v.Step.Status, v.Step.Now, v.Step.Index = status, v.Now, value(status.CurrentStepIndex, 0)
	v.Step.Step, _ = stepAt(v.steps(), status.CurrentStepIndex)
	newSet := v.set(v.New)
	v.Step.Pods = StepPods{New: Scaled{newSet.Spec, newSet.Available}, WantNew: newSet.Spec}
	return v
}

func TestNextCanaryStatusIsTotalAndLeavesItsViewAlone(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := views(t)
		before := v.at(*v.Status.DeepCopy())
		before.Status.Conditions = append([]argov1.RolloutCondition(nil), v.Status.Conditions...)
		first, told := NextCanaryStatus(v)
		second, again := NextCanaryStatus(v)
		if diff := cmp.Diff(first, second) + cmp.Diff(told, again); diff != "" {
			t.Fatalf("two decisions about one view differ:\n%s", diff)
		}
		if diff := cmp.Diff(before.Status, v.Status); diff != "" {
			t.Fatalf("the view was changed (-before +after):\n%s", diff)
		}
	})
}

func TestNextCanaryStatusHoldsWhatTheAPIPromises(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := views(t)
		next, _ := NextCanaryStatus(v)
		steps := v.steps()
		switch index := next.CurrentStepIndex; {
		case (index == nil) != (len(steps) == 0):
			t.Fatalf("%d steps, and the index is %v", len(steps), index)
		case index != nil && (*index < 0 || int(*index) > len(steps)):
			t.Fatalf("%d steps, and the index is %d", len(steps), *index)
		}
		if next.Abort && (len(next.PauseConditions) > 0 || next.ControllerPause || next.AbortedAt == nil || next.Phase != argov1.RolloutPhaseDegraded) {
			t.Fatalf("aborted, and %+v", next)
		}
		if next.Abort && promoted(next) {
			t.Fatal("aborted, and promoted")
		}
		if len(steps) > 0 && promoted(next) && int(*next.CurrentStepIndex) != len(steps) {
			t.Fatalf("promoted, and at step %d of %d", *next.CurrentStepIndex, len(steps))
		}
		if next.StableRS != v.Status.StableRS && next.StableRS != v.New {
			t.Fatalf("%s became stable", next.StableRS)
		}
		if newSet := v.set(v.New); next.StableRS != v.Status.StableRS && v.Status.StableRS != "" && newSet.Available < *v.Spec.Replicas {
			t.Fatalf("promoted with %d of %d pods", newSet.Available, *v.Spec.Replicas)
		}
		if !v.changed() && v.Spec.Paused && !next.Abort && !v.Status.PromoteFull && !v.InWindow && !promoted(next) && v.Status.CurrentStepIndex != nil {
			was := min(max(int(*v.Status.CurrentStepIndex), 0), len(steps))
			if len(steps) > 0 && int(*next.CurrentStepIndex) != was {
				t.Fatalf("paused by hand, and the index went from %d to %d", was, *next.CurrentStepIndex)
			}
		}
	})
}

// TestNextCanaryStatusComesToRest: as long as nothing changes around it, it goes on step by step, and then no further.
func TestNextCanaryStatusComesToRest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := views(t)
		for range 20 {
			next, told := NextCanaryStatus(v)
			if cmp.Equal(next, v.Status) {
				if len(told) > 0 {
					t.Fatalf("nothing changes, and people are told %v", told)
				}
				return
			}
			was, is := max(value(v.Status.CurrentStepIndex, 0), 0), value(next.CurrentStepIndex, 0)
			if is > was+1 && int(is) != len(v.steps()) {
				t.Fatalf("from step %d to step %d", was, is)
			}
			v = v.at(next)
		}
		t.Fatalf("does not come to rest: %+v", v.Status)
	})
}
