package condition_test

import (
	"testing"
	"time"

	"github.com/serin-dev/serin/internal/analysis/condition"
	"github.com/serin-dev/serin/internal/budget"
)

var noon = time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)

func TestEvaluateTime(t *testing.T) {
	for text, want := range map[string]time.Time{
		"":                             noon,
		"now()":                        noon,
		`now() - duration("1h")`:       noon.Add(-time.Hour),
		`date("2025-12-31T00:00:00Z")`: time.Date(2025, 12, 31, 0, 0, 0, 0, time.UTC),
		`now().Add(duration("90s"))`:   noon.Add(90 * time.Second),
	} {
		if got, err := condition.EvaluateTime(t.Context(), text, noon); err != nil || !got.Equal(want) {
			t.Errorf("%q: got %v, %v, want %v", text, got, err, want)
		}
	}
	for text, want := range map[string]string{
		"1 + 1": "expected time.Time, but got int",
		"all(1..100000, all(1..100000, true)) ? now() : now()": budget.ErrExceeded.Error(),
		"later(": "unexpected token EOF (1:6)",
	} {
		if _, err := condition.EvaluateTime(t.Context(), text, noon); err == nil || err.Error() != want {
			t.Errorf("%q: got %v, want %s", text, err, want)
		}
	}
}
