package rollout

import (
	"reflect"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/test/sim/oracle"
	"github.com/serin-dev/serin/test/sim/store"
)

// relabelled is I1 of subsets: one that users reach does not move away from pods that answer to a revision without any.
func (l *ledger) relabelled(h routeWritten) []oracle.Move {
	var moves []oracle.Move
	for _, subset := range subsetsIn(h.New) {
		name, _ := subset["name"].(string)
		for _, kind := range routeKinds {
			for _, s := range weightsOf(l.World.Server.Peek(kind, h.of.Key)) {
				if s.Subset == name {
					moves = append(moves, l.switched(h, s.place, hashIn(subsetIn(h.Old, name)), hashIn(subset))...)
				}
			}
		}
	}
	return moves
}

// ownSubsets is I8 of subsets: only which revision the two have that a Rollout names changes, of which the rest stays, as
// all others do.
func (l *ledger) ownSubsets(h oracle.Write) bool {
	var named []string
	for _, r := range l.All {
		if r.Key == h.Key && r.sides.rule != nil {
			named = append(named, r.sides.rule.CanarySubsetName, r.sides.rule.StableSubsetName)
		}
	}
	return reflect.DeepEqual(withoutHashes(h.Old, named), withoutHashes(h.New, named))
}

// withoutHashes are the subsets of a DestinationRule without the revisions of those that are named.
func withoutHashes(v *store.Version, named []string) []map[string]any {
	var out []map[string]any
	for _, subset := range subsetsIn(v) {
		subset = runtime.DeepCopyJSON(subset)
		name, _ := subset["name"].(string)
		labels, _ := subset["labels"].(map[string]any)
		if slices.Contains(named, name) {
			delete(labels, argov1.PodTemplateHashLabel)
		}
		if len(labels) == 0 {
			delete(subset, "labels")
		}
		out = append(out, subset)
	}
	return out
}
