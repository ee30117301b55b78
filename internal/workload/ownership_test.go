package workload

import (
	"testing"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
)

func TestOwnership(t *testing.T) {
	w := newCartCluster(t)
	expect := func(c *flaggerv1.Canary, want Ownership) {
		t.Helper()
		got, err := w.workload.Ownership(t.Context(), c)
		must(t, err)
		if got != want {
			t.Errorf("%s: got %+v, want %+v", c.Name, got, want)
		}
	}
	c, twin := w.canary("cart"), w.canary("cart")
	twin.Name, twin.UID = "cart-twin", "twin"
	expect(c, Ownership{})
	must(t, exceptWarnings(w.workload.EnsureServices(t.Context(), c, false)))
	expect(c, Ownership{Services: true})
	must(t, w.workload.EnsurePrimary(t.Context(), c, "", "id-1", false))
	expect(c, Ownership{Primary: true, Services: true})
	expect(twin, Ownership{})
}
