package explain

import (
	"slices"
	"testing"
)

func TestNumbersOfValuesHaveOneUnit(t *testing.T) {
	for text, want := range map[string]number{
		"99.50%": {99.5, "%"}, "350ms": {0.35, "s"}, "1.5s": {1.5, "s"}, "0.97": {0.97, ""}, "[0.97]": {0.97, ""}, "[0.97,0.2]": {0.97, ""}, "[0.97 0.2]": {0.97, ""}, "-3": {-3, ""},
	} {
		if got, ok := parseNumber(text); !ok || got != want {
			t.Errorf("%s: got %v %v, want %v", text, got, ok, want)
		}
	}
	for _, text := range []string{"", "NaN", "+Inf", "[]", "true", `{"a":1}`, "NaN%"} {
		if got, ok := parseNumber(text); ok {
			t.Errorf("%q: got the number %v", text, got)
		}
	}
}

func TestBoundsAreTheNumbersThatValuesAreComparedWith(t *testing.T) {
	for _, test := range []struct {
		limit, unit string
		want        []float64
	}{
		{">= 99%", "%", []float64{99}},
		{">= 10ms and <= 1.5s", "s", []float64{0.01, 1.5}},
		{"result[0] >= 0.95 (failure limit 3)", "", []float64{0.95}},
		{"len(result) == 0 || result[1] < 5e-3, not result[0] > 7", "", []float64{0.005, 7}},
		{"0.95 <= result[0]", "", []float64{0.95}},
		{"result < 5 && result >= -1", "", []float64{-1, 5}},
		{"any", "", nil},
		{"<= 500ms", "%", nil}, // not comparable
	} {
		if got := boundsIn(test.limit, test.unit); !slices.Equal(got, test.want) {
			t.Errorf("%s: got %v, want %v", test.limit, got, test.want)
		}
	}
}

func TestSeriesNameTheVersionOfTheirQuery(t *testing.T) {
	for query, want := range map[string]MeasuredVersion{
		`rate(errors{deployment="cart"}[1m])`:           NewVersion,
		`rate(errors{deployment="cart-primary"}[1m])`:   StableVersion,
		`errors{d="cart"} / errors{d="cart-primary"}`:   "",
		`rate(errors{deployment="catalogue"}[1m])`:      "",
		`rate(errors{service=~"shop-cart-canary"}[1m])`: NewVersion,
	} {
		if got := versionIn(query, []string{"cart"}, []string{"cart-primary"}); got != want {
			t.Errorf("%s: got %q, want %q", query, got, want)
		}
	}
	for name, want := range map[string]string{"error-rate-primary": "error-rate", "stable_latency": "latency", "canary": "canary", "request-duration": "request-duration"} {
		if got := subjectOf(name); got != want {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
}
