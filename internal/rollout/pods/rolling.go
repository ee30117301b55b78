package pods

// ReplicaSetPods contains the desired and the available pods of one ReplicaSet.
type ReplicaSetPods struct{ SpecReplicas, Available int32 }

// CurrentPods contains the existing pods of a Rollout without a router.
type CurrentPods struct {
	New, Stable ReplicaSetPods
	// HasDistinctStable is true if a stable revision exists that is not the new one.
	HasDistinctStable bool
	// Others is the number of desired pods of all other revisions.
	Others int32
}

// CountsForWeight returns the final numbers of pods for a weight.
func (l RollingLimits) CountsForWeight(weight, maxWeight int32, distinct bool) ReplicaCounts {
	if !distinct {
		return ReplicaCounts{Canary: l.Replicas}
	}
	return approximateWeight(l.Replicas, weight, maxWeight, l.MaxSurge)
}

// NextCounts returns the next numbers of pods on the way to the desired ones: never more than MaxPods, and never so few
// that fewer than MinAvailable remain available.
//
// Pods of other revisions are removed before the new or the stable revision shrinks. The caller changes one side at a
// time, the stable one first, and calculates again from the observed result.
func (l RollingLimits) NextCounts(current CurrentPods, desired ReplicaCounts) ReplicaCounts {
	next := l.useFreeCapacity(current, desired)
	if current.Others > 0 {
		return next
	}
	increasing := desired.Canary >= current.New.SpecReplicas
	total := countExpendable(current.New, !increasing) + countExpendable(current.Stable, increasing)
	budget := total - l.MinAvailable()
	if budget <= 0 {
		return next
	}
	if increasing {
		if current.Stable.SpecReplicas > desired.Stable {
			next.Stable = max(desired.Stable, current.Stable.SpecReplicas-budget)
		}
		next.Canary, next.Stable = l.fitToLimits(next.Canary, current.New.Available, next.Stable, current.Stable.Available)
		return next
	}
	if current.New.SpecReplicas > desired.Canary {
		next.Canary = max(desired.Canary, current.New.SpecReplicas-budget)
	}
	next.Stable, next.Canary = l.fitToLimits(next.Stable, current.Stable.Available, next.Canary, current.New.Available)
	return next
}

// useFreeCapacity uses the free capacity, for the stable revision first.
func (l RollingLimits) useFreeCapacity(current CurrentPods, desired ReplicaCounts) ReplicaCounts {
	next := ReplicaCounts{Canary: current.New.SpecReplicas, Stable: current.Stable.SpecReplicas}
	free := l.MaxPods() - current.New.SpecReplicas - current.Stable.SpecReplicas - current.Others
	if free <= 0 {
		return next
	}
	if next.Stable < desired.Stable {
		next.Stable = min(desired.Stable, next.Stable+free)
		free -= next.Stable - current.Stable.SpecReplicas
	}
	if next.Canary < desired.Canary {
		next.Canary = min(desired.Canary, next.Canary+free)
	}
	return next
}

// countExpendable returns the number of pods of a ReplicaSet that count against the budget. Unavailable pods of the
// shrinking revision do not matter, so its desired pods count.
func countExpendable(rs ReplicaSetPods, ignoreAvailable bool) int32 {
	if rs.SpecReplicas < rs.Available || ignoreAvailable {
		return rs.SpecReplicas
	}
	return rs.Available
}

// fitToLimits limits the growing side to the capacity that the shrinking side leaves of MaxPods, but not below the
// number that keeps MinAvailable pods available; the shrinking side makes room for that.
func (l RollingLimits) fitToLimits(growing, growingAvailable, shrinking, shrinkingAvailable int32) (fitGrowing, fitShrinking int32) {
	growing -= max(0, growing+shrinking-l.MaxPods())
	available := min(shrinkingAvailable, shrinking) + min(growingAvailable, growing)
	missing := max(0, l.MinAvailable()-available)
	growing += min(max(0, growingAvailable-growing), missing)
	shrinking -= max(0, growing+shrinking-l.MaxPods())
	return growing, shrinking
}
