package condition_test

import (
	"math"
	"strings"
	"testing"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/analysis/condition"
)

func TestEvaluatePhase(t *testing.T) {
	var nobody *float64
	number := 0.9
	for _, c := range []struct {
		value            any
		success, failure string
		want             argov1.AnalysisPhase
		err              string
	}{
		{0.99, "", "", argov1.AnalysisPhaseSuccessful, ""},
		{0.99, "result >= 0.95", "", argov1.AnalysisPhaseSuccessful, ""},
		{0.9, "result >= 0.95", "", argov1.AnalysisPhaseFailed, ""},
		{0.9, "", "result < 0.95", argov1.AnalysisPhaseFailed, ""},
		{0.99, "", "result < 0.95", argov1.AnalysisPhaseSuccessful, ""},
		{0.93, "result >= 0.95", "result < 0.90", argov1.AnalysisPhaseInconclusive, ""},
		{0.5, "result >= 0.95", "result < 0.90", argov1.AnalysisPhaseFailed, ""},
		{0.99, "true", "true", argov1.AnalysisPhaseFailed, ""},
		{&number, "result > 0.8", "", argov1.AnalysisPhaseSuccessful, ""},
		{[]float64{0.99, 0.98}, "result[0] >= 0.95 && all(result, # > 0.9)", "", argov1.AnalysisPhaseSuccessful, ""},
		{[]any{}, "len(result) == 0 || result[0] < 1", "", argov1.AnalysisPhaseSuccessful, ""},
		{"200", "asInt(result) == 200", "", argov1.AnalysisPhaseSuccessful, ""},
		{"0.25", "asFloat(result) < 0.5", "", argov1.AnalysisPhaseSuccessful, ""},
		{7.9, "asInt(result) == 7", "", argov1.AnalysisPhaseSuccessful, ""},
		{math.NaN(), "isNaN(result) || result > 1", "", argov1.AnalysisPhaseSuccessful, ""},
		{math.Inf(1), "isInf(result)", "", argov1.AnalysisPhaseSuccessful, ""},
		{map[string]any{"data": map[string]any{"ok": true, "rate": 5}}, "result.data.ok && result.data.rate < 6", "", argov1.AnalysisPhaseSuccessful, ""},
		{nil, "isNil(result)", "", argov1.AnalysisPhaseSuccessful, ""},
		{nobody, "isNil(7)", "", argov1.AnalysisPhaseSuccessful, ""},
		{nil, "default(result, 0) < 0.05", "", argov1.AnalysisPhaseSuccessful, ""},
		{0.5, "default(result, 0) < 0.05", "", argov1.AnalysisPhaseFailed, ""},
		{"a", "result in ['a', 'b'] && result startsWith 'a'", "", argov1.AnalysisPhaseSuccessful, ""},

		{nil, "result < 1", "", "", `could not evaluate successCondition "result < 1": metric result is nil or empty: no data returned from the metric provider`},
		{[]float64{}, "result[0] < 1", "", "", `could not evaluate successCondition "result[0] < 1": metric result is nil or empty: no data returned from the metric provider`},
		{1.0, "", "result +", "", `could not evaluate failureCondition "result +": `},
		{1.0, "result + 1", "", "", "expected bool, but got float64"},
		{"x", "asInt(result) > 1", "", "", `asInt("x"): the value is not an integer`},
		{true, "asFloat(result) > 1", "", "", "asFloat() not supported on type bool"},
		{math.NaN(), "asInt(result) > 1", "", "", "the value cannot be converted to an integer"},
		{1.0, "nobody > 1", "", "", "nobody"},
	} {
		got, err := condition.EvaluatePhase(t.Context(), c.value, c.success, c.failure)
		text := ""
		if err != nil {
			text = err.Error()
		}
		if got != c.want || !strings.Contains(text, c.err) || (c.err == "") != (err == nil) {
			t.Errorf("%v by %q and %q: got %q, %v, want %q, %q", c.value, c.success, c.failure, got, err, c.want, c.err)
		}
	}
}

// The condition of a user may cause an error of the user's own release, but must not affect the process.
func TestConditionsAreBounded(t *testing.T) {
	for name, source := range map[string]string{
		"long":         strings.Repeat("result > 1 && ", 5000) + "true",
		"large":        "len(1..100000000) > 1",
		"nested":       "all(1..3000, all(1..3000, all(1..3000, # > 0)))",
		"text":         "len(repeat('x', 1000000000)) > 1",
		"doubled text": `let a = repeat("x", 900000); let b=a+a+a+a+a+a; let c=b+b+b+b+b+b+b+b+b+b; let d=c+c+c+c; len(d)>0`,
		"endless":      `let a = 1..1000; all(a, all(a, all(a, #>0)))`,
		"answer":       `let a = string(result); let b=a+a+a+a+a+a+a+a+a+a; let c=b+b+b+b+b+b+b+b+b+b; let d=c+c+c+c+c+c+c+c+c+c; let e=d+d+d+d+d+d+d+d+d+d; let f=e+e+e+e+e+e+e+e+e+e; let g=f+f+f+f+f+f+f+f+f+f; let h=g+g+g+g+g+g+g+g+g+g; len(h+h+h+h+h+h+h+h+h+h)>0`,
	} {
		if got, err := condition.EvaluatePhase(t.Context(), 1.0, source, ""); err == nil {
			t.Errorf("a %s condition: got %v, want an error", name, got)
		}
	}
}

func FuzzCondition(f *testing.F) {
	for _, source := range []string{"result > 1", "len(result) == 0 || result[0] < 0.5", "asFloat(result) in 1..5", "default(result, [1])[0] == 1", "{"} {
		f.Add(source, "0.5", 0.5)
	}
	f.Fuzz(func(t *testing.T, source, text string, number float64) {
		if strings.Contains(source, "now") {
			return // functions that read the clock return another result each time
		}
		for _, value := range []any{number, text, []float64{number}, map[string]any{"a": text}, nil} {
			first, err := condition.EvaluatePhase(t.Context(), value, source, "")
			second, again := condition.EvaluatePhase(t.Context(), value, source, "")
			if first != second || (err == nil) != (again == nil) {
				t.Fatalf("%q of %v: got %v, %v, then %v, %v", source, value, first, err, second, again)
			}
		}
	})
}
