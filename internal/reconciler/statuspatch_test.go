package reconciler_test

import (
	"encoding/json"
	"testing"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"sigs.k8s.io/randfill"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/reconciler"
)

// TestStatusPatchIsTheDifferenceOfTheEncodings compares with a merge patch of the complete JSON encodings, which StatusPatch
// avoids.
func TestStatusPatchIsTheDifferenceOfTheEncodings(t *testing.T) {
	fill := randfill.NewWithSeed(1).NilChance(0.4).NumElements(0, 3)
	for range 2_000 {
		var before, after flaggerv1.CanaryStatus
		fill.Fill(&before)
		after = *before.DeepCopy()
		switch {
		case before.FailedChecks%2 == 0:
			fill.Fill(&after)
		case before.Iterations%2 == 0 && after.Serin != nil:
			fill.Fill(after.Serin)
		default:
			after.CanaryWeight++
			after.Conditions = nil
		}
		compare(t, &before, &after)
	}
	for range 500 {
		var before, after argov1.AnalysisRunStatus
		fill.Fill(&before)
		fill.Fill(&after)
		compare(t, &before, &after)
	}
	for range 500 {
		var before, after argov1.ExperimentStatus
		fill.Fill(&before)
		fill.Fill(&after)
		compare(t, &before, &after)
	}
}

// TestANestedFieldIsRetainedWhenItsSiblingIsRemoved covers a struct of which only one field is removed.
func TestANestedFieldIsRetainedWhenItsSiblingIsRemoved(t *testing.T) {
	before := argov1.RolloutStatus{Canary: argov1.CanaryStatus{CurrentExperiment: "e", StablePingPong: argov1.Ping}}
	after := *before.DeepCopy()
	after.Canary.CurrentExperiment = ""
	compare(t, &before, &after)
}

// TestFieldsOfANewerVersionAreRetained: a version that does not know a field decodes the status without it, and its patch does
// not remove it, at any depth except in lists.
func TestFieldsOfANewerVersionAreRetained(t *testing.T) {
	stored := []byte(`{"phase":"Progressing","canaryWeight":20,"future":{"a":1},"serin":{"run":"r","future":true}}`)
	var before flaggerv1.CanaryStatus
	if err := json.Unmarshal(stored, &before); err != nil {
		t.Fatal(err)
	}
	after := *before.DeepCopy()
	after.CanaryWeight, after.Serin.Run = 40, "s"
	patch, err := reconciler.StatusPatch("7", &before, &after)
	if err != nil {
		t.Fatal(err)
	}
	got, err := jsonpatch.MergePatch([]byte(`{"status":`+string(stored)+`}`), patch)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"metadata":{"resourceVersion":"7"},"status":{"canaryWeight":40,"future":{"a":1},"phase":"Progressing","serin":{"future":true,"run":"s"}}}`
	if !jsonpatch.Equal(got, []byte(want)) {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestTheFirstStatusHasItsCounters(t *testing.T) {
	patch, err := reconciler.StatusPatch("7", &flaggerv1.CanaryStatus{}, &flaggerv1.CanaryStatus{Phase: flaggerv1.CanaryPhaseInitializing})
	if err != nil {
		t.Fatal(err)
	}
	var written struct {
		Status map[string]any `json:"status"`
	}
	if err := json.Unmarshal(patch, &written); err != nil {
		t.Fatal(err)
	}
	for _, counter := range []string{"canaryWeight", "failedChecks", "iterations"} {
		if written.Status[counter] != 0.0 {
			t.Errorf("%s is %v in %s", counter, written.Status[counter], patch)
		}
	}
}

func compare[S any](t *testing.T, before, after *S) {
	t.Helper()
	encoded := func(value any) []byte {
		text, err := json.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	difference, err := jsonpatch.CreateMergePatch(encoded(before), encoded(after))
	if err != nil {
		t.Fatal(err)
	}
	want := encoded(map[string]any{"metadata": map[string]any{"resourceVersion": "7"}, "status": json.RawMessage(difference)})
	got, err := reconciler.StatusPatch("7", before, after)
	if err != nil {
		t.Fatal(err)
	}
	var a, b any
	if json.Unmarshal(got, &a) != nil || json.Unmarshal(want, &b) != nil || string(encoded(a)) != string(encoded(b)) {
		t.Fatalf("got  %s\nwant %s", got, want)
	}
}
