package sharding

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// drawMembers returns the names of up to ten replicas.
func drawMembers(t *rapid.T) []string {
	return rapid.SliceOfNDistinct(rapid.StringMatching(`serin-[a-z0-9]{3,8}`), 1, 10, rapid.ID[string]).Draw(t, "members")
}

func TestAssignIsBalanced(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		shards, members := rapid.IntRange(1, 64).Draw(t, "shards"), drawMembers(t)
		load := map[string]int{}
		for shard, member := range Assign(shards, members) {
			if !slices.Contains(members, member) {
				t.Fatalf("shard %d is assigned to %q", shard, member)
			}
			load[member]++
		}
		share := (shards + len(members) - 1) / len(members)
		for member, n := range load {
			if n > share {
				t.Fatalf("%s has %d shards, want at most %d: %v", member, n, share, load)
			}
		}
	})
}

// TestAssignFollowsPreferences compares the result with the definition: a shard is with a member that it prefers less only if each
// preferred member has its full share, of shards with higher hashes.
func TestAssignFollowsPreferences(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		shards, members := rapid.IntRange(1, 64).Draw(t, "shards"), drawMembers(t)
		assigned := Assign(shards, members)
		share := (shards + len(members) - 1) / len(members)
		for shard, own := range assigned {
			for _, other := range members {
				hash := preferenceHash(shard, other)
				if hash <= preferenceHash(shard, own) {
					continue
				}
				higher := 0
				for competitor, member := range assigned {
					if member == other && preferenceHash(competitor, other) > hash {
						higher++
					}
				}
				if higher < share {
					t.Fatalf("shard %d prefers %s to %s, which has %d of %d shards with higher hashes", shard, other, own, higher, share)
				}
			}
		}
	})
}

func TestAssignDoesNotDependOnTheOrderOfMembers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		shards, members := rapid.IntRange(1, 64).Draw(t, "shards"), drawMembers(t)
		shuffled := rapid.Permutation(append(members, members[0])).Draw(t, "shuffled")
		if diff := cmp.Diff(Assign(shards, members), Assign(shards, shuffled)); diff != "" {
			t.Fatal(diff)
		}
	})
}

func TestAssignWithoutMembers(t *testing.T) {
	if got := Assign(6, nil); got != nil {
		t.Errorf("got %v", got)
	}
}

// TestALostMemberMovesFewShards: of the shards that its loss does not concern, on average less than a tenth move. With a plain
// modulo, most would.
func TestALostMemberMovesFewShards(t *testing.T) {
	const shards, replicas, trials = 64, 5, 100
	unconcerned, moved := 0, 0
	for trial := range trials {
		var members []string
		for i := range replicas { // as the pods of one ReplicaSet are named
			members = append(members, fmt.Sprintf("serin-7d9f5c-%05x", trial*7919+i*104729))
		}
		before, after := Assign(shards, members), Assign(shards, members[1:])
		for shard := range before {
			if before[shard] != members[0] {
				unconcerned++
				if before[shard] != after[shard] {
					moved++
				}
			}
		}
	}
	if moved*10 > unconcerned {
		t.Errorf("%d of %d shards moved", moved, unconcerned)
	}
}

// TestShardOf: replicas of different versions share the releases during an upgrade, so the hash never changes. The test vectors of
// FNV-1a (64 bits) are 14695981039346656037 for the empty string and 12638187200555641996 for "a".
func TestShardOf(t *testing.T) {
	for _, test := range []struct {
		namespace    string
		shards, want int
	}{
		{"", 1000, 37},
		{"a", 1000, 996},
		{"shop", 1, 0},
		{"shop", 0, 0},
	} {
		if got := ShardOf(test.namespace, test.shards); got != test.want {
			t.Errorf("ShardOf(%q, %d) = %d, want %d", test.namespace, test.shards, got, test.want)
		}
	}
	counts := map[int]int{}
	for i := range 600 {
		counts[ShardOf(fmt.Sprintf("team-%d", i), 6)]++
	}
	for shard := range 6 {
		if counts[shard] < 60 || counts[shard] > 140 {
			t.Errorf("600 namespaces are divided into %v", counts)
		}
	}
}
