package controller

import (
	"encoding/json"
	"testing"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"sigs.k8s.io/randfill"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
)

// TestStatusPatchIsTheDifferenceOfTheEncodings: the patch is made without encoding the statuses, and is the one that
// their encodings would give.
func TestStatusPatchIsTheDifferenceOfTheEncodings(t *testing.T) {
	fill := randfill.NewWithSeed(1).NilChance(0.4).NumElements(0, 3)
	encoded := func(value any) []byte {
		text, err := json.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
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
		difference, err := jsonpatch.CreateMergePatch(encoded(before), encoded(after))
		if err != nil {
			t.Fatal(err)
		}
		want := encoded(map[string]any{"metadata": map[string]any{"resourceVersion": "7"}, "status": json.RawMessage(difference)})
		got, err := statusPatch("7", before, after)
		if err != nil {
			t.Fatal(err)
		}
		var a, b any
		if json.Unmarshal(got, &a) != nil || json.Unmarshal(want, &b) != nil || string(encoded(a)) != string(encoded(b)) {
			t.Fatalf("is  %s\nnot %s", got, want)
		}
	}
}
