package watching_test

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"github.com/serin-dev/serin/internal/watching"
)

func TestTheBeginningAndEndOfAReasonAreReported(t *testing.T) {
	var ceded watching.CededReleases
	var reported []string
	report := func(reason string) { reported = append(reported, reason) }
	setReason := func(name, why string) { ceded.SetReason(t.Context(), types.NamespacedName{Name: name}, why, report) }
	setReason("cart", "Flagger is running")
	setReason("shop", "Flagger is running") // not reported again
	setReason("cart", "Flagger is running")
	setReason("cart", "")
	setReason("shop", "a lease is held") // another reason begins, and the first ends
	ceded.Forget(types.NamespacedName{Name: "shop"}, report)
	setReason("cart", "Flagger is running")
	setReason("cart", "")
	if diff := cmp.Diff([]string{"Flagger is running", "a lease is held", "", "Flagger is running", ""}, reported); diff != "" {
		t.Errorf("reported reasons (-want +got):\n%s", diff)
	}
}

// TestTheCostOfSetReasonDoesNotDependOnTheNumberOfReleases counts allocated bytes: a scan of all reasons would collect them.
func TestTheCostOfSetReasonDoesNotDependOnTheNumberOfReleases(t *testing.T) {
	perRelease := func(releases int, why func(i int) string) float64 {
		var ceded watching.CededReleases
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for i := range releases {
			ceded.SetReason(t.Context(), types.NamespacedName{Name: fmt.Sprint(i)}, why(i), nil)
		}
		for i := range releases {
			ceded.SetReason(t.Context(), types.NamespacedName{Name: fmt.Sprint(i)}, "", nil)
		}
		runtime.ReadMemStats(&after)
		return float64(after.TotalAlloc-before.TotalAlloc) / float64(releases)
	}
	for name, why := range map[string]func(int) string{
		"one reason":                    func(int) string { return "Flagger is running" },
		"one reason for each namespace": func(i int) string { return fmt.Sprint("Flagger is running in namespace ", i) },
	} {
		few, many := perRelease(200, why), perRelease(4000, why)
		if many > 3*few {
			t.Errorf("%s: %.0f bytes per release among 4000, %.0f among 200", name, many, few)
		}
	}
}
