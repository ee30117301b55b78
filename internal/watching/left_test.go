package watching_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"github.com/serin-dev/serin/internal/watching"
)

func TestWhoeverRunsSerinIsToldWhenItStandsBackAndGoesOn(t *testing.T) {
	var left watching.Left
	var shown []string
	note := func(name, why string) {
		left.Note(t.Context(), types.NamespacedName{Name: name}, why, func(sentence string) { shown = append(shown, sentence) })
	}
	note("cart", "Flagger lives")
	note("shop", "Flagger lives") // the second is no news
	note("cart", "Flagger lives")
	note("cart", "")
	note("shop", "a lease is held") // another reason begins, and the first ends
	left.Forget(types.NamespacedName{Name: "shop"})
	note("cart", "Flagger lives")
	note("cart", "")
	if diff := cmp.Diff([]string{"Flagger lives", "a lease is held", "Flagger lives", ""}, shown); diff != "" {
		t.Errorf("what was shown (-want +got):\n%s", diff)
	}
}
