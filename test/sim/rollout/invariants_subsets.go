package rollout

import (
	"reflect"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/test/sim/actors"
	"github.com/serin-dev/serin/test/sim/oracle"
	"github.com/serin-dev/serin/test/sim/store"
)

// subsetShifts is the part of I1 about subsets: a subset with traffic does not switch from pods that answer to a revision
// without such pods.
func (c *writtenWeights) subsetShifts(h routeWritten) []oracle.TrafficShift {
	var moves []oracle.TrafficShift
	for _, subset := range subsetsIn(h.New) {
		name, _ := subset["name"].(string)
		for _, kind := range actors.WeightKinds {
			for _, s := range weightsOf(c.World.Server.Peek(kind, h.record.Key)) {
				if s.Subset == name {
					moves = append(moves, c.revisionShift(h, s.destination, c.hashIn(h.record, subsetIn(h.Old, name)), c.hashIn(h.record, subset))...)
				}
			}
		}
	}
	return moves
}

// ownSubsets is the part of I8 about subsets: only the revision of the two subsets that a Rollout names may change. All other
// fields and subsets are unchanged.
func (c *documentedFields) ownSubsets(h oracle.Write) bool {
	var named []string
	for _, r := range c.All {
		if r.Key == h.Key && r.sides.subsets != nil {
			named = append(named, r.sides.subsets.canary, r.sides.subsets.stable)
		}
	}
	return reflect.DeepEqual(withoutHashes(h.Old, named), withoutHashes(h.New, named))
}

// withoutHashes returns the subsets of an object, without the revisions of the named ones.
func withoutHashes(v *store.Version, named []string) []map[string]any {
	var out []map[string]any
	for _, subset := range subsetsIn(v) {
		subset = runtime.DeepCopyJSON(subset)
		name, _ := subset["name"].(string)
		labels, _ := subset["labels"].(map[string]any)
		if slices.Contains(named, name) {
			delete(labels, argov1.PodTemplateHashLabel)
			delete(subset, "filter")
		}
		if len(labels) == 0 {
			delete(subset, "labels")
		}
		out = append(out, subset)
	}
	return out
}
