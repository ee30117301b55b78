package sharding

import (
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	testingclock "k8s.io/utils/clock/testing"
)

// TestLivenessUsesOwnTime: the clock of a member may be wrong by any amount. A Lease is alive for its duration after this process
// has observed a change of it.
func TestLivenessUsesOwnTime(t *testing.T) {
	epoch := time.Date(1999, 1, 1, 0, 0, 0, 0, time.UTC) // far from the time of this process
	lease := func(name string, renewals int) coordinationv1.Lease {
		renewed := metav1.NewMicroTime(epoch.Add(time.Duration(renewals) * time.Microsecond))
		return coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: coordinationv1.LeaseSpec{HolderIdentity: &name, RenewTime: &renewed}}
	}
	clk := testingclock.NewFakeClock(time.Now())
	l := newLiveness(clk, 15*time.Second)
	check := func(when string, of coordinationv1.Lease, want bool) {
		t.Helper()
		if got := l.hasExpired(of.Name, resourcelock.LeaseSpecToLeaderElectionRecord(&of.Spec)); got != want {
			t.Errorf("%s: got expired %t, want %t", when, got, want)
		}
	}
	check("before any observation", lease("a", 0), false)
	l.observe([]coordinationv1.Lease{lease("a", 0), lease("b", 0)})
	clk.Step(14 * time.Second)
	l.observe([]coordinationv1.Lease{lease("a", 0), lease("b", 1)})
	clk.Step(time.Second)
	l.observe([]coordinationv1.Lease{lease("a", 0), lease("b", 1)})
	check("unchanged for the duration", lease("a", 0), true)
	check("renewed since, and not observed", lease("a", 1), false)
	check("renewed a second ago", lease("b", 1), false)
	clk.Step(14 * time.Second)
	check("renewed, and unchanged for the duration", lease("b", 1), true)
	l.observe([]coordinationv1.Lease{lease("b", 1)})
	l.observe([]coordinationv1.Lease{lease("a", 0), lease("b", 1)})
	check("deleted and created again", lease("a", 0), false)
}
