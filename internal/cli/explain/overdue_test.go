package explain_test

import (
	"testing"

	"github.com/serin-dev/serin/internal/cli/explain"
	"github.com/serin-dev/serin/internal/reconciler"
)

func TestAStepIsOverdueOnlyWhenTheStatusMustShowWhatItWaitsFor(t *testing.T) {
	if explain.RecordedAfter != reconciler.ExplainAfter {
		t.Errorf("the controller records a wait after %s, and a step is overdue after %s", reconciler.ExplainAfter, explain.RecordedAfter)
	}
}
