package rollout

// Scaled is a ReplicaSet as far as arithmetic looks at it: how many pods are asked for, and how many are available.
type Scaled struct{ Spec, Available int32 }

// Pods are all pods of a Rollout without traffic routing.
type Pods struct {
	New, Stable Scaled
	// Distinct is true when there is a stable revision that is not the new one.
	Distinct bool
	// Others is how many pods are asked for by revisions that are neither.
	Others int32
}

// Want is how the pods shall be shared in the end.
func (l Limits) Want(weight, most int32, distinct bool) Split {
	if !distinct {
		return Split{Canary: l.Replicas}
	}
	return approximate(l.Replicas, weight, most, l.Surge)
}

// Toward is the next pair of numbers of pods on the way to what is wanted: up to MostPods on the way up, and down only as
// far as LeastAvailable stay available.
//
// Other revisions are drained before one of the two shrinks. The two are not scaled at the same moment by the caller:
// first the stable one, then, from fresh numbers, the new one.
func (l Limits) Toward(p Pods, want Split) Split {
	next := l.grow(p, want)
	if p.Others > 0 {
		return next
	}
	increasing := want.Canary >= p.New.Spec
	total := counted(p.New, !increasing) + counted(p.Stable, increasing)
	budget := total - l.LeastAvailable()
	if budget <= 0 {
		return next
	}
	if increasing {
		if p.Stable.Spec > want.Stable {
			next.Stable = max(want.Stable, p.Stable.Spec-budget)
		}
		next.Canary, next.Stable = l.refit(next.Canary, p.New.Available, next.Stable, p.Stable.Available)
		return next
	}
	if p.New.Spec > want.Canary {
		next.Canary = max(want.Canary, p.New.Spec-budget)
	}
	next.Stable, next.Canary = l.refit(next.Stable, p.Stable.Available, next.Canary, p.New.Available)
	return next
}

// grow uses the room that there is, for the stable revision first.
func (l Limits) grow(p Pods, want Split) Split {
	next := Split{Canary: p.New.Spec, Stable: p.Stable.Spec}
	room := l.MostPods() - p.New.Spec - p.Stable.Spec - p.Others
	if room <= 0 {
		return next
	}
	if next.Stable < want.Stable {
		next.Stable = min(want.Stable, next.Stable+room)
		room -= next.Stable - p.Stable.Spec
	}
	if next.Canary < want.Canary {
		next.Canary = min(want.Canary, next.Canary+room)
	}
	return next
}

// counted is what a ReplicaSet has to give. Of the one that will shrink, pods that are not available have nothing to give
// that would be missed; so what is asked for counts.
func counted(rs Scaled, ignoreAvailable bool) int32 {
	if rs.Spec < rs.Available || ignoreAvailable {
		return rs.Spec
	}
	return rs.Available
}

// refit lets the growing side a have what the shrinking side d leaves of MostPods, but not less than what keeps
// LeastAvailable pods available; d makes room for that.
func (l Limits) refit(a, availableA, d, availableD int32) (fitA, fitD int32) {
	a -= max(0, a+d-l.MostPods())
	available := min(availableD, d) + min(availableA, a)
	missing := max(0, l.LeastAvailable()-available)
	a += min(max(0, availableA-a), missing)
	d -= max(0, a+d-l.MostPods())
	return a, d
}
