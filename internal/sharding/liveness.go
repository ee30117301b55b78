package sharding

import (
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/utils/clock"
)

// liveness judges which Leases are renewed, by the time since this process last observed a change of them. The times in the Leases
// are those of other clocks, which may differ from its own.
type liveness struct {
	clock    clock.PassiveClock
	duration time.Duration

	mu   sync.Mutex
	seen map[string]sighting // by the name of the Lease
}

// sighting is the last observed content of a Lease, with the time at which this process first observed it.
type sighting struct {
	record resourcelock.LeaderElectionRecord
	at     time.Time
}

func newLiveness(clk clock.PassiveClock, duration time.Duration) *liveness {
	return &liveness{clock: clk, duration: duration, seen: map[string]sighting{}}
}

// observe records all Leases that exist, and forgets others.
func (l *liveness) observe(leases []coordinationv1.Lease) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now, current := l.clock.Now(), map[string]sighting{}
	for i := range leases {
		record := resourcelock.LeaseSpecToLeaderElectionRecord(&leases[i].Spec)
		last, known := l.seen[leases[i].Name]
		if !known || !sameRecord(&last.record, record) {
			last = sighting{*record, now}
		}
		current[leases[i].Name] = last
	}
	l.seen = current
}

// hasExpired reports whether a Lease that was just read has been unchanged for its duration since this process observed it.
func (l *liveness) hasExpired(name string, record *resourcelock.LeaderElectionRecord) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	last, known := l.seen[name]
	return known && sameRecord(&last.record, record) && l.clock.Since(last.at) >= l.duration
}

// sameRecord reports whether a Lease has the same holder, and was not renewed.
func sameRecord(a, b *resourcelock.LeaderElectionRecord) bool {
	return a.HolderIdentity == b.HolderIdentity && a.RenewTime.Time.Equal(b.RenewTime.Time) && a.LeaderTransitions == b.LeaderTransitions
}
