package operator

import (
	"context"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/serin-dev/serin/internal/sharding"
	"github.com/serin-dev/serin/internal/telemetry"
)

// maxShards limits the number of shards: each has a Lease that is renewed.
const maxShards = 256

// shards are the shards of a process; nil: it leads alone, or without a Lease.
type shards struct {
	coordinator *sharding.Coordinator
}

// newShards returns the shards that the flags request.
func (f *Flags) newShards(m member, metrics *telemetry.Metrics, logger logr.Logger) *shards {
	if f.Shards == 0 {
		return nil
	}
	return &shards{sharding.New(sharding.Options{
		Client: m.leases, Clock: clock.RealClock{}, Logger: logger.WithName("sharding"), Shards: f.Shards, Identity: m.identity,
		Leader: LeaseName(f.Argo.InstanceID), Namespace: f.leaseNamespace(), Instance: f.Argo.InstanceID,
		LeaseDuration: f.Argo.LeaseDuration, RenewDeadline: f.Argo.RenewDeadline, RetryPeriod: f.Argo.RetryEvery,
		ReportHeld: metrics.SetShardsHeld,
	})}
}

// held returns the shards that the process holds; nil: it reconciles everything.
func (s *shards) held() *sharding.Held {
	if s == nil {
		return nil
	}
	return s.coordinator.Held
}

// onChange registers a function that requeues the objects of one kind when their shard is acquired or lost.
func (s *shards) onChange(requeue sharding.Requeue) {
	if s != nil {
		s.coordinator.OnChange(requeue)
	}
}

// client returns a client whose patches require the Lease of the shard of their object, for writes outside of reconciliations.
func (s *shards) client(c client.Client) client.Client {
	if s == nil {
		return c
	}
	return shardedClient{c, s.held()}
}

// shardedClient is the client of a component that writes some time after a reconciliation.
type shardedClient struct {
	client.Client
	held *sharding.Held
}

// Patch implements client.Writer.
func (c shardedClient) Patch(ctx context.Context, object client.Object, patch client.Patch, options ...client.PatchOption) error {
	return c.Client.Patch(c.held.Context(ctx, object.GetNamespace()), object, patch, options...)
}
