package operator

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"regexp"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/util/validation"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/serin-dev/serin/internal/fence"
	"github.com/serin-dev/serin/internal/sharding"
)

// electsLeader reports whether the process acts only while it holds the leader Lease: alone, or together with the other replicas
// that divide the releases in the same way.
func (f *Flags) electsLeader() bool { return f.EnableLeaderElection || f.Shards > 0 }

// defaultLeaseNamespace is the namespace of the leader Lease if the flags name none.
const defaultLeaseNamespace = "kube-system"

// leaseNamespace returns the namespace of the process's Leases.
func (f *Flags) leaseNamespace() string {
	if f.Namespace != "" {
		return f.Namespace
	}
	return f.LeaderElectionNamespace
}

// reservedIDs are the instance IDs with which the leader Lease could have the name of a shard's or a member's Lease of another
// instance.
var reservedIDs = regexp.MustCompile(`(^|-)(shard|member)-`)

// LeaseName returns the name of the leader Lease of the Serin with that instance ID. Two instances in one namespace have separate
// Leases. An ID may contain characters that are not allowed in the name of an object.
func LeaseName(instanceID string) string {
	const name = "serin"
	switch {
	case instanceID == "":
		return name
	case len(validation.IsDNS1123Subdomain(instanceID)) == 0 && !reservedIDs.MatchString(instanceID):
		return name + "-" + instanceID
	default:
		sum := sha256.Sum256([]byte(instanceID))
		return name + "-" + hex.EncodeToString(sum[:8])
	}
}

// fences returns the fences of the process; nil: without leader election, every process may write.
func (f *Flags) fences() *fence.Leases {
	if !f.electsLeader() {
		return nil
	}
	leader := LeaseName(f.Argo.InstanceID)
	return fence.NewLeases(clock.RealClock{}, f.Argo.LeaseDuration, leader, sharding.LeaseNames(leader, f.Shards)...)
}

// member is this process as a participant of elections.
type member struct {
	leases coordinationclient.CoordinationV1Interface
	// identity is the holder of the Leases that the process holds.
	identity string
}

// newMember returns this process as a participant of elections. Errors: those of the client, and of reading the host's name.
func (f *Flags) newMember(cfg *rest.Config) (member, error) {
	cfg = rest.AddUserAgent(rest.CopyConfig(cfg), "leader-election")
	cfg.Timeout = max(f.Argo.RenewDeadline/2, time.Second) // one request that hangs must not lose a Lease
	leases, err := coordinationclient.NewForConfig(cfg)
	if err != nil {
		return member{}, fmt.Errorf("create the client for Leases: %w", err)
	}
	hostname, err := os.Hostname()
	if err != nil {
		return member{}, fmt.Errorf("read the host name: %w", err)
	}
	return member{leases, memberIdentity(hostname)}, nil
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

// leaderLock is the lock of the leader Lease.
type leaderLock struct {
	*fence.Lock
	lease *resourcelock.LeaseLock
}

// newLeaderLock returns the lock of the leader Lease, which this process holds alone, or together with the replicas that have
// the same number of shards.
func (f *Flags) newLeaderLock(m member) leaderLock {
	lease := f.newLeaseLock(m, f.leaseNamespace())
	if f.Shards > 0 {
		return leaderLock{fence.NewLock(sharding.NewGroupLock(lease, f.Shards)), lease}
	}
	return leaderLock{fence.NewLock(lease), lease}
}

// recordEvents records events when the Lease is acquired or lost. The manager that records them is created with the lock.
func (l leaderLock) recordEvents(mgr manager.Manager) {
	l.lease.LockConfig.EventRecorder = mgr.GetEventRecorderFor(l.Identity()) //nolint:staticcheck // leader election has no other type of recorder
}
