// Package sharding divides the releases of a cluster among several replicas of Serin, with Leases only.
//
// There are three kinds of Leases. The leader Lease (group.go) is held by all replicas with the same number of shards together:
// it excludes replicas that divide the releases in another way, or not at all. The Lease of a member (membership.go) states that
// a replica is alive, and from the live members every replica computes the same assignment (assignment.go). The Lease of a shard
// makes its holder exclusive (coordinator.go), whatever replicas think of each other. What a replica holds is in Held (held.go),
// which each reconciliation asks.
//
// It must not know kinds of resources, or what a reconciliation does: it knows namespaces. It must not know HTTP either: a write
// of a process that has lost a Lease is refused by package fence.
package sharding

import "strconv"

// memberInfix is between the name of the leader Lease and the identity of a member, in the name of its Lease.
const memberInfix = "-member-"

// LeaseNames returns the names of the Leases of the shards, given the name of the leader Lease. They do not depend on the number
// of shards: the leader Lease excludes replicas with another number.
func LeaseNames(leader string, shards int) []string {
	names := make([]string, shards)
	for shard := range shards {
		names[shard] = leader + "-shard-" + strconv.Itoa(shard)
	}
	return names
}
