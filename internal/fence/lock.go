package fence

import (
	"context"
	"fmt"

	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// Lock is the lock of a Lease that one election acquires at most once. The election of a process that was suspended finds the
// Lease released by its successor, and would renew it as if the process had held it throughout. Such a process must lose the
// election first, because its reconciliations and its memory are older than the writes of the successor.
type Lock struct {
	resourcelock.Interface
	acquired, lost bool
}

// NewLock returns the lock of one election.
func NewLock(lock resourcelock.Interface) *Lock { return &Lock{Interface: lock} }

// Get implements resourcelock.Interface.
func (l *Lock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	record, raw, err := l.Interface.Get(ctx)
	if err == nil && l.acquired && record.HolderIdentity != l.Identity() {
		l.lost = true
	}
	return record, raw, err
}

// Create implements resourcelock.Interface. It returns an error if the Lease was acquired before, and was deleted since.
func (l *Lock) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	if l.acquired {
		return l.errLost()
	}
	err := l.Interface.Create(ctx, record)
	l.acquired = err == nil
	return err
}

// Update implements resourcelock.Interface. It returns an error if another process has held the Lease since it was acquired.
func (l *Lock) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	if l.lost {
		return l.errLost()
	}
	err := l.Interface.Update(ctx, record)
	l.acquired = l.acquired || err == nil
	return err
}

func (l *Lock) errLost() error {
	return fmt.Errorf("renew Lease %s: another process may have held it meanwhile", l.Describe())
}
