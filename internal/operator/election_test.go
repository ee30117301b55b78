package operator

import (
	"errors"
	"testing"

	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// TestASuspendedLeaderDoesNotContinue after a successor acquired and released the leader Lease: its decisions are older than the
// writes of the successor.
func TestASuspendedLeaderDoesNotContinue(t *testing.T) {
	for _, shards := range []int{0, 3} {
		ctx, leases := t.Context(), fake.NewClientset().CoordinationV1()
		flags := Flags{Shards: shards}
		write := func(lock leaderLock, holder string) error {
			_, _, err := lock.Get(ctx)
			return errors.Join(err, lock.Update(ctx, resourcelock.LeaderElectionRecord{HolderIdentity: holder}))
		}
		suspended := flags.newLeaderLock(member{leases, "suspended"})
		if err := suspended.Create(ctx, resourcelock.LeaderElectionRecord{HolderIdentity: suspended.Identity()}); err != nil {
			t.Fatal(err)
		}
		if err := write(suspended, suspended.Identity()); err != nil {
			t.Errorf("%d shards: the leader renews its Lease: %v", shards, err)
		}
		successor := (&Flags{}).newLeaderLock(member{leases, "successor"})
		for _, holder := range []string{"successor", ""} { // acquired, and released
			if err := write(successor, holder); err != nil {
				t.Fatal(err)
			}
		}
		for range 2 {
			if err := write(suspended, suspended.Identity()); err == nil {
				t.Errorf("%d shards: the suspended leader continues", shards)
			}
		}
		if err := write(flags.newLeaderLock(member{leases, "restarted"}), suspended.Identity()); err != nil {
			t.Errorf("%d shards: the next process: %v", shards, err)
		}
	}
}
