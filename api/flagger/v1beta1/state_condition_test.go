package v1beta1_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/randfill"

	"github.com/serin-dev/serin/api/flagger/v1beta1"
)

// stored returns a status as a client reads it from an API server whose schema prunes status.serin.
func stored(t *testing.T, status v1beta1.CanaryStatus) v1beta1.CanaryStatus {
	t.Helper()
	status.Serin = nil
	text, err := json.Marshal(status)
	if err != nil {
		t.Fatal(err)
	}
	var read v1beta1.CanaryStatus
	if err := json.Unmarshal(text, &read); err != nil {
		t.Fatal(err)
	}
	return read
}

// encoded returns a status with a state, and the same status as it is stored.
func encoded(t *testing.T) (status, read v1beta1.CanaryStatus) {
	t.Helper()
	since := metav1.NewMicroTime(time.Date(2026, 1, 1, 0, 0, 0, 123456000, time.UTC))
	status = v1beta1.CanaryStatus{
		Phase: v1beta1.CanaryPhaseProgressing, LastTransitionTime: metav1.NewTime(since.Truncate(time.Second)),
		Conditions: []v1beta1.CanaryCondition{{Type: v1beta1.ConditionPromoted, Status: corev1.ConditionUnknown, Reason: "Progressing"}},
		Serin:      &v1beta1.SerinStatus{Run: "r", Revision: "v2", Window: &v1beta1.AnalysisWindow{Start: since}},
	}
	written, err := v1beta1.EncodeState(status)
	if err != nil {
		t.Fatal(err)
	}
	return status, stored(t, written)
}

// TestStateSurvivesASchemaThatPrunesIt: the decoded state equals the encoded one, with microseconds. Stored values are shared
// with caches, so neither direction modifies them.
func TestStateSurvivesASchemaThatPrunesIt(t *testing.T) {
	fill := randfill.NewWithSeed(1).NilChance(0.4).NumElements(0, 3)
	for range 2_000 {
		status := v1beta1.CanaryStatus{Serin: &v1beta1.SerinStatus{}, LastTransitionTime: metav1.Unix(1_700_000_000, 0)}
		fill.Fill(status.Serin)
		fill.Fill(&status.Conditions)
		written, err := v1beta1.EncodeState(status)
		if err != nil {
			t.Fatal(err)
		}
		read := stored(t, written)
		before := *read.DeepCopy()
		decoded := v1beta1.DecodeState(read)
		if diff := cmp.Diff(before, read); diff != "" {
			t.Fatalf("the stored status was modified:\n%s", diff)
		}
		want := v1beta1.CanaryStatus{Serin: status.Serin, LastTransitionTime: status.LastTransitionTime, Conditions: status.Conditions}
		if diff := cmp.Diff(asJSON(t, want), asJSON(t, decoded)); diff != "" {
			t.Fatalf("the state differs (-written +read):\n%s", diff)
		}
		if again := v1beta1.DecodeState(decoded); asJSON(t, again) != asJSON(t, decoded) {
			t.Fatalf("decoded twice it is %+v", again)
		}
	}
}

func asJSON(t *testing.T, status v1beta1.CanaryStatus) string {
	t.Helper()
	if len(status.Conditions) == 0 {
		status.Conditions = nil
	}
	text, err := json.Marshal(status)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestDecodeState(t *testing.T) {
	for name, change := range map[string]struct {
		change func(*v1beta1.CanaryStatus)
		want   string // the run
	}{
		"unchanged":                              {func(*v1beta1.CanaryStatus) {}, "r"},
		"the field has precedence":               {func(s *v1beta1.CanaryStatus) { s.Serin = &v1beta1.SerinStatus{Run: "field"} }, "field"},
		"Flagger kept the list in a transition":  {func(s *v1beta1.CanaryStatus) { s.LastTransitionTime.Time = s.LastTransitionTime.Add(time.Second) }, ""},
		"Flagger replaced the list":              {func(s *v1beta1.CanaryStatus) { s.Conditions = s.Conditions[:1] }, ""},
		"a message that is not JSON":             {func(s *v1beta1.CanaryStatus) { s.Conditions[1].Message = "{" }, ""},
		"a message that is JSON of another kind": {func(s *v1beta1.CanaryStatus) { s.Conditions[1].Message = `{"run":7}` }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			_, read := encoded(t)
			change.change(&read)
			decoded := v1beta1.DecodeState(read)
			run := ""
			if decoded.Serin != nil {
				run = decoded.Serin.Run
			}
			if run != change.want || v1beta1.HasEncodedState(decoded) {
				t.Errorf("got run %q, want %q, in %+v", run, change.want, decoded)
			}
		})
	}
}

// TestEncodeStateAgain ensures that the condition is written once, whatever was stored.
func TestEncodeStateAgain(t *testing.T) {
	status, read := encoded(t)
	read.Serin = status.Serin
	again, err := v1beta1.EncodeState(read)
	if err != nil {
		t.Fatal(err)
	}
	if len(again.Conditions) != 2 {
		t.Errorf("got %d conditions, want 2: %+v", len(again.Conditions), again.Conditions)
	}
}
