package sharding

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/utils/clock"
)

// Labels of the Leases of members and shards: the instance ID of the replicas. Those of members also have their number of shards.
const (
	instanceLabel = "serin.dev/sharded-instance"
	shardsLabel   = "serin.dev/shards"
)

// membership states that this replica is alive, and finds out which other replicas are.
type membership struct {
	leases   coordinationclient.LeaseInterface
	clock    clock.PassiveClock
	name     string // of the Lease of this member
	prefix   string // of the names of the Leases of members
	identity string
	instance string
	shards   int
	observed *liveness
}

// renew states that this replica is alive.
func (m *membership) renew(ctx context.Context) error {
	now := metav1.NewMicroTime(m.clock.Now())
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"renewTime": now}})
	if err != nil {
		return fmt.Errorf("renew Lease %s: %w", m.name, err)
	}
	_, err = m.leases.Patch(ctx, m.name, types.MergePatchType, patch, metav1.PatchOptions{})
	if apierrors.IsNotFound(err) { // it is new, or another member has not observed it for too long
		_, err = m.leases.Create(ctx, &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Name: m.name, Labels: map[string]string{instanceLabel: m.instance, shardsLabel: strconv.Itoa(m.shards)}},
			Spec: coordinationv1.LeaseSpec{
				HolderIdentity: &m.identity, LeaseDurationSeconds: new(int32(m.observed.duration.Seconds())), AcquireTime: &now, RenewTime: &now,
			},
		}, metav1.CreateOptions{})
	}
	if err != nil {
		return fmt.Errorf("renew Lease %s: %w", m.name, err)
	}
	return nil
}

// live returns the identities of the live members with the same number of shards, including this one. It deletes the Leases of
// dead members: their names are those of pods that never return, and the deletion lets the replicas agree sooner. The error of a
// deletion comes with the members.
func (m *membership) live(ctx context.Context) ([]string, error) {
	list, err := m.leases.List(ctx, metav1.ListOptions{LabelSelector: instanceLabel + "=" + m.instance})
	if err != nil {
		return nil, fmt.Errorf("list the Leases of the members: %w", err)
	}
	m.observed.observe(list.Items)
	members, failed := []string{m.identity}, []error(nil)
	for i := range list.Items {
		lease := &list.Items[i]
		if lease.Name == m.name || !strings.HasPrefix(lease.Name, m.prefix) {
			continue
		}
		if m.observed.hasExpired(lease.Name, resourcelock.LeaseSpecToLeaderElectionRecord(&lease.Spec)) {
			failed = append(failed, m.deleteUnchanged(ctx, lease))
			continue
		}
		if holder := lease.Spec.HolderIdentity; holder != nil && lease.Labels[shardsLabel] == strconv.Itoa(m.shards) {
			members = append(members, *holder)
		}
	}
	return members, errors.Join(failed...)
}

// deleteUnchanged deletes the Lease of a member, unless the member has renewed it since.
func (m *membership) deleteUnchanged(ctx context.Context, lease *coordinationv1.Lease) error {
	unchanged := &metav1.Preconditions{UID: &lease.UID, ResourceVersion: &lease.ResourceVersion}
	err := m.leases.Delete(ctx, lease.Name, metav1.DeleteOptions{Preconditions: unchanged})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("delete Lease %s of a member that is not alive: %w", lease.Name, err)
	}
	return nil
}

// leave states that this replica ends, so that the others take over without waiting for the end of its Lease.
func (m *membership) leave(ctx context.Context) error {
	if err := m.leases.Delete(ctx, m.name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete Lease %s: %w", m.name, err)
	}
	return nil
}
