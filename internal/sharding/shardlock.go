package sharding

import (
	"context"

	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/serin-dev/serin/internal/fence"
)

// shardLock is the lock of the Lease of a shard for one election. An expired Lease seems to have no holder: the election would
// begin to observe it only when the shard is assigned to this process, and wait for another lease duration.
type shardLock struct {
	*fence.Lock
	lease    string
	observed *liveness
}

// newShardLock returns a lock that takes over a Lease which was not renewed while it was observed.
func newShardLock(lock *resourcelock.LeaseLock, observed *liveness) *shardLock {
	return &shardLock{fence.NewLock(lock), lock.LeaseMeta.Name, observed}
}

// Get implements resourcelock.Interface.
func (l *shardLock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	record, raw, err := l.Lock.Get(ctx)
	if err == nil && l.observed.hasExpired(l.lease, record) {
		record.HolderIdentity = ""
	}
	return record, raw, err
}
