package rollout

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/test/sim"
	"github.com/serin-dev/serin/test/sim/actors"
	"github.com/serin-dev/serin/test/sim/cluster"
	"github.com/serin-dev/serin/test/sim/oracle"
)

// gradualAborts records aborts, for I34.
type gradualAborts struct {
	*ledger

	aborts map[types.UID]abort
}

// abort is when a release was aborted, and its revision.
type abort struct {
	at   time.Time
	hash string
}

// record records when a release was aborted.
func (c *gradualAborts) record(event any) {
	h, ok := event.(rolloutWritten)
	if !ok {
		return
	}
	if c.aborts == nil {
		c.aborts = map[types.UID]abort{}
	}
	if h.After == nil || !h.After.Status.Abort || h.After.Status.CurrentPodHash == h.After.Status.StableRS {
		delete(c.aborts, h.New.UID())
		return
	}
	if known := c.aborts[h.After.UID]; known.hash != h.After.Status.CurrentPodHash {
		c.aborts[h.After.UID] = abort{c.Now(), h.After.Status.CurrentPodHash}
	}
}

// undisturbedRelease returns the release of a reconciliation if it was aborted so long ago that every process has observed the
// abort and its consequences, and nil otherwise.
func (c *gradualAborts) undisturbedRelease(event any) *record {
	h, ok := event.(sim.Reconciled)
	if !ok || h.Err != nil || c.ByName[h.Release] == nil {
		return nil
	}
	r := c.ByName[h.Release]
	is, aborted := c.aborts[r.UID]
	canary := r.object.Spec.Strategy.Canary
	if !aborted || canary == nil || canary.TrafficRouting == nil || r.run == nil || r.run.hash != is.hash || c.isDisturbed(r, is) || c.requiredPods(r) == 0 {
		return nil // a Rollout without pods serves no requests
	}
	return r
}

// requiredPods returns how many stable pods all traffic requires: as many as served it when the release was aborted.
func (c *gradualAborts) requiredPods(r *record) int {
	is, least := c.aborts[r.UID], minReady(r)
	from, to := is.at.Add(-c.Lag-least), is.at.Add(c.Lag)
	enough := maxReadyBetween(c.podsOf(r, is.hash), from, to)
	if r.object.Spec.Strategy.Canary.DynamicStableScale {
		enough += maxReadyBetween(c.podsOf(r, r.object.Status.StableRS), from, to)
	}
	return min(max(enough, 1), r.requestedReplicas())
}

func minReady(r *record) time.Duration {
	return time.Duration(r.object.Spec.MinReadySeconds) * time.Second
}

// podsSince returns the earliest time whose pods the last reconciliation of a release may have observed.
func (c *gradualAborts) podsSince(r *record) time.Time {
	return c.OldestView().Add(-minReady(r) - c.Lag)
}

// gradualRollbacks returns the facts for I34.
func (c *gradualAborts) gradualRollbacks(event any) []oracle.GradualRollback {
	r := c.undisturbedRelease(event)
	if r == nil {
		return nil
	}
	share := 0
	for _, kind := range cluster.WeightKinds {
		share = max(share, r.canaryWeight(c.World.Server.Peek(kind, r.Key)))
	}
	return []oracle.GradualRollback{{
		Release: r.Name(), Began: c.aborts[r.UID].at, Share: share,
		Available: c.podsOf(r, r.object.Status.StableRS).MinServing(c.podsSince(r)), Required: c.requiredPods(r),
	}}
}

// checkPendingPods is the part of I34 about pending pods: those of the aborted revision are removed in favor of stable ones.
func (c *gradualAborts) checkPendingPods(event any) {
	r := c.undisturbedRelease(event)
	if r == nil {
		return
	}
	is := c.aborts[r.UID]
	set := c.replicaSetOf(r, is.hash)
	if set == nil || c.podsOf(r, r.object.Status.StableRS).MaxServing(c.podsSince(r)) >= r.requestedReplicas() {
		return
	}
	if ready := max(c.podsOf(r, is.hash).MaxServing(c.podsSince(r)), 1); int(desiredReplicas(set)) > ready {
		c.Violate("I34", r.Name(), "it was aborted %s ago and requests %d pods, of which %d are ready, although stable pods are missing", c.Now().Sub(is.at), desiredReplicas(set), ready)
	}
}

// isDisturbed reports whether users have interfered since the abort, or a failure may still have consequences.
func (c *gradualAborts) isDisturbed(r *record, a abort) bool {
	settled := c.OldestView().Add(-c.Lag)
	switch {
	case !a.at.Before(settled), !r.changedByOthers.Before(a.at.Add(time.Second)), len(c.expectedSpecs(r)) > 1, !r.SuspendedSince.IsZero():
		return true
	case len(c.World.Instances()) != 1, c.work.crashed, c.LastFault.After(settled.Add(-maxRetryDelay)), prunesStatus(c.World):
		return true
	case r.object.Status.PromoteFull, pausedInconclusive(r.object.Status), r.object.Status.ObservedGeneration == "":
		return true
	case invalid(r.object.Status): // Serin leaves the objects of a Rollout alone until its user has corrected what it refers to
		return true
	}
	for _, began := range c.Started {
		if began.After(settled) {
			return true
		}
	}
	for at, w := range c.Objects {
		if at.Kind != rolloutKind && w.ByOthers.After(settled) && at.Kind != actors.PodKind && (at.Key.Name == r.Name() || at.Kind == actors.ReplicaSetKind || at.Kind == actors.ServiceKind) {
			return true
		}
	}
	return false
}

func pausedInconclusive(s argov1.RolloutStatus) bool {
	for _, c := range s.PauseConditions {
		if c.Reason == argov1.PauseReasonInconclusiveAnalysis {
			return true
		}
	}
	return false
}

// maxReadyBetween returns the maximum number of pods that were ready at any time of an interval.
func maxReadyBetween(p *oracle.Pods, from, to time.Time) int {
	if p == nil {
		return 0
	}
	return oracle.MaxSince(p.Serving.Until(to), from)
}
