package sharding

import (
	"context"
	"fmt"

	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// shardLock is the lock of the Lease of a shard for one election. It is acquired once: a process that was suspended finds the
// Lease released by its successor, and the election would renew it as if it had held it throughout. The process must lose the
// election first, because its reconciliations and its memory are older than the writes of the successor.
//
// An expired Lease seems to have no holder: the election would begin to observe it only when the shard is assigned to this
// process, and wait for another lease duration.
type shardLock struct {
	*resourcelock.LeaseLock
	observed       *liveness
	acquired, lost bool
}

// Get implements resourcelock.Interface.
func (l *shardLock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	record, raw, err := l.LeaseLock.Get(ctx)
	if err == nil && l.acquired && record.HolderIdentity != l.Identity() {
		l.lost = true
	}
	if err == nil && l.observed.hasExpired(l.LeaseMeta.Name, record) {
		record.HolderIdentity = ""
	}
	return record, raw, err
}

// Create implements resourcelock.Interface.
func (l *shardLock) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	if err := l.checkFirst(); err != nil {
		return err
	}
	err := l.LeaseLock.Create(ctx, record)
	l.acquired = l.acquired || err == nil
	return err
}

// Update implements resourcelock.Interface.
func (l *shardLock) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	if l.lost {
		return l.checkFirst()
	}
	err := l.LeaseLock.Update(ctx, record)
	l.acquired = l.acquired || err == nil
	return err
}

// checkFirst returns an error unless this is the first acquisition.
func (l *shardLock) checkFirst() error {
	if l.acquired {
		return fmt.Errorf("renew Lease %s: another process has held it meanwhile", l.Describe())
	}
	return nil
}
