package operator

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"
)

// heartbeatInterval is the time between two renewals of a Lease that elects no leader. It is longer than in an election, in which
// a standby must take over without delay.
const heartbeatInterval = 5 * time.Second

// heartbeat holds the leader Lease of a process that acts without leader election. Commands see by it that the process runs, and with
// which flags, and a second such process notices that it is not alone. Whether it holds the Lease has no other effect.
type heartbeat struct {
	lock     *resourcelock.LeaseLock
	duration time.Duration // after which the Lease expires if it is not renewed
	logger   logr.Logger
}

// newHeartbeat returns the heartbeat of this process.
func (f *Flags) newHeartbeat(m member, logger logr.Logger) heartbeat {
	return heartbeat{f.newLeaseLock(m, f.heartbeatNamespace()), max(f.Argo.LeaseDuration, 3*heartbeatInterval), logger}
}

// heartbeatNamespace returns the namespace of the Lease of a process without leader election: that of the flags, or that of its pod,
// in which it has the permission.
func (f *Flags) heartbeatNamespace() string {
	if f.Namespace == "" && f.LeaderElectionNamespace == defaultLeaseNamespace {
		return cmp.Or(f.Argo.PodNamespace, defaultLeaseNamespace)
	}
	return f.leaseNamespace()
}

// run holds the Lease until ctx ends, and then releases it. Without the permission for the Lease, it reports that and ends.
func (h heartbeat) run(ctx context.Context) error {
	if _, _, err := h.lock.Get(ctx); apierrors.IsForbidden(err) {
		h.logger.Info("Commands cannot see that this process runs: it has no permission for its Lease", "lease", h.lock.Describe(), "error", err.Error())
		return nil
	}
	quiet := klog.NewContext(ctx, logr.Discard()) // the process does not depend on the Lease: no error of the election concerns users
	for ctx.Err() == nil {
		elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
			Lock: h.lock, LeaseDuration: h.duration, RenewDeadline: 2 * heartbeatInterval, RetryPeriod: heartbeatInterval, ReleaseOnCancel: true,
			Name: h.lock.LeaseMeta.Name,
			Callbacks: leaderelection.LeaderCallbacks{
				OnStartedLeading: func(context.Context) {}, OnStoppedLeading: func() {}, OnNewLeader: h.reportHolder,
			},
		})
		if err != nil {
			return fmt.Errorf("hold the Lease %s: %w", h.lock.Describe(), err)
		}
		elector.Run(quiet)
	}
	return nil
}

// reportHolder reports another process that holds the Lease, and therefore acts on the same releases.
func (h heartbeat) reportHolder(identity string) {
	if identity != h.lock.Identity() && identity != "" {
		h.logger.Error(nil, "Another Serin holds the Lease of this one, and both act on every release: stop one of them, or start both with -enable-leader-election",
			"lease", h.lock.Describe(), "holder", identity)
	}
}

// newLeaseLock returns the lock of the leader Lease in a namespace, which announces the flags of this process.
func (f *Flags) newLeaseLock(m member, namespace string) *resourcelock.LeaseLock {
	return &resourcelock.LeaseLock{
		LeaseMeta: metav1.ObjectMeta{Namespace: namespace, Name: LeaseName(f.Argo.InstanceID)}, Client: announcingLeases{m.leases, f.Announced},
		LockConfig: resourcelock.ResourceLockConfig{Identity: m.identity},
	}
}
