package watching_test

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"github.com/serin-dev/serin/internal/watching"
)

func TestWhoeverRunsSerinIsToldWhenItStandsBackAndGoesOn(t *testing.T) {
	var left watching.CededReleases
	var shown []string
	show := func(sentence string) { shown = append(shown, sentence) }
	note := func(name, why string) { left.SetReason(t.Context(), types.NamespacedName{Name: name}, why, show) }
	note("cart", "Flagger lives")
	note("shop", "Flagger lives") // the second is no news
	note("cart", "Flagger lives")
	note("cart", "")
	note("shop", "a lease is held") // another reason begins, and the first ends
	left.Forget(types.NamespacedName{Name: "shop"}, show)
	note("cart", "Flagger lives")
	note("cart", "")
	if diff := cmp.Diff([]string{"Flagger lives", "a lease is held", "", "Flagger lives", ""}, shown); diff != "" {
		t.Errorf("what was shown (-want +got):\n%s", diff)
	}
}

// TestNotingOneReleaseDoesNotDependOnHowManyThereAre counts allocated bytes: a scan of all reasons collects them.
func TestNotingOneReleaseDoesNotDependOnHowManyThereAre(t *testing.T) {
	perRelease := func(releases int, why func(i int) string) float64 {
		var left watching.CededReleases
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for i := range releases {
			left.SetReason(t.Context(), types.NamespacedName{Name: fmt.Sprint(i)}, why(i), nil)
		}
		for i := range releases {
			left.SetReason(t.Context(), types.NamespacedName{Name: fmt.Sprint(i)}, "", nil)
		}
		runtime.ReadMemStats(&after)
		return float64(after.TotalAlloc-before.TotalAlloc) / float64(releases)
	}
	for name, why := range map[string]func(int) string{
		"one reason":                    func(int) string { return "Flagger lives" },
		"one reason for each namespace": func(i int) string { return fmt.Sprint("Flagger lives in namespace ", i) },
	} {
		few, many := perRelease(200, why), perRelease(4000, why)
		if many > 3*few {
			t.Errorf("%s: %.0f bytes a release among 4000, %.0f among 200", name, many, few)
		}
	}
}
