package sharding

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/utils/clock"
)

// Bounds of the end of a shard.
const (
	// drainTimeout is how long the release of a shard waits for running reconciliations. The fence refuses the writes of those
	// that take longer.
	drainTimeout = 10 * time.Second
	// leaveTimeout bounds the last request of a replica that ends.
	leaveTimeout = 5 * time.Second
)

// Options configure a Coordinator.
type Options struct {
	Client coordinationclient.LeasesGetter
	Clock  clock.WithTicker
	Logger logr.Logger
	// Shards is the number of shards, Identity the unique name of this process: a DNS label.
	Shards   int
	Identity string
	// Leader is the name of the leader Lease, from which the names of the others are derived, Namespace the namespace of all, and
	// Instance the instance ID.
	Leader, Namespace, Instance string
	// The settings of leader election apply to all Leases.
	LeaseDuration, RenewDeadline, RetryPeriod time.Duration
	// ReportHeld is called with the number of shards that this process holds.
	ReportHeld func(shards int)
}

// Coordinator acquires and releases shards. It runs in a process that has joined the group of the leader Lease.
type Coordinator struct {
	Options
	// Held are the shards that this process holds.
	Held *Held

	leases  []string
	members *membership
	// holdings are the shards that this process acquires, holds or releases. Only Start uses them.
	holdings map[int]*holding
	running  sync.WaitGroup

	mu       sync.Mutex
	requeues []Requeue
}

// Requeue requeues the objects of one kind in the namespaces of a shard. It returns an error if it could not list them.
type Requeue func(ctx context.Context, inShard func(namespace string) bool) error

// holding is the acquisition of one shard.
type holding struct {
	cancel   context.CancelFunc
	released chan struct{} // closed at the end
}

// New returns a Coordinator that holds nothing.
func New(o Options) *Coordinator {
	leases := LeaseNames(o.Leader, o.Shards)
	return &Coordinator{
		Options: o, Held: NewHeld(leases), leases: leases, holdings: map[int]*holding{},
		members: &membership{
			leases: o.Client.Leases(o.Namespace), clock: o.Clock, name: o.Leader + memberInfix + o.Identity, prefix: o.Leader + memberInfix,
			identity: o.Identity, instance: o.Instance, shards: o.Shards, observed: newLiveness(o.Clock, o.LeaseDuration),
		},
	}
}

// OnChange registers a function that is called when this process acquires a shard, and when it loses one: the reconcilers then
// reconcile, or forget, its objects.
func (c *Coordinator) OnChange(requeue Requeue) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.requeues = append(c.requeues, requeue)
}

// NeedLeaderElection implements manager.LeaderElectionRunnable: all replicas of the group lead.
func (c *Coordinator) NeedLeaderElection() bool { return true }

// Start implements manager.Runnable. It returns when all shards are released.
func (c *Coordinator) Start(ctx context.Context) error {
	c.ReportHeld(0)
	ticker := c.Clock.NewTicker(c.RetryPeriod)
	defer ticker.Stop()
	for {
		if err := c.assign(ctx); err != nil && ctx.Err() == nil {
			c.Logger.Error(err, "Could not observe the members of the group, and retries")
		}
		select {
		case <-ctx.Done():
			return c.stop(ctx)
		case <-ticker.C():
		}
	}
}

// assign renews the membership of this process, and acquires or releases the shards whose assignment has changed.
func (c *Coordinator) assign(ctx context.Context) error {
	if err := c.members.renew(ctx); err != nil {
		return err
	}
	members, err := c.members.live(ctx)
	if members == nil {
		return err
	}
	for shard, member := range Assign(c.Shards, members) {
		held := c.holdings[shard]
		if held != nil && isClosed(held.released) {
			delete(c.holdings, shard)
			held = nil
		}
		switch {
		case member == c.Identity && held == nil:
			c.holdings[shard] = c.hold(ctx, shard)
		case member != c.Identity && held != nil:
			held.cancel()
		}
	}
	return err
}

// stop leaves the group of members, so that the others take over at once, and releases all shards.
func (c *Coordinator) stop(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveTimeout)
	defer cancel()
	err := c.members.leave(ctx)
	c.running.Wait() // the context of each holding is done
	return err
}

