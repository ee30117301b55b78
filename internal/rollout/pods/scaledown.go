package pods

import (
	"cmp"
	"slices"
	"time"
)

// OldReplicaSet is a ReplicaSet that is neither the new nor the stable one.
type OldReplicaSet struct {
	Name     string
	Revision int64
	ReplicaSetPods
	// ScaleDownDeadline is the time from which its pods may be removed; zero: none was set.
	ScaleDownDeadline time.Time
	// Referenced is true if a Service, a route or the status names it.
	Referenced bool
}

// ScaleDownInput is the input for the removal of the pods of old ReplicaSets.
type ScaleDownInput struct {
	Now    time.Time
	Limits RollingLimits
	// UsesRouter is true if a router divides the traffic, so that the existence of old pods does not give them traffic.
	UsesRouter bool
	// Promoted is true if the new revision is the stable one.
	Promoted bool
	// Delay is the time for which pods remain after a promotion; 0 with dynamicStableScale.
	Delay time.Duration
	// RevisionLimit is the maximum number of ReplicaSets that are retained for the delay; nil: no limit.
	RevisionLimit *int32
	// StablePodsMissing is true if stable pods are missing: unavailable pods must not compete with them for capacity.
	StablePodsMissing bool
	// NewAvailable and StableAvailable are the available pods of both revisions. If both are one ReplicaSet, one of
	// them is 0.
	NewAvailable, StableAvailable int32
}

// ScaleDownDecision is the decision about one old ReplicaSet.
type ScaleDownDecision struct {
	Name string
	// Pods is the desired number of pods.
	Pods int32
	// ScaleDownDeadline is the deadline to set; zero: unchanged.
	ScaleDownDeadline time.Time
	// Until is the time until which its pods are retained; zero: they are not.
	Until time.Time
}

// DecideCanary returns the decisions about old ReplicaSets whose state changes, the newest revision first.
//
// Unavailable pods are removed first, because they serve no requests. Of the available ones, as many are removed as
// leave enough available pods of all revisions.
func (d ScaleDownInput) DecideCanary(old []OldReplicaSet) []ScaleDownDecision {
	old = sortNewestFirst(old)
	budget := d.NewAvailable + d.StableAvailable - d.Limits.MinAvailable()
	for _, rs := range old {
		budget += min(rs.Available, rs.SpecReplicas)
	}
	var decisions []ScaleDownDecision
	var waiting int32
	for _, rs := range old {
		if rs.SpecReplicas == 0 {
			continue
		}
		decision := d.decideReplicaSet(rs, &waiting)
		if healthy := min(rs.Available, rs.SpecReplicas); decision.Until.IsZero() && decision.Pods < healthy {
			removed := d.countRemovable(healthy-decision.Pods, budget)
			decision.Pods = healthy - removed
			if !d.UsesRouter {
				budget -= removed
			}
		}
		if decision.Pods != rs.SpecReplicas || !decision.ScaleDownDeadline.IsZero() || !decision.Until.IsZero() {
			decisions = append(decisions, decision)
		}
	}
	return decisions
}

func sortNewestFirst(old []OldReplicaSet) []OldReplicaSet {
	old = slices.Clone(old)
	slices.SortStableFunc(old, func(a, b OldReplicaSet) int { return cmp.Compare(b.Revision, a.Revision) })
	return old
}

// countRemovable returns the number of available pods that may be removed. If they receive traffic, each of them counts
// against the budget. If a router directs the traffic elsewhere, all are removed at once, unless pods are already
// missing.
func (d ScaleDownInput) countRemovable(pods, budget int32) int32 {
	switch {
	case budget <= 0:
		return 0
	case d.UsesRouter:
		return pods
	default:
		return min(pods, budget)
	}
}

// decideReplicaSet returns the decision about one ReplicaSet without regard to availability. waiting counts the
// ReplicaSets that are retained for their delay.
func (d ScaleDownInput) decideReplicaSet(rs OldReplicaSet, waiting *int32) ScaleDownDecision {
	remove, retain := ScaleDownDecision{Name: rs.Name}, ScaleDownDecision{Name: rs.Name, Pods: rs.SpecReplicas}
	if !d.UsesRouter {
		return remove // its pods receive traffic as long as they exist
	}
	if rs.ScaleDownDeadline.IsZero() {
		switch {
		case rs.Referenced && d.StablePodsMissing:
			retain.Pods = min(rs.SpecReplicas, max(rs.Available, 1))
			return retain
		case rs.Referenced:
			return retain
		case !d.Promoted || d.Delay <= 0:
			return remove
		}
	}
	deadline := rs.ScaleDownDeadline
	if latest := d.Now.Add(d.Delay); deadline.IsZero() || deadline.After(latest) { // a later deadline means that a clock was set back
		deadline = latest
		retain.ScaleDownDeadline = deadline
	}
	*waiting++
	if !d.Now.Before(deadline) || d.RevisionLimit != nil && *waiting > *d.RevisionLimit {
		return remove
	}
	retain.Until = deadline
	return retain
}

// DecideBlueGreen returns the decisions about old ReplicaSets without traffic: each is retained for its delay with the
// desired number of pods of the Rollout, and is then scaled to zero, regardless of other available pods.
func (d ScaleDownInput) DecideBlueGreen(old []OldReplicaSet, replicas int32) []ScaleDownDecision {
	var decisions []ScaleDownDecision
	var waiting int32
	for _, rs := range sortNewestFirst(old) {
		if rs.SpecReplicas == 0 || rs.Referenced {
			continue
		}
		decision := d.decideReplicaSet(rs, &waiting)
		if rs.ScaleDownDeadline.IsZero() && decision.Pods == 0 {
			decision.ScaleDownDeadline = time.Time{} // beyond the limit
		}
		if !rs.ScaleDownDeadline.IsZero() && !decision.Until.IsZero() {
			decision.Pods = replicas
		}
		decisions = append(decisions, decision)
	}
	return decisions
}
