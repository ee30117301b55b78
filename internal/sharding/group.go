package sharding

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// GroupLock is the lock of the leader Lease that all replicas with the same number of shards hold together. During an upgrade that
// changes the number, the replicas of the old one and of the new one would otherwise act on the same releases, because they
// divide them differently. It also excludes a single leader, including one of a version without shards.
//
// The group has one identity, so the first replica acquires the Lease and the others join it. A renewal is a patch that requires
// the holder and not a version: with a version, the renewals of the replicas would conflict with each other. No replica may
// release the Lease, because it does not know whether it is the last one.
type GroupLock struct {
	*resourcelock.LeaseLock
	// holder is the holder of the Lease as last read or written.
	holder string
}

// NewGroupLock returns the lock of the group with a number of shards. The identity of the lock is overwritten.
func NewGroupLock(lock *resourcelock.LeaseLock, shards int) *GroupLock {
	lock.LockConfig.Identity = fmt.Sprintf("serin-shards-%d", shards)
	return &GroupLock{LeaseLock: lock}
}

// Get implements resourcelock.Interface.
func (l *GroupLock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	record, raw, err := l.LeaseLock.Get(ctx)
	if err == nil {
		l.holder = record.HolderIdentity
	}
	return record, raw, err
}

// Create implements resourcelock.Interface.
func (l *GroupLock) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	err := l.LeaseLock.Create(ctx, record)
	if err == nil {
		l.holder = record.HolderIdentity
	}
	return err
}

// Update implements resourcelock.Interface.
func (l *GroupLock) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	if l.holder == record.HolderIdentity {
		return l.renew(ctx, record.RenewTime.Time)
	}
	err := l.LeaseLock.Update(ctx, record)
	if err == nil {
		l.holder = record.HolderIdentity
	}
	return err
}

// renew sets the time of the last renewal, if the group still holds the Lease.
func (l *GroupLock) renew(ctx context.Context, at time.Time) error {
	patch, err := json.Marshal([]map[string]any{
		{"op": "test", "path": "/spec/holderIdentity", "value": l.Identity()},
		{"op": "add", "path": "/spec/renewTime", "value": metav1.NewMicroTime(at)},
	})
	if err != nil {
		return fmt.Errorf("renew Lease %s: %w", l.Describe(), err)
	}
	if _, err := l.Client.Leases(l.LeaseMeta.Namespace).Patch(ctx, l.LeaseMeta.Name, types.JSONPatchType, patch, metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("renew Lease %s: %w", l.Describe(), err)
	}
	return nil
}
