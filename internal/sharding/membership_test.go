package sharding

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	testingclock "k8s.io/utils/clock/testing"
)

// TestMembersAreLiveWhileTheyRenew follows one member through the starts and ends of others. The Leases of dead ones are deleted,
// and created again if they were only suspended.
func TestMembersAreLiveWhileTheyRenew(t *testing.T) {
	server := newLeaseServer(t)
	clk := testingclock.NewFakeClock(testTime)
	member := func(name, instance string, shards int) *membership {
		return &membership{
			leases: newTestLock(t, server, name, "").Client.Leases("serin-system"), clock: clk, name: "serin-member-" + name, prefix: "serin-member-",
			identity: name, instance: instance, shards: shards, observed: newLiveness(clk, leaseDuration),
		}
	}
	own, other := member("a", "", 6), member("b", "", 6)
	check := func(when string, want ...string) {
		t.Helper()
		got, err := own.live(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, slices.Sorted(slices.Values(got))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", when, diff)
		}
	}
	renew := func(members ...*membership) {
		t.Helper()
		for _, m := range members {
			if err := m.renew(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	check("before any Lease exists", "a")
	renew(own, other, member("c", "", 4), member("d", "blue", 6))
	check("other numbers of shards and instances are no members", "a", "b")
	clk.Step(leaseDuration - time.Second)
	renew(own)
	check("before the Lease expires", "a", "b")
	clk.Step(time.Second)
	server.forbidsDeletes = true
	if got, err := own.live(t.Context()); err == nil || !slices.Equal(got, []string{"a"}) {
		t.Errorf("without permission to delete Leases: %v, %v", got, err)
	}
	server.forbidsDeletes = false
	check("after the Lease has expired", "a")
	if names := server.names("serin-member-"); !slices.Equal(names, []string{"serin-member-a", "serin-member-d"}) {
		t.Errorf("the remaining Leases are %v", names)
	}
	renew(other)
	check("after the suspended member has continued", "a", "b")
	if err := other.leave(t.Context()); err != nil {
		t.Fatal(err)
	}
	check("after the member has left", "a")
	if err := other.leave(t.Context()); err != nil {
		t.Errorf("a member whose Lease was deleted leaves: %v", err)
	}
}

// names returns the names of the stored Leases with a prefix.
func (s *leaseServer) names(prefix string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var names []string
	for name := range s.leases {
		if strings.HasPrefix(name, prefix) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}