// hold acquires a shard and holds it until it is cancelled.
func (c *Coordinator) hold(ctx context.Context, shard int) *holding {
	assigned, cancel := context.WithCancel(ctx)
	h := &holding{cancel: cancel, released: make(chan struct{})}
	c.running.Go(func() {
		defer close(h.released)
		defer cancel()
		// The election continues until the shard is drained. Its end releases the Lease.
		electing, stopElecting := context.WithCancel(context.WithoutCancel(ctx))
		var election sync.WaitGroup
		election.Go(func() { c.elect(electing, assigned, shard) })
		<-assigned.Done()
		c.lose(electing, shard, "it is assigned to another member, or this process ends")
		c.drain(shard)
		stopElecting()
		election.Wait()
	})
	return h
}

// drain waits for the running reconciliations of a shard.
func (c *Coordinator) drain(shard int) {
	timer := c.Clock.NewTimer(drainTimeout)
	defer timer.Stop()
	select {
	case <-c.Held.idle(shard):
	case <-timer.C():
		c.Logger.Info("Releases a shard whose reconciliations have not ended: their writes are refused", "shard", shard)
	}
}

// elect takes part in the election for a shard until ctx is done. A lost election is repeated once the reconciliations that began
// before have ended: their decisions may be older than those of the process that held the shard meanwhile.
func (c *Coordinator) elect(ctx, assigned context.Context, shard int) {
	for ctx.Err() == nil {
		select {
		case <-c.Held.idle(shard):
		case <-assigned.Done():
			return
		}
		if err := c.runElection(ctx, assigned, shard); err != nil {
			c.Logger.Error(err, "Could not take part in the election for a shard", "shard", shard)
			return
		}
	}
}

// runElection acquires the Lease of a shard, and returns when it is lost, or released because ctx is done.
func (c *Coordinator) runElection(ctx, assigned context.Context, shard int) error {
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Name: c.leases[shard],
		Lock: newShardLock(&resourcelock.LeaseLock{
			LeaseMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: c.leases[shard]}, Client: c.Client,
			LockConfig: resourcelock.ResourceLockConfig{Identity: c.Identity}, Labels: map[string]string{instanceLabel: c.Instance},
		}, c.members.observed),
		LeaseDuration: c.LeaseDuration, RenewDeadline: c.RenewDeadline, RetryPeriod: c.RetryPeriod, ReleaseOnCancel: true,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(leading context.Context) { c.acquire(leading, assigned, shard) },
			OnStoppedLeading: func() { c.lose(ctx, shard, "its Lease was lost") },
		},
	})
	if err != nil {
		return fmt.Errorf("create the election for Lease %s: %w", c.leases[shard], err)
	}
	elector.Run(ctx)
	return nil
}

// acquire permits reconciliations of a shard and requeues its objects.
func (c *Coordinator) acquire(leading, assigned context.Context, shard int) {
	if !c.Held.Acquire(shard, leading, assigned) {
		return
	}
	c.ReportHeld(c.Held.count())
	c.Logger.Info("Acquired a shard", "shard", shard, "shards", c.Shards)
	for {
		err := c.requeue(leading, shard)
		if err == nil || leading.Err() != nil || assigned.Err() != nil {
			return
		}
		c.Logger.Error(err, "Could not requeue the releases of a shard, and retries", "shard", shard)
		timer := c.Clock.NewTimer(c.RetryPeriod)
		select {
		case <-timer.C():
		case <-leading.Done():
		case <-assigned.Done():
		}
		timer.Stop()
	}
}

// lose prevents reconciliations of a shard, and requeues its objects, so that the reconcilers forget them.
func (c *Coordinator) lose(ctx context.Context, shard int, reason string) {
	if !c.Held.Lose(shard) {
		return
	}
	c.ReportHeld(c.Held.count())
	c.Logger.Info("Lost a shard", "shard", shard, "shards", c.Shards, "reason", reason)
	if err := c.requeue(ctx, shard); err != nil && ctx.Err() == nil {
		c.Logger.Error(err, "Could not requeue the releases of a lost shard", "shard", shard)
	}
}

func (c *Coordinator) requeue(ctx context.Context, shard int) error {
	c.mu.Lock()
	requeues := c.requeues
	c.mu.Unlock()
	var errs []error
	for _, requeue := range requeues {
		errs = append(errs, requeue(ctx, func(namespace string) bool { return ShardOf(namespace, c.Shards) == shard }))
	}
	return errors.Join(errs...)
}

func isClosed(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
		return false
	}
}
