package operator

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"
)

// Times of the Lease of a process without leader election. Nothing waits for such a Lease, so it is renewed rarely.
const (
	presenceDuration = time.Minute
	presenceDeadline = 50 * time.Second
	presencePeriod   = 20 * time.Second
)

// presence holds the leader Lease for a process that acts without leader election. It decides nothing: commands find the
// process and its flags by the Lease, a second Serin next to it is reported, and one with leader election waits for its end.
type presence struct {
	lock   resourcelock.Interface
	logger logr.Logger
}

// newPresence returns the presence of a process without leader election.
func (f *Flags) newPresence(m member, logger logr.Logger) presence {
	return presence{f.newLeaseLock(m), logger}
}

// Start implements manager.Runnable.
func (p presence) Start(ctx context.Context) error {
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: &reportingLock{Interface: p.lock, logger: p.logger}, Name: p.lock.Describe(), ReleaseOnCancel: true,
		LeaseDuration: presenceDuration, RenewDeadline: presenceDeadline, RetryPeriod: presencePeriod,
		Callbacks: leaderelection.LeaderCallbacks{OnStartedLeading: func(context.Context) {}, OnStoppedLeading: func() {}},
	})
	if err != nil {
		return fmt.Errorf("hold Lease %s: %w", p.lock.Describe(), err)
	}
	// The messages of the library are those of an election. The lock reports what a user should know.
	silent := klog.NewContext(ctx, logr.Discard())
	for ctx.Err() == nil {
		elector.Run(silent) // returns when another process has acquired the Lease
	}
	return nil
}

// reportingLock logs that requests for the Lease fail, or that another process renews it. It logs each once until it has ended.
type reportingLock struct {
	resourcelock.Interface
	logger logr.Logger

	mu       sync.Mutex // the library releases a Lease concurrently with its last renewal
	failed   bool
	other    resourcelock.LeaderElectionRecord
	reported bool // that other is alive
}

// Get implements resourcelock.Interface.
func (l *reportingLock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	record, raw, err := l.Interface.Get(ctx)
	if err == nil {
		l.observeHolder(*record)
	}
	if !apierrors.IsNotFound(err) {
		l.observeResult(ctx, err)
	}
	return record, raw, err
}

// Create implements resourcelock.Interface.
func (l *reportingLock) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	err := l.Interface.Create(ctx, record)
	l.observeResult(ctx, err)
	return err
}

// Update implements resourcelock.Interface.
func (l *reportingLock) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	err := l.Interface.Update(ctx, record)
	l.observeResult(ctx, err)
	return err
}

// observeHolder logs that another process renews the Lease. Until a renewal, it may be one that was killed.
func (l *reportingLock) observeHolder(record resourcelock.LeaderElectionRecord) {
	l.mu.Lock()
	defer l.mu.Unlock()
	previous := l.other
	l.other = record
	switch {
	case record.HolderIdentity == "" || record.HolderIdentity == l.Identity() || record.HolderIdentity != previous.HolderIdentity:
		l.reported = false
	case !l.reported && record.RenewTime.After(previous.RenewTime.Time):
		l.reported = true
		l.logger.Info("Another Serin is running, and both may act on the same releases: stop one of them, or start both with -enable-leader-election",
			"lease", l.Describe(), "holder", record.HolderIdentity)
	}
}

func (l *reportingLock) observeResult(ctx context.Context, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil && !l.failed && ctx.Err() == nil && !apierrors.IsConflict(err) {
		l.logger.Info("The Lease of this process cannot be written, so commands may not find the process", "lease", l.Describe(), "error", err.Error())
	}
	l.failed = err != nil
}
