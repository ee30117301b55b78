package operator

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/util/validation"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/serin-dev/serin/internal/fence"
	"github.com/serin-dev/serin/internal/sharding"
	"github.com/serin-dev/serin/internal/telemetry"
)

// maxShards limits the number of shards: each has a Lease that is renewed.
const maxShards = 256

// shards are the shards of a process; nil: it leads alone, or without a Lease.
type shards struct {
	coordinator *sharding.Coordinator
	group       *sharding.GroupLock
}

// newShards returns the shards that the flags request.
func (f *Flags) newShards(cfg *rest.Config, metrics *telemetry.Metrics, logger logr.Logger) (*shards, error) {
	if f.Shards == 0 {
		return nil, nil
	}
	cfg = rest.AddUserAgent(rest.CopyConfig(cfg), "sharding")
	cfg.Timeout = f.Argo.RenewDeadline / 2 // as for leader election: one request that hangs must not lose a Lease
	leases, err := coordinationclient.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("create the client for Leases: %w", err)
	}
	hostname, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("read the host name: %w", err)
	}
	leader, namespace := LeaseName(f.Argo.InstanceID), f.leaseNamespace()
	return &shards{
		group: sharding.NewGroupLock(&resourcelock.LeaseLock{LeaseMeta: metav1.ObjectMeta{Namespace: namespace, Name: leader}, Client: leases}, f.Shards),
		coordinator: sharding.New(sharding.Options{
			Client: leases, Clock: clock.RealClock{}, Logger: logger.WithName("sharding"), Shards: f.Shards, Identity: memberIdentity(hostname),
			Leader: leader, Namespace: namespace, Instance: f.Argo.InstanceID,
			LeaseDuration: f.Argo.LeaseDuration, RenewDeadline: f.Argo.RenewDeadline, RetryPeriod: f.Argo.RetryEvery,
			ReportHeld: metrics.SetShardsHeld,
		}),
	}, nil
}

// memberIdentity returns a unique name of this process, which is part of the name of a Lease. The name of the host is that of the
// pod, which is the same after its container has been restarted: a restarted process must not seem to hold the Leases of its
// predecessor, whose requests may still be on their way.
func memberIdentity(hostname string) string {
	suffix := string(uuid.NewUUID())[:8]
	hostname = strings.ToLower(hostname)
	if len(validation.IsDNS1123Subdomain(hostname)) > 0 {
		return suffix
	}
	return hostname + "-" + suffix
}

// fences returns the fences of the process; nil: without leader election, every process may write.
func (f *Flags) fences() *fence.Leases {
	if !f.electsLeader() {
		return nil
	}
	leader := LeaseName(f.Argo.InstanceID)
	return fence.NewLeases(clock.RealClock{}, f.Argo.LeaseDuration, leader, sharding.LeaseNames(leader, f.Shards)...)
}

// electsLeader reports whether the process acts only while it holds the leader Lease: alone, or together with the other replicas
// that divide the releases in the same way.
func (f *Flags) electsLeader() bool { return f.EnableLeaderElection || f.Shards > 0 }

// leaseNamespace returns the namespace of the process's Leases.
func (f *Flags) leaseNamespace() string {
	if f.Namespace != "" {
		return f.Namespace
	}
	return f.LeaderElectionNamespace
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
