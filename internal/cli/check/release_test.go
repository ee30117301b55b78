package check

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/serin-dev/serin/internal/canary"
)

// TestASettingThatTheUserShouldCorrectIsAWarning: serin lint and serin why report the same.
func TestASettingThatTheUserShouldCorrectIsAWarning(t *testing.T) {
	const interval = `spec.analysis.interval is "30sec", which is not a duration: 60s is used. Write 30s`
	for name, test := range map[string]struct {
		plan    canary.Plan
		invalid []string
		want    []Result
	}{
		"valid":       {want: []Result{passed("spec", "valid")}},
		"adjusted":    {plan: canary.Plan{Warnings: []string{interval}}, want: []Result{warning("spec", interval, lintNamesTheField)}},
		"no analysis": {plan: canary.Plan{NoAnalysis: true}, want: []Result{warning("spec", canary.NoAnalysisMessage, lintNamesTheField)}},
		"invalid": {
			plan: canary.Plan{Warnings: []string{interval}}, invalid: []string{"no steps"},
			want: []Result{failed("spec", "no steps", lintNamesTheField)},
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := Canary{Snapshot: canary.Snapshot{Plan: test.plan}, Invalid: test.invalid}
			if diff := cmp.Diff(test.want, c.spec()); diff != "" {
				t.Errorf("results (-want +got):\n%s", diff)
			}
		})
	}
}

func TestTheFixOfAMissingObjectIsForThatProblemOnly(t *testing.T) {
	if got := ifMissing(`deployments.apps "cart" not found`, "create it"); got != "create it" {
		t.Errorf("a missing object: got %q", got)
	}
	if got := ifMissing("getSelectorLabel failed: add a label", "create it"); got != "" {
		t.Errorf("a problem with a fix of its own: got %q", got)
	}
}
