package runner_test

import (
	"strings"
	"testing"

	"github.com/serin-dev/serin/test/sim/corpus"
	"github.com/serin-dev/serin/test/sim/runner"
)

// TestRegressionCorpus executes the runs that once found a defect. None of them may violate an invariant again.
func TestRegressionCorpus(t *testing.T) {
	t.Parallel()
	entries, err := corpus.All()
	if err != nil {
		t.Fatal(err)
	}
	if len(entries) == 0 {
		t.Fatal("the regression corpus is empty")
	}
	for _, entry := range entries {
		t.Run(entry.Name, func(t *testing.T) {
			t.Parallel()
			result := runner.Run(runner.SelectEntry(entry))
			for _, v := range result.Violations {
				t.Errorf("%s after %s: %s\nthe defect was: %s\ntrace:\n%s", v.Number, v.At, v.Text, entry.Description, strings.Join(result.Trace, "\n"))
			}
		})
	}
}
