package rollout

import (
	"fmt"
	"reflect"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/test/sim/cluster"
	"github.com/serin-dev/serin/test/sim/oracle"
	"github.com/serin-dev/serin/test/sim/store"
)

// subsetShifts is the part of I1 about subsets: a subset with traffic does not switch from pods that answer to a revision
// without such pods.
func (c *writtenWeights) subsetShifts(h routeWritten) []oracle.TrafficShift {
	var moves []oracle.TrafficShift
	for _, subset := range subsetsIn(h.New) {
		name, _ := subset["name"].(string)
		for _, kind := range cluster.WeightKinds {
			for _, s := range weightsOf(c.World.Server.Peek(kind, h.record.Key)) {
				if s.Subset == name {
					moves = append(moves, c.revisionShift(h, s.destination, c.hashIn(h.record, subsetIn(h.Old, name)), c.hashIn(h.record, subset))...)
				}
			}
		}
	}
	return moves
}

// stableSubsets is the part of I2 about subsets: the stable one does not select the new revision while it has weight, unless another
// actor has just written that weight. A subset that a user recreated without a revision gets the one that served last: if the stable
// revision never became available, traffic stays with the pods that answer.
func (c *canaryWeights) stableSubsets(h routeWritten) []oracle.WeightChange {
	r := h.record
	if !h.BySerin || h.Type != store.Modified || r.run == nil || r.run.stableBefore == "" || r.run.stableBefore == r.run.hash || len(c.World.Instances()) > 1 {
		return nil
	}
	if r.object.Status.StableRS != r.run.stableBefore || r.object.Status.CurrentPodHash != r.run.hash {
		return nil // it was promoted, or a user wrote the status
	}
	for _, kind := range cluster.WeightKinds {
		if w := c.Objects[oracle.KeyOf(kind, r.Key)]; w != nil && w.AwaitsSerin && w.ByOthers.After(c.OldestView()) {
			continue
		}
		for _, s := range weightsOf(c.World.Server.Peek(kind, r.Key)) {
			from, to := c.hashIn(r, subsetIn(h.Old, s.Subset)), c.hashIn(r, subsetIn(h.New, s.Subset))
			if from == "" && !c.podsOf(r, r.run.stableBefore).AnsweredSince(c.OldestView()) {
				continue
			}
			if s.Subset != "" && s.Weight > 0 && !r.isCanary(s.destination) && from != to && to == r.run.hash {
				return []oracle.WeightChange{{
					Release: r.Name(), Problem: fmt.Sprintf("subset %s has weight %d, and selects the new revision %s", s.destination, s.Weight, to),
				}}
			}
		}
	}
	return nil
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
