package similar_test

import (
	"testing"

	"github.com/serin-dev/serin/internal/cli/similar"
)

func TestTo(t *testing.T) {
	existing := []string{"cart", "checkout", "payments-api", "web", "as"}
	for name, want := range map[string]string{
		"cart":         "cart",
		"carrt":        "cart",
		"crat":         "cart",
		"pay":          "payments-api", // an unfinished name
		"paymnts-apii": "payments-api",
		"basket":       "",
		"wxy":          "",
		"wbe":          "web",
		"x":            "",
		"fast":         "", // two letters of four differ
		"":             "",
	} {
		if got := similar.To(name, existing); got != want {
			t.Errorf("similar to %q is %q, want %q", name, got, want)
		}
	}
}
