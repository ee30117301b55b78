package sharding

import (
	"cmp"
	"hash/fnv"
	"io"
	"slices"
	"strconv"
)

// ShardOf returns the shard of the releases in a namespace: FNV-1a (64 bits) of its name, modulo the number of shards. A
// namespace is never divided, so that objects that affect each other have one writer: releases of one target, a Rollout and its
// Services, AnalysisRuns and Experiments.
func ShardOf(namespace string, shards int) int {
	hash := fnv.New64a()
	_, _ = io.WriteString(hash, namespace)            // never fails
	return int(hash.Sum64() % uint64(max(shards, 1))) //nolint:gosec // the remainder is less than shards
}

// Assign returns the member of each shard, by bounded-load rendezvous hashing: each shard prefers the member with the highest
// hash of both, and no member has more than its share, which is the quotient of shards and members, rounded up. Replicas that
// observe the same members compute the same result without communicating. If a member leaves, few shards of the others move:
// those that the larger share returns to a preferred member, and those that a shard of the lost member displaces. Without
// members, the result is nil.
func Assign(shards int, members []string) []string {
	if len(members) == 0 {
		return nil
	}
	type preference struct {
		hash   uint64
		shard  int
		member string
	}
	members = slices.Compact(slices.Sorted(slices.Values(members)))
	preferences := make([]preference, 0, shards*len(members))
	for shard := range shards {
		for _, member := range members {
			preferences = append(preferences, preference{preferenceHash(shard, member), shard, member})
		}
	}
	slices.SortFunc(preferences, func(a, b preference) int {
		return cmp.Or(cmp.Compare(b.hash, a.hash), cmp.Compare(a.shard, b.shard), cmp.Compare(a.member, b.member))
	})
	share := (shards + len(members) - 1) / len(members)
	assigned, load := make([]string, shards), map[string]int{}
	for _, p := range preferences {
		if assigned[p.shard] == "" && load[p.member] < share {
			assigned[p.shard] = p.member
			load[p.member]++
		}
	}
	return assigned
}

// preferenceHash is FNV-1a of a shard and a member, with the finalizer of MurmurHash3. The last bytes of the input hardly affect the
// upper bits of FNV-1a, which decide the comparison: without the finalizer, members with similar names, such as the pods of one
// ReplicaSet, would have similar preferences for all shards.
func preferenceHash(shard int, member string) uint64 {
	hash := fnv.New64a()
	_, _ = io.WriteString(hash, strconv.Itoa(shard)+"/"+member)
	sum := hash.Sum64()
	sum = (sum ^ sum>>33) * 0xff51afd7ed558ccd
	sum = (sum ^ sum>>33) * 0xc4ceb9fe1a85ec53
	return sum ^ sum>>33
}
